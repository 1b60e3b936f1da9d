#include "io/output_queue.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"

namespace ph::io {
namespace {

std::string gathered(const OutputQueue& queue, size_t max = 1000) {
  std::vector<iovec> vectors(max);
  std::string all;
  size_t count = queue.gather(vectors.data(), max);
  for (size_t i = 0; i < count; ++i) all.append(static_cast<const char*>(vectors[i].iov_base), vectors[i].iov_len);
  return all;
}

TEST(OutputQueue, keeps_the_order_of_copies_and_slices) {
  OutputQueue queue;
  queue.push_copy("head1");
  queue.push_copy("head2");
  queue.push(Slice(std::string(500, 'a')));
  queue.push_copy("tail");
  EXPECT_EQ(gathered(queue), "head1head2" + std::string(500, 'a') + "tail");
  iovec vectors[8];
  EXPECT_EQ(queue.gather(vectors, 8), 3u) << "consecutive copies are one vector";
}

TEST(OutputQueue, shares_large_slices_and_lets_go_of_them_when_written) {
  auto owner = std::make_shared<std::string>(1000, 'x');
  OutputQueue queue;
  queue.push(Slice(owner, *owner));
  iovec one;
  ASSERT_EQ(queue.gather(&one, 1), 1u);
  EXPECT_EQ(one.iov_base, owner->data());
  queue.push_copy("more");
  EXPECT_EQ(owner.use_count(), 2);
  queue.consume(1000);
  EXPECT_EQ(owner.use_count(), 1);
  EXPECT_EQ(gathered(queue), "more");
}

TEST(OutputQueue, matches_a_string_under_random_use) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    OutputQueue queue;
    std::string model;
    for (int step = 0; step < 400; ++step) {
      std::string bytes(random.below(random.chance(0.2) ? 20'000 : 300), '\0');
      for (char& c : bytes) c = static_cast<char>(random.next());
      switch (random.below(5)) {
        case 0:
          queue.push_copy(bytes);
          model += bytes;
          break;
        case 1:
          queue.push(Slice(bytes));
          model += bytes;
          break;
        case 2: {  // what was staged elsewhere, in pieces
          OutputQueue staged;
          staged.push_copy(bytes.substr(0, bytes.size() / 3));
          staged.push(Slice(bytes.substr(bytes.size() / 3)));
          staged.push_copy("end");
          model += bytes + "end";
          while (!staged.empty()) queue.take_from(staged, 1 + random.below(staged.bytes()));
          break;
        }
        default: {
          size_t n = random.chance(0.05) ? model.size() : random.below(std::min<size_t>(model.size(), 30'000) + 1);
          queue.consume(n);
          model.erase(0, n);
        }
      }
      ASSERT_EQ(queue.bytes(), model.size());
      ASSERT_EQ(queue.empty(), model.empty());
      std::string front(random.below(2000), '\0');
      front.resize(queue.peek(front.data(), front.size()));
      ASSERT_EQ(front, model.substr(0, front.size()));
      std::string some = gathered(queue, random.below(5));
      ASSERT_EQ(some, model.substr(0, some.size()));
    }
    ASSERT_EQ(gathered(queue), model);
  }
}

}  // namespace
}  // namespace ph::io
