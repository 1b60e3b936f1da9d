#include "io/resolver.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "io/loop_state.h"
#include "io/test_network.h"

namespace ph::io {
namespace {

/// A name server in our hands: names that begin with "slow" wait until they are let go.
struct SlowNames {
  explicit SlowNames(LoopState& loop) {
    loop.resolver->replace_lookup([shared = shared](const std::string& host) -> Result<Addresses> {
      ++shared->lookups;
      if (host.starts_with("slow")) shared->let_go.wait(false);
      ++shared->ended;
      if (host == "none") return fail(port::net_errors::name, "none");
      return Addresses{boost::asio::ip::make_address("127.0.0.1")};
    });
  }
  ~SlowNames() {
    release();
    while (shared->ended < shared->lookups) std::this_thread::yield();
  }
  void release() {
    shared->let_go = true;
    shared->let_go.notify_all();
  }
  struct Shared {
    std::atomic<bool> let_go{false};
    std::atomic<int> lookups{0};
    std::atomic<int> ended{0};
  };
  std::shared_ptr<Shared> shared = std::make_shared<Shared>();
};

/// Turns until `done`; bounded by the test's own time limit, every turn is woken by a post.
template <class Done>
void run(LoopState& loop, Done done) {
  while (!done()) {
    loop.post([] {});
    loop.turn();
  }
}

TEST(Resolver, a_slow_name_delays_no_other) {
  LoopState loop;
  SlowNames names(loop);
  bool slow = false;
  bool quick = false;
  loop.resolver->resolve("slow", [&](const auto&) { slow = true; });
  loop.resolver->resolve("quick", [&](const Result<Addresses>& found) { quick = found.has_value(); });
  EXPECT_FALSE(quick) << "never from inside resolve()";
  run(loop, [&] { return quick; });
  EXPECT_FALSE(slow);
  names.release();
  run(loop, [&] { return slow; });
}

TEST(Resolver, askers_of_one_name_share_a_lookup) {
  LoopState loop;
  SlowNames names(loop);
  int answers = 0;
  for (int i = 0; i < 20; ++i) loop.resolver->resolve("slow", [&](const auto&) { ++answers; });
  names.release();
  run(loop, [&] { return answers == 20; });
  EXPECT_EQ(names.shared->lookups, 1);
}

TEST(Resolver, bounds_lookups_at_once_and_serves_the_rest_later) {
  LoopState loop;
  SlowNames names(loop);
  size_t answers = 0;
  for (size_t i = 0; i < 3 * kLookupsMax; ++i)
    loop.resolver->resolve("slow" + std::to_string(i), [&](const auto&) { ++answers; });
  run(loop, [&] { return names.shared->lookups == static_cast<int>(kLookupsMax); });
  names.release();
  run(loop, [&] { return answers == 3 * kLookupsMax; });
}

TEST(Resolver, refuses_askers_above_its_bound) {
  LoopState loop;
  SlowNames names(loop);
  size_t refused = 0;
  for (size_t i = 0; i < kLookupWaitersMax + 5; ++i)
    loop.resolver->resolve("slow", [&](const auto& found) { refused += !found; });
  run(loop, [&] { return refused == 5; });
}

TEST(Resolver, tells_failures) {
  LoopState loop;
  SlowNames names(loop);
  bool failed = false;
  loop.resolver->resolve(
      "none", [&](const Result<Addresses>& found) { failed = !found && found.error().code == port::net_errors::name; });
  run(loop, [&] { return failed; });
}

TEST(Resolver, the_end_of_a_loop_waits_for_no_lookup) {
  auto loop = std::make_unique<LoopState>();
  SlowNames names(*loop);
  auto owned = std::make_shared<int>(0);
  loop->resolver->resolve("slow", [owned](const auto&) { ADD_FAILURE() << "the loop is gone"; });
  loop.reset();
  EXPECT_EQ(owned.use_count(), 1);
}

TEST(Resolver, looks_up_what_the_system_knows) {
  auto found = look_up("localhost");
  ASSERT_TRUE(found.has_value()) << found.error().to_string();
  EXPECT_TRUE(found->front().is_loopback());
  auto none = look_up("no-such-host.invalid");
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, port::net_errors::name);
}

}  // namespace
}  // namespace ph::io
