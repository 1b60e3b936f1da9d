// Retirement: from a file in its producer's place to no file at all, without ever taking a line along
// (amendments 8 and 9; review 4).
//
//   live      due by size or age: its record is made durable, then it is renamed (never over anything) to a unique name
//             in the agent's hidden directory. From here nobody can open it by its path; who has it open writes on, and
//             is read on.
//   retiring  a grace after the rename, when every target's stored cursor stands at the end: a write lease on our only
//             descriptor proves that nobody else has it open. A last line without newline is delivered now: nobody will
//             finish it. Then: size still as acknowledged, lease whole, unlink, lease whole. If an opener slipped in
//   draining  between, the lease tells: the descriptor is kept and what arrives is delivered until a second lease.
//   ended     directory synced, cursors settled, records removed, receivers told.
// Files of a category with `tail` are somebody else's: none of this happens to them.
// Without the proof (a writer, another user's file without CAP_LEASE, NFS, a hard link) the file stays and the status
// says why; other files go on. Residue: a crash while draining loses what a writer put into the unlinked file
// meanwhile.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "service/agent/generation_table.h"

namespace ph::agent {

class Retirement {
 public:
  explicit Retirement(Parts& parts);

  /// Makes the hidden directory. Until it is there, durably, nothing is rotated.
  void start();
  void stop() { timer_->cancel(); }

  /// Something changed that may let the generation go on: takes its next step when due.
  void consider(Generation& g);
  /// Its last name is gone, our descriptor is all that is left: deliver what there is, and what still arrives.
  void drain(Generation& g);
  void forget(Generation& g);

 private:
  void make_hidden_directory();
  void schedule(Generation& g, Duration after);
  void arm();
  void run_due();
  void step(Generation& g);
  void step_live(Generation& g);
  void rename_away(StreamId id);
  void step_retiring(Generation& g);
  bool proven_free(Generation& g, port::File& file);
  void unlink(Generation& g, port::File& file);
  void step_draining(Generation& g);
  void removed(Generation& g);
  void step_ended(Generation& g);
  bool stored_to_end(const Generation& g);
  void hold(Generation& g, std::string_view reason, Duration retry);
  void hold_and_back_off(Generation& g, std::string_view reason);
  bool too_many_waiting(const Generation& g);

  Parts& parts_;
  std::unique_ptr<port::Timer> timer_;
  Instant armed_{};
  std::map<std::pair<Instant, uint64_t>, StreamId> queue_;  // (due, id)
  bool making_hidden_ = false;
  bool hidden_durable_ = false;
  std::string no_hidden_directory_;  // why there is none
};

}  // namespace ph::agent
