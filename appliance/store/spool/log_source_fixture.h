// LogSourceTest: a segment log with its targets, over a loop, a disk and a store that a test drives. For the tests of
// log_source*.cc alone.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/coding.h"
#include "base/log.h"
#include "codec/event/block.h"
#include "store/spool/log_source.h"
#include "store/spool/segment_format.h"
#include "support/manual_loop.h"
#include "support/memory_files.h"
#include "support/memory_store.h"

namespace ph::spool {

struct FakeDeadLetters : port::DeadLetters {
  std::vector<port::DeadLetter> letters;
  bool fails = false;
  Result<> append(const std::vector<port::DeadLetter>& more) override {
    if (fails) return fail("test.failed");
    for (const auto& l : more) {
      bool known = false;
      for (const auto& have : letters) known = known || (have.stream == l.stream && have.first == l.first);
      if (!known) letters.push_back(l);
    }
    return {};
  }
};

struct Unpacked {
  uint64_t first;
  uint64_t last;
  Slice encoded;
  event::Block block;
};

inline std::vector<Unpacked> unpack(const port::Batch& batch) {
  std::vector<Unpacked> out;
  Reader in(batch.packed.view());
  uint64_t at = batch.first;
  while (!in.at_end()) {
    uint64_t span = in.varint();
    ByteView bytes = in.sized();
    if (!in.ok()) break;
    Slice encoded{std::string(bytes)};
    auto block = event::decode(encoded);
    out.push_back({at, at + span, encoded, block ? *block : event::Block{}});
    EXPECT_TRUE(block);
    at += span;
  }
  EXPECT_TRUE(in.ok());
  EXPECT_EQ(at, batch.last);
  return out;
}

struct LogSourceTest : testing::Test {
  test::ManualLoop loop;
  test::ManualDisk disk{loop};
  test::MemoryFiles files;
  test::MemoryStore store;
  Random random{3};
  FakeDeadLetters dead;
  std::unique_ptr<SegmentLog> log;
  std::unique_ptr<commit::Committer> committer;
  std::unique_ptr<LogRetention> retention;
  std::map<std::string, std::unique_ptr<LogSource>> sources;
  std::vector<std::string> targets{"fra"};
  LogSourceOptions options;  // of every source, beside its names
  int ready = 0;
  uint64_t appended = 0;
  uint64_t segment_bytes = 4096;

  void SetUp() override {
    log_configure(LogLevel::off, false);
    files.make_directories("/data").value();
    start();
  }
  void stop() {
    loop.run_posted();
    sources.clear();
    retention.reset();
    committer.reset();
    log.reset();
  }
  void start() {
    stop();
    log = std::move(*SegmentLog::open({"r", "/data/spool/r", segment_bytes}, files, store, random));
    committer = std::make_unique<commit::Committer>(loop, disk, store);
    retention = std::make_unique<LogRetention>(*log, targets);
    for (const auto& t : targets) {
      options.route = "r";
      options.target = t;
      auto opened = LogSource::open(options, *log, *retention, loop, disk, store, dead);
      ASSERT_TRUE(opened) << opened.error().to_string();
      sources[t] = std::move(*opened);
      sources[t]->on_ready([this] { ++ready; });
      sources[t]->on_closed([](StreamId) {});
    }
    loop.run_posted();
  }
  LogSource& source(const std::string& target = "fra") { return *sources.at(target); }
  static std::string body(uint64_t n) { return "line " + std::to_string(n) + "\n"; }
  void append(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      event::Block b;
      b.category = "c";
      b.id = {NodeId{}, StreamId{1}, appended, 0};
      b.payload = Slice(body(++appended));
      b.id.last = b.id.first + b.payload.size();
      b.events = 1;
      b.accepted_at = loop.wall_now();
      log->append(Slice(event::encode(b)), 1, b.accepted_at);
    }
    committer->touch(*log);
    loop.run_posted();
  }
  /// Everything that is ready, as payloads; gaps as "gap <events>".
  std::vector<std::string> pull(size_t bytes = 1000, std::vector<port::Batch>* batches = nullptr,
                                const std::string& target = "fra") {
    std::vector<std::string> out;
    while (auto batch = source(target).next(bytes)) {
      for (const auto& u : unpack(*batch))
        out.push_back(u.block.gap ? "gap " + std::to_string(u.block.events) : std::string(u.block.payload.view()));
      if (batches) batches->push_back(*batch);
    }
    return out;
  }
  void balanced(const std::string& target = "fra") {
    auto c = source(target).counters();
    EXPECT_EQ(c.in, c.delivered + c.dropped + c.dead_lettered + c.queued);
  }
  void advance_all(const std::vector<port::Batch>& batches, const std::string& target = "fra") {
    for (const auto& b : batches) source(target).advanced(b.stream, b.last, b.events, 0);
  }
  void power_cut() {
    stop();
    files.cut_power();
    store.cut_power(random);
    start();
  }
  std::vector<std::string> bodies(uint64_t from, uint64_t to) {
    std::vector<std::string> out;
    for (uint64_t i = from; i <= to; ++i) out.push_back(body(i));
    return out;
  }
};

}  // namespace ph::spool
