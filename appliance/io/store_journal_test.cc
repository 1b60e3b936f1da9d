// The store and its journal together: every flip and every tear of either one leaves the state whole.
#include "io/store_journal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/coding.h"
#include "io/level_store.h"
#include "io/test_files.h"

namespace ph::io {
namespace {

namespace fs = std::filesystem;

/// In memory where the machine has it: each case opens a store, which syncs.
struct Folder {
  Folder() {
    if (!fs::exists("/dev/shm")) return;
    std::string pattern = "/dev/shm/posthouse-test-XXXXXX";
    if (::mkdtemp(pattern.data())) shm = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    if (!shm.empty()) fs::remove_all(shm, ignored);
  }
  std::string operator/(const std::string& name) const { return (shm.empty() ? disk.path() : shm) + "/" + name; }
  TemporaryDirectory disk;
  std::string shm;
};

using State = std::map<std::string, std::string>;

State state_of(LevelStore& store) {
  State state;
  EXPECT_TRUE(store.scan("", [&](ByteView k, ByteView v) { return state.emplace(k, v), true; }).has_value());
  return state;
}

/// Batch `i` of the history that the tests write: puts, an overwrite and a delete.
port::WriteBatch batch_of(uint64_t i) {
  port::WriteBatch batch;
  batch.put("cursor", std::to_string(i));
  batch.put("range/" + std::to_string(i), std::string(10 + i % 7, static_cast<char>('a' + i % 26)));
  if (i >= 2) batch.remove("range/" + std::to_string(i - 2));
  return batch;
}

State after(uint64_t batches) {
  State state;
  port::WriteBatch all;
  for (uint64_t i = 1; i <= batches; ++i) all.append(batch_of(i));
  for (const auto& entry : all.entries()) {
    if (entry.value)
      state[entry.key] = *entry.value;
    else
      state.erase(entry.key);
  }
  return state;
}

constexpr uint64_t kBatches = 8;

class StoreDamage : public testing::Test {
 protected:
  StoreDamage() {
    // An older life of the store first, so that its last log and journal file are not its only ones.
    for (uint64_t begin : {1, 4}) {
      auto store = LevelStore::open(original).value();
      for (uint64_t i = begin; i <= (begin == 1 ? 3 : kBatches); ++i) EXPECT_TRUE(store->write(batch_of(i), true));
    }
    log = newest(original, ".log");
    journal = newest(original + ".journal", ".jnl");
  }
  static std::string newest(const std::string& directory, std::string_view end) {
    std::string found;
    for (const auto& entry : fs::directory_iterator(directory))
      if (entry.path().string().ends_with(end)) found = std::max(found, entry.path().filename().string());
    EXPECT_FALSE(found.empty());
    return found;
  }
  /// A copy of the store as it was left.
  void restore() {
    for (const char* part : {"", ".journal", ".damaged"}) fs::remove_all(copy + part);
    fs::copy(original, copy);
    fs::copy(original + ".journal", copy + ".journal");
  }
  std::string log_path() const { return copy + "/" + log; }
  std::string journal_path() const { return copy + ".journal/" + journal; }

  /// Opens the copy twice: what was mended stays mended.
  void expect_whole(const std::string& what, uint64_t batches = kBatches) {
    for (int round = 0; round < 2; ++round) {
      auto store = LevelStore::open(copy);
      ASSERT_TRUE(store.has_value()) << what << ": " << store.error().to_string();
      ASSERT_EQ(state_of(**store), after(batches)) << what << " round " << round;
      if (round == 1) {
        EXPECT_TRUE((*store)->findings().empty()) << what << ": " << (*store)->findings()[0].detail;
      }
    }
  }
  /// Without the zeros that wait behind its last record.
  std::string journal_bytes() const {
    std::string bytes = read_file(original + ".journal/" + journal);
    return bytes.substr(0, bytes.find_last_not_of('\0') + 1);
  }
  static std::string flipped(std::string bytes, size_t bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    return bytes;
  }

  Folder folder;
  std::string original = folder / "original", copy = folder / "copy";
  std::string log, journal;
};

}  // namespace

TEST_F(StoreDamage, any_flipped_bit_of_the_log_leaves_the_state_whole) {
  std::string bytes = read_file(original + "/" + log);
  ASSERT_GT(bytes.size(), 300u);
  ASSERT_LT(bytes.size(), 32u * 1024) << "one block: its last";
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    restore();
    write_file(log_path(), flipped(bytes, bit));
    ASSERT_NO_FATAL_FAILURE(expect_whole("bit " + std::to_string(bit)));
  }
}

