#include "service/admin/alarms.h"

#include <gtest/gtest.h>

namespace ph::admin {

TEST(Alarms, keep_the_time_at_which_each_was_raised) {
  Alarms alarms;
  alarms.update({{"disk_full", "data_dir", "1 MiB left"}}, from_unix_ms(1000));
  alarms.update({{"spool_full", "payments", "x"}, {"disk_full", "data_dir", "0 MiB left"}}, from_unix_ms(2000));
  ASSERT_EQ(alarms.list().size(), 2u);
  EXPECT_EQ(to_unix_ms(alarms.list()[0].since), 2000);
  EXPECT_EQ(to_unix_ms(alarms.list()[1].since), 1000) << "the text may change, the alarm is the same";
  EXPECT_EQ(alarms.list()[1].text, "0 MiB left");
  alarms.update({{"spool_full", "other", "x"}}, from_unix_ms(3000));
  ASSERT_EQ(alarms.list().size(), 1u);
  EXPECT_EQ(to_unix_ms(alarms.list()[0].since), 3000) << "of another route: another alarm";
  alarms.update({}, from_unix_ms(4000));
  EXPECT_TRUE(alarms.list().empty());
  alarms.update({{"spool_full", "other", "x"}}, from_unix_ms(5000));
  EXPECT_EQ(to_unix_ms(alarms.list()[0].since), 5000) << "over, then raised again";
}

TEST(Alarms, are_bounded) {
  Alarms alarms;
  std::vector<Alarm> many;
  for (int i = 0; i < 500; ++i) many.push_back({"spool_full", std::to_string(i), ""});
  alarms.update(many, from_unix_ms(1));
  EXPECT_EQ(alarms.list().size(), Alarms::kMax);
}

}  // namespace ph::admin
