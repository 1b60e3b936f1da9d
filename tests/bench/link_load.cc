// Many agents in one process: the product's own senders (service/relay's Upstream) over real connections, with sources
// that make up lines. For `tools/dev bench link` and for case L2.
//
//   link_load HOST:PORT [agents=1000] [event=625] [categories=8] [window=BYTES]
//
// Each agent is a node of its own with one stream. Obeys lines on standard input: "send N" lets every agent send N more
// events; "quit". Prints a line "ready R settled E connects C microseconds T" ten times a second, T being its own CPU
// time so far.
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/coding.h"
#include "base/log.h"
#include "codec/event/block.h"
#include "io/descriptor_limit.h"
#include "io/loop.h"
#include "port/event_source.h"
#include "service/relay/upstream.h"

namespace ph {
namespace {

/// Lines without end, as far as they are allowed.
class MadeUp final : public port::EventSource {
 public:
  MadeUp(NodeId node, StreamId stream, std::string category, Slice lines, size_t event, port::Loop& loop)
      : node_(node),
        stream_(stream),
        category_(std::move(category)),
        lines_(std::move(lines)),
        event_(event),
        loop_(loop) {}
  void allow(uint64_t events) {
    allowed_ += events * event_;
    if (ready_) ready_();
  }
  uint64_t settled() const { return settled_; }

  const std::string& route() const override { return category_; }
  const std::string& target() const override { return category_; }
  bool wants_far() const override { return false; }
  std::vector<port::OpenStream> open_streams() override { return {}; }
  std::optional<port::Batch> next(size_t bytes_max) override {
    uint64_t size = std::min({bytes_max / event_ * event_, lines_.size(), allowed_ - at_});
    if (size == 0 && allowed_ > at_) size = event_;
    if (size == 0) return std::nullopt;
    event::Block block;
    block.category = category_;
    block.id = {node_, stream_, at_, at_ + size};
    block.events = size / event_;
    block.accepted_at = loop_.wall_now();
    std::string head, packed;
    event::encode_header(block, head);
    put_varint(packed, size);
    put_varint(packed, head.size() + size);
    packed.reserve(packed.size() + head.size() + size);
    packed.append(head).append(lines_.view().substr(0, size));
    port::Batch batch{stream_, at_, at_ + size, block.events, Slice(std::move(packed))};
    at_ += size;
    return batch;
  }
  void on_ready(port::Task ready) override { ready_ = std::move(ready); }
  void will_use(StreamId, const std::string&, port::Task durable) override { loop_.post(std::move(durable)); }
  void advanced(StreamId, uint64_t, uint64_t events, uint64_t) override { settled_ += events; }
  port::WriteBatch advance_entries(StreamId, uint64_t, uint64_t) override { return {}; }
  void far_advanced(StreamId, uint64_t) override {}
  void rejected(StreamId, uint64_t, uint64_t, Slice, const std::string& reason) override {
    std::fprintf(stderr, "link_load: refused: %s\n", reason.c_str());
  }
  void rerouted_unasked(uint64_t, port::Task durable) override { loop_.post(std::move(durable)); }
  void renew(StreamId) override {}
  void on_closed(std::move_only_function<void(StreamId)>) override {}
  port::TargetCounters counters() const override { return {}; }

 private:
  NodeId node_;
  StreamId stream_;
  std::string category_;
  Slice lines_;
  size_t event_;
  port::Loop& loop_;
  port::Task ready_;
  uint64_t allowed_ = 0, at_ = 0, settled_ = 0;
};

struct Options {
  size_t agents = 1000, event = 625, categories = 8, window = 512 * 1024;
};

class Crowd {
 public:
  Crowd(const Options& options, const port::Endpoint& to) : timer_(loop_.make_timer()) {
    std::string line(options.event - 1, 'x'), text;
    for (size_t size = 0; size + options.event <= 256 * 1024; size += options.event) text += line + "\n";
    Slice lines(std::move(text));
    for (size_t n = 0; n < options.agents; ++n) {
      NodeId node = loop_.random().node_id();
      sources_.push_back(std::make_unique<MadeUp>(node, loop_.random().stream_id(),
                                                  "load" + std::to_string(n % options.categories), lines, options.event,
                                                  loop_));
      relay::UpstreamOptions up;
      up.name = "load";
      up.addresses = {{to, 1}};
      up.window_bytes = options.window;
      up.self = node;
      up.node_name = up.site = "agent-" + std::to_string(n);
      up.incarnation = loop_.random().next();
      agents_.push_back(std::make_unique<relay::Upstream>(std::move(up), loop_, loop_,
                                                          std::vector<port::EventSource*>{sources_.back().get()}));
    }
  }

  int run() {
    for (auto& agent : agents_) agent->start();
    tick();
    loop_.run();
    return 0;
  }

 private:
  void tick() {
    pollfd input{.fd = 0, .events = POLLIN, .revents = 0};
    while (::poll(&input, 1, 0) > 0) {
      char bytes[256];
      ssize_t n = ::read(0, bytes, sizeof bytes);
      if (n <= 0) return loop_.stop();
      said_.append(bytes, static_cast<size_t>(n));
      for (size_t end; (end = said_.find('\n')) != std::string::npos; said_.erase(0, end + 1)) {
        if (said_.starts_with("quit")) return loop_.stop();
        if (said_.starts_with("send "))
          for (auto& source : sources_) source->allow(std::strtoull(said_.c_str() + 5, nullptr, 10));
      }
    }
    uint64_t ready = 0, settled = 0, connects = 0;
    for (auto& agent : agents_)
      for (const auto& receiver : agent->status().receivers) {
        ready += receiver.state == link::ReceiverState::ready;
        connects += receiver.connects;
      }
    for (auto& source : sources_) settled += source->settled();
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    auto us = [](const timeval& t) {
      return static_cast<uint64_t>(t.tv_sec) * 1'000'000 + static_cast<uint64_t>(t.tv_usec);
    };
    std::printf("ready %llu settled %llu connects %llu microseconds %llu\n", static_cast<unsigned long long>(ready),
                static_cast<unsigned long long>(settled), static_cast<unsigned long long>(connects),
                static_cast<unsigned long long>(us(used.ru_utime) + us(used.ru_stime)));
    std::fflush(stdout);
    timer_->start(100ms, [this] { tick(); });
  }

  io::IoLoop loop_;
  std::unique_ptr<port::Timer> timer_;
  std::vector<std::unique_ptr<MadeUp>> sources_;
  std::vector<std::unique_ptr<relay::Upstream>> agents_;
  std::string said_;
};

}  // namespace
}  // namespace ph

int main(int argc, char** argv) {
  using namespace ph;
  if (argc < 2) return std::fprintf(stderr, "link_load HOST:PORT [agents=N] [event=N] [categories=N] [window=N]\n"), 2;
  auto at = port::parse_endpoint(argv[1]);
  if (!at) return std::fprintf(stderr, "%s\n", at.error().to_string().c_str()), 2;
  Options options;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    size_t value = std::strtoull(word.substr(word.find('=') + 1).c_str(), nullptr, 10);
    if (word.starts_with("agents=")) options.agents = std::max<size_t>(1, value);
    if (word.starts_with("event=")) options.event = std::clamp<size_t>(value, 2, 200'000);
    if (word.starts_with("categories=")) options.categories = std::max<size_t>(1, value);
    if (word.starts_with("window=")) options.window = value;
  }
  if (io::raise_descriptor_limit() < options.agents + 100) return std::fprintf(stderr, "too few descriptors\n"), 2;
  log_set_level(LogLevel::off);
  return Crowd(options, *at).run();
}
