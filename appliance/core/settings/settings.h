// Settings: a node's configuration as values: what the tables of the TOML file become. Made by parse(); complete and
// checked when it comes out of there, so that nobody behind it validates again. The keys, their ranges and their
// meaning for an operator are in schema.cc; the shape is that of config/posthouse.toml.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/time.h"
#include "core/settings/access.h"
#include "core/settings/broker.h"
#include "core/settings/rate.h"

namespace ph::settings {

struct Node {
  std::string name;  // never empty after parse(): the host's name by default
  std::string site;  // never empty after parse(): the node's name by default
  std::string data_dir = "/var/lib/posthouse";
  Bytes disk_reserve{limits::kDiskReserve};
};

enum class Oversize : uint8_t { split, truncate, dead_letter };
enum class AgentMode : uint8_t { spool, tail };
struct AgentCategory {
  std::vector<std::string> match;
  std::optional<AgentMode> mode;
  std::string multiline_start;  // regular expression; empty: a line is an event
  uint32_t multiline_lines = 1000;
  Bytes multiline_bytes{64 * 1024};
  Duration multiline_timeout = 1s;
};
struct Agent {
  std::string dir;
  Bytes line_max{limits::kLineMaxDefault};
  Oversize line_oversize = Oversize::split;
  Bytes rotate_size{1'000'000};
  Duration rotate_age = 60s;
  Duration rescan_interval = 30s;
  Duration delete_grace = 1s;
  AgentMode mode = AgentMode::spool;
  std::vector<std::string> include;  // empty: all
  std::vector<std::string> exclude;
  std::vector<AgentCategory> categories;
};

enum class FileMode : uint8_t { chunks, plain };
enum class MessageFormat : uint8_t { raw, json };
enum class Compress : uint8_t { none, gzip, zstd };
struct Category {
  std::vector<std::string> match;  // masks; empty: all
  FileMode mode = FileMode::chunks;
  Bytes chunk_max{5'000'000};
  Duration chunk_interval = 5s;
  Compress compress = Compress::none;
  MessageFormat format = MessageFormat::raw;
  std::optional<Duration> keep;  // of the receiver's table without one
  std::optional<Bytes> max;
  std::optional<Bytes> quota;
};
enum class OverQuota : uint8_t { block, dead_letter };
struct Receiver {
  std::string link;         // endpoint; empty: no link listener, the files are for this node's own routes
  std::string lsd;          // endpoint; empty: off
  std::string dir;          // empty: no files are written here
  std::optional<bool> tls;  // always set after parse()
  bool insecure_plain = false;
  uint32_t connections_max = limits::kLinkConnectionsMax;
  uint32_t categories_max = limits::kCategoriesMax;
  Duration stream_ttl = limits::kStreamTtl;
  Bytes memory{limits::kReceiverMemory};
  Bytes staging_max{1ull << 30};
  std::optional<Duration> keep;
  std::optional<Bytes> max;
  std::optional<Bytes> quota;
  OverQuota over_quota = OverQuota::block;
  std::vector<Category> categories;  // the first match counts; without a match: Category{}
};

struct Address {
  std::string address;
  uint32_t weight = 1;
};
struct Balance {
  enum class By : uint8_t { round_robin, hash_prefix, hash_regex, hash_topic_level };
  By by = By::round_robin;
  std::string text;    // delimiter or regular expression
  uint32_t level = 0;  // of the topic
};
enum class Protocol : uint8_t { link, lsd };
enum class Dedup : uint8_t { fast, strict };
enum class LinkCompress : uint8_t { none, zstd, automatic, gzip };  // gzip: with protocol lsd alone
struct Upstream {
  std::string name;
  std::vector<Address> addresses;
  Protocol protocol = Protocol::link;
  Balance balance;
  Bytes window{limits::kWindowDefault};
  RateSchedule rate;
  uint32_t connections = 1;  // per address; 4 after parse() with protocol lsd where the file says nothing
  LinkCompress compress = LinkCompress::automatic;
  uint32_t live_share = 3;  // batches of fresh events for each one of a backlog
  Duration connect_timeout = 1s;
  Duration request_timeout = limits::kRequestTimeout;
  Duration resume_timeout = limits::kResumeTimeout;
  Dedup dedup = Dedup::fast;
  std::optional<Duration> strict_give_up;  // dedup = strict; nullopt: never
  std::optional<bool> tls;                 // always set after parse()
  bool insecure_plain = false;
  std::string server_name;  // empty: the address's host
};

enum class Ack : uint8_t { local, far };
enum class When : uint8_t { always, subscribed };
enum class Full : uint8_t { block, drop_oldest, drop_newest };
struct Spool {
  std::optional<Bytes> max;
  std::optional<Duration> keep;
  Full full = Full::block;
};
struct Target {
  enum class Kind : uint8_t { upstream, files, mqtt };
  Kind kind = Kind::upstream;
  std::string text;  // upstream: its name; mqtt: the topic template
  /// What it is called in counters, cursors and status: the upstream's name, "files", or "mqtt:" and the template.
  std::string name() const { return kind == Kind::files ? "files" : kind == Kind::mqtt ? "mqtt:" + text : text; }
};
struct Route {
  std::string name;
  std::vector<std::string> categories;
  std::vector<std::string> topics;
  std::vector<Target> to;
  Ack ack = Ack::local;
  When when = When::always;
  Spool spool;
  std::string category;  // of events made from MQTT messages; never empty after parse(): the route's name
  std::optional<MessageFormat> format;
  bool is_default() const { return categories.empty() && topics.empty(); }
};

enum class ListenerProtocol : uint8_t { mqtt, ws };
enum class ClientCertificate : uint8_t { none, optional, required };
struct Listener {
  std::string name;
  std::string bind;
  ListenerProtocol protocol = ListenerProtocol::mqtt;
  std::string path = "/mqtt";        // of WebSocket
  std::vector<std::string> origins;  // whose pages may connect; empty: all
  bool tls = false;
  ClientCertificate client_certificate = ClientCertificate::optional;
  bool proxy_protocol = false;
  std::optional<bool> allow_anonymous;  // always set after parse(): true on loopback only, not behind a balancer
  uint32_t connections_max = 15'000;
  std::optional<std::vector<AuthMethod>> authn;
  CertificateAs certificate_as = CertificateAs::none;
  CertificateField certificate_field = CertificateField::cn;
  bool psk = false;
  uint32_t max_conn_rate = 0;
  uint32_t messages_rate = 0;
  std::optional<Bytes> bytes_rate;
  uint32_t messages_rate_total = 0;
  std::optional<Bytes> bytes_rate_total;
  std::string mountpoint;
};

struct Tls {
  std::string ca;
  std::string cert;
  std::string key;
  std::string crl;  // empty: none
};
struct Api {
  std::string socket = "/run/posthouse/api.sock";
  std::string bind;  // empty: the Unix socket only
};
struct Log {
  LogLevel level = LogLevel::info;
};
/// When MQTT acknowledgements leave: after the disk has what they stand for, or at once.
enum class Durability { fsync, lazy };

struct Broker {
  uint32_t workers = 0;  // 0: one per core
  Bytes packet_max{limits::kMqttPacketMax};
  Duration connect_timeout = limits::kConnectTimeout;
  Duration keep_alive_max = std::chrono::seconds(65'535);  // all that the protocol allows, and none at all
  uint32_t inflight_max = limits::kInflightMax;
  uint32_t mqueue_messages_max = limits::kMqueueMessagesMax;
  Bytes mqueue_bytes_max{limits::kMqueueBytesMax};
  uint32_t topic_levels_max = limits::kTopicLevelsMax;
  uint32_t topic_alias_max = limits::kTopicAliasMax;
  uint32_t client_id_max = limits::kClientIdMax;
  uint32_t awaiting_rel_max = 100;
  Duration session_expiry = std::chrono::hours(2);
  Durability durability = Durability::fsync;
  uint32_t sessions_max = 100'000;
  uint32_t retained_max = 100'000;
  uint32_t subscriptions_max = limits::kSubscriptionsMax;
  uint32_t qos_max = 2;
  bool retain_available = true;
  bool payload_format_check = false;
  std::string response_information;  // empty: none
  Overlapping overlapping = Overlapping::once;
  uint32_t delayed_max = limits::kDelayedMessagesMax;
  Duration sys_interval = 60s;
  SharedStrategy shared_strategy = SharedStrategy::round_robin;
  std::vector<Rewrite> rewrites;
  std::vector<AutoSubscribe> auto_subscriptions;
  Access access;
};

struct Settings {
  Node node;
  std::optional<Agent> agent;
  std::optional<Receiver> receiver;
  std::vector<Upstream> upstreams;
  std::vector<Route> routes;
  std::vector<Listener> listeners;
  std::optional<Tls> tls;
  Api api;
  Log log;
  Broker broker;
};

}  // namespace ph::settings
