// Status: what a node says of itself, as plain values; the same document serves `posthouse status`, `--json` and the
// HTTP API. The wiring fills it from the services; this room only shapes it. Field names are a contract
// (operations.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "port/event_source.h"
#include "service/admin/alarms.h"

namespace ph::admin {

struct RouteRow {
  std::string route;
  std::string target;
  port::TargetCounters counters;
  std::optional<double> drain_seconds;  // until nothing waits, at the present pace; nullopt: unknown, or it grows
};

struct ReceiverRow {
  std::string address;
  std::string node;   // name of who answered there last
  std::string state;  // idle | connecting | resuming | ready
  uint64_t in_flight_batches = 0;
  uint64_t in_flight_bytes = 0;
  uint64_t uncertain_batches = 0;
  uint64_t owned_batches = 0;  // strict: it alone may publish them, and has not said that it did
  uint64_t connects = 0;
  uint64_t failures = 0;
  std::string last_error;
};

struct OwnerRow {  // strict: who is waited for, since it alone may publish something
  std::string address;
  bool configured = true;
  uint64_t batches = 0;
  std::vector<uint64_t> streams;  // the first few of them
};

struct UpstreamRow {
  std::string name;
  uint64_t unacked_events = 0;
  uint64_t unacked_bytes = 0;
  uint64_t stranded_batches = 0;  // strict: owned by receivers that are configured no more
  std::vector<ReceiverRow> receivers;
  uint64_t looped = 0;                         // events not sent, since they had been where they would go
  std::optional<uint64_t> wanted_filters = 0;  // nullopt: everything is wanted, as far as this node knows
  uint64_t given_up_batches = 0;               // strict: whose owner was not waited for any more, since the start
  std::vector<OwnerRow> waits_for;             // strict
};

struct SpoolRow {
  std::string route;
  uint64_t bytes = 0;
  uint64_t segments = 0;
  uint64_t first_sequence = 0;
  uint64_t next_sequence = 0;
  uint64_t quarantined = 0;
};

struct FileRow {  // a source file that stays although it is delivered, and why
  std::string path;
  std::string reason;
};

struct DeadLetterRow {  // what was done with a route's dead letters
  std::string route;
  uint64_t retried = 0;  // letters
  uint64_t retried_events = 0;
  uint64_t dropped = 0;
  uint64_t dropped_events = 0;
};

struct GapRow {  // what a sender will never send, as it told us
  std::string sender;
  uint64_t stream = 0;
  uint64_t first = 0;  // positions [first, last)
  uint64_t last = 0;
  uint64_t events = 0;
  std::string reason;
  WallTime at{};
};

using Numbers = std::vector<std::pair<std::string, uint64_t>>;  // named counters, in the order shown

struct Status {
  std::string node;
  std::string site;
  std::string node_id;
  std::string version;
  uint64_t uptime_seconds = 0;
  uint64_t pid = 0;
  WallTime now{};
  std::vector<RouteRow> routes;
  std::vector<UpstreamRow> upstreams;
  std::vector<SpoolRow> spool;
  std::vector<DeadLetterRow> dead_letters;
  std::optional<Numbers> agent;
  std::vector<FileRow> kept_files;
  std::optional<Numbers> receiver;
  std::vector<GapRow> gaps;  // the latest ones since the start
  std::optional<Numbers> files;
  std::optional<Numbers> mqtt;
  std::vector<Alarm> alarms;
};

std::string to_json(const Status& status);

/// Whether a request's target is the status document's.
bool is_status_path(std::string_view target);

/// For a terminal. Takes the JSON document, so that an older CLI shows what a newer daemon says.
/// Errors: admin.malformed.
Result<std::string> to_text(std::string_view json);

namespace errors {
inline constexpr ErrorCode malformed{"admin.malformed"};
}

}  // namespace ph::admin
