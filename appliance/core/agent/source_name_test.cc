#include "core/agent/source_name.h"

#include <gtest/gtest.h>

namespace ph::agent {

TEST(SourceName, big_files_are_those_that_writers_lock) {
  for (const char* name : {"x_big", "x_big.log", "x_big.log.1", "x_big.log.old", "x_big-20240131"}) {
    EXPECT_TRUE(is_big(name)) << name;
  }
  for (const char* name : {"x", "x_big2.log", "big.log", "x_bigger"}) EXPECT_FALSE(is_big(name)) << name;
}
namespace {

SourceName name(std::string_view directory, std::string_view file, bool known = false) {
  return source_name(directory, file, [known](std::string_view) { return known; });
}

TEST(SourceName, first_level_strips_old_log_big_once_in_that_order) {
  for (std::string_view file : {"x", "x.log", "x_big", "x_big.log", "x.log.old", "x.old", "x_big.log.old"})
    EXPECT_EQ(category_of(file), "x") << file;
  EXPECT_EQ(category_of("x.log.log"), "x.log");
  EXPECT_EQ(category_of("x.old.log"), "x.old");
  EXPECT_EQ(category_of("x_big_big"), "x_big");
  EXPECT_EQ(category_of("x.log_big"), "x.log");
  EXPECT_EQ(category_of("_big"), "");
}

TEST(SourceName, inside_a_directory_the_directory_names_the_category) {
  EXPECT_EQ(name("clicks", "202401312359.log").category, "clicks");
  EXPECT_EQ(name("clicks", "anything.at.all").category, "clicks");
}

TEST(SourceName, a_rotation_is_older_data_of_its_original) {
  SourceName n = name("", "x.log.2");
  EXPECT_EQ(n.category, "x");
  EXPECT_EQ(n.original, "x.log");
  EXPECT_GT(n.rotation, name("", "x.log.1").rotation);
  EXPECT_GT(name("", "x.log.1").rotation, name("", "x.log").rotation);
  EXPECT_EQ(name("", "x.log.old").original, "x.log");
  EXPECT_EQ(name("", "x.log-20240131").original, "x.log");
  EXPECT_GT(name("", "x.log-20240131").rotation, name("", "x.log-20240201").rotation);
}

TEST(SourceName, a_date_in_any_of_the_usual_forms_is_a_rotation) {
  for (std::string_view file : {"x.log-20240131", "x.log.20240131", "x.log-2024013115", "x.log-20240131-1706700000",
                                "x.log.2024-01-31", "x.log.2024-01-31_15", "x.log-2024-01-31-15-59-59"}) {
    EXPECT_EQ(name("", file).original, "x.log") << file;
    EXPECT_EQ(name("", file).category, "x") << file;
  }
  EXPECT_GT(name("", "x.log-2024013115").rotation, name("", "x.log-2024013116").rotation);
  EXPECT_GT(name("", "x.log.2024-01-31_15").rotation, name("", "x.log.2024-01-31_16").rotation);
  EXPECT_EQ(name("", "a-b.log-20240131").original, "a-b.log");
  for (std::string_view file : {"x.log-20241331", "x.log-12345678", "x.log-2024", "x.log-2024--01-31",
                                "x.log-20240131-", "x.log-2024-01-31T15", "x.log-20240131000000000000"})
    EXPECT_EQ(name("", file).original, file);
}

TEST(SourceName, a_date_alone_is_a_rotation_only_of_something_known) {
  EXPECT_EQ(name("", "messages-20240131").category, "messages-20240131");
  EXPECT_EQ(name("", "messages-20240131", true).category, "messages");
  EXPECT_EQ(name("", "messages-20240131", true).original, "messages");
}

TEST(SourceName, a_number_alone_is_a_rotation_only_of_something_known) {
  EXPECT_EQ(name("", "shard.7").category, "shard.7");
  EXPECT_EQ(name("", "shard.7", true).category, "shard");
  EXPECT_EQ(name("", "v1.12345").category, "v1.12345");  // no rotation suffix has five digits
  EXPECT_EQ(name("d", "202401010000").original, "202401010000");
}

TEST(SourceName, dotfiles_and_compressed_copies_are_never_read) {
  EXPECT_EQ(skip_reason("x.log"), "");
  EXPECT_EQ(skip_reason(".x.log.swp"), "a dotfile");
  for (std::string_view file : {"x.log.gz", "x.bz2", "x.xz", "x.log.1.zst", "x.log-20240131.lz4", "x.zip"})
    EXPECT_EQ(skip_reason(file), "a compressed copy") << file;
}

TEST(SourceName, hidden_names_give_the_category_back) {
  std::string hidden = hidden_name(StreamId{0xABC}, "some-cat.x");
  EXPECT_EQ(hidden, "0000000000000abc-some-cat.x");
  EXPECT_EQ(category_of_hidden(hidden), "some-cat.x");
  EXPECT_FALSE(category_of_hidden("0000000000000abc"));
  EXPECT_FALSE(category_of_hidden("0000000000000abg-x"));
  EXPECT_FALSE(category_of_hidden("notes.txt-and-more-of-it"));
}

}  // namespace
}  // namespace ph::agent
