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
      store.sweep(Instant{} + std::chrono::minutes(2), [](const std::string&) {});  // tombstones go, values stay
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

struct Retained {
  session::Counters counters;
  RetainedStore store{10, 10'000, counters};
  session::Outgoing outgoing;
  uint64_t version = 0;
  bool set(const std::string& topic, const std::string& payload, std::optional<uint32_t> expiry, Instant now) {
    session::MessageView v;
    v.topic = topic;
    v.payload = payload;
    v.expiry = expiry;
    v.received = now;
    outgoing.reset(v);
    return store.set(outgoing, {++version, 0}, now);
  }
};

TEST(RetainedStore, what_has_expired_makes_room) {
  Retained r;
  const Instant start{};
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(r.set("t/" + std::to_string(i), "x", 1 + i % 2, start));
  ASSERT_TRUE(r.set("t/0", "y", std::nullopt, start));  // a later one without expiry stays
  EXPECT_FALSE(r.set("new", "x", std::nullopt, start));
  std::vector<std::string> gone;
  r.store.sweep(start + 1s, [&](const std::string& topic) { gone.push_back(topic); });
  EXPECT_EQ(gone.size(), 4U);
  EXPECT_EQ(r.store.messages(), 6U);
  EXPECT_EQ(r.counters.retained.get(), 6U);
  EXPECT_TRUE(r.set("new", "x", std::nullopt, start + 1s));
  r.store.sweep(start + 2s, [&](const std::string& topic) { gone.push_back(topic); });
  EXPECT_EQ(r.store.messages(), 2U);
  EXPECT_EQ(r.store.find("t/0")->payload.view(), "y");
}

TEST(RetainedStore, clearing_what_never_was_takes_bounded_memory) {
  Retained r;
  const std::string path(60'000, 'x');
  for (int i = 0; i < 1000; ++i) r.set(path + std::to_string(i), "", std::nullopt, Instant{});
  EXPECT_LE(r.store.tombstones(), RetainedStore::kTombstoneBytesMax / path.size());
  for (size_t i = 0; i < 2 * RetainedStore::kTombstonesMax; ++i) r.set(std::to_string(i), "", std::nullopt, Instant{});
  EXPECT_LE(r.store.tombstones(), RetainedStore::kTombstonesMax);
}

}  // namespace
}  // namespace ph::broker
