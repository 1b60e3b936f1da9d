// Thousands of clients that drop at once and all come back: does a broker stall for those who stay?
//   reconnect_load HOST:PORT [clients=10000] [rounds=3] [ca=FILE] [parallel=N]
// With ca it connects by TLS. `parallel`: how many connect at a time; without TLS all, with TLS 50, since all these
// clients have to do their part of the handshake on one core.
// A witness on a thread of its own publishes a QoS 1 message every millisecond or as soon as the last one is
// acknowledged, and measures how long each acknowledgement takes: while nothing happens, from the drop until everybody
// is back, and afterwards. Prints how long it took until all were back and the witness's latencies of each phase.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "codec/mqtt/packet.h"
#include "io/descriptor_limit.h"
#include "io/loop.h"
#include "io/tls.h"

namespace {

using namespace ph;

constexpr Duration kBound = 300s;

struct Target {
  port::Endpoint at;
  std::shared_ptr<port::TlsContext> tls;

  port::ConnectOptions options() const {
    port::ConnectOptions o;
    o.tls = tls;
    o.connect_timeout = 60s;
    return o;
  }
};

std::string connect_bytes(const std::string& id) {
  mqtt::Connect c;
  c.version = mqtt::Version::v311;
  c.client_id = id;
  std::string bytes;
  mqtt::encode(c, bytes);
  return bytes;
}

/// One of the many: connects, and again when it is refused or dropped by the other side.
class Client final : public port::ConnectionHandler {
 public:
  struct Counts {
    size_t ready = 0;
    size_t failed = 0;
    size_t connecting = 0;
  };
  Client(io::IoLoop& loop, const Target& to, Counts& counts, size_t number)
      : loop_(loop), to_(to), counts_(counts), id_("c" + std::to_string(number)) {}

  void connect() {
    socket_ = loop_.connect(to_.at, to_.options(), *this);
    socket_->send_copy(connect_bytes(id_));
  }
  void drop() {
    socket_.reset();  // at once, without DISCONNECT
    if (std::exchange(ready_, false)) --counts_.ready;
  }
  void on_open(port::Connection&) override {}
  port::Consumed on_data(port::Connection&, ByteView bytes) override {
    if (!std::exchange(ready_, true)) ++counts_.ready, --counts_.connecting;  // all that comes is CONNACK
    return {bytes.size(), 0};
  }
  void on_close(port::Connection&, const Error& why) override {
    if (counts_.failed++ == 0) std::fprintf(stderr, "%s: %s\n", id_.c_str(), why.to_string().c_str());
    if (std::exchange(ready_, false)) --counts_.ready, ++counts_.connecting;
    loop_.post([this] { connect(); });
  }

