#include "service/agent/agent.h"

#include <map>
#include <utility>

#include "base/log.h"
#include "service/agent/agent_source.h"
#include "service/agent/generation_table.h"
#include "service/agent/ledger.h"
#include "service/agent/retirement.h"
#include "service/agent/scan.h"
#include "service/agent/source_reader.h"

namespace ph::agent {
namespace {

class AgentHouse : public Agent {
 public:
  AgentHouse(AgentOptions options, port::Loop& loop, port::DiskQueue& disk, port::Files& files, WatcherFactory watcher,
             port::KeyedStore& store, port::DeadLetters& dead_letters, NodeId node)
      : parts_{.options = std::move(options),
               .loop = loop,
               .disk = disk,
               .files = files,
               .store = store,
               .dead_letters = dead_letters,
               .node = node},
        table_(parts_),
        ledger_(parts_),
        reader_(parts_),
        retirement_(parts_),
        scanner_(parts_, std::move(watcher)) {
    parts_.table = &table_;
    parts_.ledger = &ledger_;
    parts_.reader = &reader_;
    parts_.retirement = &retirement_;
    parts_.scanner = &scanner_;
    if (!parts_.options.boot_id.empty()) parts_.boot = content_hash(parts_.options.boot_id);
  }
  ~AgentHouse() override { *parts_.alive = false; }

  Result<> load();
  std::vector<port::EventSource*> sources() override;
  void start() override;
  void stop(port::Task done) override;
  AgentStats stats() const override;

 private:
  Result<> load_sources();
  Result<> load_generations();
  Result<> damaged(const Error& error, ByteView key);

  Parts parts_;
  GenerationTable table_;
  Ledger ledger_;
  SourceReader reader_;
  Retirement retirement_;
  Scanner scanner_;
  std::vector<std::unique_ptr<AgentSource>> sources_;
  bool stopped_ = false;
};

/// A record that cannot be read is left out, said and counted; one of a newer version stops the start.
Result<> AgentHouse::damaged(const Error& error, ByteView key) {
  if (error.code == errors::newer_version) return std::unexpected(error);
  ++parts_.stats.records_damaged;
  log_error("agent_record_damaged", {{"key", to_hex(key)}, {"error", error.to_string()}});
  return {};
}

Result<> AgentHouse::load_sources() {
  for (const RouteOptions& route : parts_.options.routes) {
    auto& of_route = parts_.sources_of_route.emplace_back();
    for (const TargetOptions& target : route.targets) {
      CounterRecord counters;
      std::string key = counter_key(route.name, target.name);
      PH_ASSIGN(auto value, parts_.store.get(key));
      if (value) {
        auto record = decode_counters(*value);
        if (!record) PH_TRY(damaged(record.error(), key));
        if (record) counters = *record;
      }
      sources_.push_back(std::make_unique<AgentSource>(parts_, route.name, target, counters));
      of_route.push_back(sources_.back().get());
    }
  }
  return {};
}

Result<> AgentHouse::load_generations() {
  std::map<StreamId, std::map<std::string, CursorRecord>> cursors;
  std::vector<std::pair<StreamId, std::string>> cursor_names;
  Result<> outcome;
  PH_TRY(parts_.store.scan(kCursorPrefix, [&](ByteView key, ByteView value) {
    auto name = decode_cursor_key(key);
    auto record = decode_cursor(value);
    if (name) cursor_names.emplace_back(name->generation, name->target);
    if (name && record)
      cursors[name->generation][name->target] = std::move(*record);
    else if (auto d = damaged(record ? Error{errors::malformed, "cursor key"} : record.error(), key); !d)
      outcome = std::unexpected(d.error());
    return outcome.has_value();
  }));
  PH_TRY(outcome);
  std::vector<GenerationRecord> records;
  PH_TRY(parts_.store.scan(kGenerationPrefix, [&](ByteView key, ByteView value) {
    auto record = decode_generation(key, value);
    if (record)
      records.push_back(std::move(*record));
    else if (auto d = damaged(record.error(), key); !d)
      outcome = std::unexpected(d.error());
    return outcome.has_value();
  }));
  PH_TRY(outcome);
  for (GenerationRecord& record : records) {
    auto of_record = std::move(cursors[record.id]);
    table_.load(std::move(record), std::move(of_record));
  }
  // A sink's commit may have been under way when its generation was forgotten.
  for (const auto& [generation, target] : cursor_names)
    if (!table_.find(generation)) ledger_.remove(cursor_key(generation, target));
  return {};
}

Result<> AgentHouse::load() {
  PH_ASSIGN(auto clean, parts_.store.get(kCleanKey));
  parts_.stopped_cleanly = clean.has_value();
  PH_TRY(load_sources());
  PH_TRY(load_generations());
  PH_TRY(scanner_.scan_all());
  table_.each([this](Generation& g) {
    if (!g.readable()) retirement_.consider(g);
  });
  return {};
}

std::vector<port::EventSource*> AgentHouse::sources() {
  std::vector<port::EventSource*> out;
  for (auto& s : sources_) out.push_back(s.get());
  return out;
}

void AgentHouse::start() {
  // Nothing is handed out before the marker of the clean stop is gone: from here on there may be something in flight.
  ledger_.remove(std::string(kCleanKey));
  ledger_.when_durable([this] {
    if (stopped_) return;
    parts_.running = true;
    retirement_.start();
    scanner_.start();
    for (auto& s : sources_) s->wake();
  });
}

void AgentHouse::stop(port::Task done) {
  stopped_ = true;
  parts_.running = false;
  retirement_.stop();
  scanner_.stop();
  ledger_.finish(std::move(done));
}

AgentStats AgentHouse::stats() const {
  AgentStats out = parts_.stats;
  scanner_.status(out);
  out.generations = table_.size();
  out.descriptors = reader_.descriptors();
  for (const auto& s : sources_) {
    out.held_lanes += s->held_lanes();
    out.taken_back_bytes += s->taken_back_bytes();
  }
  table_.each([&](const Generation& g) {
    out.rotated_waiting += g.in_hidden() && g.readable();
    if (g.staying.empty() || !g.readable()) return;
    ++out.staying_total;
    if (out.staying.size() < kStayingMax) out.staying.push_back({parts_.path(g), g.staying});
  });
  return out;
}

}  // namespace

Result<std::unique_ptr<Agent>> Agent::open(AgentOptions options, port::Loop& loop, port::DiskQueue& disk,
                                           port::Files& files, WatcherFactory watcher, port::KeyedStore& store,
                                           port::DeadLetters& dead_letters, NodeId node) {
  options.grace = std::max<Duration>(options.grace, std::chrono::seconds(1));
  auto house = std::make_unique<AgentHouse>(std::move(options), loop, disk, files, std::move(watcher), store,
                                            dead_letters, node);
  PH_TRY(house->load());
  return std::unique_ptr<Agent>(std::move(house));
}

}  // namespace ph::agent
