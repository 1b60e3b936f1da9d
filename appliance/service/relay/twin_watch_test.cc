#include "service/relay/twin_watch.h"

#include <gtest/gtest.h>

#include <cstring>

namespace ph::relay {
namespace {

const NodeId kNode = *NodeId::from_bytes(std::string(16, 'n'));
const Instant kNow = Instant{} + std::chrono::hours(1);

TEST(TwinWatch, restarts_and_reconnects_are_no_twins) {
  TwinWatch watch;
  for (uint64_t incarnation = 1; incarnation < 20; ++incarnation)
    for (int connection = 0; connection < 3; ++connection)
      EXPECT_FALSE(watch.note(kNode, incarnation, "gw at 10.0.0.1:1", kNow));
  EXPECT_TRUE(watch.twins(kNow).empty());
}

TEST(TwinWatch, an_incarnation_that_comes_back_is_another_process) {
  TwinWatch watch;
  EXPECT_FALSE(watch.note(kNode, 1, "a at 10.0.0.1:1", kNow));
  EXPECT_FALSE(watch.note(kNode, 2, "b at 10.0.0.2:1", kNow));
  EXPECT_TRUE(watch.note(kNode, 1, "a at 10.0.0.1:2", kNow));
  EXPECT_FALSE(watch.note(kNode, 2, "b at 10.0.0.2:2", kNow)) << "told once";
  const auto twins = watch.twins(kNow);
  ASSERT_EQ(twins.size(), 1U);
  EXPECT_EQ(twins[0].one, "b at 10.0.0.2:2");
  EXPECT_EQ(twins[0].other, "a at 10.0.0.1:2");
  EXPECT_TRUE(watch.twins(kNow + TwinWatch::kRemembered + 1s).empty());
  EXPECT_TRUE(watch.note(kNode, 1, "a", kNow + TwinWatch::kRemembered + 1s)) << "and again when it begins anew";
}

TEST(TwinWatch, remembers_a_bounded_number_of_nodes) {
  TwinWatch watch;
  for (uint32_t i = 0; i < TwinWatch::kNodesMax + 10; ++i) {
    std::string id(16, '\0');
    std::memcpy(id.data(), &i, sizeof i);
    id[15] = 1;
    watch.note(*NodeId::from_bytes(id), 1, "x", kNow + std::chrono::milliseconds(i));
  }
  EXPECT_TRUE(watch.twins(kNow).empty());
}

}  // namespace
}  // namespace ph::relay