TEST_F(StoreDamage, any_zeroed_or_torn_end_of_the_log_leaves_the_state_whole) {
  std::string bytes = read_file(original + "/" + log);
  for (size_t at = 0; at < bytes.size(); ++at) {
    restore();
    write_file(log_path(), bytes.substr(0, at));
    ASSERT_NO_FATAL_FAILURE(expect_whole("torn at " + std::to_string(at)));
    restore();
    write_file(log_path(), bytes.substr(0, at) + std::string(bytes.size() - at, '\0'));
    ASSERT_NO_FATAL_FAILURE(expect_whole("zeros from " + std::to_string(at)));
  }
}

TEST_F(StoreDamage, a_log_that_is_gone_is_mended_and_told) {
  restore();
  fs::remove(log_path());
  {
    auto store = LevelStore::open(copy).value();
    ASSERT_EQ(store->findings().size(), 1u) << "no power cut took it";
    EXPECT_EQ(store->findings()[0].code, "store_log_damaged");
    EXPECT_EQ(state_of(*store), after(kBatches));
  }
  expect_whole("after that");
}

TEST_F(StoreDamage, what_a_power_cut_takes_from_the_log_is_put_back_silently) {
  restore();
  fs::remove(log_path());
  std::string bytes = read_file(journal_path());
  bytes[24] = static_cast<char>(bytes[24] ^ 1);  // of another boot
  std::string sum;
  put_fixed(sum, crc32c(ByteView(bytes).substr(0, 28)));
  bytes.replace(28, 4, sum);
  write_file(journal_path(), bytes);
  auto store = LevelStore::open(copy).value();
  EXPECT_TRUE(store->findings().empty());
  EXPECT_EQ(state_of(*store), after(kBatches));
}

TEST_F(StoreDamage, any_flipped_bit_of_the_manifest_is_mended_or_told) {
  std::string named;
  for (const auto& entry : fs::directory_iterator(original))
    if (entry.path().filename().string().starts_with("MANIFEST")) named = entry.path().filename();
  std::string bytes = read_file(original + "/" + named);
  size_t told = 0;
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    restore();
    write_file(copy + "/" + named, flipped(bytes, bit));
    auto store = LevelStore::open(copy);
    told += !store;
    if (store) {
      ASSERT_EQ(state_of(**store), after(kBatches)) << bit;
    } else {
      ASSERT_EQ(store.error().code, store_errors::damaged) << bit << store.error().to_string();
    }
  }
  EXPECT_GT(told, bytes.size() * 4) << "most of it LevelDB sees by itself";
}

TEST_F(StoreDamage, any_flipped_bit_of_the_journal_leaves_the_state_whole) {
  std::string bytes = journal_bytes();
  size_t told = 0;
  for (size_t bit = 0; bit < bytes.size() * 8; bit += 1 + bit % 3) {
    restore();
    write_file(journal_path(), flipped(bytes, bit));
    auto store = LevelStore::open(copy);
    ASSERT_TRUE(store.has_value()) << bit << ": " << store.error().to_string();
    ASSERT_EQ(state_of(**store), after(kBatches)) << bit;
    told += !(*store)->findings().empty();
    ASSERT_TRUE((*store)->write(batch_of(kBatches + 1), true)) << bit;
    store->reset();
    store = LevelStore::open(copy);
    ASSERT_TRUE(store.has_value()) << bit;
    ASSERT_EQ(state_of(**store), after(kBatches + 1)) << bit;
  }
  EXPECT_GT(told, bytes.size() / 2) << "damage that something whole follows is told";
}

TEST_F(StoreDamage, a_torn_end_of_the_journal_opens_silently) {
  std::string bytes = journal_bytes();
  for (size_t at = 0; at < bytes.size(); ++at) {
    restore();
    write_file(journal_path(), bytes.substr(0, at));
    auto store = LevelStore::open(copy);
    ASSERT_TRUE(store.has_value()) << at << ": " << store.error().to_string();
    ASSERT_TRUE((*store)->findings().empty()) << at << ": " << (*store)->findings()[0].detail;
    store->reset();
    ASSERT_NO_FATAL_FAILURE(expect_whole("torn at " + std::to_string(at)));
  }
}

