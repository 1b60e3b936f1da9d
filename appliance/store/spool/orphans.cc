#include "store/spool/orphans.h"

#include <algorithm>
#include <optional>

#include "base/coding.h"
#include "store/spool/log_source.h"
#include "store/spool/segment_recovery.h"
#include "store/spool/spool_check.h"

namespace ph::spool {
namespace {

constexpr std::string_view kCursor = "/cursor";

using Cursors = std::map<std::string, uint64_t>;  // target -> everything below is settled

Result<Cursors> cursors_of(port::KeyedStore& store, const std::string& route) {
  Cursors out;
  std::string prefix = store_prefix(route) + "t/";
  PH_TRY(store.scan(prefix, [&](ByteView key, ByteView value) {
    std::string_view name = key.substr(prefix.size());
    if (!name.ends_with(kCursor)) return true;
    if (auto settled = LogSource::settled_in(value))
      out[std::string(name.substr(0, name.size() - kCursor.size()))] = *settled;
    return true;
  }));
  return out;
}

/// Counts what is kept of [from, to).
void count(const SpoolReport& report, uint64_t from, uint64_t to, Orphan& orphan) {
  if (report.segments.empty()) return;
  from = std::max({from, report.floor, report.segments.front().first});
  if (from >= to) return;
  orphan.records = to - from;
  for (const SegmentReport& s : report.segments) {
    if (s.last <= from || s.first >= to) continue;
    bool newest = report.end && report.end->segment == s.first;
    orphan.bytes += newest ? std::min(s.bytes, report.end->offset) : s.bytes;
  }
}

class Finder {
 public:
  Finder(port::Files& files, port::KeyedStore& store, const std::string& directory)
      : files_(files), store_(store), directory_(directory) {}

  Result<> whole(const std::string& route) {
    Orphan orphan{.route = route, .target = {}, .fault = {}};
    auto report = list_spool({files_, &store_, route, directory_ + "/" + route});
    if (!report) {
      orphan.fault = report.error().to_string();
    } else if (report->end) {
      PH_ASSIGN(Cursors cursors, cursors_of(store_, route));
      uint64_t from = cursors.empty() ? 0 : UINT64_MAX;
      for (const auto& [target, settled] : cursors) from = std::min(from, settled);
      count(*report, from, report->end->end, orphan);
    } else {
      for (const SegmentReport& s : report->segments) orphan.bytes += s.bytes > kRecordsOffset ? s.bytes : 0;
    }
    found(std::move(orphan));
    return {};
  }

  Result<> targets(const std::string& route, const std::vector<std::string>& configured) {
    PH_ASSIGN(Cursors cursors, cursors_of(store_, route));
    std::optional<SpoolReport> report;
    for (const auto& [target, settled] : cursors) {
      std::string key = store_prefix(route) + "t/" + target + "/left";
      PH_ASSIGN(auto left, stored_number(store_, key));
      if (std::ranges::find(configured, target) != configured.end()) {
        if (left) notes_.remove(key);
        continue;
      }
      if (!report) {
        PH_ASSIGN(report, list_spool({files_, &store_, route, directory_ + "/" + route}));
      }
      if (!report->end) continue;
      if (!left) {
        left = report->end->end;
        std::string value;
        put_key(value, *left);
        notes_.put(key, value);
      }
      Orphan orphan{.route = route, .target = target, .fault = {}};
      count(*report, settled, *left, orphan);
      found(std::move(orphan));
    }
    return {};
  }

  Result<std::vector<Orphan>> finish() {
    if (!notes_.empty()) PH_TRY(store_.write(notes_, true));
    return std::move(found_);
  }

 private:
  void found(Orphan orphan) {
    if (orphan.records > 0 || orphan.bytes > 0 || !orphan.fault.empty()) found_.push_back(std::move(orphan));
  }

  port::Files& files_;
  port::KeyedStore& store_;
  const std::string& directory_;
  port::WriteBatch notes_;
  std::vector<Orphan> found_;
};

}  // namespace

Result<std::vector<Orphan>> find_orphans(port::Files& files, port::KeyedStore& store, const std::string& directory,
                                         const std::map<std::string, std::vector<std::string>>& targets) {
  Finder finder(files, store, directory);
  auto entries = files.list(directory);
  if (!entries && entries.error().code != port::file_errors::not_found) return std::unexpected(entries.error());
  if (entries) {
    std::ranges::sort(*entries, {}, &port::DirectoryEntry::name);
    for (const auto& entry : *entries)
      if (entry.kind == port::FileKind::directory && !targets.contains(entry.name)) PH_TRY(finder.whole(entry.name));
  }
  for (const auto& [route, configured] : targets) PH_TRY(finder.targets(route, configured));
  return finder.finish();
}

}  // namespace ph::spool
