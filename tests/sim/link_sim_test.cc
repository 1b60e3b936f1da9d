// Seeds of the link simulation. PH_SIM_SEED=N repeats one seed, PH_SIM_SEEDS=N runs that many.
#include <gtest/gtest.h>

#include <cstdlib>

#include "sim/link_sim.h"

namespace ph::link_sim {
namespace {

uint64_t number(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

Outcome run(uint64_t seed) {
  return World(seed, Profile::of_seed(seed)).run();
}

}  // namespace

TEST(LinkSim, nothing_is_lost_and_nothing_is_doubled) {
  uint64_t only = number("PH_SIM_SEED", 0);
  uint64_t first = only ? only : 1, last = only ? only : number("PH_SIM_SEEDS", 400);
  Outcome sum;
  size_t failures = 0;
  for (uint64_t seed = first; seed <= last && failures < 10; ++seed) {
    try {
      Outcome o = run(seed);
      sum.units += o.units;
      sum.published += o.published;
      sum.extra_copies += o.extra_copies;
      sum.rerouted += o.rerouted;
      sum.duplicates += o.duplicates;
      sum.dead_letters += o.dead_letters;
      sum.sender_crashes += o.sender_crashes;
      sum.receiver_crashes += o.receiver_crashes;
      sum.connections += o.connections;
      sum.holds += o.holds;
      sum.failed_groups += o.failed_groups;
      sum.late_bytes += o.late_bytes;
    } catch (const Violation& v) {
      ++failures;
      ADD_FAILURE() << v.what() << "  (again: PH_SIM_SEED=" << seed << ")";
    }
  }
  std::printf(
      "%llu seeds: %llu events written, %llu published, %llu of them further copies (%llu rerouted unasked), %llu "
      "known "
      "duplicates, %llu dead letters; %llu sender and %llu receiver crashes, %llu connections, %llu holds, %llu failed "
      "commits, %llu frames after their connection\n",
      static_cast<unsigned long long>(last - first + 1), static_cast<unsigned long long>(sum.units),
      static_cast<unsigned long long>(sum.published), static_cast<unsigned long long>(sum.extra_copies),
      static_cast<unsigned long long>(sum.rerouted), static_cast<unsigned long long>(sum.duplicates),
      static_cast<unsigned long long>(sum.dead_letters), static_cast<unsigned long long>(sum.sender_crashes),
      static_cast<unsigned long long>(sum.receiver_crashes), static_cast<unsigned long long>(sum.connections),
      static_cast<unsigned long long>(sum.holds), static_cast<unsigned long long>(sum.failed_groups),
      static_cast<unsigned long long>(sum.late_bytes));
  if (only || last < 100) return;
  // The simulation must meet what it is about.
  EXPECT_GT(sum.extra_copies, 0u);
  EXPECT_GT(sum.duplicates, 0u);
  EXPECT_GT(sum.dead_letters, 0u);
  EXPECT_GT(sum.holds, 0u);
  EXPECT_GT(sum.failed_groups, 0u);
  EXPECT_GT(sum.late_bytes, 0u);
}

TEST(LinkSim, with_receivers_that_can_be_asked_nothing_is_even_maybe_doubled) {
  uint64_t only = number("PH_SIM_SEED", 0);
  for (uint64_t seed = only ? only : 1; seed <= (only ? only : number("PH_SIM_SEEDS", 400) / 4); ++seed) {
    try {
      Outcome o = World(seed, Profile::receivers_stay(seed)).run();
      EXPECT_EQ(o.rerouted, 0u) << "PH_SIM_SEED=" << seed;
      EXPECT_EQ(o.extra_copies, 0u) << "PH_SIM_SEED=" << seed;
    } catch (const Violation& v) {
      ADD_FAILURE() << v.what();
    }
  }
}

TEST(LinkSim, held_streams_and_failed_commits_never_end_a_connection) {
  uint64_t only = number("PH_SIM_SEED", 0);
  for (uint64_t seed = only ? only : 1; seed <= (only ? only : number("PH_SIM_SEEDS", 400) / 4); ++seed) {
    try {
      Profile profile = Profile::connections_stay(seed);
      Outcome o = World(seed, profile).run();
      EXPECT_EQ(o.connections, profile.receivers) << "PH_SIM_SEED=" << seed;
      EXPECT_EQ(o.extra_copies + o.duplicates, 0u) << "PH_SIM_SEED=" << seed;
    } catch (const Violation& v) {
      ADD_FAILURE() << v.what();
    }
  }
}

TEST(LinkSim, a_seed_repeats_exactly) {
  for (uint64_t seed : {3u, 8u, 21u}) EXPECT_EQ(run(seed).fingerprint, run(seed).fingerprint);
}

}  // namespace ph::link_sim