TEST_F(StoreDamage, a_power_cut_takes_the_log_and_the_end_of_the_last_record_alone) {
  std::string bytes = journal_bytes();
  size_t last = bytes.rfind("PSB1");
  for (size_t at = last; at < bytes.size(); ++at)
    for (const std::string& tail : {std::string(), std::string(8, '\0'), std::string("garbage")}) {
      restore();
      write_file(journal_path(), bytes.substr(0, at) + tail);
      fs::resize_file(log_path(), 0);
      ASSERT_NO_FATAL_FAILURE(expect_whole("torn at " + std::to_string(at), kBatches - 1));
    }
}

TEST_F(StoreDamage, what_the_journal_does_not_hold_either_is_damage_and_nothing_is_begun_over_it) {
  std::string bytes = journal_bytes();
  size_t middle = bytes.find("PSB1", bytes.size() / 2);
  restore();
  write_file(journal_path(), flipped(bytes, (middle + 30) * 8));
  fs::resize_file(log_path(), 0);
  for (int round = 0; round < 2; ++round) {
    auto store = LevelStore::open(copy);
    ASSERT_FALSE(store.has_value());
    EXPECT_EQ(store.error().code, store_errors::damaged);
    EXPECT_NE(store.error().detail.find("the store is at batch 3"), std::string::npos) << store.error().detail;
  }
}

TEST_F(StoreDamage, a_journal_of_a_newer_version_is_not_touched) {
  restore();
  std::string bytes = read_file(journal_path());
  bytes[8] = 2;
  std::string sum;
  put_fixed(sum, crc32c(ByteView(bytes).substr(0, 28)));
  bytes.replace(28, 4, sum);
  write_file(journal_path(), bytes);
  auto store = LevelStore::open(copy);
  ASSERT_FALSE(store.has_value());
  EXPECT_EQ(store.error().code, store_errors::newer_version);
  EXPECT_EQ(read_file(journal_path()), bytes);
}

TEST_F(StoreDamage, a_value_that_looks_like_a_record_is_none) {
  // Behind a torn record the search for whole ones goes through its value.
  std::string record = journal_bytes();
  record = record.substr(record.find("PSB1"));
  {
    auto store = LevelStore::open(copy).value();
    ASSERT_TRUE(store->write(batch_of(1), true));
    port::WriteBatch batch;
    batch.put("message", record + std::string(100, 'x'));
    ASSERT_TRUE(store->write(batch, true));
  }
  std::string file = copy + ".journal/" + newest(copy + ".journal", ".jnl");
  fs::resize_file(file, read_file(file).find_last_not_of('\0'));
  fs::resize_file(copy + "/" + newest(copy, ".log"), 0);
  auto store = LevelStore::open(copy);
  ASSERT_TRUE(store.has_value()) << store.error().to_string();
  EXPECT_EQ(state_of(**store), after(1));
}

TEST(StoreJournal, drops_what_is_in_tables_and_keeps_enough_to_lose_both_memtables) {
  Folder folder;
  std::string path = folder / "db";
  State expected;
  {
    auto store = LevelStore::open(path).value();
    for (uint64_t i = 0; i < 400; ++i) {
      port::WriteBatch batch;
      std::string key = "k/" + std::to_string(i % 50);
      expected[key] = std::string(100'000, static_cast<char>('a' + i % 26)) + std::to_string(i);
      batch.put(key, expected[key]);
      ASSERT_TRUE(store->write(batch, i % 10 == 0));
    }
  }
  uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(path + ".journal")) bytes += entry.file_size();
  EXPECT_LT(bytes, 13u << 20);
  EXPECT_GT(bytes, 8u << 20);
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.path().string().ends_with(".log")) fs::resize_file(entry.path(), 0);
  auto store = LevelStore::open(path);
  ASSERT_TRUE(store.has_value()) << store.error().to_string();
  EXPECT_EQ(state_of(**store), expected);
}

TEST(StoreJournal, keeps_few_files_however_often_the_store_is_opened) {
  Folder folder;
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(LevelStore::open(folder / "db").value()->write(batch_of(1), true));
  EXPECT_LE(std::distance(fs::directory_iterator(folder / "db.journal"), {}), 17);
}

}  // namespace ph::io
