// Scanner: what becomes of files that hold something else than they did, or more.
#include <utility>

#include "base/log.h"
#include "service/agent/agent_source.h"
#include "service/agent/retirement.h"
#include "service/agent/scan.h"
#include "service/agent/source_reader.h"

namespace ph::agent {

void Scanner::replaced(Generation& g, const port::FileStat& stat) {
  ++parts_.stats.truncated;
  log_info("source_file_truncated", {{"path", parts_.path(g)}, {"size", stat.size}, {"size_before", g.size}});
  if (g.state == GenerationState::draining) return parts_.table->end(g);  // has no name to be found under again
  g.truncated = true;
  if (is_rotation(g)) return begin_anew(g, stat);
  const std::string directory = g.directory;
  learn(parts_.table->replace(g, stat));
  // Its copy may be there already, told of or not yet.
  if (directory != kHiddenDirectory) look_around(directory);
}

/// Ends the generation; what its file holds now is looked at like a file's that was not known.
void Scanner::begin_anew(Generation& g, const port::FileStat& stat) {
  const std::string directory = g.directory, name = g.name;
  parts_.table->end(g);
  found(directory, name, stat);
  look_around(directory);
}

void Scanner::look_around(const std::string& directory) {
  if (!around_.insert(directory).second) return;
  parts_.post([this, directory] {
    around_.erase(directory);
    if (!started_) return;
    (void)scan_directory(directory);  // one that is gone is noticed by the next scan
    create_fresh();
  });
}

/// Whether what a file has more than before is its own. Somebody who reads on at once finds out by himself; who has
/// read all that there was of a copy, or none of what there is, does not.
bool Scanner::grows(Generation& g, const port::FileStat& stat) {
  const bool behind = has_tail(g);
  if (behind || g.copy) {
    auto same = parts_.reader->unchanged(g);
    if (same && !*same) {
      replaced(g, stat);
      return false;
    }
  }
  if (behind || !all_settled(g) || (!g.copy && g.size > 0) || !is_rotation(g)) return true;
  if (g.size > 0 && !copies_.still_copied(g, source_of(g.directory, g.name))) return true;
  begin_anew(g, stat);
  return false;
}

void Scanner::grow(Generation& g, const port::FileStat& stat) {
  g.modified_ns = stat.modified_ns;
  parts_.table->grown(g, stat.size);
  learn(g);
}

/// Somebody else's file may be copied and truncated before the first byte of it is read.
void Scanner::learn(Generation& g) {
  if (g.size > 0 && g.prefix.length() == 0 && parts_.tails(g)) (void)parts_.reader->learn(g);
}

/// A copy that nobody had to read may hold what was in flight of an original that was truncated while we were down: the
/// receivers are asked for that, and are sent the rest.
void Scanner::find_what_was_in_flight() {
  std::vector<Generation*> lost;
  parts_.table->each([&](Generation& g) {
    if (!g.readable() && g.truncated) lost.push_back(&g);
  });
  for (Generation* g : lost) {
    Generation* copy = copies_.holder_of(*g);
    if (!copy) continue;
    auto stat = parts_.files.stat(parts_.path(*copy));
    if (!stat || !*stat || identity_of(**stat) != copy->identity) continue;
    begin_anew(*copy, **stat);
  }
  create_fresh();
}

/// A file with two names keeps the one that it was found under first.
bool Scanner::leads_to(const Generation& g) const {
  auto there = parts_.files.stat(parts_.path(g));
  return there && *there && identity_of(**there) == g.identity;
}

}  // namespace ph::agent
