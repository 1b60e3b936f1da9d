// Load for any MQTT broker, from one thread: what comes out is one line of `name value` pairs. Crowds of clients that
// only connect are crowd_load.cc's.
//   mqtt_load HOST:PORT SCENARIO [name=number ...]
//
//   pair      publisher i to subscriber i                     (publishers=4)
//   fanout    all publishers to every subscriber              (publishers=1 subscribers=50)
//   fanin     all publishers to each subscriber by load/in/+  (publishers=50 subscribers=1)
//   wildcard  `filters` wildcard filters per subscriber, none of which overlap within it; topics of 16 x 64 x 8 names
//             (publishers=4 subscribers=100 filters=50)
//   distinct  `filters` wildcard filters per subscriber, no two alike, each topic matches one of them; how fast they
//   are
//             taken counts apart, from the first SUBSCRIBE to the last SUBACK
//             (publishers=4 subscribers=1000 filters=100)
//   retained  `topics` retained messages are set, then each subscriber subscribes to all (topics=20000 subscribers=1)
//
//   qos=0|1|2  payload=64 bytes  version=4|5  warmup=500 ms  seconds=5
//   persistent=0  1: the subscribers' sessions outlive their connections
//   window=16  unacknowledged messages per publisher: as fast as the broker takes them. At QoS 0 one in `window` is
//              sent at QoS 1, so that no broker is measured by how much it drops.
//   rate=0     instead of a window: that many messages per second in all, evenly spread, whatever the broker does.
//              Latency then counts from when a message was due, so that a stalled broker is not flattered.
//   pid=0      the broker's: its CPU time over the measured part, and its resident memory at the end of it
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/process_usage.h"
#include "codec/mqtt/packet.h"
#include "io/descriptor_limit.h"
#include "io/loop.h"

namespace {

using namespace ph;

struct Options {
  std::string scenario;
  std::map<std::string, size_t> numbers = {{"publishers", 4}, {"subscribers", 4}, {"qos", 0},        {"payload", 64},
                                           {"window", 16},    {"rate", 0},        {"topics", 20000}, {"filters", 50},
                                           {"seconds", 5},    {"warmup", 500},    {"version", 4},    {"pid", 0},
                                           {"persistent", 0}};
  size_t operator[](const char* name) const { return numbers.at(name); }
};

using bench::Usage;
using bench::usage;

struct Load {
  Options options;
  port::Endpoint broker;
  io::IoLoop loop;
  mqtt::Version version = mqtt::Version::v311;
  bool measuring = false;
  bool subscribing = false;  // by subscribe_now()
  uint64_t sent = 0;
  uint64_t delivered = 0;
  size_t ready = 0;    // clients that have CONNACK, and SUBACK for what they subscribe to at once
  size_t subacks = 0;  // for what was asked later
  std::vector<uint32_t> latencies_us;

  void latency(Instant since) {
    const auto us = (loop.now() - since).count() / 1000;
    latencies_us.push_back(static_cast<uint32_t>(std::clamp<int64_t>(us, 0, UINT32_MAX)));
  }
};

class Client final : public port::ConnectionHandler {
 public:
  Client(Load& load, std::string id) : load_(load), id_(std::move(id)) {
    payload_.assign(std::max<size_t>(load.options["payload"], sizeof(int64_t)), 'x');
    socket_ = load.loop.connect(load.broker, {}, *this);
  }
  void subscribe_to(std::string filter) { filters_.push_back(std::move(filter)); }
  void publish_to(std::string topic) { topics_.push_back(std::move(topic)); }
  void retained_once() { retained_ = true; }  // each topic once, retained; then no more
  /// SUBSCRIBE packets of what subscribe_to() got since, kFiltersPerPacket each; load.subacks counts their answers.
  /// Returns how many packets.
  size_t subscribe_now() {
    size_t packets = 0;
    for (size_t i = 0; i < filters_.size(); i += kFiltersPerPacket, ++packets)
      send_subscribe(i, std::min(i + kFiltersPerPacket, filters_.size()), static_cast<uint16_t>(packets + 2));
    return packets;
  }
  bool done() const { return retained_ && acked_ >= topics_.size(); }

