#include "core/settings/units.h"

#include <gtest/gtest.h>

#include "core/settings/address.h"
#include "core/settings/suggest.h"

namespace ph::settings {
namespace {

TEST(Units, mean_what_they_say) {
  EXPECT_EQ(parse_size("1GB")->value, 1'000'000'000u);
  EXPECT_EQ(parse_size("1GiB")->value, 1u << 30);
  EXPECT_EQ(parse_size("3 kB")->value, 3000u);
  EXPECT_EQ(parse_size("0B")->value, 0u);
  EXPECT_EQ(*parse_duration("250ms"), 250ms);
  EXPECT_EQ(*parse_duration("7d"), std::chrono::hours(168));
  EXPECT_EQ(parse_rate("8MiB/s")->value, 8u << 20);
  for (const char* bad :
       {"", "MiB", "10", "-1MiB", "1.5GB", "10 megs", "1  MB", "1MB ", "18446744073709551616B", "9000000TiB"})
    EXPECT_FALSE(parse_size(bad)) << bad;
  for (const char* bad : {"", "s", "5", "5 sec", "1h30m", "300000000d"}) EXPECT_FALSE(parse_duration(bad)) << bad;
  EXPECT_FALSE(parse_rate("8MiB"));
}

TEST(Units, are_written_so_that_they_read_back) {
  for (uint64_t n : {0ull, 1ull, 1000ull, 1024ull, 1'000'000ull, 1'048'576ull, 1'000'001ull, 5ull << 40})
    EXPECT_EQ(parse_size(format_size(Bytes{n}))->value, n) << format_size(Bytes{n});
  for (Duration d : {Duration(0), Duration(1ms), Duration(60s), Duration(90s), Duration(std::chrono::hours(24))})
    EXPECT_EQ(*parse_duration(format_duration(d)), d) << format_duration(d);
  EXPECT_EQ(format_duration(60s), "1m");
}

TEST(Suggest, counts_edits_and_swaps) {
  EXPECT_EQ(edit_distance("window", "window"), 0u);
  EXPECT_EQ(edit_distance("windwo", "window"), 1u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(nearest("adresses", {"name", "addresses"}), "addresses");
  EXPECT_EQ(nearest("zzz", {"name", "addresses"}), "");
}

TEST(HostPort, reads_addresses_and_knows_loopback) {
  EXPECT_EQ(*parse_host_port("a-1.example:3706", false), (HostPort{"a-1.example", 3706}));
  EXPECT_EQ(*parse_host_port("[::1]:1", false), (HostPort{"::1", 1}));
  EXPECT_EQ(parse_host_port(":0", true)->host, "");
  EXPECT_EQ(parse_host_port("*:5", true)->host, "");
  for (const char* bad :
       {"", ":", "a", "a:", "a:x", "a:70000", "a:0", ":1", "a b:1", "[::1]", "[a]:1", "::1:1", "a:1 "})
    EXPECT_FALSE(parse_host_port(bad, false)) << bad;
  EXPECT_TRUE((HostPort{"127.4.5.6", 1}.is_loopback()));
  EXPECT_TRUE((HostPort{"localhost", 1}.is_loopback()));
  EXPECT_FALSE((HostPort{"127.0.0.evil", 1}.is_loopback()));
  EXPECT_FALSE((HostPort{"127.0.0", 1}.is_loopback()));
  EXPECT_FALSE((HostPort{"", 1}.is_loopback()));
}

}  // namespace
}  // namespace ph::settings
