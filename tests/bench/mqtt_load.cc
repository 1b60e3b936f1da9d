// Load for any MQTT broker: publishers send as fast as their window lets them, subscribers count what arrives.
//   mqtt_load HOST:PORT [publishers=4] [subscribers=4] [qos=0] [payload=64] [window=16] [topics=1] [seconds=5] [idle=0]
// Publisher i sends to load/<i % topics>; every subscriber subscribes to load/<its number % topics>. Flow control at
// QoS 0 is a QoS 1 message now and then (one in `window`), so that no broker is measured by how much it drops.
// Prints messages sent and delivered per second, and the latency of deliveries (time stamp in the payload).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "codec/mqtt/packet.h"
#include "io/loop.h"

namespace {

using namespace ph;

struct Load {
  std::map<std::string, size_t> numbers = {{"publishers", 4}, {"subscribers", 4}, {"qos", 0},     {"payload", 64},
                                           {"window", 16},    {"topics", 1},      {"seconds", 5}, {"idle", 0}};
  size_t operator[](const char* name) const { return numbers.at(name); }
  io::IoLoop loop;
  bool measuring = false;
  uint64_t sent = 0;
  uint64_t delivered = 0;
  size_t ready = 0;
  std::vector<uint32_t> latencies_us;
};

class Client final : public port::ConnectionHandler {
 public:
  enum class Role { idle, publisher, subscriber };
  Client(Load& load, const port::Endpoint& to, Role role, size_t number) : load_(load), role_(role) {
    topic_ = "load/" + std::to_string(number % load["topics"]);
    id_ = (role == Role::publisher ? "p" : role == Role::subscriber ? "s" : "i") + std::to_string(number);
    socket_ = load.loop.connect(to, {}, *this);
  }
  void on_open(port::Connection&) override {
    mqtt::Connect c;
    c.version = mqtt::Version::v311;
    c.client_id = id_;
    std::string bytes;
    mqtt::encode(c, bytes);
    socket_->send_copy(bytes);
  }
  port::Consumed on_data(port::Connection&, ByteView bytes) override {
    size_t used = 0;
    for (;;) {
      auto framed = mqtt::next_frame(bytes.substr(used), size_t{1} << 28);
      if (!framed) std::abort();
      if (!framed->frame) return {used, framed->wanted};
      used += framed->frame->size;
      on_frame(*framed->frame);
    }
  }
  void on_close(port::Connection&, const Error& why) override {
    std::fprintf(stderr, "%s: %s\n", id_.c_str(), why.to_string().c_str());
    std::exit(1);
  }
  void start() {
    for (size_t i = 0; i < load_["window"]; ++i) publish();
  }

