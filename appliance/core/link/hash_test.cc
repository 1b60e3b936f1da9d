#include "core/link/hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/coding.h"
#include "base/random.h"
#include "codec/event/block.h"
#include "core/link/packed.h"

namespace ph::link {
namespace {

std::vector<Owners::Place> places(size_t count) {
  std::vector<Owners::Place> out;
  for (size_t i = 0; i < count; ++i) out.push_back({"10.0.0." + std::to_string(i) + ":3706", 1});
  return out;
}

std::vector<size_t> all_owners(const Owners& owners) {
  std::vector<size_t> out;
  for (uint32_t p = 0; p < kPartitions; ++p) out.push_back(owners.of(static_cast<uint16_t>(p)));
  return out;
}

/// A batch of one block of lines.
struct Lines {
  uint64_t first;
  std::string text;
  uint64_t last() const { return first + text.size(); }
  uint64_t events() const { return static_cast<uint64_t>(std::count(text.begin(), text.end(), '\n')); }
  Slice packed() const {
    event::Block block;
    block.kind = event::BlockKind::lines;
    block.category = "clicks";
    block.id = {NodeId{}, StreamId{1}, first, last()};
    block.events = events();
    block.payload = Slice(text);
    std::string out;
    put_varint(out, text.size());
    put_sized(out, event::encode(block));
    return Slice(std::move(out));
  }
};

std::string text_of(const Run& run) {
  std::string out;
  for_each_block(run.packed, run.first, run.last, [&](uint64_t, uint64_t, const Slice& bytes) {
    auto block = event::decode(bytes);
    ASSERT_TRUE(block);
    out += block->payload.view();
  });
  return out;
}

}  // namespace

TEST(Owners, the_loss_of_one_moves_its_partitions_and_no_others) {
  for (size_t count = 2; count <= 8; ++count) {
    Owners owners(places(count), 1);
    auto before = all_owners(owners);
    for (size_t lost = 0; lost < count; ++lost) {
      std::vector<bool> present(count, true);
      present[lost] = false;
      EXPECT_TRUE(owners.set_present(present));
      auto after = all_owners(owners);
      for (uint32_t p = 0; p < kPartitions; ++p) {
        if (before[p] == lost) {
          EXPECT_NE(after[p], lost);
        } else {
          EXPECT_EQ(after[p], before[p]);
        }
      }
      present[lost] = true;
      owners.set_present(present);
      EXPECT_EQ(all_owners(owners), before) << "its return brings the same ones back";
    }
  }
}

TEST(Owners, shares_follow_the_weights) {
  auto three = places(3);
  three[1].weight = 2;
  three[2].weight = 5;
  std::map<size_t, size_t> count;
  for (size_t owner : all_owners(Owners(three, 1))) ++count[owner];
  EXPECT_NEAR(static_cast<double>(count[0]), kPartitions / 8.0, 45);
  EXPECT_NEAR(static_cast<double>(count[1]), kPartitions / 4.0, 60);
  EXPECT_NEAR(static_cast<double>(count[2]), kPartitions * 5 / 8.0, 70);
}

TEST(Owners, the_order_of_the_addresses_does_not_matter) {
  auto three = places(3);
  auto turned = std::vector{three[2], three[0], three[1]};
  auto one = all_owners(Owners(three, 1)), other = all_owners(Owners(turned, 1));
  for (uint32_t p = 0; p < kPartitions; ++p) EXPECT_EQ(three[one[p]].address, turned[other[p]].address);
}

TEST(Owners, connections_of_an_address_share_what_is_its_own) {
  Owners one(places(3), 1), four(places(3), 4);
  std::map<size_t, size_t> used;
  for (uint32_t p = 0; p < kPartitions; ++p) {
    auto partition = static_cast<uint16_t>(p);
    EXPECT_EQ(four.of(partition) / 4, one.of(partition));
    ++used[four.of(partition)];
  }
  EXPECT_EQ(used.size(), 12u);
  std::vector<bool> present(12, true);
  present[5] = false;  // its address has three more
  auto before = all_owners(four);
  four.set_present(present);
  for (uint32_t p = 0; p < kPartitions; ++p) EXPECT_EQ(four.of(static_cast<uint16_t>(p)) / 4, before[p] / 4);
}

TEST(Owners, with_nobody_there_all_stays) {
  Owners owners(places(3), 1);
  auto before = all_owners(owners);
  EXPECT_FALSE(owners.set_present({false, false, false}));
  EXPECT_EQ(all_owners(owners), before);
}

TEST(KeyFinder, finds_keys_as_configured) {
  KeyFinder prefix({HashRule::By::prefix, ":", 0});
  EXPECT_EQ(prefix.partition("alice:1", {}), prefix.partition("alice:2", {}));
  EXPECT_NE(prefix.partition("alice:1", {}), prefix.partition("alicf:1", {}));
  EXPECT_EQ(prefix.partition("no delimiter", {}), std::nullopt);
  KeyFinder regex({HashRule::By::regex, "user_id=(\\d+)", 0});
  EXPECT_EQ(regex.partition("a=1 user_id=17 x", {}), regex.partition("user_id=17", {}));
  EXPECT_NE(regex.partition("user_id=17", {}), regex.partition("user_id=18", {}));
  EXPECT_EQ(regex.partition("user_id=", {}), std::nullopt);
  KeyFinder whole({HashRule::By::regex, "[a-z]+", 0});
  EXPECT_EQ(whole.partition("12 abc 3", {}), whole.partition("abc", {}));
  KeyFinder level({HashRule::By::topic_level, {}, 2});
  EXPECT_EQ(level.partition("x", "pos/17/payment"), level.partition("y", "other/17"));
  EXPECT_NE(level.partition("x", "pos/17/payment"), level.partition("x", "pos/18/payment"));
  EXPECT_EQ(level.partition("x", "pos"), std::nullopt);
  EXPECT_EQ(level.partition("a line", {}), std::nullopt);
}

TEST(RunsByOwner, are_the_batch_again_and_each_is_its_owners) {
  KeyFinder keys({HashRule::By::prefix, ":", 0});
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    Owners owners(places(1 + random.below(5)), 1 + random.below(3));
    Lines lines{random.below(1000), {}};
    for (uint64_t n = 1 + random.below(60); n > 0; --n) {
      if (random.chance(0.8)) lines.text += "k" + std::to_string(random.below(20)) + ":";
      lines.text += std::string(random.below(20), '.') + "\n";
    }
    auto runs = runs_by_owner(lines.packed(), lines.first, lines.last(), lines.events(), keys, owners);
    std::string together;
    uint64_t at = lines.first, events = 0;
    for (const auto& run : runs) {
      EXPECT_EQ(run.first, at);
      at = run.last;
      events += run.events;
      std::string text = text_of(run);
      EXPECT_EQ(text.size(), run.last - run.first);
      together += text;
      size_t begin = 0;
      for (size_t end; (end = text.find('\n', begin)) != text.npos; begin = end + 1)
        if (auto partition = keys.partition(ByteView(text).substr(begin, end - begin), {})) {
          EXPECT_EQ(owners.of(*partition), run.owner);
          EXPECT_TRUE(std::binary_search(run.partitions.begin(), run.partitions.end(), *partition));
        }
    }
    EXPECT_EQ(at, lines.last());
    EXPECT_EQ(events, lines.events());
    EXPECT_EQ(together, lines.text);
  }
}

TEST(RunsByOwner, one_owner_shares_the_bytes) {
  KeyFinder keys({HashRule::By::prefix, ":", 0});
  Owners owners(places(1), 1);
  Lines lines{0, "a:1\nb:2\nnone\n"};
  Slice packed = lines.packed();
  auto runs = runs_by_owner(packed, 0, lines.last(), 3, keys, owners);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].packed.data(), packed.data());
  EXPECT_EQ(runs[0].partitions.size(), 2u);
}

}  // namespace ph::link
