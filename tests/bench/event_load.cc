// The producer and the stopwatch of `tools/dev bench events`. It costs little, so that what is measured is posthouse:
// lines are formatted once and written in large pieces; latency is taken from inotify, without polling.
//
//   event_load write FILE LINES SIZE          appends LINES lines of SIZE bytes as fast as the file system takes them
//   event_load raw FILE BYTES BLOCK           the same bytes as write + fdatasync per BLOCK: what this disk can do now
//   event_load sync FILE SIZE COUNT           write + fdatasync of SIZE bytes, COUNT times: microseconds, p50 and p99
//   event_load latency FILE CHUNKS STORE RATE SECONDS
//        appends RATE lines a second to FILE and watches the far node: CHUNKS is the folder of its category, STORE that
//        of its LevelDB. Per line, in microseconds since its append:
//          visible  the line stands in the chunk (page cache)
//          durable  a record was written to LevelDB's log after that. The receiver writes it when the chunk's fdatasync
//                   has returned (appliance/store/commit), so the line's bytes are on disk by then.
//                   A stopwatch that is late by more than a group may take the next group's lines for durable, too
// Each prints one line: words and numbers.
#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "event_load: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

int open_append(const char* path, int flags = 0) {
  int fd = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0644);
  if (fd < 0) fail(path);
  return fd;
}

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0) fail("write");
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// `count` lines of `size` bytes, numbered, as one text.
std::string lines(uint64_t first, uint64_t count, size_t size) {
  std::string out;
  out.reserve(count * size);
  char head[32];
  for (uint64_t n = first; n < first + count; ++n) {
    int length = std::snprintf(head, sizeof head, "s %08llu ", static_cast<unsigned long long>(n));
    out.append(head, static_cast<size_t>(length));
    out.append(size - static_cast<size_t>(length) - 1, 'x');
    out.push_back('\n');
  }
  return out;
}

struct Percentiles {
  double p50 = 0;
  double p99 = 0;
  double worst = 0;
};
Percentiles percentiles(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  auto at = [&](double part) { return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1))]; };
  return {at(0.5), at(0.99), values.back()};
}

int run_write(const char* path, uint64_t count, size_t size) {
  int fd = open_append(path);
  std::string piece = lines(0, std::min<uint64_t>(count, 1000), size);
  auto begin = Clock::now();
  for (uint64_t done = 0; done < count; done += 1000)
    write_all(fd, std::string_view(piece).substr(0, std::min<uint64_t>(1000, count - done) * size));
  std::printf("lines %llu seconds %.4f\n", static_cast<unsigned long long>(count), seconds_since(begin));
  return 0;
}

int run_raw(const char* path, uint64_t bytes, size_t block) {
  int fd = open_append(path, O_TRUNC);
  std::string piece(block, 'x');
  auto begin = Clock::now();
  for (uint64_t done = 0; done < bytes; done += block) {
    write_all(fd, piece);
    if (::fdatasync(fd) != 0) fail("fdatasync");
  }
  std::printf("bytes %llu seconds %.4f\n", static_cast<unsigned long long>(bytes), seconds_since(begin));
  return 0;
}

int run_sync(const char* path, size_t size, int count) {
  int fd = open_append(path, O_TRUNC);
  std::string piece(size, 'x');
  std::vector<double> took;
  for (int i = 0; i < count; ++i) {
    auto begin = Clock::now();
    write_all(fd, piece);
    if (::fdatasync(fd) != 0) fail("fdatasync");
    took.push_back(seconds_since(begin) * 1e6);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  Percentiles p = percentiles(std::move(took));
  std::printf("p50 %.0f p99 %.0f worst %.0f\n", p.p50, p.p99, p.worst);
  return 0;
}

/// Counts the lines of a folder's chunks as they grow.
class Chunks {
 public:
  explicit Chunks(std::filesystem::path folder) : folder_(std::move(folder)) {}

  uint64_t count() {
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      if (!entry.is_regular_file() || entry.is_symlink()) continue;
      auto [it, made] = open_.try_emplace(entry.path().string(), -1);
      if (made && (it->second = ::open(it->first.c_str(), O_RDONLY | O_CLOEXEC)) < 0) fail(it->first);
    }
    for (const auto& [name, fd] : open_) {
      ssize_t n = 0;
      while ((n = ::read(fd, buffer_.data(), buffer_.size())) > 0)
        lines_ += static_cast<uint64_t>(std::count(buffer_.begin(), buffer_.begin() + n, '\n'));
    }
    return lines_;
  }

 private:
  std::filesystem::path folder_;
  std::map<std::string, int> open_;
  std::vector<char> buffer_ = std::vector<char>(1 << 16);
  uint64_t lines_ = 0;
};

