// The promise of chunk mode under crashes, power cuts, faults and wandering clocks, seen by a consumer: every committed
// line once, in order, no torn line, names that only grow.
#include <gtest/gtest.h>

#include <map>

#include "store/chunk/sink_fixture.h"

namespace ph::chunk {
namespace {

const std::vector<std::string> kCategories = {"a", "b-c", "d"};

/// What a naive receiver would hold: batches in order, and the lines of those that the store knows in the end.
class Model {
 public:
  explicit Model(SinkFixture& fixture) : f_(fixture) {}

  /// Writes lines to some categories. True if acknowledged.
  bool write(Random& random) {
    std::vector<event::Block> blocks;
    Batch batch;
    for (uint64_t n = 1 + random.below(4); n > 0; --n) {
      const std::string& category = kCategories[random.below(kCategories.size())];
      std::string lines;
      for (uint64_t k = 1 + random.below(5); k > 0; --k)
        lines += category + " " + std::to_string(serial_++) +
                 std::string(random.below(random.chance(0.1) ? 900 : 30), '.') + "\n";
      batch.lines[category] += lines;
      blocks.push_back(lines_block(category, lines));
    }
    batch.number = f_.batches();
    batches_.push_back(batch);
    std::string outcome = f_.write(blocks);
    if (outcome == "ok") batches_.back().acknowledged = true;
    return outcome == "ok";
  }
  /// A crash hides the last write's outcome; an acknowledged one must be there whatever happened.
  void check_acknowledged() {
    for (const Batch& b : batches_)
      if (b.acknowledged) {
        ASSERT_TRUE(f_.is_stored(b.number)) << "acknowledged, then lost: batch " << b.number;
      }
  }
  void consume() {
    for (const std::string& category : kCategories) {
      std::vector<std::string> names;
      std::string lines = f_.consume(category, &names);
      ASSERT_TRUE(lines.empty() || lines.back() == '\n') << "torn line in a closed chunk";
      consumed_[category] += lines;
      for (const std::string& name : names) {
        ASSERT_GT(name, last_name_[category]) << "a consumed name came again";
        last_name_[category] = name;
      }
    }
  }
  void check_all() {
    check_acknowledged();
    for (const std::string& category : kCategories) {
      std::string expected;
      for (Batch& b : batches_)
        if (f_.is_stored(b.number)) expected += b.lines[category];
      ASSERT_EQ(consumed_[category], expected) << category;
    }
  }
  size_t acknowledged() const {
    return static_cast<size_t>(
        std::count_if(batches_.begin(), batches_.end(), [](const Batch& b) { return b.acknowledged; }));
  }

