// Random producers, rotations, truncations, held descriptors, kills, failing stores and acknowledgements in random
// portions against a plain model: every line reaches every target exactly once, and the lines of one generation in the
// order in which they were written. Truncations come only when everything was read: what is cut away unread is lost by
// the producer's doing.

#include <gtest/gtest.h>

#include "support/agent_bench.h"

namespace ph::agent {
namespace {

using test::AgentBench;
using test::MemoryFiles;
using namespace std::chrono_literals;

class Producers {
 public:
  Producers(AgentBench& bench, Random& random) : b_(bench), random_(random) {}

  void act() {
    switch (random_.below(12)) {
      case 0:
        return rotate();
      case 1:
        return hold();
      case 2:
        return release();
      case 3:
        return rename_aside();
      case 4:
        return append_held();
      default:
        return append();
    }
  }
  /// Copy-truncate of a file that was read to its end.
  void truncate_one() {
    std::string name = pick();
    if (!b_.files.exists(b_.at(name))) return;
    auto inode = b_.files.inode(b_.at(name));
    if (open_line_.contains(inode.get())) return;
    // With the copy or without; one of a few bytes could not be told from a file of its own.
    if (random_.chance(0.5) && inode->bytes.size() >= 64 && !b_.files.exists(b_.at(name + ".1"))) {
      b_.append(name + ".1", inode->bytes);
      keep_.push_back(b_.files.inode(b_.at(name + ".1")));
    }
    b_.files.shrink(b_.at(name), 0);
    generation_[inode.get()] = ++generations_;
  }
  void finish() {
    for (auto& [inode, close] : holders_) close();
    holders_.clear();
  }
  size_t held() const { return holders_.size(); }

  /// generation -> its lines, in order
  std::map<uint64_t, std::vector<std::string>> expected;
  size_t lines = 0;

 private:
  std::string pick() {
    static const std::vector<std::string> kNames{"a.log",       "b_big.log", "c.log", "dir/202401010000.log",
                                                 "dir/app.log", "e/x"};
    return kNames[random_.below(kNames.size())];
  }
  std::string category(const std::string& name) {
    if (size_t slash = name.find('/'); slash != std::string::npos) return name.substr(0, slash);
    return name.substr(0, 1);
  }
  void write(const MemoryFiles::InodePtr& inode, const std::string& category) {
    auto [it, fresh] = generation_.try_emplace(inode.get(), 0);
    if (fresh) {
      it->second = ++generations_;
      keep_.push_back(inode);
    }
    auto [cat, known] = category_.try_emplace(inode.get(), category);
    for (uint64_t n = 1 + random_.below(random_.chance(0.1) ? 400 : 5); n > 0; --n) {
      std::string line = open_line_[inode.get()];
      std::string more =
          (line.empty() ? std::to_string(it->second) + "." + std::to_string(++serial_) + " " : std::string()) +
          std::string(random_.below(60), static_cast<char>('a' + random_.below(26)));
      open_line_.erase(inode.get());
      if (random_.chance(0.05)) {  // the newline comes later, or never
        b_.files.append(inode, more);
        open_line_[inode.get()] = line + more;
        if (line.empty()) {
          expected[it->second].push_back(cat->second + "|" + more);
          ++lines;
        } else {
          expected[it->second].back() += more;
        }
        return;
      }
      b_.files.append(inode, more + "\n");
      if (line.empty()) {
        expected[it->second].push_back(cat->second + "|" + more);
        ++lines;
      } else {
        expected[it->second].back() += more;
      }
    }
  }
  void append() {
    std::string name = pick();
    if (!b_.files.exists(b_.at(name))) b_.append(name, "");
    auto inode = b_.files.inode(b_.at(name));
    bool writable = !open_line_.contains(inode.get()) || held(inode);
    if (!writable) return;  // a writer that left a line unfinished is gone: nobody may finish it
    write(inode, category(name));
    // Only who has the file open may finish a line later.
    if (open_line_.contains(inode.get()) && !held(inode)) holders_.emplace_back(inode, b_.files.hold(b_.at(name)));
  }
  bool held(const MemoryFiles::InodePtr& inode) {
    return std::any_of(holders_.begin(), holders_.end(), [&](const auto& h) { return h.first == inode; });
  }
  void hold() {
    std::string name = pick();
    if (b_.files.exists(b_.at(name)) && holders_.size() < 8)
      holders_.emplace_back(b_.files.inode(b_.at(name)), b_.files.hold(b_.at(name)));
  }
  void release() {
    if (holders_.empty()) return;
    auto it = holders_.begin() + static_cast<ptrdiff_t>(random_.below(holders_.size()));
    it->second();
    holders_.erase(it);
  }
  void append_held() {
    if (holders_.empty()) return;
    auto& inode = holders_[random_.below(holders_.size())].first;
    if (generation_.contains(inode.get())) write(inode, "");
  }
  void rotate() {
    std::string base = b_.at(pick());
    if (!b_.files.exists(base)) return;
    if (b_.files.exists(base + ".1") && b_.files.exists(base + ".2")) return;
    if (b_.files.exists(base + ".1")) b_.files.rename(base + ".1", base + ".2").value();
    b_.files.rename(base, base + ".1").value();
  }
  void rename_aside() {
    std::string name = pick();
    if (b_.files.exists(b_.at(name)) && !b_.files.exists(b_.at(name + ".old")))
      b_.files.rename(b_.at(name), b_.at(name + ".old")).value();
  }

