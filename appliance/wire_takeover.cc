#include "wire_takeover.h"

#include <unordered_map>

#include "core/route/route_table.h"
#include "io/directory_lock.h"
#include "io/disk_queue.h"
#include "io/level_store.h"
#include "io/loop.h"
#include "io/posix_files.h"
#include "service/agent/agent.h"
#include "store/dead_letter/dead_letters.h"
#include "wire_node.h"

namespace ph {
namespace {

constexpr Duration kWriteBound = 60s;

/// LSD knows a file by its inode and name alone. Where that can be seen to be another file, it is read from its
/// beginning: what might repeat is told, and nothing is lost.
class Offsets {
 public:
  explicit Offsets(const std::vector<migrate::LsdOffset>& offsets) {
    for (const migrate::LsdOffset& o : offsets) by_inode_[o.inode] = o;
  }

  uint64_t begins_at(port::Files& files, const std::string& path, const port::FileStat& stat) {
    Takeover::File& file = found_.files.emplace_back(Takeover::File{path, stat.size, 0, {}});
    auto it = by_inode_.find(stat.inode);
    if (it == by_inode_.end()) return 0;
    const migrate::LsdOffset offset = it->second;
    by_inode_.erase(it);
    file.why = fault(files, path, stat, offset);
    if (file.why.empty()) file.begins_at = offset.offset;
    return file.begins_at;
  }
  Takeover take() {
    found_.unused = by_inode_.size();
    return std::move(found_);
  }

 private:
  static std::string fault(port::Files& files, const std::string& path, const port::FileStat& stat,
                           const migrate::LsdOffset& offset) {
    if (!offset.fits(path)) return "its inode was " + offset.last_name + " when LSD last saw it";
    if (offset.offset > stat.size) return "it is shorter than LSD's offset: truncated";
    if (offset.offset == 0 || offset.offset == stat.size) return {};
    auto file = files.open(path, port::OpenMode::read);
    if (!file) return file.error().to_string();
    char before = 0;
    auto got = (*file)->read_at(offset.offset - 1, &before, 1);
    if (!got) return got.error().to_string();
    return *got == 1 && before == '\n' ? "" : "no line ends at LSD's offset: rewritten";
  }

  std::unordered_map<uint64_t, migrate::LsdOffset> by_inode_;
  Takeover found_;
};

}  // namespace

Result<Takeover> take_over_lsd(const settings::Settings& settings, const std::vector<migrate::LsdOffset>& offsets) {
  if (!settings.agent) return fail("takeover.no_agent", "the configuration has no [agent]");
  io::IoLoop loop;
  io::PosixFiles files;
  const std::string& data = settings.node.data_dir;
  PH_TRY(files.make_directories(data));
  // Both locks: that the node is stopped, and that no other one has the directory.
  PH_ASSIGN(auto store, io::LevelStore::open(data + "/store"));
  PH_ASSIGN(auto lock, io::DirectoryLock::take(settings.agent->dir, "agent.dir"));
  io::IoDiskQueue disk(loop);
  dead_letter::DeadLetterFiles dead_letters(data + "/dead-letters", files);
  route::RouteTable routes(route_rules(settings.routes));
  Offsets known(offsets);
  agent::AgentOptions options = agent_options(settings, files);
  options.route_of = [&routes](std::string_view category) { return routes.of_category(category); };
  options.begins_at = [&known, &files](const std::string& path, const port::FileStat& stat) {
    return known.begins_at(files, path, stat);
  };
  PH_ASSIGN(auto agent, agent::Agent::open(std::move(options), loop, disk, files, {}, *store, dead_letters, NodeId{}));
  bool written = false;
  agent->stop([&written] { written = true; });
  loop.run_until([&written] { return written; }, kWriteBound);
  disk.finish();
  if (!written) return fail("takeover.not_written", data + "/store");
  return known.take();
}

}  // namespace ph