 private:
  void on_frame(const mqtt::Frame& frame) {
    std::string bytes;
    switch (frame.type) {
      case mqtt::PacketType::connack:
        if (role_ != Role::subscriber) return void(++load_.ready);
        mqtt::encode(mqtt::Subscribe{1, {{topic_, static_cast<uint8_t>(load_["qos"]), false, false, 0}}, {}},
                     mqtt::Version::v311, bytes);
        break;
      case mqtt::PacketType::suback:
        return void(++load_.ready);
      case mqtt::PacketType::publish:
        on_publish(frame, bytes);
        break;
      case mqtt::PacketType::puback:
      case mqtt::PacketType::pubcomp:
        for (size_t i = load_["qos"] == 0 ? load_["window"] : 1; i > 0; --i) publish();
        return;
      case mqtt::PacketType::pubrec:
        ack(mqtt::PacketType::pubrel, frame, bytes);
        break;
      case mqtt::PacketType::pubrel:
        ack(mqtt::PacketType::pubcomp, frame, bytes);
        break;
      default:
        return;
    }
    if (!bytes.empty()) socket_->send_copy(bytes);
  }
  void ack(mqtt::PacketType type, const mqtt::Frame& frame, std::string& bytes) {
    mqtt::encode(mqtt::Ack{type, mqtt::decode_ack(frame, mqtt::Version::v311)->packet_id, {}, {}}, mqtt::Version::v311,
                 bytes);
  }
  void on_publish(const mqtt::Frame& frame, std::string& bytes) {
    const auto p = mqtt::decode_publish(frame, mqtt::Version::v311);
    if (load_.measuring) {
      ++load_.delivered;
      if (load_.delivered % 64 == 0) {
        int64_t at;
        std::memcpy(&at, p->payload.data(), sizeof at);
        load_.latencies_us.push_back(static_cast<uint32_t>((load_.loop.now().time_since_epoch().count() - at) / 1000));
      }
    }
    if (p->qos == 0) return;
    mqtt::encode(mqtt::Ack{p->qos == 1 ? mqtt::PacketType::puback : mqtt::PacketType::pubrec, p->packet_id, {}, {}},
                 mqtt::Version::v311, bytes);
  }
  void publish() {
    std::string payload(std::max<size_t>(load_["payload"], 8), 'x');
    const int64_t now = load_.loop.now().time_since_epoch().count();
    std::memcpy(payload.data(), &now, sizeof now);
    mqtt::PublishHead head;
    head.topic = topic_;
    head.qos = static_cast<uint8_t>(load_["qos"]);
    if (head.qos == 0 && ++since_ack_ % load_["window"] == 0) head.qos = 1;
    if (head.qos) head.packet_id = ++last_id_ ? last_id_ : ++last_id_;
    head.payload_size = payload.size();
    std::string bytes;
    mqtt::encode_publish_head(head, mqtt::Version::v311, bytes);
    socket_->send_copy(bytes + payload);
    if (load_.measuring) ++load_.sent;
  }

  Load& load_;
  const Role role_;
  std::string id_, topic_;
  std::unique_ptr<port::Connection> socket_;
  uint16_t last_id_ = 0;
  size_t since_ack_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "mqtt_load HOST:PORT [name=number ...]\n"), 2;
  Load load;
  const std::string at = argv[1];
  const size_t colon = at.rfind(':');
  const port::Endpoint to{at.substr(0, colon), static_cast<uint16_t>(std::stoi(at.substr(colon + 1)))};
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    load.numbers.at(word.substr(0, word.find('='))) = std::stoul(word.substr(word.find('=') + 1));
  }
  std::vector<std::unique_ptr<Client>> clients;
  auto add = [&](Client::Role role, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      clients.push_back(std::make_unique<Client>(load, to, role, i));
      const size_t all = clients.size();
      if (all % 64 == 0) load.loop.run_until([&] { return load.ready == all; }, 10s);
    }
  };
  add(Client::Role::idle, load["idle"]);
  add(Client::Role::subscriber, load["subscribers"]);
  add(Client::Role::publisher, load["publishers"]);
  if (!load.loop.run_until([&] { return load.ready == clients.size(); }, 20s))
    return std::fprintf(stderr, "only %zu of %zu clients are connected\n", load.ready, clients.size()), 1;
  for (size_t i = clients.size() - load["publishers"]; i < clients.size(); ++i) clients[i]->start();
  load.loop.run_until([] { return false; }, 500ms);
  load.measuring = true;
  const Instant begin = load.loop.now();
  load.loop.run_until([] { return false; }, std::chrono::seconds(load["seconds"]));
  const double seconds = static_cast<double>((load.loop.now() - begin).count()) / 1e9;
  auto& l = load.latencies_us;
  std::ranges::sort(l);
  auto percentile = [&](size_t p) { return l.empty() ? 0U : l[std::min(l.size() - 1, l.size() * p / 100)]; };
  std::printf("sent/s %.0f delivered/s %.0f latency_us p50 %u p99 %u\n", static_cast<double>(load.sent) / seconds,
              static_cast<double>(load.delivered) / seconds, percentile(50), percentile(99));
  std::fflush(stdout);
  std::_Exit(0);  // without closing thousands of sockets one by one
}
