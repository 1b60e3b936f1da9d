// Every bound of the system, in one place, with what happens when it is reached. A bound that the operator may move is
// a configuration key; the number here is then its default.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "base/time.h"

namespace ph::limits {

// --- events
inline constexpr size_t kCategoryMax = 200;             // longer: permanent reject
inline constexpr size_t kCategoriesMax = 10'000;        // per receiver; more: permanent reject, counted
inline constexpr size_t kHopsMax = 8;                   // sites on a hop list; more: permanent reject "hop_limit"
inline constexpr size_t kBlockBytesMax = 256 * 1024;    // payload an agent packs into one block
inline constexpr size_t kLineMaxDefault = 1024 * 1024;  // agent.line_max

// --- disk
inline constexpr uint64_t kDiskReserve = 64ull * 1024 * 1024;  // node.disk_reserve; at most a quarter of the disk

// --- link protocol
inline constexpr size_t kFrameMax = 16 * 1024 * 1024;       // longer: the connection is closed with "frame_too_long"
inline constexpr size_t kWindowDefault = 16 * 1024 * 1024;  // unacknowledged bytes per upstream
inline constexpr Duration kRequestTimeout = 30s;            // no progress on an address: its batches go elsewhere
inline constexpr Duration kResumeTimeout = 5s;  // how long an unreachable receiver is asked before rerouting
inline constexpr Duration kProbeMin = 100ms;
inline constexpr Duration kProbeMax = 10s;
inline constexpr Duration kHandshakeTimeout = 10s;  // TCP accept to HELLO
inline constexpr Duration kStreamTtl = std::chrono::hours(24 * 7);
inline constexpr size_t kLinkConnectionsMax = 10'000;             // per listener; more: refused, counted
inline constexpr uint64_t kReceiverMemory = 48ull * 1024 * 1024;  // receiver.memory: events not on disk yet
inline constexpr size_t kRangesMax = 4096;              // holes per stream at a receiver; more: credit is withheld
inline constexpr size_t kInterestMax = 10'000;          // filters told to a peer; more: everything is wanted, counted
inline constexpr size_t kInterestBytesMax = 4 << 20;    // of these filters; likewise
inline constexpr size_t kInterestCollectMax = 100'000;  // filters of clients that are looked at for that; likewise

// --- spool
inline constexpr size_t kSegmentBytes = 64 * 1024 * 1024;
inline constexpr size_t kRecordMax = kFrameMax;

// --- MQTT
inline constexpr size_t kMqttPacketMax = 1024 * 1024;
inline constexpr Duration kConnectTimeout = 15s;  // socket accepted to CONNECT
inline constexpr size_t kInflightMax = 32;
inline constexpr size_t kMqueueMessagesMax = 1000;
inline constexpr size_t kMqueueBytesMax = 8 * 1024 * 1024;
inline constexpr size_t kTopicLevelsMax = 128;
inline constexpr size_t kTopicAliasMax = 32;
inline constexpr size_t kClientIdMax = 1024;
inline constexpr size_t kMqttReceiveMax = 100;                       // QoS 1 and 2 of a client unacknowledged: 0x93
inline constexpr size_t kAwaitingReleaseV3Max = 10'000;              // the same of QoS 2 in version 3: closed
inline constexpr size_t kMqttOutputBudget = 1024 * 1024;             // unsent: QoS 0 is dropped, the rest is queued
inline constexpr size_t kMqttOutputMax = 16 * 1024 * 1024;           // unsent: the connection is closed
inline constexpr Duration kMqttStallTimeout = 30s;                   // over budget for so long: closed
inline constexpr size_t kSubscriptionsMax = 1000;                    // per session; more: 0x97 in SUBACK
inline constexpr size_t kDelayedMessagesMax = 100'000;               // more: refused with 0x97, counted
inline constexpr size_t kDelayedBytesMax = 256 * 1024 * 1024;        // likewise
inline constexpr size_t kRetainedMessagesMax = 100'000;              // more: delivered, not kept, counted
inline constexpr size_t kRetainedBytesMax = 256 * 1024 * 1024;       // likewise
inline constexpr size_t kMailboxBytesMax = 64 * 1024 * 1024;         // to one worker: QoS 0 is dropped, publishers wait
inline constexpr size_t kTapBytesMax = 32 * 1024 * 1024;             // not yet in spools: QoS 0 is refused, counted
inline constexpr size_t kJournalBytesMax = 32 * 1024 * 1024;         // not yet on disk: who sends more waits, counted
inline constexpr Duration kV3SessionExpiry = std::chrono::hours(2);  // clean session 0 of a 3.x client

}  // namespace ph::limits
