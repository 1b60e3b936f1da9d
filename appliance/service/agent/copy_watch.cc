#include "service/agent/copy_watch.h"

#include <algorithm>
#include <memory>

#include "service/agent/source_reader.h"

namespace ph::agent {
namespace {

constexpr Duration kStable = std::chrono::seconds(2);  // unchanged for so long: the copying is over
constexpr Duration kRemember = std::chrono::seconds(30);
constexpr Duration kGivenUp = std::chrono::seconds(10);  // by then its original should be known
constexpr size_t kWaitingMax = 1000;                     // more: not recognised, delivered like any file

Result<std::string> piece(port::File& file, uint64_t offset, uint64_t size) {
  std::string bytes(size, '\0');
  PH_ASSIGN(size_t n, file.read_at(offset, bytes.data(), bytes.size()));
  bytes.resize(n);
  return bytes;
}

std::string lane_of(const std::string& directory, const SourceName& source) {
  return directory.empty() ? source.original : directory + "/";
}

}  // namespace

/// Lies in its place, under the original's name or a younger rotation's, or is a copy itself.
bool CopyWatch::may_be_original(const Generation& g, const std::string& directory, const SourceName& source) {
  if (g.cursors.empty() || !g.readable() || !g.verified || g.directory != directory) return false;
  if (g.name != source.original) {
    const RotatedName other = rotated(g.name);
    if (other.original != source.original || (other.number >= source.rotation && !g.copy)) return false;
  }
  auto there = parts_.files.stat(parts_.path(g));
  return there && *there && identity_of(**there) == g.identity;
}

CopyWatch::Live CopyWatch::live_original(const std::string& directory, const std::string& lane,
                                         const SourceName& source, port::File& copy, const port::FileStat& stat) {
  std::vector<Generation*> candidates;
  parts_.table->each_in_lane(lane, [&](Generation& g) {
    if (identity_of(stat) != g.identity && may_be_original(g, directory, source)) candidates.push_back(&g);
  });
  Live live;
  for (Generation* g : candidates) {
    if (continues(copy, stat.size, *g)) return {g, false};
    auto same = parts_.reader->unchanged(*g);
    live.changes |= same && !*same;
  }
  return live;
}

/// The generation truncated in its place that the copy has the bytes of. There may be several, not forgotten yet, and
/// after a restart their order says nothing: the one of which most is known to be there.
Generation* CopyWatch::truncated_original(const std::string& lane, port::File& copy, uint64_t size) {
  Generation* found = nullptr;
  parts_.table->each_in_lane(lane, [&](Generation& g) {
    if (g.cursors.empty() || !g.truncated || g.readable() || !continues_ended(copy, size, g)) return;
    if (!found || found->proven < g.proven) found = &g;
  });
  return found;
}

/// A file under the original's name that was found together with this one, so that neither is known. Both may begin
/// alike without one being a copy; but a copy is born later, and what was renamed earlier.
bool CopyWatch::unknown_original(const std::string& directory, const SourceName& source, port::File& copy,
                                 const port::FileStat& stat) {
  const std::string path = parts_.path(directory, source.original);
  auto there = parts_.files.stat(path);
  if (!there || !*there || (*there)->kind != port::FileKind::regular) return false;
  const port::FileStat& original = **there;
  if (original.birth_ns == 0 || stat.birth_ns <= original.birth_ns || original.size < stat.size) return false;
  if (parts_.table->by_inode(original.device, original.inode)) return false;
  auto file = parts_.files.open(path, port::OpenMode::read);
  return file && same_bytes(copy, **file, stat.size);
}

bool CopyWatch::continues(port::File& copy, uint64_t size, Generation& live) {
  auto original = parts_.reader->file(live);
  if (!original) return false;
  auto stat = (*original)->stat();
  return stat && stat->size >= size && same_bytes(copy, **original, size);
}

/// The copy's first, middle and last 4 KiB are the original's at the same places.
bool CopyWatch::same_bytes(port::File& copy, port::File& original, uint64_t size) {
  const uint64_t length = std::min<uint64_t>(size, kWindowMax);
  for (uint64_t at : {uint64_t{0}, (size - length) / 2, size - length}) {
    auto a = piece(copy, at, length), b = piece(original, at, length);
    if (!a || !b || a->size() != length || *a != *b) return false;
  }
  return true;
}

bool CopyWatch::continues_ended(port::File& copy, uint64_t size, const Generation& ended) {
  auto first = piece(copy, 0, std::min<uint64_t>(size, kPrefixMax));
  if (!first || ended.prefix.length() == 0) return false;
  Match match = ended.prefix.match(*first);
  if (match != Match::same && match != Match::shorter) return false;
  for (const auto& c : ended.cursors) {
    for (const Window& w : {c->read_window, c->window}) {
      if (w.length == 0 || w.end > size) continue;
      auto bytes = piece(copy, w.end - w.length, w.length);
      if (!bytes || Window::of(w.end, *bytes) != w) return false;
    }
  }
  return true;
}

/// What was compared is not what is there any more: it was emptied, written over or deleted meanwhile. What was only
/// appended to is still there.
bool CopyWatch::gone_meanwhile(port::File& copy, const port::FileStat& compared) {
  auto now = copy.stat();
  if (!now || now->links == 0 || now->size < compared.size) return true;
  return now->size == compared.size && now->modified_ns != compared.modified_ns;
}

/// How long nobody has written to the file.
Duration CopyWatch::unchanged_for(const std::pair<std::string, std::string>& key, const port::FileStat& stat) {
  Waiting& w = waiting_[key];
  if (w.size != stat.size || w.modified_ns != stat.modified_ns || w.since == Instant{})
    w = {stat.size, stat.modified_ns, parts_.loop.now()};
  return parts_.loop.now() - w.since;
}

/// Forgets those that are not there any more.
void CopyWatch::make_room() {
  std::erase_if(waiting_, [this](const auto& waiting) {
    auto there = parts_.files.stat(parts_.path(waiting.first.first, waiting.first.second));
    return there && !*there;
  });
}

CopyWatch::Decision CopyWatch::judge(const std::string& directory, const std::string& name, const SourceName& source,
                                     const port::FileStat& seen) {
  const auto key = std::pair(directory, name);
  Decision out{Verdict::unrelated, nullptr, seen};
  if (source.rotation == 0) return out;
  auto decided = [&](Verdict verdict, Generation* original) {
    waiting_.erase(key);
    out.verdict = verdict;
    out.original = original;
    return out;
  };
  const std::string lane = lane_of(directory, source);
  auto file = parts_.files.open(parts_.path(directory, name), port::OpenMode::read);
  if (!file)
    return decided(file.error().code == port::file_errors::not_found ? Verdict::wait : Verdict::unrelated, nullptr);
  // As it is now: whoever truncated the original had copied all of it before.
  auto now = (*file)->stat();
  if (!now || identity_of(*now) != identity_of(seen)) return decided(Verdict::wait, nullptr);  // there is another event
  out.stat = *now;
  const port::FileStat& stat = out.stat;
  const CategoryOptions* options = parts_.options_of(source.category);
  const bool tail = options ? options->tail : parts_.options.tail;
  if (!waiting_.contains(key) && waiting_.size() >= kWaitingMax) make_room();
  if (waiting_.size() >= kWaitingMax) return decided(Verdict::unrelated, nullptr);
  if (stat.size == 0) {
    if (tail || unchanged_for(key, stat) >= kStable) return decided(tail ? Verdict::wait : Verdict::unrelated, nullptr);
    out.verdict = Verdict::wait;
    out.again = true;
    return out;
  }
  Generation* original = truncated_original(lane, **file, stat.size);
  bool covered = false;
  if (original) {
    covered = std::ranges::all_of(original->cursors, [&](const auto& c) { return c->end <= stat.size; });
    if (covered) return decided(Verdict::copy, original);  // has all that was handed out
    covered = true;                                        // or less, unless it is still being written
    original->kept_until = std::max(original->kept_until, parts_.loop.now() + kRemember);
  } else {
    Live live = live_original(directory, lane, source, **file, stat);
    original = live.original;
    // Truncated since this scan looked at it: the next one ends it, and then this is its copy.
    if (!original && !live.changes && !gone_meanwhile(**file, stat) &&
        (unchanged_for(key, stat) >= kGivenUp || !unknown_original(directory, source, **file, stat)))
      return decided(Verdict::unrelated, nullptr);
    covered = original && std::ranges::all_of(original->cursors, [&](const auto& c) { return c->read >= stat.size; });
  }
  if (unchanged_for(key, stat) >= kStable && covered) return decided(Verdict::copy, original);
  out.verdict = Verdict::wait;
  out.again = true;
  return out;
}

bool CopyWatch::still_copied(Generation& copy, const SourceName& source) {
  auto file = parts_.files.open(parts_.path(copy), port::OpenMode::read);  // the reader may close its own meanwhile
  if (!file) return false;
  auto stat = (*file)->stat();
  if (!stat || stat->size == 0 || identity_of(*stat) != copy.identity) return false;
  if (truncated_original(copy.lane, **file, stat->size)) return true;
  const Live live = live_original(copy.directory, copy.lane, source, **file, *stat);
  return live.original || live.changes;
}

Generation* CopyWatch::holder_of(Generation& truncated) {
  if (truncated.readable() || !truncated.truncated) return nullptr;
  if (std::ranges::none_of(truncated.cursors, [](const auto& c) { return c->abandoned.has_value(); })) return nullptr;
  std::vector<Generation*> copies;
  parts_.table->each_in_lane(truncated.lane, [&](Generation& g) {
    if (g.copy && g.readable() && g.verified && all_settled(g) && !has_tail(g)) copies.push_back(&g);
  });
  for (Generation* copy : copies) {
    auto file = parts_.reader->file(*copy);
    if (!file) continue;
    auto stat = (*file)->stat();
    if (stat && parts_.table->can_move(truncated, *stat) && continues_ended(**file, stat->size, truncated)) return copy;
  }
  return nullptr;
}

}  // namespace ph::agent
