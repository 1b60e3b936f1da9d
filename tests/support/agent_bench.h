// AgentBench: an agent over the file system in memory, with a watcher that notices what a test changes, and receivers
// that remember ranges as real ones do. Time moves only when told.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/coding.h"
#include "codec/event/block.h"
#include "service/agent/agent.h"
#include "support/manual_loop.h"
#include "support/memory_files.h"
#include "support/memory_store.h"

namespace ph::test {

/// Notifies by comparing: notice() reports every entry of a watched directory that changed since the last call.
class ComparingWatcher : public port::Watcher {
 public:
  ComparingWatcher(MemoryFiles& files, port::WatchFn notify, const bool& refuse)
      : files_(files), notify_(std::move(notify)), refuse_(refuse) {}
  Result<> add(const std::string& directory) override {
    if (refuse_) return fail("watch.limit", directory);
    watched.insert(directory);
    seen_[directory] = snapshot(directory);
    return {};
  }
  void remove(const std::string& directory) override { watched.erase(directory); }
  void notice() {
    std::vector<Event> events;
    for (const std::string& d : watched) {
      auto now = snapshot(d);
      auto& before = seen_[d];
      for (const auto& [name, state] : before)
        if (!now.contains(name)) events.push_back({d, name, false});
      for (const auto& [name, state] : now)
        if (auto it = before.find(name); it == before.end() || it->second != state) events.push_back({d, name, false});
      before = std::move(now);
    }
    if (!events.empty()) notify_(events);
  }
  void overflow() { notify_({{"", "", true}}); }
  std::set<std::string> watched;

 private:
  using Snapshot = std::map<std::string, std::tuple<uint64_t, uint64_t, int64_t>>;
  Snapshot snapshot(const std::string& directory) {
    Snapshot out;
    auto entries = files_.list(directory);
    if (!entries) return out;
    for (auto& e : *entries) {
      auto stat = files_.stat(directory + "/" + e.name);
      if (stat && *stat) out[e.name] = {(*stat)->inode, (*stat)->size, (*stat)->modified_ns};
    }
    return out;
  }
  MemoryFiles& files_;
  port::WatchFn notify_;
  const bool& refuse_;
  std::map<std::string, Snapshot> seen_;
};

/// The far side of one target: what it has of each stream, and the lines in the order in which it took them. Survives
/// the agent.
struct Receiver {
  std::vector<std::string> lines;             // "category|line"
  std::map<StreamId, std::vector<bool>> has;  // per position
  std::vector<event::Block> blocks;           // as received, also duplicates
  uint64_t duplicates = 0;
  std::set<std::pair<std::string, uint64_t>> origin_ids;  // origin stream and position of every line

  bool covered(const std::vector<bool>& h, uint64_t first, uint64_t last) const {
    for (uint64_t i = first; i < last; ++i)
      if (i >= h.size() || !h[i]) return false;
    return true;
  }
  /// Takes one batch; returns how many of its events it had.
  uint64_t take(const port::Batch& batch) {
    uint64_t known = 0;
    Reader in(batch.packed.view());
    uint64_t at = batch.first;
    auto& h = has[batch.stream];
    while (!in.at_end()) {
      uint64_t span = in.varint();
      ByteView encoded = in.sized();
      EXPECT_TRUE(in.ok());
      auto block = event::decode(Slice(std::string(encoded)));
      EXPECT_TRUE(block.has_value()) << (block ? "" : block.error().to_string());
      if (!block) return known;
      EXPECT_EQ(block->id.first, at);
      EXPECT_EQ(block->id.last, at + span);
      blocks.push_back(*block);
      std::string_view rest = block->payload.view();
      for (uint64_t pos = at; pos < at + span;) {
        uint64_t end = at + span;
        std::string_view line;
        if (!block->gap) {
          size_t nl = rest.find('\n');
          line = rest.substr(0, nl);
          rest.remove_prefix(nl + 1);
          if (!block->atomic()) end = pos + nl + 1;
        }
        if (covered(h, pos, end)) {
          known += !block->gap;
        } else {
          if (h.size() < end) h.resize(end);
          std::fill(h.begin() + static_cast<ptrdiff_t>(pos), h.begin() + static_cast<ptrdiff_t>(end), true);
          if (!block->gap) lines.push_back(block->category + "|" + std::string(line));
        }
        pos = end;
      }
      at += span;
    }
    EXPECT_EQ(at, batch.last);
    duplicates += known;
    return known;
  }
};

/// What an upstream does for one source, without a network: pulls, delivers to a Receiver, acknowledges.
class Puller {
 public:
  Puller(port::EventSource& from, Receiver& to, ManualLoop& loop) : source(from), receiver_(to), loop_(loop) {
    open = source.open_streams();
    source.on_ready([this] { ++readies; });
    source.on_closed([this](StreamId s) { closed.push_back(s); });
  }
  /// Pulls one batch into the window; false if there is none.
  bool pull(size_t bytes_max = 256 * 1024) {
    auto batch = source.next(bytes_max);
    if (!batch) return false;
    auto [it, fresh] = next_.try_emplace(batch->stream, batch->first);
    EXPECT_EQ(it->second, batch->first) << "positions of a stream are dense";
    it->second = batch->last;
    StreamId stream = batch->stream;
    window.push_back(std::move(*batch));
    if (used_.insert(stream).second)
      source.will_use(stream, "far:1", [durable = durable_, stream] { durable->insert(stream); });
    return true;
  }
  /// What may leave leaves, and the receiver has it, durably; the acknowledgement is still on its way.
  void deliver() {
    for (; delivered_ < window.size(); ++delivered_) {
      if (!durable_->contains(window[delivered_].stream)) loop_.run_posted();
      if (!durable_->contains(window[delivered_].stream)) return;
      known_.push_back(receiver_.take(window[delivered_]));
    }
  }
  /// Acknowledges the oldest batch; false if it could not even leave yet.
  bool ack() {
    deliver();
    if (delivered_ == 0) return false;
    port::Batch b = std::move(window.front());
    window.pop_front();
    --delivered_;
    uint64_t known = known_.front();
    known_.pop_front();
    source.advanced(b.stream, b.last, b.events, known);
    if (far) source.far_advanced(b.stream, b.last);
    return true;
  }
  /// Pulls, delivers and acknowledges until there is nothing.
  void run(size_t bytes_max = 256 * 1024) {
    while (true) {
      while (!window.empty() && ack()) {
      }
      if (!window.empty() || !pull(bytes_max)) return;
    }
  }
  port::EventSource& source;
  std::vector<port::OpenStream> open;
  std::deque<port::Batch> window;
  std::vector<StreamId> closed;
  uint64_t readies = 0;
  bool far = false;

