// The broker's smaller parts alone: mailbox, directory, retained store.
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "base/random.h"
#include "service/broker/directory.h"
#include "service/broker/mailbox.h"
#include "service/broker/retained.h"

namespace ph::broker {
namespace {

TEST(Mailbox, keeps_each_senders_order_and_wakes_once) {
  constexpr uint32_t kSenders = 4;
  constexpr size_t kEach = 20'000;
  Mailbox mailbox;
  std::atomic<size_t> wakes{0};
  std::vector<std::thread> senders;
  for (uint32_t s = 0; s < kSenders; ++s)
    senders.emplace_back([&mailbox, &wakes, s] {
      for (size_t i = 0; i < kEach; ++i) {
        auto batch = std::make_unique<Batch>();
        batch->from = s;
        batch->weight = i;
        if (mailbox.push(std::move(batch))) ++wakes;
      }
    });
  std::vector<size_t> next(kSenders, 0);
  size_t got = 0;
  size_t takes = 0;
  while (got < kSenders * kEach) {
    const auto batches = mailbox.take();
    if (!batches.empty()) ++takes;
    for (const auto& b : batches) {
      ASSERT_EQ(b->weight, next[b->from]++);
      mailbox.worked_off(b->weight);
      ++got;
    }
  }
  for (auto& t : senders) t.join();
  EXPECT_EQ(wakes.load(), takes) << "one wake for each time it became non-empty";
  EXPECT_EQ(mailbox.weight(), 0U);
}

TEST(Directory, grants_one_claim_after_the_other) {
  Directory d;
  auto first = d.claim("a", {0, 1});
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->holder, kNobody);
  EXPECT_FALSE(d.claim("a", {1, 2}).has_value());
  EXPECT_FALSE(d.claim("a", {2, 3}).has_value());
  EXPECT_TRUE(d.claim("b", {2, 4}).has_value()) << "another client";
  d.released("a", 0);  // while a claim is at work: no news
  auto second = d.settle("a", 0);
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->claim.ticket, 2U);
  EXPECT_EQ(second->holder, 0U);
  auto third = d.settle("a", 1);
  ASSERT_TRUE(third.has_value());
  EXPECT_EQ(third->holder, 1U);
  EXPECT_FALSE(d.settle("a", 2).has_value());
  d.released("a", 1);  // it lives on 2 by now
  EXPECT_EQ(d.claim("a", {0, 5})->holder, 2U);
  d.settle("a", kNobody);
  d.settle("b", kNobody);
  EXPECT_EQ(d.size(), 0U);
}

/// Writes reach each worker's copy in another order; in the end all copies agree: the highest version of each topic.
TEST(RetainedStore, copies_agree_whatever_the_order) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    struct Write {
      std::string topic, payload;
      RetainedVersion version;
    };
    std::vector<Write> writes;
    std::map<std::string, Write> winners;
    for (uint64_t i = 1; i <= 60; ++i) {
      Write w{"t/" + std::to_string(random.below(6)),
              random.chance(0.3) ? "" : "v" + std::to_string(i),
              {1 + random.below(40), static_cast<uint32_t>(i)}};
      auto& winner = winners[w.topic];
      if (winner.topic.empty() || winner.version < w.version) winner = w;
      writes.push_back(std::move(w));
    }
    for (int copy = 0; copy < 3; ++copy) {
      for (size_t i = writes.size() - 1; i > 0; --i) std::swap(writes[i], writes[random.below(i + 1)]);
      session::Counters counters;
      RetainedStore store(100, 10'000, counters);
      session::Outgoing o;
      for (const Write& w : writes) {
        session::MessageView v;
        v.topic = w.topic;
        v.payload = w.payload;
        o.reset(v);
        store.set(o, w.version, Instant{});
      }
      store.sweep(Instant{} + std::chrono::minutes(2));  // tombstones go, values stay
      std::map<std::string, std::string> have, expected;
      size_t bytes = 0;
      store.match("#", Instant{}, [&](const session::MessagePtr& m) {
        have[m->topic] = std::string(m->payload.view());
        bytes += m->bytes();
      });
      for (const auto& [topic, w] : winners)
        if (!w.payload.empty()) expected[topic] = w.payload;
      EXPECT_EQ(have, expected);
      EXPECT_EQ(store.messages(), expected.size());
      EXPECT_EQ(store.bytes(), bytes);
      EXPECT_EQ(counters.retained.get(), expected.size());
    }
  }
}

}  // namespace
}  // namespace ph::broker
