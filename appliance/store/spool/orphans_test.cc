#include "store/spool/orphans.h"

#include <gtest/gtest.h>

#include "base/log.h"
#include "base/random.h"
#include "store/commit/committer.h"
#include "store/spool/log_source.h"
#include "support/manual_loop.h"
#include "support/memory_files.h"
#include "support/memory_store.h"

namespace ph::spool {
namespace {

struct NoLetters : port::DeadLetters {
  Result<> append(const std::vector<port::DeadLetter>&) override { return {}; }
};

struct OrphansTest : testing::Test {
  using Targets = std::map<std::string, std::vector<std::string>>;
  test::ManualLoop loop;
  test::ManualDisk disk{loop};
  test::MemoryFiles files;
  test::MemoryStore store;
  Random random{7};
  NoLetters letters;

  void SetUp() override { log_configure(LogLevel::off, false); }
  /// A start with that route: `add` records come, and the first target gets `settled` of what there is.
  void run(const std::string& route, const std::vector<std::string>& targets, int add, uint64_t settled = 0) {
    auto log = SegmentLog::open({route, "/data/spool/" + route, 4096}, files, store, random).value();
    LogRetention retention(*log, targets);
    std::vector<std::unique_ptr<LogSource>> sources;
    for (const auto& t : targets)
      sources.push_back(
          LogSource::open({.route = route, .target = t}, *log, retention, loop, disk, store, letters).value());
    commit::Committer committer(loop, disk, store);
    for (int i = 0; i < add; ++i) log->append(Slice(std::string(50, 'x')), 1, from_unix_ms(1));
    committer.touch(*log);
    loop.run_posted();
    auto stream = sources[0]->open_streams()[0].stream;
    for (uint64_t done = 0; done < settled;) {
      auto batch = sources[0]->next(1);
      ASSERT_TRUE(batch);
      done += batch->last - batch->first;
      sources[0]->advanced(stream, batch->last, batch->events, 0);
    }
    sources[0]->persist_now([] {});
    loop.run_posted();
  }
  std::vector<Orphan> find(const Targets& targets) {
    return find_orphans(files, store, "/data/spool", targets).value();
  }
};

TEST_F(OrphansTest, none_where_there_is_no_spool_and_where_all_is_configured) {
  EXPECT_TRUE(find({}).empty());
  run("r", {"a"}, 10);
  EXPECT_TRUE(find({{"r", {"a"}}}).empty());
}

TEST_F(OrphansTest, route_that_is_gone_tells_what_waits_in_it) {
  run("r", {"a"}, 10, 3);
  auto found = find({{"renamed", {"a"}}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].route, "r");
  EXPECT_EQ(found[0].target, "");
  EXPECT_EQ(found[0].records, 7u);
  EXPECT_GT(found[0].bytes, 350u);
  EXPECT_EQ(found[0].fault, "");
}

TEST_F(OrphansTest, route_that_is_gone_and_was_drained_is_none) {
  run("r", {"a"}, 10, 10);
  EXPECT_TRUE(find({}).empty());
}

TEST_F(OrphansTest, target_that_is_gone_is_told_until_it_is_back_and_not_of_what_came_later) {
  run("r", {"a", "b"}, 10);
  auto found = find({{"r", {"a"}}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].target, "b");
  EXPECT_EQ(found[0].records, 10u);
  run("r", {"a"}, 5);
  found = find({{"r", {"a"}}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].records, 10u) << "the five were never for b";
  EXPECT_TRUE(find({{"r", {"a", "b"}}}).empty());
  found = find({{"r", {"a"}}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].records, 15u) << "it was back in between";
  run("r", {"a"}, 0, 15);
  EXPECT_TRUE(find({{"r", {"a"}}}).empty()) << "the log lets go of what the targets that it has are past";
}

TEST_F(OrphansTest, folder_that_the_store_does_not_know_is_told_by_its_bytes) {
  run("r", {"a"}, 10);
  test::MemoryStore wiped;
  auto found = find_orphans(files, wiped, "/data/spool", {}).value();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].records, 0u);
  EXPECT_GT(found[0].bytes, 0u);
}

TEST_F(OrphansTest, folder_of_a_newer_version_is_told_and_stops_nothing) {
  run("r", {"a"}, 10);
  port::WriteBatch batch;
  batch.put("s/r/end", "\x7f future");
  store.write(batch, true).value();
  auto found = find({});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].fault, "");
}

}  // namespace
}  // namespace ph::spool
