#include "service/agent/scan.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/log.h"
#include "base/mask.h"
#include "codec/event/block.h"
#include "service/agent/agent_source.h"
#include "service/agent/ledger.h"
#include "service/agent/retirement.h"
#include "service/agent/source_reader.h"

namespace ph::agent {
namespace {

constexpr size_t kLoggedMax = 4096;  // names remembered as logged; more: forgotten, and logged again
constexpr size_t kPinnedMax = 256;   // deleted files kept alive to be read to their end; more: given up, counted
constexpr Duration kAbsentRescan = std::chrono::seconds(2);

}  // namespace

Scanner::Scanner(Parts& parts, WatcherFactory make_watcher)
    : parts_(parts),
      make_watcher_(std::move(make_watcher)),
      rescan_timer_(parts.loop.make_timer()),
      poll_timer_(parts.loop.make_timer()),
      copies_(parts) {}

void Scanner::start() {
  started_ = true;
  if (make_watcher_) {
    auto made = make_watcher_([this](const std::vector<port::Watcher::Event>& events) { on_events(events); });
    if (made)
      watcher_ = std::move(*made);
    else
      log_warn("watch_unavailable", {{"error", made.error().to_string()}});
  }
  for (const std::string& directory : directories_) watch(directory);
  rescan();  // what happened before the watches stood
}

void Scanner::stop() {
  started_ = false;
  watcher_.reset();
  rescan_timer_->cancel();
  poll_timer_->cancel();
}

void Scanner::rescan() {
  if (auto scanned = scan_all(); !scanned)
    log_error("source_directory_unreadable", {{"error", scanned.error().to_string()}});
  rescan_within(parts_.options.rescan);
}

void Scanner::rescan_within(Duration delay) {
  if (!started_) return;
  Instant at = parts_.loop.now() + delay;
  if (rescan_timer_->pending() && rescan_at_ <= at) return;
  rescan_at_ = at;
  rescan_timer_->start(delay, [this] { rescan(); });
}

Result<> Scanner::scan_all() {
  ++scan_;
  ++parts_.stats.scans;
  staying_.clear();
  staying_total_ = 0;
  unlisted_.clear();
  add_directory("");
  scanning_ = true;
  auto scanned = scan_below();
  scanning_ = false;
  if (!scanned) return scanned;
  create_fresh();
  if (!parts_.running) find_what_was_in_flight();
  check_absent();
  return {};
}

Result<> Scanner::scan_below() {
  PH_TRY(scan_directory(""));
  std::vector<std::string> below(directories_.begin(), directories_.end());
  for (const std::string& directory : below) {
    if (directory.empty()) continue;
    auto scanned = scan_directory(directory);
    if (scanned) continue;
    if (scanned.error().code == port::file_errors::not_found) {
      drop_directory(directory);
    } else {
      unlisted_.insert(directory);
      stays(directory, "", scanned.error().to_string());
    }
  }
  return {};
}

void Scanner::add_directory(const std::string& directory) {
  if (directories_.insert(directory).second && started_) watch(directory);
}

void Scanner::drop_directory(const std::string& directory) {
  directories_.erase(directory);
  if (watched_.erase(directory) && watcher_) watcher_->remove(parts_.path(directory, ""));
}

void Scanner::watch(const std::string& directory) {
  if (watched_.contains(directory)) return;
  if (watcher_) {
    auto added = watcher_->add(parts_.path(directory, ""));
    if (added) {
      watched_.insert(directory);
      return;
    }
    log_once("directory_not_watched", parts_.path(directory, ""), added.error().to_string());
  }
  if (!poll_timer_->pending())
    poll_timer_->start(parts_.options.poll, [this] {
      std::vector<std::string> polled;
      std::set_difference(directories_.begin(), directories_.end(), watched_.begin(), watched_.end(),
                          std::back_inserter(polled));
      for (const std::string& d : polled) {
        if (auto scanned = scan_directory(d);
            !scanned && scanned.error().code == port::file_errors::not_found && !d.empty())
          drop_directory(d);
      }
      create_fresh();
      for (const std::string& d : polled)
        if (directories_.contains(d)) watch(d);  // tries again; a failure keeps the timer going
    });
}

Result<> Scanner::scan_directory(const std::string& directory) {
  PH_ASSIGN(auto entries, parts_.files.list(parts_.path(directory, "")));
  for (const port::DirectoryEntry& entry : entries) {
    if (entry.kind == port::FileKind::directory) {
      if (directory.empty() && (entry.name == kHiddenDirectory || skip_reason(entry.name).empty()))
        add_directory(entry.name);
      continue;
    }
    if (entry.kind != port::FileKind::regular) {
      log_once("source_file_skipped", parts_.path(directory, entry.name),
               entry.kind == port::FileKind::symlink ? "a symbolic link" : "not a regular file");
      continue;
    }
    scan_entry(directory, entry.name);
  }
  return {};
}

void Scanner::scan_entry(const std::string& directory, const std::string& name) {
  if (std::string_view reason = skip_reason(name); !reason.empty()) {
    log_once("source_file_skipped", parts_.path(directory, name), reason);
    return;
  }
  auto stat = parts_.files.stat(parts_.path(directory, name));
  if (!stat) return stays(directory, name, stat.error().to_string());
  if (*stat && (*stat)->kind == port::FileKind::regular) found(directory, name, **stat);
}

void Scanner::on_events(const std::vector<port::Watcher::Event>& events) {
  if (!started_) return;
  std::set<std::pair<std::string, std::string>> looked;
  for (const auto& e : events) {
    if (e.overflow) {
      ++parts_.stats.overflows;
      log_warn("notifications_lost", {{"directory", parts_.options.directory}});
      rescan();
      return;
    }
    const std::string& root = parts_.options.directory;
    std::string directory = e.directory.size() > root.size() ? e.directory.substr(root.size() + 1) : std::string();
    if (looked.emplace(directory, e.name).second) look(directory, e.name);
  }
  create_fresh();
}

void Scanner::look(const std::string& directory, const std::string& name) {
  if (name.empty()) {  // the directory itself went or was moved, and its watch with it; another may have its name now
    watched_.erase(directory);
    // Watched before it is listed: what is made between the two would be seen by neither.
    watch(directory);
    if (directory.empty()) return rescan_within(Duration::zero());
    if (auto scanned = scan_directory(directory); !scanned && scanned.error().code == port::file_errors::not_found)
      drop_directory(directory);
    return;
  }
  auto stat = parts_.files.stat(parts_.path(directory, name));
  if (!stat) return;
  if (!*stat) {
    // Whoever we hold open under this name says itself whether it is gone; the others wait for the scans.
    std::vector<Generation*> here;
    parts_.reader->each_open([&](Generation& g) {
      if (g.directory == directory && g.name == name) here.push_back(&g);
    });
    for (Generation* g : here)
      if (auto now = g->file->stat(); now && now->links == 0) gone(*g);
    return;
  }
  if ((*stat)->kind == port::FileKind::directory) {
    if (!directory.empty() || !skip_reason(name).empty()) return;
    bool fresh = !directories_.contains(name);
    add_directory(name);
    if (fresh) (void)scan_directory(name);
    return;
  }
  if ((*stat)->kind == port::FileKind::regular && skip_reason(name).empty()) found(directory, name, **stat);
}

void Scanner::found(const std::string& directory, const std::string& name, const port::FileStat& stat) {
  Generation* g = parts_.table->by_inode(stat.device, stat.inode);
  if (g && g->identity.birth_ns != 0 && stat.birth_ns != 0 && g->identity.birth_ns != stat.birth_ns) {
    ++parts_.stats.replaced;
    log_info("inode_reused", {{"path", parts_.path(directory, name)}, {"before", parts_.path(*g)}});
    parts_.table->end(*g);
    g = nullptr;
  }
  if (g) return update(*g, directory, name, stat);
  if (!fresh_inodes_.emplace(stat.device, stat.inode).second) return;
  Fresh fresh{directory, name, stat, {}};
  if (directory == kHiddenDirectory) {
    auto category = category_of_hidden(name);
    if (!category) return stays(directory, name, "not one of the agent's own files");
    fresh.source = {std::string(*category), std::string(*category), 0};
  } else {
    fresh.source = source_of(directory, name);
    if (!wanted(directory, name, fresh.source)) {
      fresh_inodes_.erase({stat.device, stat.inode});
      return log_once("source_file_skipped", parts_.path(directory, name), "agent.include and agent.exclude");
    }
  }
  fresh_.push_back(std::move(fresh));
}

SourceName Scanner::source_of(const std::string& directory, const std::string& name) const {
  return source_name(directory, name, [&](std::string_view original) {
    if (parts_.table->lane_known(directory.empty() ? std::string(original) : directory + "/")) return true;
    auto sibling = parts_.files.stat(parts_.path(directory, original));
    return sibling && sibling->has_value();
  });
}

bool Scanner::is_rotation(const Generation& g) const {
  return !g.in_hidden() && source_of(g.directory, g.name).rotation > 0;
}

/// The patterns decide on files that are not known yet; by their name or the one that they are a rotation of. What is
/// known is delivered to its end.
bool Scanner::wanted(const std::string& directory, const std::string& name, const SourceName& source) const {
  const AgentOptions& o = parts_.options;
  if (o.include.empty() && o.exclude.empty()) return true;
  std::vector<std::string> names = {name, source.original};
  if (!directory.empty()) names.insert(names.end(), {directory + "/" + name, directory + "/" + source.original});
  const auto fits = [&](const std::string& mask) {
    return std::ranges::any_of(names, [&](const std::string& n) { return mask_matches(mask, n); });
  };
  return (o.include.empty() || std::ranges::any_of(o.include, fits)) && std::ranges::none_of(o.exclude, fits);
}

/// New files in the order in which their lines were written, as well as that can be told: rotations of one name by
/// their number, oldest first; different names by birth.
void Scanner::create_fresh() {
  for (const auto& [id, stat] : std::exchange(grown_copies_, {})) {
    Generation* g = parts_.table->find(id);
    if (g && g->readable() && stat.size > g->size && grows(*g, stat)) grow(*g, stat);
  }
  if (fresh_.empty()) return;
  std::map<std::pair<std::string, std::string>, int64_t> born;  // of each original
  for (const Fresh& f : fresh_) {
    auto [it, added] = born.try_emplace({f.directory, f.source.original}, f.stat.birth_ns);
    if (!added) it->second = std::min(it->second, f.stat.birth_ns);
  }
  for (Fresh& f : fresh_) f.group_birth = born[{f.directory, f.source.original}];
  std::sort(fresh_.begin(), fresh_.end(), [](const Fresh& a, const Fresh& b) {
    return std::tie(a.group_birth, a.directory, a.source.original, b.source.rotation, a.stat.birth_ns, a.name) <
           std::tie(b.group_birth, b.directory, b.source.original, a.source.rotation, b.stat.birth_ns, b.name);
  });
  std::vector<Fresh> fresh;
  fresh.swap(fresh_);
  fresh_inodes_.clear();
  for (Fresh& f : fresh) create(f);
}

void Scanner::create(Fresh& f) {
  if (std::string_view fault = event::category_fault(f.source.category); !fault.empty())
    return stays(f.directory, f.name, fault);
  if (!parts_.options.route_of(f.source.category)) return stays(f.directory, f.name, "its category has no route");
  if (parts_.table->size() >= kGenerationsMax) return stays(f.directory, f.name, "too many files");
  std::string lane = f.directory.empty() || f.directory == kHiddenDirectory ? f.source.original : f.directory + "/";
  Place place{f.directory, f.name, std::move(lane), f.source.category};
  if (f.directory == kHiddenDirectory) {
    parts_.table->create(std::move(place), f.stat).seen_in_scan = scan_;
    return;
  }
  auto copy = copies_.judge(f.directory, f.name, f.source, f.stat);
  if (copy.verdict == CopyWatch::Verdict::wait) {
    if (copy.again) rescan_within(kAbsentRescan + kAbsentRescan);
  } else if (copy.verdict == CopyWatch::Verdict::unrelated) {
    Generation& g = parts_.table->create(std::move(place), copy.stat);
    g.seen_in_scan = scan_;
    learn(g);
  } else if (++parts_.stats.copies; parts_.table->can_move(*copy.original, copy.stat)) {
    copy.original->seen_in_scan = scan_;
    copy.original->absences = 0;
    parts_.table->move_to_copy(*copy.original, std::move(place), copy.stat);
  } else {
    parts_.table->create_copy(std::move(place), copy.stat, *copy.original).seen_in_scan = scan_;
  }
}

void Scanner::update(Generation& g, const std::string& directory, const std::string& name, const port::FileStat& stat) {
  g.seen_in_scan = scan_;
  g.absences = 0;
  if ((g.directory != directory || g.name != name) && (directory == kHiddenDirectory || !leads_to(g))) {
    if (g.verified) ++parts_.stats.renamed;
    g.directory = directory;
    g.name = name;
    if (!g.in_hidden()) g.big = is_big(name);
    if (g.state != GenerationState::draining)
      g.state = g.in_hidden() ? GenerationState::retiring : GenerationState::live;
    parts_.ledger->touch(g);
    parts_.retirement->consider(g);
  }
  if (g.cursors.empty()) {
    g.verified = true;
    g.size = stat.size;
    return stays(directory, name, "its category has no route");
  }
  if (!g.verified && !verify(g, stat)) return;
  if (g.unreadable && !readable_again(g)) return;
  if (stat.size < g.size) return replaced(g, stat);
  if (stat.size == g.size && stat.modified_ns != g.modified_ns && stat.size > 0) {
    auto same = parts_.reader->unchanged(g);
    if (same && !*same) return replaced(g, stat);
    if (same) g.modified_ns = stat.modified_ns;
  }
  if (stat.size > g.size) {
    if (g.copy || (g.size == 0 && is_rotation(g)))
      grown_copies_.emplace_back(g.id, stat);  // judged when everything beside it was looked at
    else if (grows(g, stat))
      grow(g, stat);
    else
      return;
  }
  // Idle empty files become due by age alone; a held one may have been closed.
  if (stat.size == 0 || g.state == GenerationState::retiring) parts_.retirement->consider(g);
}

/// First look at a stored generation. False: it was replaced, or cannot be read now.
bool Scanner::verify(Generation& g, const port::FileStat& stat) {
  bool in_flight = false;
  for (const auto& c : g.cursors)
    in_flight |= !c->receivers.empty() && (!parts_.stopped_cleanly || c->read > c->settled);
  auto verdict = parts_.reader->inspect(g, stat, in_flight);
  if (!verdict) {
    ++parts_.stats.read_failures;
    stays(g.directory, g.name, verdict.error().to_string());
    return false;
  }
  g.verified = true;
  g.modified_ns = stat.modified_ns;
  if (*verdict == Verdict::replaced) {
    g.verified = false;  // ends as one whose bytes in flight can't be read again
    replaced(g, stat);
    return false;
  }
  if (*verdict == Verdict::power_cut) {
    uint64_t size_before = g.size;
    if (auto renewed = parts_.table->renew_all(g, stat.size); !renewed) {
      ++parts_.stats.read_failures;
      g.verified = false;
      stays(g.directory, g.name, renewed.error().to_string());
      return false;
    }
    ++parts_.stats.power_cuts;
    log_warn("generation_continued_after_power_cut",
             {{"path", parts_.path(g)}, {"size", stat.size}, {"size_before", size_before}});
    g.prefix = {};
  }
  if (g.boot != parts_.boot) {
    g.boot = parts_.boot;
    parts_.ledger->touch(g);
  }
  // What a copy has more than before is judged first.
  g.size = g.proven = g.copy ? std::min(g.size, stat.size) : stat.size;
  for (auto& c : g.cursors) {
    c->read = c->settled;
    c->read_window = c->window.end == c->read ? c->window : Window{};
    c->in_oversize.reset();
  }
  learn(g);
  parts_.table->wake(g);
  parts_.retirement->consider(g);
  return true;
}

void Scanner::lost(Generation& g) {
  if (g.state == GenerationState::draining) return parts_.table->end(g);
  parts_.reader->close(g);
  if (std::exchange(g.unreadable, true)) return;  // the regular scans try again
  rescan_within(parts_.options.grace);
}

bool Scanner::readable_again(Generation& g) {
  if (auto file = parts_.reader->file(g); !file) {
    stays(g.directory, g.name, file.error().to_string());
    return false;
  }
  g.unreadable = false;
  for (auto& c : g.cursors) c->stalled = 0;
  parts_.table->wake(g);
  return true;
}

void Scanner::gone(Generation& g) {
  if (g.cursors.empty()) return parts_.table->end(g);
  if (g.file && parts_.reader->pinned() < kPinnedMax) return parts_.retirement->drain(g);
  bool unread = std::any_of(g.cursors.begin(), g.cursors.end(), [&g](const auto& c) { return c->read < g.size; });
  if (unread) {
    ++parts_.stats.vanished;
    log_warn("source_file_vanished", {{"path", parts_.path(g)}, {"size", g.size}});
  }
  parts_.table->end(g);
}

void Scanner::check_absent() {
  std::vector<Generation*> absent;
  parts_.table->each([&](Generation& g) {
    bool there = g.seen_in_scan == scan_ || unlisted_.contains(g.directory);
    if (!there && (g.state == GenerationState::live || g.state == GenerationState::retiring)) absent.push_back(&g);
  });
  Instant now = parts_.loop.now();
  for (Generation* g : absent) {
    if (g->absences++ == 0) g->absent_since = now;
    if (g->file) {
      if (auto stat = g->file->stat(); stat && stat->links == 0) {
        gone(*g);
        continue;
      }
    }
    if (g->absences < 2 || now - g->absent_since < parts_.options.grace) continue;
    parts_.reader->close(*g);
    gone(*g);
  }
  if (!absent.empty()) rescan_within(std::max(kAbsentRescan, parts_.options.grace));
}

void Scanner::stays(const std::string& directory, const std::string& name, std::string_view reason) {
  std::string path = parts_.path(directory, name);
  log_once("source_file_stays", path, reason);
  if (staying_.contains(path) || staying_.size() >= kStayingMax) {
    staying_total_ += scanning_ && !staying_.contains(path);
  } else {
    ++staying_total_;
    staying_.emplace(std::move(path), reason);
  }
}

void Scanner::status(AgentStats& stats) const {
  for (const auto& [path, reason] : staying_) stats.staying.push_back({path, reason});
  stats.staying_total = staying_total_;
  stats.directories_watched = watched_.size();
  stats.directories_polled = started_ ? directories_.size() - watched_.size() : 0;
}

void Scanner::log_once(std::string_view event, const std::string& path, std::string_view reason) {
  if (logged_.size() >= kLoggedMax) logged_.clear();
  std::string key = path;
  key.append("\n").append(reason);
  if (logged_.insert(std::move(key)).second) log_warn(event, {{"path", path}, {"reason", reason}});
}

}  // namespace ph::agent
