// What the files sink reads back from disk and store, and what it makes of messages: any bytes give a value or an
// error, a value encodes to the same bytes, a message gives one line.
#include <cstdint>
#include <string>

#include "base/result.h"
#include "codec/event/block.h"
#include "store/chunk/category_entry.h"
#include "store/chunk/chunk_name.h"
#include "store/chunk/journal.h"
#include "store/chunk/message_line.h"

using namespace ph;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ByteView bytes(reinterpret_cast<const char*>(data), size);
  if (auto entry = chunk::decode_entry(bytes)) {
    const std::string again = chunk::encode(*entry);
    PH_ASSERT(bytes[0] != again[0] || again == bytes, "an entry of this version encodes to what it was");
    PH_ASSERT(chunk::decode_entry(again) == *entry, "and reads back as what it is");
  }
  if (auto mark = chunk::decode_journal_mark(bytes))
    PH_ASSERT(chunk::encode(*mark) == bytes, "a mark encodes to what it was");
  if (auto name = chunk::parse_file_name("c", bytes)) {
    auto next = chunk::next_name(*name, 20260713);
    PH_ASSERT(!next || next > *name, "names only grow");
  }
  event::Block message;
  message.kind = event::BlockKind::message;
  message.topic = bytes.substr(0, size / 3);
  message.properties = bytes.substr(size / 3, size / 3);
  message.payload = Slice(std::string(bytes.substr(size / 3 * 2)));
  std::string line = chunk::to_json_line(message);
  PH_ASSERT(line.find('\n') == line.size() - 1, "one line");
  PH_ASSERT(chunk::is_utf8(line), "of text");
  return 0;
}
