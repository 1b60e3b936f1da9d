// What a strict sender remembers of who may publish, over restarts and damage.
#include "service/relay/publishers.h"

#include <gtest/gtest.h>

#include "support/manual_loop.h"
#include "support/memory_store.h"

namespace ph::relay {
namespace {

struct PublishersTest : testing::Test {
  test::ManualLoop loop;
  test::ManualDisk disk{loop};
  test::MemoryStore store;
  commit::Committer committer{loop, disk, store};
  Publishers memory{"fra", store, committer};
  const StreamId stream{4711};
  int durable = 0;

  PublishersTest() { memory.load().value(); }
  void own(uint64_t first, uint64_t last, uint64_t attempt, const std::string& receiver = "r0") {
    memory.own(stream, {first, last, attempt, receiver}, [this] { ++durable; });
    loop.advance(1s);
  }
  /// As a new process knows them: "[0,30) 7 r0".
  std::string stored() {
    Publishers again("fra", store, committer);
    again.load().value();
    std::string out = "published " + std::to_string(again.published(stream));
    for (const auto& o : again.owned(stream))
      out += " [" + std::to_string(o.first) + "," + std::to_string(o.last) + ") " + std::to_string(o.attempt) + " " +
             o.receiver + (o.given_up ? " given up" : "");
    return out;
  }
};

TEST_F(PublishersTest, the_first_strict_run_is_told_from_later_ones) {
  EXPECT_FALSE(memory.strict_before());
  Publishers again("fra", store, committer);
  again.load().value();
  EXPECT_TRUE(again.strict_before());
  Publishers::forget_all("fra", store).value();
  Publishers after("fra", store, committer);
  after.load().value();
  EXPECT_FALSE(after.strict_before());
}

TEST_F(PublishersTest, a_record_takes_the_place_of_what_it_overlaps) {
  own(0, 30, 7);
  own(30, 60, 8);
  EXPECT_EQ(durable, 2);
  own(20, 40, 9, "r1");
  EXPECT_EQ(stored(), "published 0 [20,40) 9 r1");
}

TEST_F(PublishersTest, what_is_passed_goes_with_the_next_record) {
  own(0, 30, 7);
  own(30, 60, 8);
  memory.passed(stream, 30);
  EXPECT_EQ(stored(), "published 0 [0,30) 7 r0 [30,60) 8 r0");
  own(60, 90, 9);
  EXPECT_EQ(stored(), "published 30 [30,60) 8 r0 [60,90) 9 r0");
  memory.forget(stream);
  loop.advance(1s);
  EXPECT_EQ(stored(), "published 0");
}

TEST_F(PublishersTest, an_owner_that_was_given_up_stays_so_until_another_one_takes_its_place) {
  own(0, 30, 7);
  own(30, 60, 8, "r1");
  int given_up = 0;
  memory.give_up("r0", [&] { ++given_up; });
  loop.advance(1s);
  EXPECT_EQ(given_up, 1);
  EXPECT_EQ(stored(), "published 0 [0,30) 7 r0 given up [30,60) 8 r1");
  own(0, 30, 9, "r1");
  EXPECT_EQ(stored(), "published 0 [0,30) 9 r1 [30,60) 8 r1");
  memory.give_up("nobody", [&] { ++given_up; });
  loop.advance(1s);
  EXPECT_EQ(given_up, 2) << "answered, also where there is nothing to write";
}

TEST_F(PublishersTest, a_damaged_record_is_named) {
  for (const auto& [key, value] : {std::pair<std::string, std::string>{"o/fra/x", "\x01"},
                                   {"o/fra/p12345678", "\x02"},
                                   {"o/fra/r1234567812345678", std::string("\x01\x00\x00", 3)}}) {
    port::WriteBatch bad;
    bad.put(key, value);
    store.write(bad, true).value();
    Publishers again("fra", store, committer);
    auto loaded = again.load();
    ASSERT_FALSE(loaded) << key;
    EXPECT_NE(loaded.error().to_string().find(to_hex(key)), std::string::npos) << loaded.error().to_string();
    port::WriteBatch mend;
    mend.remove(key);
    store.write(mend, true).value();
  }
}

}  // namespace
}  // namespace ph::relay
