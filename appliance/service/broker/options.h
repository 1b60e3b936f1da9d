// What a broker is told and what it tells: options, and figures.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/limits.h"
#include "core/routing/shared_group.h"
#include "core/routing/topic_rewrite.h"
#include "core/security/flapping.h"
#include "core/security/jwt.h"
#include "core/security/policy.h"
#include "core/session/channel.h"
#include "core/session/session.h"
#include "port/crypto.h"
#include "port/network.h"
#include "service/broker/http_authorizer.h"
#include "service/broker/http_check.h"

namespace ph::broker {

/// Who may connect without credentials that somebody checked.
enum class Anonymous { loopback, always, never };

/// How credentials are checked (authenticator.h).
enum class AuthMethod : uint8_t { users, certificate, jwt, http, psk };
/// What the name in a verified client certificate becomes.
enum class CertificateAs : uint8_t { nothing, username, client_id };

struct ListenerOptions {
  port::Endpoint endpoint;
  std::shared_ptr<port::TlsContext> tls;
  size_t connections_max = 10'000;  // of all workers together
  Anonymous allow_anonymous = Anonymous::loopback;
  std::string websocket_path;                    // not empty: MQTT over WebSocket at this path
  bool proxy_protocol = false;                   // connections begin with a PROXY header
  std::optional<std::vector<AuthMethod>> authn;  // instead of SecurityOptions::order
  CertificateAs certificate_as = CertificateAs::nothing;
  port::CertificateField certificate_field = port::CertificateField::common_name;
  std::vector<std::string> websocket_origins;  // as port::ListenOptions
  // Rates a second; 0: no bound. Connections beyond theirs are closed; who sends too much is not read from for a while.
  uint64_t connections_rate = 0;
  uint64_t messages_rate = 0, bytes_rate = 0;              // of each client
  uint64_t messages_rate_total = 0, bytes_rate_total = 0;  // of all clients together
  std::string mountpoint;  // template, put in front of all topics of its clients; %c: client id, %u: user name
};

/// When there is too much to do, CONNECTs are refused as busy and QoS 0 messages dropped, before anything else suffers.
struct OverloadOptions {
  Duration lag_max = Duration::zero();  // of a worker's loop; zero: not looked at
  /// Set from outside while memory is short. Null: never.
  std::shared_ptr<const std::atomic<bool>> memory_short;
};

/// What every client gets without asking. `filter` is a template like a mountpoint.
struct AutoSubscription {
  std::string filter;
  uint8_t qos = 0;
  bool no_local = false;
  bool retain_as_published = false;
  uint8_t retain_handling = 0;
};

/// How tokens as passwords are read and whose signatures count.
struct TokenOptions {
  std::vector<security::JwtKey> keys;
  security::JwtClaimNames claims;
};
using TokenOptionsPtr = std::shared_ptr<const TokenOptions>;

/// Who may do what. Without a policy only `allow_anonymous` counts, and everybody who is in may do everything.
struct SecurityOptions {
  security::PolicyPtr policy;  // at start; Broker::set_policy() later
  std::vector<AuthMethod> order;
  const port::Crypto* crypto = nullptr;  // must outlive the broker
  port::JobPool* jobs = nullptr;         // must end before the loops do
  TokenOptionsPtr tokens;                // at start; Broker::set_tokens() later. Null: none are taken
  HttpCheckOptions http;
  HttpAuthorizerOptions authorizer;
  security::FlappingLimits flapping;
  std::function<void(const std::string& client_id)> on_flapping;  // on any worker's thread
};

struct BrokerOptions {
  std::vector<ListenerOptions> listeners;
  session::ChannelLimits channel;
  session::SessionLimits session;
  size_t subscriptions_max = limits::kSubscriptionsMax;
  size_t retained_messages_max = limits::kRetainedMessagesMax;
  size_t retained_bytes_max = limits::kRetainedBytesMax;
  size_t mailbox_bytes_max = limits::kMailboxBytesMax;
  size_t output_max = limits::kMqttOutputMax;
  Duration stall_timeout = limits::kMqttStallTimeout;
  Duration v3_session_expiry = limits::kV3SessionExpiry;
  size_t delayed_messages_max = limits::kDelayedMessagesMax;
  size_t delayed_bytes_max = limits::kDelayedBytesMax;
  size_t wills_bytes_max = 256UL * 1024 * 1024;  // of all workers, of clients that are there and that are not
  std::vector<routing::RewriteRule> rewrite;
  std::vector<AutoSubscription> auto_subscribe;
  Duration sys_interval{0};  // of $SYS; 0: none
  std::string node_name = "posthouse";
  std::string version;
  size_t sessions_max = SIZE_MAX;    // of all workers
  bool overlapping_each = false;     // one copy per matching subscription instead of one per client
  std::string response_information;  // template; %c: client id, %u: user name
  routing::SharedStrategy shared_strategy = routing::SharedStrategy::round_robin;
  uint32_t session_expiry_max = session::kNeverExpires;  // seconds; a client that asks for more is told this
  SecurityOptions security;
  OverloadOptions overload;
  /// Any thread: which filters there are may have changed since Broker::filters() was called last.
  std::function<void()> on_filters;

  /// `peer`: address with port.
  bool anonymous_allowed(size_t listener, ByteView peer) const;
};

/// Sums over the workers. Counted since start unless said otherwise.
struct BrokerStats {
  uint64_t connections = 0;  // now
  uint64_t clients = 0;      // now: connections with a session
  uint64_t packets_in = 0;
  uint64_t packets_out = 0;
  uint64_t sessions = 0;       // now, online and offline
  uint64_t subscriptions = 0;  // now
  uint64_t retained = 0;       // now
  uint64_t connections_in = 0;
  uint64_t messages_in = 0;
  uint64_t messages_out = 0;
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
  uint64_t malformed = 0;
  uint64_t refused = 0;
  uint64_t takeovers = 0;
  uint64_t keep_alive_timeouts = 0;
  uint64_t slow_consumers = 0;
  uint64_t moves = 0;
  uint64_t logins_failed = 0;
  uint64_t connects_shed = 0;
  uint64_t banned = 0;
  uint64_t publish_denied = 0;
  uint64_t subscribe_denied = 0;
  uint64_t logins_expired = 0;
  uint64_t http_unreachable = 0;
  uint64_t abandoned = 0;
  uint64_t flapping = 0;
  uint64_t connections_over_rate = 0;
  uint64_t throttled = 0;
  uint64_t overloads = 0;
  uint64_t delayed = 0;                                        // now
  std::array<uint64_t, session::kLimitNames.size()> limits{};  // by session::Limit, named by session::kLimitNames
  std::array<uint64_t, session::kDropNames.size()> drops{};    // by session::Drop, named by session::kDropNames

  uint64_t limited(session::Limit which) const { return limits[static_cast<size_t>(which)]; }
  uint64_t dropped(session::Drop reason) const { return drops[static_cast<size_t>(reason)]; }
};

namespace errors {
inline constexpr ErrorCode busy{"broker.busy"};
inline constexpr ErrorCode bad_topic{"broker.bad_topic"};
inline constexpr ErrorCode state_newer{"broker.state_newer"};
inline constexpr ErrorCode state_damaged{"broker.state_damaged"};
}  // namespace errors

}  // namespace ph::broker