  AgentBench& b_;
  Random& random_;
  std::map<MemoryFiles::Inode*, uint64_t> generation_;
  std::map<MemoryFiles::Inode*, std::string> category_;
  std::map<MemoryFiles::Inode*, std::string> open_line_;
  std::vector<MemoryFiles::InodePtr> keep_;  // so that no address is used again
  std::vector<std::pair<MemoryFiles::InodePtr, std::function<void()>>> holders_;
  uint64_t generations_ = 0;
  uint64_t serial_ = 0;
};

std::map<uint64_t, std::vector<std::string>> by_generation(const std::vector<std::string>& lines) {
  std::map<uint64_t, std::vector<std::string>> out;
  for (const std::string& line : lines) out[std::stoull(line.substr(line.find('|') + 1))].push_back(line);
  return out;
}

void run(uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  AgentBench b(seed);
  Random random(seed);
  b.options.routes = {{"all", {{"one", false}, {"two", random.chance(0.5)}}}};
  b.options.rotate_age = 5s;
  b.options.rotate_bytes = 20'000;
  b.options.descriptors_max = 1 + random.below(4);
  b.options.line_max = 100'000;
  b.far_at_once = true;
  Producers p(b, random);
  b.start();
  auto step = [&] {
    for (auto& puller : b.pullers) {
      if (random.chance(0.5)) puller->pull(4096 + random.below(20'000));
      if (random.chance(0.3)) puller->deliver();
      while (!puller->window.empty() && random.chance(0.5) && puller->ack()) {
      }
    }
    if (random.chance(0.6)) b.notice();
    b.loop.advance(Duration(random.below(400'000'000)));
  };
  for (int i = 0; i < 400; ++i) {
    p.act();
    bool crashed = false;
    if (random.chance(0.02)) b.files.crash_at(1 + random.below(6));
    if (random.chance(0.02)) b.store.fail_writes = !b.store.fail_writes;
    if (random.chance(0.02) && b.watcher) b.watcher->overflow();
    // Producers' own calls must not crash: they are other processes.
    try {
      step();
    } catch (const test::SimulatedCrash&) {
      crashed = true;
    }
    b.files.no_crash();
    if (crashed || random.chance(0.03)) {
      b.restart();
    } else if (random.chance(0.01)) {
      b.store.fail_writes = false;
      b.stop();
      b.start();
    } else if (random.chance(0.05)) {
      b.store.fail_writes = false;
      b.pass(3s);
      bool read = true;
      for (auto& puller : b.pullers) {
        auto c = puller->source.counters();
        read &= c.unread_bytes == 0 && c.queued == 0;
      }
      if (read) p.truncate_one();
      b.notice();  // a copy is recognised while its original lies where it was truncated
    }
    if (random.chance(0.05)) b.pass(2s);
    if (testing::Test::HasFailure()) return;
  }
  b.store.fail_writes = false;
  p.finish();
  b.pass(400s);
  for (const char* target : {"all/one", "all/two"}) {
    auto got = by_generation(b.far(target).lines);
    ASSERT_EQ(got.size(), p.expected.size()) << target;
    for (auto& [generation, lines] : p.expected) ASSERT_EQ(got[generation], lines) << target << " " << generation;
    auto c = b.pullers[target == std::string("all/two")]->source.counters();
    EXPECT_EQ(c.delivered, p.lines) << target;
    EXPECT_EQ(c.in, p.lines) << target;
  }
  EXPECT_TRUE(b.left().empty()) << ::testing::PrintToString(b.left());
  for (const auto& s : b.agent->stats().staying) ADD_FAILURE() << s.path << ": " << s.reason;
  EXPECT_EQ(b.agent->stats().generations, 0u);
  EXPECT_EQ(b.store.size(), 2u) << "counters of two targets, nothing else";
}

TEST(AgentProperty, every_line_once_per_target_and_in_order) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    run(seed);
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace ph::agent