  void open_window() {
    for (size_t i = 0; i < load_.options["window"]; ++i) publish(load_.loop.now());
  }
  void publish(Instant due) {
    if (retained_ && next_topic_ >= topics_.size()) return;
    const int64_t stamp = due.time_since_epoch().count();
    std::memcpy(payload_.data(), &stamp, sizeof stamp);
    mqtt::PublishHead head;
    head.topic = topics_[next_topic_ % topics_.size()];
    ++next_topic_;
    head.retain = retained_;
    head.qos = static_cast<uint8_t>(load_.options["qos"]);
    if (head.qos == 0 && (retained_ || !load_.options["rate"])) {
      if (retained_ || ++since_ack_ % load_.options["window"] == 0) head.qos = 1;
    }
    if (head.qos) head.packet_id = ++last_id_ ? last_id_ : ++last_id_;
    head.payload_size = payload_.size();
    bytes_.clear();
    mqtt::encode_publish_head(head, load_.version, bytes_);
    bytes_ += payload_;
    socket_->send_copy(bytes_);
    if (load_.measuring) ++load_.sent;
  }

  // port::ConnectionHandler
  void on_open(port::Connection&) override {
    mqtt::Connect c;
    c.version = load_.version;
    c.client_id = id_;
    c.clean_start = !(load_.options["persistent"] && id_.starts_with("sub"));
    c.properties.session_expiry = c.clean_start || load_.version != mqtt::Version::v5 ? 0 : 3600;
    std::string bytes;
    mqtt::encode(c, bytes);
    socket_->send_copy(bytes);
  }
  port::Consumed on_data(port::Connection&, ByteView bytes) override {
    size_t used = 0;
    for (;;) {
      auto framed = mqtt::next_frame(bytes.substr(used), size_t{1} << 28);
      if (!framed) fail("bytes that are no MQTT");
      if (!framed->frame) return {used, framed->wanted};
      used += framed->frame->size;
      on_frame(*framed->frame);
    }
  }
  void on_close(port::Connection&, const Error& why) override { fail(why.to_string()); }

 private:
  [[noreturn]] void fail(const std::string& why) {
    std::fprintf(stderr, "%s: %s\n", id_.c_str(), why.c_str());
    std::_Exit(1);
  }

  void on_frame(const mqtt::Frame& frame) {
    using mqtt::PacketType;
    switch (frame.type) {
      case PacketType::connack:
        return on_connack();
      case PacketType::suback:
        return void(load_.subscribing ? ++load_.subacks : ++load_.ready);
      case PacketType::publish:
        return on_publish(frame);
      case PacketType::puback:
      case PacketType::pubcomp:
        return on_acked();
      case PacketType::pubrec:
        return answer(PacketType::pubrel, mqtt::decode_ack(frame, load_.version)->packet_id);
      case PacketType::pubrel:
        return answer(PacketType::pubcomp, mqtt::decode_ack(frame, load_.version)->packet_id);
      default:
        fail("the broker ends the connection");
    }
  }
  void on_connack() {
    if (filters_.empty()) return void(++load_.ready);
    send_subscribe(0, filters_.size(), 1);
  }
  void send_subscribe(size_t from, size_t to, uint16_t packet_id) {
    mqtt::Subscribe s;
    s.packet_id = packet_id;
    for (size_t i = from; i < to; ++i)
      s.filters.push_back({filters_[i], static_cast<uint8_t>(load_.options["qos"]), false, false, 0});
    std::string bytes;
    mqtt::encode(s, load_.version, bytes);
    socket_->send_copy(bytes);
  }
  void on_acked() {
    ++acked_;
    if (load_.options["rate"] && !retained_) return;
    for (size_t i = load_.options["qos"] == 0 && !retained_ ? load_.options["window"] : 1; i > 0; --i)
      publish(load_.loop.now());
  }
  void on_publish(const mqtt::Frame& frame) {
    const auto p = mqtt::decode_publish(frame, load_.version);
    if (!p) fail("a PUBLISH that is none");
    if (load_.measuring && ++load_.delivered % 16 == 0 && p->payload.size() >= sizeof(int64_t)) {
      int64_t stamp;
      std::memcpy(&stamp, p->payload.data(), sizeof stamp);
      load_.latency(Instant(Duration(stamp)));
    }
    if (p->qos > 0) answer(p->qos == 1 ? mqtt::PacketType::puback : mqtt::PacketType::pubrec, p->packet_id);
  }
  void answer(mqtt::PacketType type, uint16_t id) {
    bytes_.clear();
    mqtt::encode(mqtt::Ack{type, id, {}, {}}, load_.version, bytes_);
    socket_->send_copy(bytes_);
  }

