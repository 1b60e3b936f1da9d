// The segment log over a damaged file. The input's first byte chooses: even, the rest is a segment as it stands; odd,
// the rest is a list of changes {u16 offset, u8 length, bytes} to a good one. Reading must end, in order, with exact
// sums; check and repair must agree.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/coding.h"
#include "base/log.h"
#include "store/commit/committer.h"
#include "store/spool/segment_format.h"
#include "store/spool/segment_log.h"
#include "store/spool/spool_check.h"
#include "support/manual_loop.h"
#include "support/memory_files.h"
#include "support/memory_store.h"

namespace {

using namespace ph;         // NOLINT
using namespace ph::spool;  // NOLINT

const std::string kDir = "/data/spool/r";

void require(bool condition) {
  if (!condition) std::abort();
}

struct World {
  test::ManualLoop loop;
  test::ManualDisk disk{loop};
  test::MemoryFiles files;
  test::MemoryStore store;
  Random random{1};
  std::string path = kDir + "/" + segment_name(1);

  World() {
    files.make_directories("/data").value();
    auto log = open();
    commit::Committer committer(loop, disk, store);
    for (int i = 0; i < 6; ++i) {
      log->append(Slice("block " + std::to_string(i) + std::string(static_cast<size_t>(i) * 37, 'b')), 2, {});
      committer.touch(*log);
      loop.run_posted();
    }
  }
  std::unique_ptr<SegmentLog> open() {
    auto opened = SegmentLog::open({"r", kDir, 1 << 20}, files, store, random);
    if (!opened) require(opened.error().code == errors::newer_version);
    return opened ? std::move(*opened) : nullptr;
  }
};

std::string changed(std::string bytes, Reader in) {
  while (!in.at_end()) {
    size_t at = in.fixed<uint16_t>();
    ByteView with = in.take(in.fixed<uint8_t>());
    if (!in.ok()) break;
    at = std::min(at, bytes.size());
    bytes.replace(at, std::min(with.size(), bytes.size() - at), with);
  }
  return bytes;
}

void read_all(SegmentLog& log, uint64_t from) {
  auto cursor = log.read_from(from);
  uint64_t at = cursor->position();
  for (;;) {
    auto record = cursor->next();
    require(record.has_value());
    if (!*record) break;
    require((*record)->first == at && (*record)->sequence >= at);
    at = (*record)->sequence + 1;
  }
  require(at == log.durable_end());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  log_configure(LogLevel::off, false);
  World world;
  ByteView input(reinterpret_cast<const char*>(data) + 1, size - 1);
  auto inode = world.files.inode(world.path);
  inode->bytes = data[0] % 2 ? changed(inode->bytes, Reader(input)) : std::string(input);
  if (data[0] & 2) {  // a wiped store
    port::WriteBatch wipe;
    wipe.remove("s/r/end");
    world.store.write(wipe, true).value();
  }
  (void)decode_durable_end(input);
  (void)decode_damage(input);
  if (auto log = world.open()) {
    for (uint64_t from = 1; from <= log->durable_end(); ++from) read_all(*log, from);
  }
  SpoolPlace place{world.files, data[0] & 4 ? nullptr : &world.store, "r", kDir};
  if (!repair_spool(place)) return 0;
  auto after = check_spool(place);
  require(after && after->damaged_places() == 0);
  if (auto log = world.open()) read_all(*log, 1);
  return 0;
}
