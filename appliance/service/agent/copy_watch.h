// CopyWatch: recognises what copy-truncate rotation leaves. Its copy x.log.1 is a file with the bytes of x.log: read
// like any other, everything would be delivered twice. As the copy it is, it is read on from where x.log was read to;
// so lines that were cut away unread come from the copy.
//
// Only a file with a rotation's name can be one, and only one whose content is new to us: its inode is unknown, or
// holds something else than it did (`cp` over the copy of last time). It may be a copy of a generation that was
// truncated; of one that lies under the original's name; and of a rotation that is younger than it (`cp x.log.1
// x.log.2`) or a copy itself. Rotation by rename moves the inode and never looks like this. An empty file is no copy
// yet.
//
// Not recognised: a copy that first appears a minute after its original was truncated and delivered.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "core/agent/source_name.h"
#include "service/agent/generation_table.h"

namespace ph::agent {

class CopyWatch {
 public:
  explicit CopyWatch(Parts& parts) : parts_(parts) {}

  enum class Verdict : uint8_t {
    unrelated,
    wait,  // empty, or another's bytes so far: wait until that is truncated, or is read as far as this goes
    copy,  // begin where the original was read to
  };
  struct Decision {
    Verdict verdict = Verdict::unrelated;
    Generation* original = nullptr;
    port::FileStat stat;  // of the file, later than what was judged
    bool again = false;   // wait: nothing will tell when it is over
  };
  /// Of new content at `directory`/`name`. Errors while reading make it unrelated: twice is better than never.
  Decision judge(const std::string& directory, const std::string& name, const SourceName& source,
                 const port::FileStat& stat);
  /// Whether a known copy that grew still goes along with another file: the copying is not over.
  bool still_copied(Generation& copy, const SourceName& source);
  /// The known copy that has the bytes of a truncated generation which were in flight when the process ended; null:
  /// none.
  Generation* holder_of(Generation& truncated);

 private:
  struct Waiting {
    uint64_t size = 0;
    int64_t modified_ns = 0;
    Instant since{};
  };
  struct Live {
    Generation* original = nullptr;
    bool changes = false;  // none, but a file that may be one is not what it was: it is about to be looked at
  };
  Live live_original(const std::string& directory, const std::string& lane, const SourceName& source, port::File& copy,
                     const port::FileStat& stat);
  Generation* truncated_original(const std::string& lane, port::File& copy, uint64_t size);
  bool may_be_original(const Generation& g, const std::string& directory, const SourceName& source);
  bool unknown_original(const std::string& directory, const SourceName& source, port::File& copy,
                        const port::FileStat& stat);
  bool continues(port::File& copy, uint64_t size, Generation& live);
  static bool same_bytes(port::File& copy, port::File& original, uint64_t size);
  bool continues_ended(port::File& copy, uint64_t size, const Generation& ended);
  static bool gone_meanwhile(port::File& copy, const port::FileStat& compared);
  Duration unchanged_for(const std::pair<std::string, std::string>& key, const port::FileStat& stat);
  void make_room();

  Parts& parts_;
  std::map<std::pair<std::string, std::string>, Waiting> waiting_;  // (directory, name)
};

}  // namespace ph::agent