  Load& load_;
  static constexpr size_t kFiltersPerPacket = 100;
  const std::string id_;
  std::vector<std::string> filters_, topics_;
  std::string payload_, bytes_;
  std::unique_ptr<port::Connection> socket_;
  bool retained_ = false;
  size_t next_topic_ = 0;
  size_t acked_ = 0;
  size_t since_ack_ = 0;
  uint16_t last_id_ = 0;
};

/// Gives out messages at an even rate, in small steps of time: late ones at once, each stamped with when it was due.
class Pace {
 public:
  Pace(Load& load, std::vector<Client*> publishers)
      : load_(load), publishers_(std::move(publishers)), timer_(load.loop.make_timer()) {}
  void start() {
    due_ = load_.loop.now();
    tick();
  }

 private:
  void tick() {
    const Duration gap = Duration(1s) / static_cast<Duration::rep>(load_.options["rate"]);
    for (const Instant now = load_.loop.now(); due_ <= now; due_ += gap)
      publishers_[next_++ % publishers_.size()]->publish(due_);
    timer_->start(500us, [this] { tick(); });
  }
  Load& load_;
  std::vector<Client*> publishers_;
  std::unique_ptr<port::Timer> timer_;
  Instant due_{};
  size_t next_ = 0;
};

class Run {
 public:
  explicit Run(Load& load) : load_(load), options_(load.options) {}

  int go() {
    io::raise_descriptor_limit();
    if (options_.scenario == "retained") return retained();
    return options_.scenario == "distinct" ? distinct() : stream();
  }

 private:
  Client& add(const std::string& kind) {
    // Not all at once: what is measured here is not the length of the broker's queue of connections.
    if (clients_.size() % 64 == 63) settle();
    clients_.push_back(std::make_unique<Client>(load_, kind + std::to_string(clients_.size())));
    return *clients_.back();
  }
  bool settle() {
    if (load_.loop.run_until([&] { return load_.ready == clients_.size(); }, 30s)) return true;
    std::fprintf(stderr, "only %zu of %zu clients are ready\n", load_.ready, clients_.size());
    return false;
  }
  void run_for(Duration time) {
    load_.loop.run_until([] { return false; }, time);
  }

  void subscribers() {
    for (size_t i = 0; i < options_["subscribers"]; ++i) {
      Client& c = add("sub");
      const std::string number = std::to_string(i);
      if (options_.scenario == "pair") c.subscribe_to("load/pair/" + number);
      if (options_.scenario == "fanout") c.subscribe_to("load/all");
      if (options_.scenario == "fanin") c.subscribe_to("load/in/+");
      for (size_t f = 0; options_.scenario == "wildcard" && f < options_["filters"]; ++f)
        c.subscribe_to(wildcard(i % 3, i / 3 * options_["filters"] + f));
    }
  }
  /// Filter n of a kind: those of one kind do not overlap, as long as there are that many.
  static std::string wildcard(size_t kind, size_t n) {
    if (kind == 0) return "load/+/" + name('d', n % 64) + '/' + name('m', n / 64 % 8);
    if (kind == 1) return "load/" + name('r', n % 16) + "/+/" + name('m', n / 16 % 8);
    return "load/" + name('r', n % 16) + '/' + name('d', n / 16 % 64) + "/#";
  }
  static std::string name(char letter, size_t number) { return letter + std::to_string(number); }
  std::vector<Client*> publishers() {
    std::vector<Client*> out;
    for (size_t i = 0; i < options_["publishers"]; ++i) {
      Client& c = add("pub");
      out.push_back(&c);
      if (options_.scenario == "pair") c.publish_to("load/pair/" + std::to_string(i));
      if (options_.scenario == "fanout") c.publish_to("load/all");
      if (options_.scenario == "fanin") c.publish_to("load/in/" + std::to_string(i));
      for (size_t n = 0; options_.scenario == "wildcard" && n < 8192; ++n) {
        const size_t m = (n * 4099 + i * 1009) % 8192;  // in an order of its own: all of them, none twice
        c.publish_to("load/r" + std::to_string(m % 16) + "/d" + std::to_string(m / 16 % 64) + "/m" +
                     std::to_string(m / 1024));
      }
    }
    return out;
  }