 private:
  struct Batch {
    size_t number = 0;
    bool acknowledged = false;
    std::map<std::string, std::string> lines;
  };
  SinkFixture& f_;
  std::vector<Batch> batches_;
  std::map<std::string, std::string> consumed_;
  std::map<std::string, std::string> last_name_;
  uint64_t serial_ = 0;
};

void settle(SinkFixture& f, Model& model) {
  for (int i = 0; i < 3; ++i) f.advance(7s);
  model.consume();
  model.check_all();
}

/// A little of everything: first chunks, size and interval rotation, an idle rotation, a new date.
void workload(SinkFixture& f, Model& model, Random& random) {
  model.write(random);
  model.write(random);
  f.advance(6s);
  model.consume();
  model.write(random);
  f.wall(1'783'936'800'000 + 86'400'000);
  f.advance(6s);
  model.write(random);
  model.write(random);
  f.advance(2s);
}

/// Whether the power goes or only the process, and how many files of a group are synced one by one.
class CrashAt : public testing::TestWithParam<std::tuple<bool, size_t>> {};

TEST_P(CrashAt, any_operation_then_recovery_keeps_committed_lines_once_and_in_order) {
  auto [power, sync_each_max] = GetParam();
  bool crashed = true;
  uint64_t at = 1;
  for (; crashed; ++at) {
    SCOPED_TRACE("operation " + std::to_string(at));
    SinkFixture f(at);
    f.options.categories = {{.masks = {}, .chunk_max = 200, .compression = kCompressions[at % 3]}};
    f.options.sync_each_max = sync_each_max;
    f.restart();
    Model model(f);
    Random random(at);
    f.crash_after(at);
    try {
      workload(f, model, random);
      crashed = false;
    } catch (const test::SimulatedCrash&) {
    }
    f.no_crash();
    power ? f.cut_power() : f.stop();
    ASSERT_TRUE(f.start()) << f.start_error;
    model.check_acknowledged();
    if (random.chance(0.5)) model.write(random);
    settle(f, model);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(at, 35u);
}

TEST_P(CrashAt, any_store_write_then_recovery_keeps_committed_lines_once_and_in_order) {
  auto [power, sync_each_max] = GetParam();
  bool crashed = true;
  for (uint64_t at = 1; crashed; ++at) {
    SCOPED_TRACE("store write " + std::to_string(at));
    SinkFixture f(at);
    f.options.categories = {{.masks = {}, .chunk_max = 200, .compression = kCompressions[at % 3]}};
    f.options.sync_each_max = sync_each_max;
    f.restart();
    Model model(f);
    Random random(at);
    uint64_t left = at;
    f.store.before_write = [&left] {
      if (--left == 0) throw test::SimulatedCrash{};
    };
    try {
      workload(f, model, random);
      crashed = false;
    } catch (const test::SimulatedCrash&) {
    }
    f.store.before_write = nullptr;
    power ? f.cut_power() : f.stop();
    ASSERT_TRUE(f.start()) << f.start_error;
    settle(f, model);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(FilesSink, CrashAt, testing::Combine(testing::Bool(), testing::Values(0, 32)),
                         [](const auto& p) {
                           return std::string(std::get<0>(p.param) ? "power_cut" : "kill") +
                                  (std::get<1>(p.param) ? "_each_synced" : "_synced_together");
                         });

/// One step of a life in which everything happens.
void live(SinkFixture& f, Model& model, Random& random) {
  switch (random.below(12)) {
    case 0:
      f.advance(std::chrono::milliseconds(random.below(7000)));
      break;
    case 1:
      model.consume();
      break;
    case 2:  // a clock that wanders by days, and may never come back
      f.wall(1'783'936'800'000 + (static_cast<int64_t>(random.below(9)) - 4) * 86'400'000);
      break;
    case 3:
      f.files.capacity = random.chance(0.6) ? UINT64_MAX : f.files.used() + random.below(300);
      break;
    case 4:
      f.store.fail_writes = random.chance(0.3);
      break;
    case 5: {
      if (random.chance(0.5)) {
        f.files.fault = nullptr;
        break;
      }
      auto op =
          std::vector{test::FileOp::write,    test::FileOp::sync,          test::FileOp::create, test::FileOp::unlink,
                      test::FileOp::truncate, test::FileOp::symlink,       test::FileOp::list,   test::FileOp::sync_all,
                      test::FileOp::stat,     test::FileOp::sync_directory}[random.below(10)];
      uint64_t every = 1 + random.below(3);
      f.files.fault = [op, every, n = uint64_t{0}](test::FileOp o, const std::string& p) mutable {
        return o == op && p.starts_with("/srv") && ++n % every == 0 ? std::optional(Error{port::file_errors::failed, p})
                                                                    : std::nullopt;
      };
      break;
    }
    default:
      model.write(random);
  }
}

void crash(SinkFixture& f, Random& random) {
  f.store.fail_writes = false;
  f.files.fault = nullptr;
  f.files.capacity = UINT64_MAX;
  for (;;) {
    f.no_crash();
    random.chance(0.5) ? f.cut_power() : f.stop();
    for (CategoryOptions& c : f.options.categories)
      if (random.chance(0.3)) c.compression = kCompressions[random.below(3)];
    // Recovery may be interrupted, too.
    if (random.chance(0.4)) f.crash_after(1 + random.below(12));
    try {
      ASSERT_TRUE(f.start()) << f.start_error;
      if (random.chance(0.5)) f.advance(std::chrono::milliseconds(random.below(8000)));
      f.no_crash();
      return;
    } catch (const test::SimulatedCrash&) {
    }
  }
}

TEST(FilesSink, agrees_with_a_naive_receiver_through_faults_crashes_and_wandering_clocks) {
  size_t acknowledged = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SinkFixture f(seed);
    f.options.categories = {{.masks = {"b*"}, .chunk_max = 1000, .chunk_interval = 2s},
                            {.masks = {}, .chunk_max = 150, .compression = kCompressions[seed % 2]}};
    f.heals_store = true;
    f.options.sync_each_max = seed % 3 == 0 ? 32 : seed % 3 - 1;
    f.restart();
    Model model(f);
    Random random(seed * 7919);
    for (int round = 0; round < 8; ++round) {
      bool crashes = random.chance(0.7);
      if (crashes) f.crash_after(1 + random.below(120));
      try {
        for (uint64_t steps = random.below(40); steps > 0; --steps) live(f, model, random);
      } catch (const test::SimulatedCrash&) {
      }
      f.no_crash();
      if (crashes || random.chance(0.3)) crash(f, random);
      model.check_acknowledged();
      if (testing::Test::HasFatalFailure()) return;
    }
    f.files.fault = nullptr;
    f.files.capacity = UINT64_MAX;
    f.store.fail_writes = false;
    f.advance(3s);
    // A name that a fault left behind may be in the way once; then it is known.
    ASSERT_TRUE(model.write(random) || model.write(random));
    settle(f, model);
    if (testing::Test::HasFatalFailure()) return;
    acknowledged += model.acknowledged();
  }
  EXPECT_GT(acknowledged, 5000u);
}

}  // namespace
}  // namespace ph::chunk
