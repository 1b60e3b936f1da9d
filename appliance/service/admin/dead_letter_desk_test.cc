#include "service/admin/dead_letter_desk.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "base/log.h"
#include "codec/event/block.h"
#include "support/manual_loop.h"
#include "support/memory_files.h"
#include "support/memory_store.h"

namespace ph::admin {
namespace {

struct DeskTest : testing::Test {
  test::ManualLoop loop;
  test::ManualDisk disk{loop};
  test::MemoryFiles files;
  test::MemoryStore store;
  Random random{3};
  std::unique_ptr<commit::Committer> committer;
  std::unique_ptr<dead_letter::DeadLetterFiles> letters;
  std::unique_ptr<spool::SegmentLog> log;  // of route r and target fra
  std::unique_ptr<DeadLetterDesk> desk;

  void SetUp() override {
    log_configure(LogLevel::off, false);
    files.make_directories("/data").value();
    files.sync_directory("/").value();
    start();
  }
  void start() {
    desk.reset();
    log.reset();
    committer = std::make_unique<commit::Committer>(loop, disk, store);
    letters = std::make_unique<dead_letter::DeadLetterFiles>("/data/dead", files);
    const std::string name = retry_log_name("r", "fra");
    log = std::move(*spool::SegmentLog::open({.name = name, .directory = "/data/spool/" + name}, files, store, random));
    desk = std::make_unique<DeadLetterDesk>(DeadLetterDesk::Parts{
        loop, disk, files, store, *committer, *letters, "/data/dead",
        [this](const std::string& route, const std::string& target) {
          return route == "r" && target == "fra" ? log.get() : nullptr;
        }});
  }
  void crash() {
    loop.run_posted();
    files.cut_power();
    store.cut_power(random);
    start();
  }
  port::DeadLetter letter(uint64_t n, const std::string& route = "r", const std::string& target = "fra") {
    event::Block b;
    b.category = "c";
    b.payload = Slice("line " + std::to_string(n) + "\n");
    b.events = 1;
    b.id = {NodeId{}, StreamId{1}, n, n + b.payload.size()};
    return {loop.wall_now(), route, target, "c\n", "bad", StreamId{5}, n, n + 1, Slice(event::encode(b))};
  }
  void add(std::vector<port::DeadLetter> more) {
    ASSERT_TRUE(letters->append(more));
    loop.advance(5s);
  }
  std::pair<int, std::string> ask(const std::string& method, const std::string& path, const std::string& body = {}) {
    std::pair<int, std::string> got{0, ""};
    EXPECT_TRUE(desk->handle(method, std::string(kDeadLettersPath) + path, body,
                             [&](int status, std::string answer) { got = {status, std::move(answer)}; }));
    loop.run_posted();
    return got;
  }
  DeadLetterDesk::Done done(const std::string& verb, const std::string& body) {
    auto [status, answer] = ask("POST", "/" + verb, body);
    EXPECT_EQ(status, 200) << answer;
    auto parsed = parse_done(answer);
    EXPECT_TRUE(parsed);
    return parsed.value_or(DeadLetterDesk::Done{});
  }
  size_t listed() {
    auto [status, answer] = ask("GET", "");
    EXPECT_EQ(status, 200);
    return boost::json::parse(answer).as_object()["data"].as_array().size();
  }
  std::vector<std::string> again() {
    std::vector<std::string> out;
    auto cursor = log->read_from(1);
    for (auto r = cursor->next(); r && *r; r = cursor->next())
      out.emplace_back(event::decode((*r)->block)->payload.view());
    return out;
  }
};

}  // namespace

TEST_F(DeskTest, retry_moves_letters_to_the_log_of_their_target_and_counts_them) {
  add({letter(1), letter(2), letter(3, "r", "gone"), letter(4, "other")});
  EXPECT_EQ(listed(), 4u);
  auto got = done("retry", R"({"route":"r","all":true})");
  EXPECT_EQ(got.letters, 2u);
  EXPECT_EQ(got.events, 2u);
  EXPECT_EQ(got.no_target, 1u);
  EXPECT_EQ(again(), (std::vector<std::string>{"line 1\n", "line 2\n"}));
  EXPECT_EQ(listed(), 2u);
  EXPECT_EQ(desk->counters().at("r").retried, 2u);
  EXPECT_EQ(done("retry", R"({"route":"r","all":true})").letters, 0u) << "once";
  crash();
  EXPECT_EQ(again().size(), 2u);
  EXPECT_EQ(desk->counters().at("r").retried_events, 2u);
}

TEST_F(DeskTest, letters_are_named_by_id_and_dropped_ones_are_gone) {
  add({letter(1), letter(2), letter(3)});
  const std::string id = dead_letter::letter_id(letter(2));
  EXPECT_EQ(done("drop", R"({"ids":[")" + id + R"(","0000000000000000"]})").letters, 1u);
  EXPECT_EQ(listed(), 2u);
  EXPECT_TRUE(again().empty());
  EXPECT_EQ(desk->counters().at("r").dropped, 1u);
  EXPECT_EQ(done("retry", R"({"all":true})").letters, 2u);
  EXPECT_EQ(again(), (std::vector<std::string>{"line 1\n", "line 3\n"}));
}

TEST_F(DeskTest, a_letter_that_its_source_may_not_have_passed_yet_stays) {
  ASSERT_TRUE(letters->append({letter(1)}));
  auto got = done("retry", R"({"all":true})");
  EXPECT_EQ(got.letters, 0u);
  EXPECT_EQ(got.fresh, 1u);
  loop.advance(4s);
  EXPECT_EQ(done("retry", R"({"all":true})").letters, 1u);
}

TEST_F(DeskTest, a_crash_at_any_step_sends_each_letter_exactly_once) {
  for (int step = 0; step < 60; ++step) {
    SCOPED_TRACE(step);
    files.~MemoryFiles();
    new (&files) test::MemoryFiles(static_cast<uint64_t>(step));
    store.~MemoryStore();
    new (&store) test::MemoryStore();
    files.make_directories("/data").value();
    files.sync_directory("/").value();
    start();
    add({letter(1), letter(2), letter(3)});
    desk->perform(DeadLetterDesk::Deed::retry, {.all = true}, [](const Result<DeadLetterDesk::Done>&) {});
    for (int i = 0; i < step && loop.run_one(); ++i) {
    }
    disk.drop();
    files.cut_power();
    store.cut_power(random);
    start();
    loop.run_posted();
    done("retry", R"({"all":true})");
    EXPECT_EQ(again(), (std::vector<std::string>{"line 1\n", "line 2\n", "line 3\n"}));
    EXPECT_EQ(listed(), 0u);
    EXPECT_EQ(desk->counters().at("r").retried, 3u);
  }
}

TEST_F(DeskTest, more_than_a_batch_is_done_in_one_call_and_lists_are_bounded) {
  std::vector<port::DeadLetter> many;
  for (uint64_t n = 0; n < DeadLetterDesk::kBatchLetters * 2 + 7; ++n) many.push_back(letter(n));
  add(many);
  EXPECT_EQ(listed(), 100u);
  auto page = boost::json::parse(ask("GET", "?route=r&limit=5").second).as_object();
  EXPECT_EQ(page["data"].as_array().size(), 5u);
  EXPECT_TRUE(page["meta"].as_object()["more"].as_bool());
  EXPECT_EQ(done("retry", R"({"all":true})").letters, many.size());
  EXPECT_EQ(again().size(), many.size());
  EXPECT_EQ(listed(), 0u);
}

TEST_F(DeskTest, a_disk_that_is_full_leaves_letters_where_they_are) {
  add({letter(1)});
  store.fail_writes = true;
  auto posted = std::string(kDeadLettersPath) + "/retry";
  int status = 0;
  desk->handle("POST", posted, R"({"all":true})", [&](int code, const std::string&) { status = code; });
  loop.run_posted();
  EXPECT_TRUE(desk->busy());
  EXPECT_EQ(ask("POST", "/retry", R"({"all":true})").first, 409);
  store.fail_writes = false;
  loop.advance(5s);
  loop.run_posted();
  EXPECT_EQ(status, 200);
  EXPECT_EQ(again(), (std::vector<std::string>{"line 1\n"}));
}

TEST_F(DeskTest, bad_requests_change_nothing) {
  add({letter(1)});
  for (const char* body : {"", "[]", "{}", R"({"all":false})", R"({"all":true,"ids":["x"]})", R"({"ids":[1]})",
                           R"({"all":true,"rout":"r"})"})
    EXPECT_EQ(ask("POST", "/retry", body).first, 400) << body;
  EXPECT_EQ(ask("GET", "/retry").first, 405);
  EXPECT_FALSE(desk->handle("GET", "/api/v5/status", {}, [](int, const std::string&) {}));
  EXPECT_EQ(listed(), 1u);
}

TEST_F(DeskTest, the_text_of_a_list_escapes_what_letters_bring) {
  add({letter(1)});
  auto text = letters_text(ask("GET", "").second);
  ASSERT_TRUE(text);
  EXPECT_NE(text->find("c\\x0a"), std::string::npos) << *text;
  EXPECT_NE(text->find(dead_letter::letter_id(letter(1))), std::string::npos);
  EXPECT_EQ(*letters_text(R"({"data":[]})"), "no dead letters\n");
  EXPECT_FALSE(letters_text("x"));
}

}  // namespace ph::admin
