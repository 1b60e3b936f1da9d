// The tap's acknowledgements: what waits for far ends, before and after a restart.
#include "service/relay/tap.h"

#include <gtest/gtest.h>

#include "base/coding.h"
#include "base/log.h"
#include "store/commit/committer.h"
#include "support/manual_loop.h"
#include "support/memory_files.h"
#include "support/memory_store.h"

namespace ph::relay {
namespace {

class TapTest : public testing::Test {
 protected:
  test::ManualLoop loop;
  test::ManualDisk disk{loop};
  test::MemoryFiles files;
  test::MemoryStore store;
  commit::Committer committer{loop, disk, store};
  std::unique_ptr<spool::SegmentLog> log;
  std::unique_ptr<Tap> tap;
  int answered = 0;

  void SetUp() override {
    log_configure(LogLevel::off, false);
    log = spool::SegmentLog::open({.name = "r", .directory = "/spool"}, files, store, loop.random()).value();
    make_tap(true);
  }
  void make_tap(bool far) {
    tap = std::make_unique<Tap>(
        NodeId{},
        std::vector<TapRoute>{
            {.name = "r", .category = "c", .log = log.get(), .full = [] { return false; }, .far = far}},
        [](std::string_view) { return std::vector<size_t>{0}; }, loop, committer);
  }
  void take(const std::string& far_key) {
    port::Message m;
    m.topic = "t";
    m.qos = 2;
    m.far_key = far_key;
    tap->take(std::move(m), {}, [this](const Result<>& r) { answered += r ? 1 : 0; });
    loop.run_posted();
  }
  std::string waits_for(const std::string& key) { return store.get(key).value().value_or(""); }
  void resume(const std::string& waits_for) {
    tap->resume_far(waits_for, [this] { ++answered; });
    loop.run_posted();
  }
};

TEST_F(TapTest, what_waits_for_a_far_end_waits_on_after_a_restart) {
  take("k/1");
  take("");
  take("k/2");
  EXPECT_EQ(answered, 0);
  ASSERT_NE(waits_for("k/1"), "");
  ASSERT_NE(waits_for("k/2"), "");
  make_tap(true);
  resume(waits_for("k/1"));
  resume(waits_for("k/2"));
  EXPECT_EQ(answered, 0);
  tap->far_reached("r", log->durable_end() - 1);
  EXPECT_EQ(answered, 1);
  tap->far_reached("r", log->durable_end());
  EXPECT_EQ(answered, 2);
  resume(waits_for("k/2"));
  EXPECT_EQ(answered, 3) << "it was there before it was asked for";
}

TEST_F(TapTest, of_what_nobody_waits_for_only_so_much_is_kept_for_a_disk_that_does_not_take_it) {
  disk.hold();
  const Slice payload(std::string(64 * 1024, 'x'));
  auto send = [&](uint8_t qos) {
    port::Message m;
    m.topic = "t";
    m.qos = qos;
    m.payload = payload;
    tap->take(std::move(m), {}, [this](const Result<>& r) { answered += r ? 1 : 0; });
    loop.run_posted();
  };
  make_tap(false);
  for (int i = 0; i < 1000; ++i) send(0);
  const uint64_t shed = tap->counters().shed;
  EXPECT_GT(shed, 400U);
  EXPECT_LT(shed, 600U);
  send(1);
  EXPECT_EQ(tap->counters().shed, shed) << "whose sender waits";
  disk.release();
  loop.run_posted();
  EXPECT_EQ(tap->counters().events, 1001 - shed);
  send(0);
  loop.run_posted();
  EXPECT_EQ(tap->counters().shed, shed);
  EXPECT_EQ(static_cast<uint64_t>(answered), 1002 - shed);
}

TEST_F(TapTest, nothing_is_waited_for_that_will_not_come) {
  take("k/1");
  const std::string record = waits_for("k/1");
  make_tap(false);  // the route does not ask for far ends any more
  resume(record);
  EXPECT_EQ(answered, 1);
  make_tap(true);
  std::string beyond;  // the log was lost with its disk: it begins anew
  put_varint(beyond, 2);
  put_sized(beyond, "r");
  put_varint(beyond, 1000);
  put_sized(beyond, "gone");
  put_varint(beyond, 1);
  resume(beyond);
  EXPECT_EQ(answered, 2);
  for (size_t n = 0; n < record.size(); ++n) resume(record.substr(0, n));
  EXPECT_EQ(answered, 2 + static_cast<int>(record.size())) << "damaged: PUBREC is not held back for ever";
}

}  // namespace
}  // namespace ph::relay