 private:
  Receiver& receiver_;
  ManualLoop& loop_;
  std::map<StreamId, uint64_t> next_;
  std::shared_ptr<std::set<StreamId>> durable_ = std::make_shared<std::set<StreamId>>();
  std::set<StreamId> used_;
  size_t delivered_ = 0;
  std::deque<uint64_t> known_;
};

struct MemoryDeadLetters : port::DeadLetters {
  Result<> append(const std::vector<port::DeadLetter>& more) override {
    if (failing) return ph::fail("test.full", "");
    letters.insert(letters.end(), more.begin(), more.end());
    return {};
  }
  std::vector<port::DeadLetter> letters;
  bool failing = false;
};

class AgentBench {
 public:
  explicit AgentBench(uint64_t seed = 1) : loop(seed), disk(loop), files(seed) {
    files.make_directories(kDir).value();
    options.directory = kDir;
    options.boot_id = "boot-1";
    options.routes = {{"all", {{"fra", false}}}};
    options.route_of = [](std::string_view category) {
      return category.starts_with("nowhere") ? std::optional<size_t>() : std::optional<size_t>(0);
    };
  }

  /// Starts an agent and one puller per source, and lets them come up.
  void start() {
    auto opened = agent::Agent::open(
        options, loop, disk, files,
        [this](port::WatchFn notify) -> Result<std::unique_ptr<port::Watcher>> {
          auto w = std::make_unique<ComparingWatcher>(files, std::move(notify), refuse_watches);
          watcher = w.get();
          return w;
        },
        store, dead_letters, node);
    ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
    agent = std::move(*opened);
    for (auto* s : agent->sources()) {
      std::string name = s->route() + "/" + s->target();
      pullers.push_back(std::make_unique<Puller>(*s, receivers[name], loop));
      pullers.back()->far = far_at_once && s->wants_far();
    }
    agent->start();
    loop.run_posted();
  }
  /// kill -9: what the kernel and the store have stays.
  void kill() {
    pullers.clear();
    agent.reset();
    watcher = nullptr;
    disk.drop();
    loop.run_posted();
    for (const std::string& path : files.paths()) files.inode(path)->own_handles = 0;
  }
  void stop() {
    bool stopped = false;
    agent->stop([&stopped] { stopped = true; });
    loop.advance(std::chrono::seconds(2));
    EXPECT_TRUE(stopped);
    kill();
  }
  void restart() {
    kill();
    start();
  }
  void notice() {
    if (watcher) watcher->notice();
    loop.run_posted();
  }
  /// Lets time pass in small steps, with everybody pulling and acknowledging.
  void pass(Duration time, bool pulling = true) {
    constexpr Duration kStep = std::chrono::milliseconds(100);
    for (Duration t{}; t < time; t += kStep) {
      notice();
      if (pulling)
        for (auto& p : pullers) p->run();
      loop.advance(kStep);
    }
    notice();
  }
  std::string at(const std::string& name) const { return std::string(kDir) + "/" + name; }
  void append(const std::string& name, ByteView bytes) { files.append(at(name), bytes); }
  Receiver& far(const std::string& name = "all/fra") { return receivers[name]; }
  Puller& puller(size_t i = 0) { return *pullers[i]; }
  /// Files left in the source directory, hidden ones too, without directories.
  std::vector<std::string> left() {
    std::vector<std::string> out;
    for (const std::string& path : files.paths())
      if (path.starts_with(at("")) && files.inode(path)->kind == port::FileKind::regular)
        out.push_back(path.substr(at("").size()));
    return out;
  }

  static constexpr const char* kDir = "/spool";
  ManualLoop loop;
  ManualDisk disk;
  MemoryFiles files;
  MemoryStore store;
  NodeId node{{1, 2, 3}};
  agent::AgentOptions options;
  std::map<std::string, Receiver> receivers;
  MemoryDeadLetters dead_letters;
  bool refuse_watches = false;
  bool far_at_once = false;  // what a receiver accepts is at the end of its way
  std::unique_ptr<agent::Agent> agent;
  ComparingWatcher* watcher = nullptr;
  std::vector<std::unique_ptr<Puller>> pullers;
};

/// "prefix000001\n".."prefix<count>\n", from `first`.
inline std::string numbered(const std::string& prefix, int first, int count) {
  std::string out;
  for (int i = first; i < first + count; ++i) {
    std::string n = std::to_string(i);
    out += prefix + std::string(6 - std::min<size_t>(6, n.size()), '0') + n + "\n";
  }
  return out;
}
inline std::vector<std::string> lines_of(const std::string& category, const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    size_t nl = text.find('\n', at);
    out.push_back(category + "|" + text.substr(at, nl - at));
    at = nl + 1;
  }
  return out;
}

}  // namespace ph::test