  int stream() {
    subscribers();
    return run_publishers(publishers());
  }

  int run_publishers(const std::vector<Client*>& publishing) {
    if (!settle()) return 1;
    Pace pace(load_, publishing);
    if (options_["rate"])
      pace.start();
    else
      for (Client* c : publishing) c->open_window();
    run_for(std::chrono::milliseconds(options_["warmup"]));
    begin();
    run_for(std::chrono::seconds(options_["seconds"]));
    report();
    return 0;
  }

  int distinct() {
    const size_t subscribers = options_["subscribers"], filters = options_["filters"];
    for (size_t i = 0; i < subscribers; ++i) add("sub");
    std::vector<Client*> publishing;
    for (size_t i = 0; i < options_["publishers"]; ++i) publishing.push_back(&add("pub"));
    if (!settle()) return 1;
    for (size_t i = 0; i < subscribers; ++i)
      for (size_t f = 0; f < filters; ++f) clients_[i]->subscribe_to("load/" + name('c', i) + "/+/" + name('f', f));
    begin();
    load_.subscribing = true;
    size_t packets = 0;
    for (size_t i = 0; i < subscribers; ++i) packets += clients_[i]->subscribe_now();
    if (!load_.loop.run_until([&] { return load_.subacks == packets; }, 300s)) {
      std::fprintf(stderr, "%zu of %zu SUBSCRIBEs were answered\n", load_.subacks, packets);
      return 1;
    }
    const double taken = static_cast<double>(subscribers * filters);
    const Usage after = usage(options_["pid"]);
    std::printf("filters_per_s %.0f filters_per_cpu_second %.0f bytes_per_filter %.0f ", taken / seconds_since(begin_),
                taken / std::max(after.cpu_seconds - before_.cpu_seconds, 1e-9),
                (after.rss_mib - before_.rss_mib) * 1048576 / taken);
    load_.subscribing = false;
    uint64_t at = 0;  // all over the filters, in no order that a cache likes
    for (Client* publisher : publishing) {
      for (size_t n = 0; n < kSampledTopics; ++n) {
        at = at * 6364136223846793005U + 1442695040888963407U;
        const size_t pick = (at >> 33) % (subscribers * filters);
        publisher->publish_to("load/" + name('c', pick % subscribers) + "/x/" + name('f', pick / subscribers));
      }
    }
    return run_publishers(publishing);
  }

  int retained() {
    Client& setter = add("pub");
    setter.retained_once();
    for (size_t i = 0; i < options_["topics"]; ++i)
      setter.publish_to("load/kept/" + std::to_string(i % 100) + '/' + std::to_string(i));
    if (!settle()) return 1;
    const Instant set_begin = load_.loop.now();
    setter.open_window();
    if (!load_.loop.run_until([&] { return setter.done(); }, 120s)) return 1;
    std::printf("set_per_s %.0f ", static_cast<double>(options_["topics"]) / seconds_since(set_begin));
    begin();
    for (size_t i = 0; i < options_["subscribers"]; ++i) add("sub").subscribe_to("load/kept/#");
    const uint64_t wanted = options_["topics"] * options_["subscribers"];
    if (!load_.loop.run_until([&] { return load_.delivered >= wanted; }, 120s)) {
      std::fprintf(stderr, "%llu of %llu retained messages came\n", static_cast<unsigned long long>(load_.delivered),
                   static_cast<unsigned long long>(wanted));
      return 1;
    }
    load_.latencies_us.clear();  // stamps are from when they were set
    report();
    return 0;
  }