 private:
  io::IoLoop& loop_;
  const Target& to_;
  Counts& counts_;
  const std::string id_;
  std::unique_ptr<port::Connection> socket_;
  bool ready_ = false;
};

/// Publishes one message at a time.
class Witness final : public port::ConnectionHandler {
 public:
  explicit Witness(const Target& to) : timer_(loop_.make_timer()) {
    socket_ = loop_.connect(to.at, to.options(), *this);
    socket_->send_copy(connect_bytes("witness"));
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~Witness() {
    loop_.stop();
    thread_.join();
  }
  /// Latencies in microseconds since the last call, sorted; one that is still awaited counts as it stands.
  std::vector<uint32_t> take() {
    std::vector<uint32_t> out;
    std::atomic<bool> done = false;
    loop_.post([&] {
      out.swap(latencies_);
      if (waiting_) out.push_back(age());
      done = true;
    });
    while (!done) std::this_thread::sleep_for(1ms);
    std::ranges::sort(out);
    return out;
  }
  void on_open(port::Connection&) override {}
  port::Consumed on_data(port::Connection&, ByteView bytes) override {
    if (waiting_) latencies_.push_back(age());
    waiting_ = false;
    timer_->start(1ms, [this] { publish(); });
    return {bytes.size(), 0};
  }
  void on_close(port::Connection&, const Error& why) override {
    std::fprintf(stderr, "the witness was dropped: %s\n", why.to_string().c_str());
    std::_Exit(1);
  }

 private:
  uint32_t age() const { return static_cast<uint32_t>((loop_.now() - since_).count() / 1000); }
  void publish() {
    mqtt::PublishHead head;
    head.topic = "witness";
    head.qos = 1;
    head.packet_id = 1;
    head.payload_size = 1;
    std::string bytes;
    mqtt::encode_publish_head(head, mqtt::Version::v311, bytes);
    socket_->send_copy(bytes + "x");
    waiting_ = true;
    since_ = loop_.now();
  }

  io::IoLoop loop_;
  std::unique_ptr<port::Timer> timer_;
  std::unique_ptr<port::Connection> socket_;
  std::vector<uint32_t> latencies_;
  Instant since_{};
  bool waiting_ = false;
  std::thread thread_;
};

void print(const char* phase, const std::vector<uint32_t>& us) {
  auto percentile = [&](size_t p) {
    return us.empty() ? 0.0 : us[std::min(us.size() - 1, us.size() * p / 100)] / 1000.0;
  };
  std::printf("  %-22s %6zu messages, ms: p50 %.2f p99 %.2f longest %.2f\n", phase, us.size(), percentile(50),
              percentile(99), us.empty() ? 0.0 : us.back() / 1000.0);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "reconnect_load HOST:PORT [clients=N] [rounds=N] [ca=FILE]\n"), 2;
  size_t count = 10'000, rounds = 3, parallel = 0;
  auto at = port::parse_endpoint(argv[1]);
  if (!at) return std::fprintf(stderr, "%s\n", at.error().to_string().c_str()), 2;
  Target to{*at, nullptr};
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i], value = word.substr(word.find('=') + 1);
    if (word.starts_with("clients=")) count = std::stoul(value);
    if (word.starts_with("rounds=")) rounds = std::stoul(value);
    if (word.starts_with("parallel=")) parallel = std::stoul(value);
    if (word.starts_with("ca=")) {
      auto tls = io::make_tls_client({.ca_file = value});
      if (!tls) return std::fprintf(stderr, "%s\n", tls.error().to_string().c_str()), 2;
      to.tls = *tls;
    }
  }
  if (io::raise_descriptor_limit() < count + 100) return std::fprintf(stderr, "too few descriptors\n"), 2;
  io::IoLoop loop;
  loop.set_handshake_timeout(kBound);
  Client::Counts counts;
  std::vector<std::unique_ptr<Client>> clients;
  for (size_t i = 0; i < count; ++i) clients.push_back(std::make_unique<Client>(loop, to, counts, i));
  auto connect_all = [&](size_t at_once) {
    size_t next = 0;
    return loop.run_until(
        [&] {
          for (; next < count && counts.connecting < at_once; ++counts.connecting) clients[next++]->connect();
          return counts.ready == count;
        },
        kBound);
  };
  if (parallel == 0) parallel = to.tls ? 50 : count;
  if (!connect_all(std::min<size_t>(parallel, 500)))
    return std::fprintf(stderr, "only %zu of %zu connected\n", counts.ready, count), 1;
  Witness witness(to);
  loop.run_until([] { return false; }, 3s);
  std::printf("%zu clients\n", count);
  print("before", witness.take());
  for (size_t round = 0; round < rounds; ++round) {
    counts.failed = 0;
    const Instant begin = loop.now();
    for (auto& c : clients) c->drop();
    const bool back = connect_all(parallel);
    const double seconds = static_cast<double>((loop.now() - begin).count()) / 1e9;
    std::printf("round %zu: %zu of %zu back after %.2f s, %zu attempts failed\n", round + 1, counts.ready, count,
                seconds, counts.failed);
    print("while they came back", witness.take());
    if (!back) return 1;
    loop.run_until([] { return false; }, 2s);
    print("afterwards", witness.take());
  }
  std::_Exit(0);  // without closing thousands of sockets one by one
}
