#include "store/commit/committer.h"

#include <gtest/gtest.h>

#include "support/manual_loop.h"
#include "support/memory_files.h"
#include "support/memory_store.h"

namespace ph::commit {
namespace {

struct FakeParticipant : Participant {
  std::string name;
  int pending = 0;
  int flushed = 0;
  bool fails = false;
  std::vector<std::string> log;
  explicit FakeParticipant(std::string n) : name(std::move(n)) {}
  void begin(port::WriteBatch& entries) override {
    flushed = std::exchange(pending, 0);
    entries.put("size/" + name, std::to_string(flushed));
  }
  Result<> flush() override {
    if (fails) return fail("test.failed", name);
    return {};
  }
  void finished(const Result<>& outcome) override { log.push_back(outcome ? "ok" : "failed"); }
};

struct CommitterTest : testing::Test {
  test::ManualLoop loop;
  test::ManualDisk disk{loop};
  test::MemoryStore store;
  Committer committer{loop, disk, store};
  std::vector<std::string> done;

  void ask(std::vector<Participant*> needs, const std::string& key) {
    port::WriteBatch entries;
    entries.put(key, "1");
    committer.request(std::move(needs), std::move(entries),
                      [this, key](const Result<>& r) { done.push_back(key + (r ? " ok" : " failed")); });
  }
  bool stored(const std::string& key) { return store.get(key).value().has_value(); }
};

}  // namespace

TEST_F(CommitterTest, puts_everything_asked_for_in_one_turn_into_one_synced_write) {
  FakeParticipant a("a"), b("b");
  ask({&a}, "x");
  ask({&a, &b}, "y");
  ask({}, "z");
  loop.run_posted();
  EXPECT_EQ(store.syncs, 1u);
  EXPECT_EQ(done, (std::vector<std::string>{"x ok", "y ok", "z ok"}));
  EXPECT_TRUE(stored("size/a") && stored("size/b") && stored("x") && stored("y") && stored("z"));
}

TEST_F(CommitterTest, what_would_take_of_the_reserve_is_not_written_and_entries_alone_are) {
  test::MemoryFiles files;
  files.capacity = 4000;
  files.append("/ballast", std::string(3000, 'x'));
  DiskFloor floor(loop, files, "/", 500);
  struct Growing : FakeParticipant {
    using FakeParticipant::FakeParticipant;
    DiskFloor* floor = nullptr;
    bool tried = false;
    Growth growth() const override { return {floor, static_cast<uint64_t>(flushed)}; }
    Result<> flush() override {
      tried = true;
      return {};
    }
  } a("a"), b("b");
  a.floor = b.floor = &floor;
  a.pending = b.pending = 300;  // each fits, both do not
  ask({&a}, "x");
  ask({&b}, "y");
  port::WriteBatch alone;
  alone.put("alone", "1");
  committer.request_alone(std::move(alone), [this] { done.push_back("alone"); });
  loop.run_posted();
  EXPECT_EQ(done, (std::vector<std::string>{"x failed", "y failed", "alone"}));
  EXPECT_FALSE(a.tried || b.tried || stored("x"));
  EXPECT_TRUE(stored("alone"));
  ask({}, "cursor");
  loop.run_posted();
  a.pending = 300;
  ask({&a}, "x");
  loop.run_posted();
  EXPECT_EQ(done.back(), "x ok");
  EXPECT_TRUE(stored("cursor") && stored("x"));
}

TEST_F(CommitterTest, a_failed_participant_fails_the_whole_group) {
  FakeParticipant good("good"), bad("bad");
  bad.fails = true;
  ask({&good}, "x");
  ask({&bad}, "y");
  loop.run_posted();
  EXPECT_EQ(done, (std::vector<std::string>{"x failed", "y failed"}));
  ASSERT_TRUE(committer.trouble().has_value());
  EXPECT_EQ(committer.trouble()->detail, "bad");
  EXPECT_FALSE(stored("x") || stored("size/good") || stored("y") || stored("size/bad"));
  EXPECT_EQ(good.log, std::vector<std::string>{"failed"});
  EXPECT_EQ(bad.log, std::vector<std::string>{"failed"});
}

TEST_F(CommitterTest, a_failed_group_takes_what_waits_behind_it_with_it) {
  FakeParticipant bad("bad"), other("other");
  bad.fails = true;
  disk.hold();
  ask({&bad}, "x");
  loop.run_posted();
  ask({&other}, "y");
  bad.fails = true;
  disk.release();
  loop.run_posted();
  EXPECT_EQ(done, (std::vector<std::string>{"x failed", "y failed"}));
  EXPECT_EQ(other.log, std::vector<std::string>{"failed"});
  bad.fails = false;
  ask({&other}, "y");
  loop.run_posted();
  EXPECT_EQ(done.back(), "y ok");
  EXPECT_TRUE(stored("y") && !stored("x"));
}

TEST_F(CommitterTest, a_failed_store_write_is_made_again_until_it_is_taken) {
  FakeParticipant a("a");
  store.fail_writes = true;
  ask({&a}, "x");
  loop.run_posted();
  ask({&a}, "y");
  loop.advance(3s);
  EXPECT_TRUE(done.empty());
  EXPECT_TRUE(a.log.empty());
  EXPECT_EQ(committer.store_failures(), 4u);
  EXPECT_TRUE(committer.trouble().has_value());
  store.fail_writes = false;
  loop.advance(1s);
  EXPECT_EQ(done, (std::vector<std::string>{"x ok", "y ok"}));
  EXPECT_EQ(a.log, (std::vector<std::string>{"ok", "ok"}));
  EXPECT_FALSE(committer.trouble().has_value());
}

TEST_F(CommitterTest, what_comes_during_a_write_forms_the_next_group) {
  FakeParticipant a("a");
  disk.hold();
  ask({&a}, "x");
  loop.run_posted();
  EXPECT_TRUE(committer.busy());
  ask({&a}, "y");
  ask({&a}, "z");
  disk.release();
  loop.run_posted();
  EXPECT_EQ(committer.groups(), 2u);
  EXPECT_EQ(done, (std::vector<std::string>{"x ok", "y ok", "z ok"}));
}

TEST(MemoryFiles, a_power_cut_takes_back_what_was_not_synced) {
  int lost_bytes = 0, lost_name = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    test::MemoryFiles files(seed);
    files.make_directories("/d").value();
    files.sync_directory("/").value();
    auto file = files.open("/d/x", port::OpenMode::write_create).value();
    file->write_at(0, "synced").value();
    file->sync().value();
    files.sync_directory("/d").value();
    file->write_at(6, std::string(2000, 'u')).value();
    files.open("/d/y", port::OpenMode::write_create).value();
    file.reset();
    files.cut_power();
    EXPECT_TRUE(files.content("/d/x").starts_with("synced"));
    lost_bytes += files.content("/d/x").size() < 2006;
    lost_name += !files.exists("/d/y");
  }
  EXPECT_GT(lost_bytes, 5);
  EXPECT_GT(lost_name, 5);
}

TEST(MemoryFiles, crashes_at_the_chosen_operation_with_a_torn_write) {
  test::MemoryFiles files(3);
  auto file = files.open("/x", port::OpenMode::write_create).value();
  files.crash_at(1);
  EXPECT_THROW((void)file->write_at(0, std::string(1000, 'a')), test::SimulatedCrash);
  EXPECT_LT(files.content("/x").size(), 1000u);
}

}  // namespace ph::commit