  void begin() {
    load_.measuring = true;
    load_.sent = load_.delivered = 0;
    load_.latencies_us.clear();
    before_ = usage(options_["pid"]);
    begin_ = load_.loop.now();
  }
  double seconds_since(Instant begin) const { return static_cast<double>((load_.loop.now() - begin).count()) / 1e9; }

  void report() {
    const double seconds = seconds_since(begin_);
    const Usage after = usage(options_["pid"]);
    auto& l = load_.latencies_us;
    std::ranges::sort(l);
    auto percentile = [&](double part) {
      return l.empty() ? 0U : l[std::min(l.size() - 1, static_cast<size_t>(static_cast<double>(l.size()) * part))];
    };
    const double cpu = after.cpu_seconds - before_.cpu_seconds;
    const double delivered = static_cast<double>(load_.delivered);
    std::printf("seconds %.3f sent_per_s %.0f delivered_per_s %.0f p50_us %u p90_us %u p99_us %u p999_us %u", seconds,
                static_cast<double>(load_.sent) / seconds, delivered / seconds, percentile(0.5), percentile(0.9),
                percentile(0.99), percentile(0.999));
    if (options_["pid"])
      std::printf(" cpu_seconds %.4f per_cpu_second %.0f rss_mib %.1f rss_before_mib %.1f", cpu,
                  cpu > 0 ? delivered / cpu : 0, after.rss_mib, before_.rss_mib);
    std::printf("\n");
    std::fflush(stdout);
  }

  static constexpr size_t kSampledTopics = 16384;  // of each publisher
  Load& load_;
  const Options& options_;
  std::vector<std::unique_ptr<Client>> clients_;
  Instant begin_{};
  Usage before_;
};

constexpr const char* kScenarios[] = {"pair", "fanout", "fanin", "wildcard", "distinct", "retained"};

/// False for what cannot be read.
bool parse(int argc, char** argv, Load& load) {
  if (argc < 3) return false;
  const std::string at = argv[1];
  const size_t colon = at.rfind(':');
  if (colon == std::string::npos) return false;
  load.broker = {at.substr(0, colon), static_cast<uint16_t>(std::strtoul(at.c_str() + colon + 1, nullptr, 10))};
  Options& o = load.options;
  o.scenario = argv[2];
  if (std::ranges::find(kScenarios, o.scenario) == std::end(kScenarios)) return false;
  if (o.scenario == "fanout") o.numbers["publishers"] = 1, o.numbers["subscribers"] = 50;
  if (o.scenario == "fanin") o.numbers["publishers"] = 50, o.numbers["subscribers"] = 1;
  if (o.scenario == "wildcard") o.numbers["subscribers"] = 100;
  if (o.scenario == "distinct") o.numbers["subscribers"] = 1000, o.numbers["filters"] = 100;
  if (o.scenario == "retained") o.numbers["subscribers"] = 1;
  for (int i = 3; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t sign = word.find('=');
    auto it = o.numbers.find(word.substr(0, sign));
    if (sign == std::string::npos || it == o.numbers.end()) return false;
    it->second = std::strtoul(word.c_str() + sign + 1, nullptr, 10);
    if (o.scenario == "pair" && word.starts_with("publishers=")) o.numbers["subscribers"] = it->second;
  }
  load.version = o["version"] == 5 ? mqtt::Version::v5 : mqtt::Version::v311;
  return o["qos"] <= 2 && o["window"] > 0 && o["publishers"] > 0;
}

}  // namespace

int main(int argc, char** argv) {
  Load load;
  if (!parse(argc, argv, load)) {
    std::fprintf(stderr, "mqtt_load HOST:PORT pair|fanout|fanin|wildcard|distinct|retained [name=number ...]\n");
    return 2;
  }
  const int code = Run(load).go();
  std::_Exit(code);  // without closing thousands of sockets one by one
}
