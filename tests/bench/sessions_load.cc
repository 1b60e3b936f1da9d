// Writes the state of a broker that was killed with many offline sessions: arguments: data_dir, sessions, queued
// messages per session, payload bytes. Each session has one subscription of its own; each message is queued once.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/coding.h"
#include "core/session/records.h"
#include "io/level_store.h"
#include "io/posix_files.h"

using namespace ph;

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const std::string dir = argv[1];
  const uint64_t sessions = std::strtoull(argv[2], nullptr, 10);
  const uint64_t queued = std::strtoull(argv[3], nullptr, 10);
  const size_t payload = std::strtoull(argv[4], nullptr, 10);
  io::PosixFiles files;
  if (!files.make_directories(dir)) return 1;
  auto store = io::LevelStore::open(dir + "/store");
  if (!store) {
    std::fprintf(stderr, "%s\n", store.error().to_string().c_str());
    return 1;
  }
  namespace keys = session::keys;
  const session::Clock clock{Instant(std::chrono::hours(1)),
                             from_unix_ms(static_cast<int64_t>(std::time(nullptr)) * 1000)};
  uint64_t number = sessions + 1;
  port::WriteBatch batch;
  for (uint64_t uid = 1; uid <= sessions; ++uid) {
    session::SessionRecord record;
    record.client_id = "device-" + std::to_string(uid);
    record.owner = "\n";  // a client without a user, on a listener without a mountpoint
    record.expiry = 86'400;
    record.detached_at = clock.now;
    record.next_sequence = queued + 1;
    record.queued = queued;
    record.queued_bytes = queued * (payload + 20);
    batch.put(keys::of(keys::kSession, uid), session::encode(record, clock));
    session::Subscription subscription;
    subscription.qos = 1;
    const std::string topic = "fleet/" + std::to_string(uid % 1000) + "/" + record.client_id;
    batch.put(keys::of(keys::kSubscription, uid, topic + "/#"), session::encode(subscription));
    for (uint64_t n = 1; n <= queued; ++n) {
      session::Message message;
      message.topic = topic + "/cmd";
      message.payload = Slice(std::string(payload, 'x'));
      message.qos = 1;
      message.received = clock.now;
      batch.put(keys::of(keys::kMessage, number), session::encode(message, clock));
      batch.put(keys::of(keys::kEntry, uid, n), session::encode_entry(1, false, false, 0, number, {}));
      ++number;
    }
    if (uid % 256 != 0 && uid != sessions) continue;
    if (auto written = (*store)->write(batch, uid == sessions); !written) {
      std::fprintf(stderr, "%s\n", written.error().to_string().c_str());
      return 1;
    }
    batch = {};
  }
  std::string next;
  put_fixed(next, number);
  port::WriteBatch last;
  last.put(std::string(keys::kNumbers), next);
  last.put(std::string(keys::kFormat), std::string(1, static_cast<char>(session::kFormat)));
  return (*store)->write(last, true) ? 0 : 1;
}
