// CopyWatch: recognises what copy-truncate rotation leaves. Its copy x.log.1 is a new file with the bytes of x.log:
// read as a new generation, everything would be delivered twice. As the copy it is, it is read on from where x.log was
// read to; so lines that were cut away unread come from the copy.
//
// Only a file with a rotation's name whose inode is unknown can be one, and only of a generation that was truncated, or
// that lies under the original's name: rotation by rename moves the inode and never looks like this.
//
// Not recognised: a copy of less than 64 bytes; one first seen when the truncated generation is settled and forgotten.
#pragma once

#include <map>
#include <string>

#include "core/agent/source_name.h"
#include "service/agent/generation_table.h"

namespace ph::agent {

class CopyWatch {
 public:
  explicit CopyWatch(Parts& parts) : parts_(parts) {}

  enum class Verdict : uint8_t {
    unrelated,
    wait,  // the original's bytes so far: wait until it is truncated, or is read as far as this goes
    copy,  // begin where the original was read to
  };
  struct Decision {
    Verdict verdict = Verdict::unrelated;
    Generation* original = nullptr;
  };
  /// Of a new file at `directory`/`name`. Errors while reading make it unrelated: twice is better than never.
  Decision judge(const std::string& directory, const std::string& name, const SourceName& source,
                 const port::FileStat& stat);
  /// Names in `directory` that wait; they are to be looked at again when a file there was truncated.
  std::vector<std::string> waiting_in(const std::string& directory) const;

 private:
  struct Waiting {
    uint64_t size = 0;
    int64_t modified_ns = 0;
    Instant since{};
  };
  Generation* live_original(const std::string& directory, const std::string& lane, const SourceName& source);
  Generation* truncated_original(const std::string& lane, port::File& copy, uint64_t size);
  bool continues(port::File& copy, uint64_t size, Generation& live);
  bool continues_ended(port::File& copy, uint64_t size, const Generation& ended);

  Parts& parts_;
  std::map<std::pair<std::string, std::string>, Waiting> waiting_;  // (directory, name)
};

}  // namespace ph::agent