int run_latency(const char* path, const char* chunks, const char* store, uint64_t rate, uint64_t seconds) {
  int out = open_append(path);
  int watch = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  int of_chunks = ::inotify_add_watch(watch, chunks, IN_MODIFY | IN_CREATE | IN_MOVED_TO);
  // "-": of who keeps no store, and syncs nothing: what is visible is all there is.
  const bool syncs = std::string_view(store) != "-";
  int of_store = syncs ? ::inotify_add_watch(watch, store, IN_MODIFY) : 0;
  if (of_chunks < 0 || of_store < 0) fail("inotify");
  Chunks far(chunks);
  const uint64_t before = far.count();
  const uint64_t total = rate * seconds;
  std::string text = lines(0, total, 300);
  std::vector<Clock::time_point> written;
  std::vector<double> visible;
  std::vector<double> durable;
  auto note = [&](std::vector<double>& into, uint64_t until) {
    auto now = Clock::now();
    while (into.size() < std::min<uint64_t>(until, written.size()))
      into.push_back(std::chrono::duration<double, std::micro>(now - written[into.size()]).count());
  };
  const auto period = std::chrono::nanoseconds(1'000'000'000 / rate);
  const auto begin = Clock::now();
  const auto give_up = begin + std::chrono::seconds(seconds + 20);
  alignas(inotify_event) char events[16384];
  while (durable.size() < total && Clock::now() < give_up) {
    auto next = begin + period * static_cast<int64_t>(written.size());
    if (written.size() < total && Clock::now() >= next) {
      written.push_back(Clock::now());
      write_all(out, std::string_view(text).substr((written.size() - 1) * 300, 300));
      continue;
    }
    auto wait = written.size() < total ? next - Clock::now() : std::chrono::milliseconds(100);
    auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(wait).count();
    timespec timeout{nanoseconds / 1'000'000'000, std::max<int64_t>(0, nanoseconds % 1'000'000'000)};
    pollfd polled{watch, POLLIN, 0};
    if (::ppoll(&polled, 1, &timeout, nullptr) <= 0) continue;
    ssize_t size = ::read(watch, events, sizeof events);
    for (ssize_t at = 0; at < size;) {
      const auto* event = reinterpret_cast<const inotify_event*>(events + at);
      if (event->wd == of_chunks) note(visible, far.count() - before);
      if (!syncs)
        note(durable, visible.size());
      else if (event->wd == of_store)
        note(durable, visible.size());
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    }
  }
  Percentiles v = percentiles(visible);
  Percentiles d = percentiles(durable);
  std::printf("lines %zu asked %llu visible_p50 %.0f visible_p99 %.0f durable_p50 %.0f durable_p99 %.0f\n",
              durable.size(), static_cast<unsigned long long>(total), v.p50, v.p99, d.p50, d.p99);
  return durable.size() == total ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::string_view verb = argc > 1 ? argv[1] : "";
  auto number = [&](int i) { return std::strtoull(argv[i], nullptr, 10); };
  if (verb == "write" && argc == 5) return run_write(argv[2], number(3), number(4));
  if (verb == "raw" && argc == 5) return run_raw(argv[2], number(3), number(4));
  if (verb == "sync" && argc == 5) return run_sync(argv[2], number(3), static_cast<int>(number(4)));
  if (verb == "latency" && argc == 7) return run_latency(argv[2], argv[3], argv[4], number(5), number(6));
  std::fprintf(stderr, "usage: event_load write|raw|sync|latency ..., see the head of event_load.cc\n");
  return 2;
}
