#include "service/broker/sys_topics.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>

namespace ph::broker {
namespace {

constexpr std::array<double, 3> kWindowMinutes = {1, 5, 15};
constexpr std::array<const char*, 3> kWindowNames = {"1min", "5min", "15min"};

std::string date_text(WallTime at) {
  const std::time_t seconds = to_unix_ms(at) / 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[40];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

}  // namespace

void SysTopics::say(const std::string& topic, const std::string& value, const Publish& publish) {
  std::string& said = said_[topic];
  if (said == value) return;
  said = value;
  publish(topic, value);
}

void SysTopics::say_load(const std::string& name, uint64_t value, Duration elapsed, const Publish& publish) {
  Load& load = loads_[name];
  const double minutes = std::chrono::duration<double>(elapsed).count() / 60;
  for (size_t i = 0; i < kWindowMinutes.size(); ++i) {
    if (minutes > 0) {
      const double now = static_cast<double>(value - load.last) / minutes;
      const double keep = std::exp(-minutes / kWindowMinutes[i]);
      load.per_minute[i] = now * (1 - keep) + load.per_minute[i] * keep;
    }
    char text[32];
    std::snprintf(text, sizeof text, "%.2f", load.per_minute[i]);
    say("$SYS/broker/load/" + name + "/" + kWindowNames[i], std::string(text), publish);
  }
  load.last = value;
}

void SysTopics::update(const BrokerStats& s, Instant now, WallTime wall, const Publish& publish) {
  const auto uptime = static_cast<uint64_t>((now - started_) / 1s);
  clients_max_ = std::max(clients_max_, s.clients);
  uint64_t dropped = 0;
  for (uint64_t d : s.drops) dropped += d;

  say("$SYS/brokers", node_, publish);
  const std::string root = "$SYS/brokers/" + node_ + "/";
  say(root + "version", version_, publish);
  say(root + "uptime", uptime, publish);
  say(root + "datetime", date_text(wall), publish);
  say(root + "sysdescr", std::string("posthouse"), publish);
  const std::pair<const char*, uint64_t> figures[] = {
      {"stats/connections.count", s.connections},
      {"stats/live_connections.count", s.clients},
      {"stats/live_connections.max", clients_max_},
      {"stats/sessions.count", s.sessions},
      {"stats/subscriptions.count", s.subscriptions},
      {"stats/retained.count", s.retained},
      {"stats/delayed.count", s.delayed},
      {"metrics/bytes.received", s.bytes_in},
      {"metrics/bytes.sent", s.bytes_out},
      {"metrics/packets.received", s.packets_in},
      {"metrics/packets.sent", s.packets_out},
      {"metrics/messages.received", s.messages_in},
      {"metrics/messages.sent", s.messages_out},
      {"metrics/messages.dropped", dropped},
      {"metrics/client.connect", s.connections_in},
      {"metrics/client.refused", s.refused},
      {"metrics/session.takenover", s.takeovers},
  };
  for (const auto& [name, value] : figures) say(root + name, value, publish);
  for (size_t i = 0; i < s.drops.size(); ++i)
    say(root + "metrics/messages.dropped." + std::string(session::kDropNames[i]), s.drops[i], publish);
  for (size_t i = 0; i < s.limits.size(); ++i)
    say(root + "metrics/limit." + std::string(session::kLimitNames[i]), s.limits[i], publish);
  say_mosquitto(s, dropped, uptime, now - last_, publish);
  last_ = now;
}

void SysTopics::say_mosquitto(const BrokerStats& s, uint64_t dropped, uint64_t uptime, Duration elapsed,
                              const Publish& publish) {
  const std::string root = "$SYS/broker/";
  say(root + "version", "posthouse version " + version_, publish);
  say(root + "uptime", std::to_string(uptime) + " seconds", publish);
  const uint64_t offline = s.sessions - std::min(s.sessions, s.clients);
  const std::pair<const char*, uint64_t> figures[] = {
      {"clients/total", s.sessions},
      {"clients/connected", s.clients},
      {"clients/active", s.clients},
      {"clients/disconnected", offline},
      {"clients/inactive", offline},
      {"clients/maximum", clients_max_},
      {"messages/received", s.packets_in},
      {"messages/sent", s.packets_out},
      {"messages/stored", s.retained},
      {"store/messages/count", s.retained},
      {"retained messages/count", s.retained},
      {"subscriptions/count", s.subscriptions},
      {"publish/messages/received", s.messages_in},
      {"publish/messages/sent", s.messages_out},
      {"publish/messages/dropped", dropped},
      {"bytes/received", s.bytes_in},
      {"bytes/sent", s.bytes_out},
  };
  for (const auto& [name, value] : figures) say(root + name, value, publish);
  say_load("messages/received", s.packets_in, elapsed, publish);
  say_load("messages/sent", s.packets_out, elapsed, publish);
  say_load("publish/received", s.messages_in, elapsed, publish);
  say_load("publish/sent", s.messages_out, elapsed, publish);
  say_load("publish/dropped", dropped, elapsed, publish);
  say_load("bytes/received", s.bytes_in, elapsed, publish);
  say_load("bytes/sent", s.bytes_out, elapsed, publish);
  say_load("sockets", s.connections_in, elapsed, publish);
}

}  // namespace ph::broker
