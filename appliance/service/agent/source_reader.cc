#include "service/agent/source_reader.h"

#include <algorithm>
#include <cstring>

#include "base/coding.h"
#include "base/log.h"
#include "service/agent/ledger.h"

namespace ph::agent {
namespace {

constexpr size_t kReadMin = 4096;
constexpr uint64_t kSkipMax = 4 * 1024 * 1024;  // of an over-long line, skipped in one turn
constexpr std::string_view kOversizeReason = "line_oversize";

/// Fingerprint of the last bytes of what was read, which ends at `end`.
Window window_at(uint64_t end, ByteView before_and_payload) {
  size_t length = std::min<size_t>(before_and_payload.size(), kWindowMax);
  return Window::of(end, before_and_payload.substr(before_and_payload.size() - length));
}

}  // namespace

/// A verified read: `size` payload bytes lie in the buffer, `before` bytes that precede them lie before it.
struct SourceReader::Taken {
  BlockBuffer buffer;
  size_t before = 0;
  size_t size = 0;
  ByteView payload() { return {buffer.payload(), size}; }
  ByteView with_before(size_t payload_bytes) { return {buffer.before_payload(before), before + payload_bytes}; }
};

Result<port::File*> SourceReader::file(Generation& g) {
  if (g.file) {
    if (!g.pinned) open_.splice(open_.begin(), open_, g.place);
    return g.file.get();
  }
  std::string path = parts_.path(g);
  PH_ASSIGN(auto opened, parts_.files.open(path, port::OpenMode::read));
  PH_ASSIGN(port::FileStat stat, opened->stat());
  if (stat.device != g.identity.device || stat.inode != g.identity.inode) return fail(errors::other_file, path);
  g.file = std::move(opened);
  open_.push_front(&g);
  g.place = open_.begin();
  while (open_.size() > std::max<size_t>(parts_.options.descriptors_max, 1)) close(*open_.back());
  return g.file.get();
}

void SourceReader::close(Generation& g) {
  if (!g.file) return;
  if (g.pinned)
    --pinned_;
  else
    open_.erase(g.place);
  g.pinned = false;
  g.file.reset();
}

void SourceReader::pin(Generation& g) {
  PH_ASSERT(g.file != nullptr, "only an open file can be pinned");
  if (g.pinned) return;
  open_.erase(g.place);
  g.pinned = true;
  ++pinned_;
}

bool SourceReader::verify_prefix(Generation& g, port::File& file, uint64_t size) {
  char first[kPrefixMax];
  auto n = file.read_at(0, first, std::min<uint64_t>(size, kPrefixMax));
  if (!n) return false;
  ByteView bytes(first, *n);
  if (g.prefix.match(bytes) != Match::same) return false;
  if (bytes.size() > g.prefix.length()) {
    g.prefix = Prefix::of(bytes);
    if (!g.cursors.empty()) parts_.ledger->touch(g);
  }
  return true;
}

/// Reads up to `want` bytes at the cursor. nullopt: replaced or lost, as `outcome` then says.
Result<std::optional<SourceReader::Taken>> SourceReader::take(Cursor& c, port::File& file, size_t want,
                                                              Outcome& outcome) {
  Generation& g = *c.generation;
  size_t before = std::min<uint64_t>(c.read, kWindowMax);
  Taken taken{BlockBuffer(want + 1), before, 0};  // one more: a newline may have to be added
  PH_ASSIGN(size_t n, file.read_at(c.read - before, taken.buffer.before_payload(before), before + want));
  taken.size = n > before ? n - before : 0;
  PH_ASSIGN(outcome.stat, file.stat());
  bool same = n >= before && outcome.stat.size >= g.size && outcome.stat.size >= c.read + taken.size;
  if (same && c.read_window.length > 0 && c.read_window.end == c.read)
    same = Window::of(c.read, taken.with_before(0)) == c.read_window;
  if (same) same = verify_prefix(g, file, outcome.stat.size);
  if (!same) {
    outcome.nothing = Nothing::replaced;
    return std::nullopt;
  }
  g.modified_ns = outcome.stat.modified_ns;
  g.proven = outcome.stat.size;
  return taken;
}

SourceReader::Outcome SourceReader::read(Cursor& c, size_t bytes_max) {
  Generation& g = *c.generation;
  Outcome outcome;
  auto opened = file(g);
  if (!opened) return lost(g, opened.error());
  port::File& f = **opened;
  auto stat = f.stat();
  if (!stat) return lost(g, stat.error());
  outcome.stat = *stat;
  if (stat->size < g.size || stat->size < c.read) {
    outcome.nothing = Nothing::replaced;
    return outcome;
  }
  if (stat->size > g.size) parts_.table->grown(g, stat->size);
  if (!c.in_oversize) {
    auto inside = stands_in_oversize(c, f);
    if (!inside) return lost(g, inside.error());
    c.in_oversize = *inside;
  }
  if (!lock(g, f, outcome)) return outcome;
  outcome = read_unlocked(c, f, bytes_max);
  if (g.big) f.unlock();
  return outcome;
}

SourceReader::Outcome SourceReader::lost(const Generation& g, const Error& error) {
  ++parts_.stats.read_failures;
  log_debug("source_read_failed", {{"path", parts_.path(g)}, {"error", error.to_string()}});
  Outcome outcome;
  outcome.nothing = Nothing::lost;
  return outcome;
}

/// A writer of a "_big" file has it locked while it appends a line in several pieces. False: later.
bool SourceReader::lock(Generation& g, port::File& file, Outcome& outcome) {
  if (!g.big || file.try_lock_shared()) {
    g.locked_since.reset();
    return true;
  }
  const Instant now = parts_.loop.now();
  if (!g.locked_since) g.locked_since = now;
  if (now - *g.locked_since >= kLockPatience) {  // its whole lines are whole with the lock or without
    ++parts_.stats.locked_too_long;
    return true;
  }
  ++parts_.stats.locked_waits;
  outcome.again = kLockedRetry;
  return false;
}

SourceReader::Outcome SourceReader::read_unlocked(Cursor& c, port::File& f, size_t bytes_max) {
  Generation& g = *c.generation;
  Outcome outcome;
  const uint64_t file_size = g.size;
  if (*c.in_oversize && parts_.options.oversize != Oversize::split) return skip_rest(c, f);

  const size_t line_max = parts_.options.line_max;
  size_t limit = std::clamp<size_t>(bytes_max, kReadMin, limits::kBlockBytesMax);
  while (true) {
    auto want = static_cast<size_t>(std::min<uint64_t>(file_size - c.read, limit));
    if (want == 0) return outcome;
    auto taken = take(c, f, want, outcome);
    if (!taken) return lost(g, taken.error());
    if (!*taken) return outcome;
    Taken& t = **taken;
    if (*c.in_oversize) return read_oversize(c, std::move(t));
    LineCut cut = cut_lines(t.payload(), line_max);
    const bool more = t.size == want && want < file_size - c.read;  // behind what was read
    if (cut.size > 0 && g.options && g.options->multiline) {
      const Multiline& multiline = *g.options->multiline;
      const bool last = cut.oversize || (!more && tail_is_whole(c, outcome));
      const Multiline::Cut events = multiline.cut(t.payload().substr(0, cut.size), last);
      if (events.joined > 0) return read_joined(c, std::move(t), events.joined);
      cut.size = events.plain;
      if (cut.size == 0 && more && limit < limits::kBlockBytesMax) {
        limit = limits::kBlockBytesMax;
        continue;
      }
      if (cut.size == 0) return outcome;
      outcome.again.reset();
    }
    if (cut.size > 0) {
      event::Block flags;
      uint64_t events = count_newlines(t.payload().substr(0, cut.size));
      Window window = window_at(c.read + cut.size, t.with_before(cut.size));
      outcome.read = block(c, std::move(t.buffer), cut.size, cut.size, events, flags);
      outcome.read->window = window;
      return outcome;
    }
    if (cut.oversize) return read_oversize(c, std::move(t));
    if (more) {  // a long line: read on, up to what tells it is over-long
      limit = limit < limits::kBlockBytesMax ? limits::kBlockBytesMax : line_max + 1;
      continue;
    }
    if (g.final_size != c.read + t.size || outcome.stat.size != *g.final_size) return outcome;
    event::Block flags;
    flags.newline_added = true;
    size_t size = t.size;
    Window window = window_at(c.read + size, t.with_before(size));
    t.buffer.payload()[size] = '\n';
    ++parts_.stats.newline_added;
    outcome.read = block(c, std::move(t.buffer), size, size + 1, 1, flags);
    outcome.read->window = window;
    return outcome;
  }
}

/// Whether an event of several lines that stands at the end of the file can be taken to be whole: nobody will add to
/// it, or nobody did for its timeout.
bool SourceReader::tail_is_whole(Cursor& c, Outcome& outcome) {
  const Generation& g = *c.generation;
  if (g.final_size == g.size) return true;
  const Instant now = parts_.loop.now();
  const Duration timeout = g.options->multiline->options().timeout;
  if (c.tail_size != g.size) {
    c.tail_size = g.size;
    c.tail_since = now;
  }
  if (now - c.tail_since >= timeout) return true;
  outcome.again = c.tail_since + timeout - now;
  return false;
}

SourceReader::Outcome SourceReader::read_joined(Cursor& c, Taken t, size_t size) {
  const std::string line = joined(t.payload().substr(0, size));
  BlockBuffer buffer(line.size());
  std::copy_n(line.data(), line.size(), buffer.payload());
  event::Block flags;
  flags.joined = true;
  Outcome outcome;
  outcome.read = block(c, std::move(buffer), size, line.size(), 1, std::move(flags));
  outcome.read->window = window_at(c.read + size, t.with_before(size));
  ++parts_.stats.joined_events;
  return outcome;
}

SourceReader::Read SourceReader::block(Cursor& c, BlockBuffer buffer, size_t source_bytes, size_t payload_bytes,
                                       uint64_t events, event::Block head) {
  head.kind = event::BlockKind::lines;
  head.category = c.generation->category;
  head.id = {parts_.node, c.stream, c.read, c.read + source_bytes};
  head.events = events;
  head.accepted_at = parts_.loop.wall_now();
  Read out;
  out.batch.stream = c.stream;
  out.batch.first = c.read;
  out.batch.last = c.read + source_bytes;
  out.batch.events = head.gap ? 0 : events;
  out.batch.packed = std::move(buffer).pack(head, payload_bytes);
  return out;
}

SourceReader::Read SourceReader::gap(Cursor& c, uint64_t last, Window window, bool in_oversize) {
  event::Block head;
  head.gap = true;
  head.topic = kOversizeReason;
  Read out = block(c, BlockBuffer(0), static_cast<size_t>(last - c.read), 0, 0, std::move(head));
  out.window = window;
  out.in_oversize = in_oversize;
  return out;
}

/// `taken` begins with a line that is longer than line_max, or stands inside one (policy split).
SourceReader::Outcome SourceReader::read_oversize(Cursor& c, Taken t) {
  Outcome outcome;
  const size_t line_max = parts_.options.line_max;
  bool inside = *c.in_oversize;
  size_t line = first_line(t.payload().substr(0, line_max + 1));
  bool complete = inside && line > 0;
  size_t size = complete ? line : std::min(t.size, line_max);
  bool is_final = !complete && size == t.size && c.generation->final_size == c.read + t.size;
  if (!complete && t.size <= line_max && !is_final) {
    // Inside a line whose rest is not there yet. A whole piece may still be behind what was read: ask for it.
    if (c.read + t.size >= c.generation->size || t.buffer.capacity() > line_max + 1) return outcome;
    auto opened = file(*c.generation);
    if (!opened) return outcome;
    auto more = take(c, **opened, std::min<uint64_t>(c.generation->size - c.read, line_max + 1), outcome);
    if (!more || !*more) return outcome;
    if ((*more)->size <= t.size) return outcome;
    return read_oversize(c, std::move(**more));
  }
  if (!inside) ++parts_.stats.oversize_lines;
  event::Block flags;
  flags.piece = parts_.options.oversize == Oversize::split;
  flags.truncated = !flags.piece;
  flags.newline_added = is_final;
  Window window = window_at(c.read + size, t.with_before(size));
  if (!complete) t.buffer.payload()[size] = '\n';
  Read piece = block(c, std::move(t.buffer), size, size + (complete ? 0 : 1), 1, flags);
  piece.window = window;
  piece.in_oversize = !complete && !is_final;
  if (parts_.options.oversize != Oversize::dead_letter) {
    outcome.read = std::move(piece);
    return outcome;
  }
  Reader in(piece.batch.packed.view());
  in.varint();
  size_t block_size = in.varint();
  outcome.read = gap(c, piece.batch.last, window, true);
  outcome.read->dead_letter = piece.batch.packed.sub(piece.batch.packed.size() - block_size);
  return outcome;
}

/// Passes over the rest of a line whose beginning was delivered or dead-lettered: a gap up to its newline, or up to
/// what is there, at most kSkipMax a turn.
SourceReader::Outcome SourceReader::skip_rest(Cursor& c, port::File& f) {
  Outcome outcome;
  uint64_t at = c.read, until = std::min<uint64_t>(c.generation->size, c.read + kSkipMax);
  bool inside = true;
  std::optional<Window> window;
  Cursor probe;  // reads on behind what was skipped so far, verified like any read
  probe.generation = c.generation;
  probe.read = c.read;
  probe.read_window = c.read_window;
  while (inside && at < until) {
    auto taken = take(probe, f, static_cast<size_t>(std::min<uint64_t>(until - at, limits::kBlockBytesMax)), outcome);
    if (!taken) {
      outcome.nothing = Nothing::lost;
      return outcome;
    }
    if (!*taken) return outcome;
    Taken& t = **taken;
    if (t.size == 0) break;
    size_t line = first_line(t.payload());
    size_t size = line > 0 ? line : t.size;
    inside = line == 0;
    at += size;
    window = window_at(at, t.with_before(size));
    probe.read = at;
    probe.read_window = *window;
  }
  if (at == c.read) return outcome;
  parts_.stats.oversize_bytes += at - c.read;
  outcome.read = gap(c, at, *window, inside);
  return outcome;
}

/// After a restart: the byte before the cursor is no newline. Either an over-long line was being cut, or a last line
/// without newline was delivered. The distance to the last newline tells.
Result<bool> SourceReader::stands_in_oversize(Cursor& c, port::File& f) {
  if (c.read == 0) return false;
  std::string back(std::min<uint64_t>(c.read, parts_.options.line_max), '\0');
  PH_ASSIGN(size_t n, f.read_at(c.read - back.size(), back.data(), back.size()));
  if (n < back.size()) return false;  // shrunk: the read that follows finds that out
  return back.size() == parts_.options.line_max && back.find('\n') == std::string::npos;
}

Result<Verdict> SourceReader::inspect(Generation& g, const port::FileStat& stat, bool in_flight) {
  PH_ASSIGN(port::File * f, file(g));
  char bytes[kPrefixMax];
  PH_ASSIGN(size_t n, f->read_at(0, bytes, std::min<uint64_t>(stat.size, kPrefixMax)));
  Known known;
  Found found;
  found.size = stat.size;
  found.prefix = g.prefix.match({bytes, n});
  known.same_boot = g.boot == parts_.boot || g.boot == 0 || parts_.boot == 0;
  known.in_flight = in_flight;
  for (const auto& c : g.cursors) {
    known.position = std::max({known.position, c->settled, c->read});
    const Window& w = c->window;
    if (w.length == 0 || w.end > stat.size) continue;
    PH_ASSIGN(n, f->read_at(w.end - w.length, bytes, w.length));
    if (Window::of(w.end, {bytes, n}) != w) found.windows_match = false;
  }
  return judge(known, found);
}

Result<uint64_t> SourceReader::lines(Generation& g, uint64_t from, uint64_t until) {
  if (from >= until) return 0;
  PH_ASSIGN(port::File * f, file(g));
  std::string bytes;
  // Lines longer than line_max are delivered in pieces.
  uint64_t count = (until - from) / parts_.options.line_max;
  for (uint64_t at = from; at < until; at += bytes.size()) {
    bytes.resize(std::min<uint64_t>(until - at, limits::kBlockBytesMax));
    PH_ASSIGN(size_t n, f->read_at(at, bytes.data(), bytes.size()));
    bytes.resize(n);
    count += count_newlines(bytes);
    if (n == 0) break;
  }
  return count + (bytes.ends_with('\n') ? 0 : 1);
}

uint64_t SourceReader::step_max(const Cursor& c) const {
  uint64_t whole_line = std::max<uint64_t>(parts_.options.line_max + 1, limits::kBlockBytesMax);
  bool skips = c.in_oversize.value_or(true) && parts_.options.oversize != Oversize::split;
  return whole_line + (skips ? kSkipMax : 0);
}

Result<bool> SourceReader::unchanged(Generation& g) {
  PH_ASSIGN(port::File * f, file(g));
  PH_ASSIGN(port::FileStat stat, f->stat());
  if (stat.size < g.size || !verify_prefix(g, *f, stat.size)) return false;
  char bytes[kWindowMax];
  for (const auto& c : g.cursors) {
    const Window& w = c->read_window;
    if (w.length == 0) continue;
    PH_ASSIGN(size_t n, f->read_at(w.end - w.length, bytes, w.length));
    if (Window::of(w.end, {bytes, n}) != w) return false;
  }
  g.proven = stat.size;
  return true;
}

Result<> SourceReader::learn(Generation& g) {
  PH_ASSIGN(port::File * f, file(g));
  char bytes[kPrefixMax];
  PH_ASSIGN(size_t n, f->read_at(0, bytes, sizeof bytes));
  g.prefix = Prefix::of({bytes, n});
  for (auto& c : g.cursors) {
    const size_t length = std::min<uint64_t>(c->read, kWindowMax);
    PH_ASSIGN(n, f->read_at(c->read - length, bytes, length));
    if (n == length && length > 0) c->read_window = Window::of(c->read, {bytes, n});
    if (c->settled == c->read) c->window = c->read_window;
  }
  return {};
}

}  // namespace ph::agent
