#include "service/admin/owner_desk.h"

#include <gtest/gtest.h>

namespace ph::admin {

TEST(OwnerDesk, a_request_comes_back_as_it_was_made) {
  for (const bool dry : {true, false}) {
    auto r = parse_forget_owner(to_json(ForgetOwner{"fra", "fra-1:3706", dry}));
    ASSERT_TRUE(r);
    EXPECT_EQ(r->upstream, "fra");
    EXPECT_EQ(r->receiver, "fra-1:3706");
    EXPECT_EQ(r->dry_run, dry);
  }
  EXPECT_FALSE(parse_forget_owner(R"({"upstream":"fra","receiver":"a:1"})")->dry_run);
}

TEST(OwnerDesk, what_is_no_request_is_refused) {
  for (const char* text :
       {"", "[]", "{", R"({"upstream":"fra"})", R"({"receiver":"a:1"})", R"({"upstream":1,"receiver":"a"})",
        R"({"upstream":"","receiver":"a"})", R"({"upstream":"f","receiver":"a","dry_run":1})"})
    EXPECT_FALSE(parse_forget_owner(text)) << text;
}

TEST(OwnerDesk, says_what_it_costs_before_and_what_was_done_after) {
  const std::string before = *owner_forgotten_text(to_json(OwnerForgotten{"fra", "fra-1:3706", 3, false}));
  EXPECT_NE(before.find("3 batches"), before.npos);
  EXPECT_NE(before.find("comes twice"), before.npos);
  EXPECT_NE(before.find("--yes"), before.npos);
  const std::string after = *owner_forgotten_text(to_json(OwnerForgotten{"fra", "fra-1:3706", 3, true}));
  EXPECT_NE(after.find("maybe_duplicate"), after.npos);
  EXPECT_FALSE(owner_forgotten_text("{}"));
}

}  // namespace ph::admin
