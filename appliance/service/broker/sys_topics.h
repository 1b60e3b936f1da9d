// SysTopics: the broker's figures as topics and texts. It remembers what it said, for what changes and for averages.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <string>

#include "base/time.h"
#include "service/broker/options.h"

namespace ph::broker {

class SysTopics {
 public:
  using Publish = std::function<void(const std::string& topic, const std::string& value)>;
  SysTopics(std::string node, std::string version, Instant started)
      : node_(std::move(node)), version_(std::move(version)), started_(started), last_(started) {}

  /// Publishes what is new or has changed since the last call.
  void update(const BrokerStats& stats, Instant now, WallTime wall, const Publish& publish);

 private:
  /// Averages of a counter over 1, 5 and 15 minutes, per minute.
  struct Load {
    uint64_t last = 0;
    std::array<double, 3> per_minute{};
  };
  void say(const std::string& topic, const std::string& value, const Publish& publish);
  void say(const std::string& topic, uint64_t value, const Publish& publish) {
    say(topic, std::to_string(value), publish);
  }
  void say_load(const std::string& name, uint64_t value, Duration elapsed, const Publish& publish);
  void say_mosquitto(const BrokerStats& stats, uint64_t dropped, uint64_t uptime, Duration elapsed,
                     const Publish& publish);

  std::string node_;
  std::string version_;
  Instant started_;
  Instant last_;
  uint64_t clients_max_ = 0;
  std::map<std::string, std::string> said_;
  std::map<std::string, Load> loads_;
};

}  // namespace ph::broker
