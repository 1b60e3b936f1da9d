#include "service/agent/copy_watch.h"

#include <algorithm>
#include <memory>

#include "service/agent/source_reader.h"

namespace ph::agent {
namespace {

constexpr Duration kStable = std::chrono::seconds(2);  // unchanged for so long: the copying is over
constexpr size_t kWaitingMax = 1000;                   // more: not recognised, delivered like any file

Result<std::string> piece(port::File& file, uint64_t offset, uint64_t size) {
  std::string bytes(size, '\0');
  PH_ASSIGN(size_t n, file.read_at(offset, bytes.data(), bytes.size()));
  bytes.resize(n);
  return bytes;
}

}  // namespace

/// The generation that lies under the original's name now.
Generation* CopyWatch::live_original(const std::string& directory, const std::string& lane, const SourceName& source) {
  Generation* live = nullptr;
  parts_.table->each_in_lane(lane, [&](Generation& g) {
    if (!g.cursors.empty() && g.readable() && g.verified && g.directory == directory && g.name == source.original)
      live = &g;
  });
  if (!live) return nullptr;
  auto there = parts_.files.stat(parts_.path(*live));
  bool in_place = there && *there && identity_of(**there) == live->identity;
  return in_place ? live : nullptr;
}

/// The generation truncated in its place that the copy has the bytes of. There may be several, not forgotten yet, and
/// after a restart their order says nothing.
Generation* CopyWatch::truncated_original(const std::string& lane, port::File& copy, uint64_t size) {
  Generation* found = nullptr;
  parts_.table->each_in_lane(lane, [&](Generation& g) {
    if (!found && !g.cursors.empty() && g.truncated && !g.readable() && continues_ended(copy, size, g)) found = &g;
  });
  return found;
}

/// First and last 4 KiB of the copy are the original's at the same places.
bool CopyWatch::continues(port::File& copy, uint64_t size, Generation& live) {
  auto original = parts_.reader->file(live);
  if (!original) return false;
  auto stat = (*original)->stat();
  if (!stat || stat->size < size) return false;
  uint64_t length = std::min<uint64_t>(size, kWindowMax);
  for (uint64_t at : {uint64_t{0}, size - length}) {
    auto a = piece(copy, at, length), b = piece(**original, at, length);
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

CopyWatch::Decision CopyWatch::judge(const std::string& directory, const std::string& name, const SourceName& source,
                                     const port::FileStat& stat) {
  auto key = std::pair(directory, name);
  auto decided = [&](Verdict verdict, Generation* original) {
    waiting_.erase(key);
    return Decision{verdict, original};
  };
  if (source.rotation == 0) return {};
  const std::string lane = directory.empty() ? source.original : directory + "/";
  auto file = parts_.files.open(parts_.path(directory, name), port::OpenMode::read);
  if (!file) return decided(Verdict::unrelated, nullptr);
  if (Generation* ended = truncated_original(lane, **file, stat.size)) return decided(Verdict::copy, ended);
  Generation* original = live_original(directory, lane, source);
  if (!original) return decided(Verdict::unrelated, nullptr);
  if (!continues(**file, stat.size, *original)) {
    // Truncated since this scan looked at it: the next one ends it, and then this is its copy.
    auto same = parts_.reader->unchanged(*original);
    if (!same || *same) return decided(Verdict::unrelated, nullptr);
  }
  if (!waiting_.contains(key) && waiting_.size() >= kWaitingMax) return decided(Verdict::unrelated, nullptr);
  Waiting& w = waiting_[key];
  if (w.size != stat.size || w.modified_ns != stat.modified_ns || w.since == Instant{})
    w = {stat.size, stat.modified_ns, parts_.loop.now()};
  bool covered = std::all_of(original->cursors.begin(), original->cursors.end(),
                             [&stat](const auto& c) { return c->read >= stat.size; });
  if (covered && parts_.loop.now() - w.since >= kStable) return decided(Verdict::copy, original);
  return {Verdict::wait, original};
}

std::vector<std::string> CopyWatch::waiting_in(const std::string& directory) const {
  std::vector<std::string> names;
  for (auto it = waiting_.lower_bound({directory, ""}); it != waiting_.end() && it->first.first == directory; ++it)
    names.push_back(it->first.second);
  return names;
}

}  // namespace ph::agent
