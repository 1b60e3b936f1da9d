// DeadLetterDesk: what an operator does with dead letters: looks at them, sends them again, or drops them. Over the
// API of a running node, and in the command line's own process while the node is stopped. Loop only; files are read and
// rewritten on the disk thread.
//
// A letter that is sent again becomes a record of the retry log of its route and target (`retry_log_name`), whose own
// stream gives it a new position: its receiver takes it for new, although it refused the old one. Letter, log and
// counters change in one commit, together with a mark; then the letter leaves its file, then the mark goes. So it is
// sent again exactly once, whatever crashes in between: a letter with a mark is only cleared away.
//
//   GET   /api/v5/spool/dead-letters?route=R&limit=N       {data, meta}
//   POST  /api/v5/spool/dead-letters/retry, .../drop       {"route": R or "", "ids": [...]} or {..., "all": true}
//         answers {letters, events, fresh, no_target, failed}: done; too young to be sure that their source has passed
//         them; of a target that is not configured; too long for a record
//
// Store entries: l/<route>/<id>  the mark: u8 version 1, u8 1 retried, 2 dropped
//                c/dead/<route>  varints: letters and events retried, letters and events dropped
// Bounds: kBatchLetters and kBatchBytes at a time; one operation at a time, another is answered 409.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "port/loop.h"
#include "store/commit/committer.h"
#include "store/dead_letter/dead_letters.h"
#include "store/spool/segment_log.h"

namespace ph::admin {

inline constexpr std::string_view kDeadLettersPath = "/api/v5/spool/dead-letters";

/// Name of the log, and of its folder in the spool, that holds what is sent again: no route can be called that.
std::string retry_log_name(std::string_view route, std::string_view target);

struct DeadLetterCounters {
  uint64_t retried = 0;  // letters
  uint64_t retried_events = 0;
  uint64_t dropped = 0;
  uint64_t dropped_events = 0;
};

class DeadLetterDesk {
 public:
  static constexpr size_t kBatchLetters = 1000;
  static constexpr size_t kBatchBytes = 16UL * 1024 * 1024;
  static constexpr Duration kFresh = std::chrono::seconds(3);

  struct Parts {
    port::Loop& loop;
    port::DiskQueue& disk;
    port::Files& files;
    port::KeyedStore& store;
    commit::Committer& committer;
    dead_letter::DeadLetterFiles& letters;
    std::string directory;  // <data_dir>/dead-letters
    /// The retry log of a route and target; null: not configured.
    std::function<spool::SegmentLog*(const std::string& route, const std::string& target)> log_of;
  };
  struct Choice {
    std::string route;  // empty: of every route
    std::set<std::string> ids;
    bool all = false;
  };
  struct Done {
    uint64_t letters = 0;
    uint64_t events = 0;
    uint64_t fresh = 0;
    uint64_t no_target = 0;
    uint64_t failed = 0;
  };
  enum class Deed : uint8_t { retry = 1, drop = 2 };
  using Answer = std::function<void(int status, std::string body)>;

  explicit DeadLetterDesk(Parts parts);
  ~DeadLetterDesk();

  /// False: the path is not one of these. Else `answer` is called once, now or later.
  bool handle(const std::string& method, std::string_view target, const std::string& body, const Answer& answer);
  void perform(Deed deed, Choice choice, std::function<void(const Result<Done>&)> done);
  bool busy() const { return busy_; }
  /// By route.
  std::map<std::string, DeadLetterCounters> counters() const;

 private:
  struct Work;
  void list(const std::string& route, size_t limit, const Answer& answer);
  void gather(const std::shared_ptr<Work>& work);
  void commit(const std::shared_ptr<Work>& work);
  bool take(Work& work, const port::DeadLetter& letter, port::WriteBatch& entries);
  void clear_away(const std::shared_ptr<Work>& work);
  void finish(const std::shared_ptr<Work>& work, Result<> outcome);

  Parts parts_;
  bool busy_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

/// The answer of retry and drop.
std::string done_json(const DeadLetterDesk::Done& done);
/// Error: admin.malformed.
Result<DeadLetterDesk::Done> parse_done(std::string_view json);
/// The body that asks for it.
std::string choice_json(const DeadLetterDesk::Choice& choice);
/// A list's document, and for a terminal what such a document says. Errors: admin.malformed.
std::string letters_json(const std::vector<dead_letter::Found>& letters, bool more, uint64_t stray_bytes);
Result<std::string> letters_text(std::string_view json);

}  // namespace ph::admin
