#include "core/migrate/lsd.h"

#include <algorithm>
#include <boost/json.hpp>
#include <map>
#include <optional>
#include <set>

namespace ph::migrate {
namespace {

namespace json = boost::json;

constexpr uint64_t kRotateSizeMin = 64 * 1024, kChunkMin = 4 * 1024;  // agent.rotate_size, receiver.category.chunk_max
constexpr uint64_t kConnections = 4, kConnectionsMax = 16, kWeightMax = 1000;
constexpr uint64_t kReceiverChunk = 5'000'000, kReceiverInterval = 5;  // defaults of both
constexpr uint64_t kRotateInterval = 120;                              // LSD's default
constexpr size_t kTextMax = 64 * 1024 * 1024;

std::unexpected<Error> malformed(std::string what) {
  return fail(errors::malformed, std::move(what));
}

Result<json::value> parse(ByteView text) {
  if (text.size() > kTextMax) return malformed("more than 64 MiB");
  json::parse_options options;
  options.allow_comments = options.allow_trailing_commas = true;
  options.allow_invalid_utf8 = false;
  boost::system::error_code failed;
  json::value v = json::parse(json::string_view(text.data(), text.size()), failed, {}, options);
  if (failed) return malformed("not JSON: " + failed.message());
  return v;
}

/// A table of the configuration that remembers what was asked of it.
class Table {
 public:
  Table(const json::object* from, std::string name) : from_(from), name_(std::move(name)) {}
  explicit operator bool() const { return from_ != nullptr; }

  const json::value* value(std::string_view key) {
    seen_.insert(std::string(key));
    const json::value* v = from_ ? from_->if_contains(key) : nullptr;
    return v && !v->is_null() ? v : nullptr;
  }
  std::string text(std::string_view key) {
    const json::value* v = value(key);
    return v && v->is_string() ? std::string(v->get_string()) : std::string();
  }
  std::optional<uint64_t> number(std::string_view key) {
    const json::value* v = value(key);
    if (!v) return std::nullopt;
    if (v->is_uint64()) return v->get_uint64();
    if (v->is_int64() && v->get_int64() >= 0) return static_cast<uint64_t>(v->get_int64());
    return std::nullopt;
  }
  bool flag(std::string_view key, bool otherwise = false) {
    const json::value* v = value(key);
    return v && v->is_bool() ? v->get_bool() : otherwise;
  }
  std::vector<std::string> texts(std::string_view key) {
    std::vector<std::string> out;
    if (const json::value* v = value(key); v && v->is_array())
      for (const json::value& item : v->get_array())
        if (item.is_string()) out.emplace_back(item.get_string());
    return out;
  }
  std::vector<Table> rows(std::string_view key) {
    std::vector<Table> out;
    if (const json::value* v = value(key); v && v->is_array())
      for (const json::value& item : v->get_array())
        if (item.is_object()) out.emplace_back(&item.get_object(), name_ + "." + std::string(key));
    return out;
  }
  Table table(std::string_view key) {
    const json::value* v = value(key);
    return {v && v->is_object() ? &v->get_object() : nullptr, std::string(key)};
  }
  /// Keys that nobody asked for: LSD ignores them, and says nothing.
  std::vector<std::string> unknown() const {
    std::vector<std::string> out;
    if (from_)
      for (const auto& [key, v] : *from_)
        if (!seen_.contains(std::string(key))) out.push_back(name_ + "." + std::string(key));
    return out;
  }
  const std::string& name() const { return name_; }

 private:
  const json::object* from_;
  std::string name_;
  std::set<std::string> seen_;
};

std::string quoted(std::string_view text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "\"";
  for (unsigned char c : text) {
    if (c == '"' || c == '\\') out.push_back('\\');
    if (c < 0x20 || c == 0x7F)
      out.append("\\u00").append(1, kDigits[c >> 4]).append(1, kDigits[c & 15]);
    else
      out.push_back(static_cast<char>(c));
  }
  return out + "\"";
}

std::string list(const std::vector<std::string>& items) {
  std::string out = "[";
  for (const std::string& item : items) out += (out.size() > 1 ? ", " : "") + quoted(item);
  return out + "]";
}

std::string directory(std::string text) {
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

class Converter {
 public:
  Converter(const json::object& root, const LsdOptions& options)
      : options_(options),
        daemon_(find(root, "daemon_config")),
        server_(find(root, "server_config")),
        client_(find(root, "client_config")) {
    for (const auto& [key, v] : root)
      if (key != "daemon_config" && key != "server_config" && key != "client_config") unknown_.emplace_back(key);
  }

  Result<LsdConfig> run() {
    if (!server_ && !client_) return malformed("neither server_config nor client_config");
    const std::string target = directory(server_.text("target_dir")), source = directory(client_.text("source_dir"));
    if (server_ && !target.starts_with('/')) return malformed("server_config.target_dir is no absolute path");
    if (client_ && !source.starts_with('/')) return malformed("client_config.source_dir is no absolute path");
    out_.pid_file = daemon_.text("pid_file");
    const bool passes_on = server_ && client_ && target == source;
    if (server_ && client_ && !passes_on && options_.part == Part::both)
      return fail(errors::two_halves, "this LSD is a client of " + source + " and a server of " + target +
                                          "; in one node of ours what is received would be sent on as well: convert "
                                          "each half for a node of its own, --part client and --part server");
    const bool serves = server_ && options_.part != Part::client;
    const bool sends = client_ && options_.part != Part::server;
    if (!serves && !sends) return malformed("the configuration has no such half");
    line(
        "# Converted from a configuration of LSD. `# LSD:` marks what differs; see also `posthouse config reference`.");
    line("");
    line("[node]");
    line("# name = \"...\"  # default: the host's name");
    line("data_dir = \"/var/lib/posthouse\"");
    if (passes_on)
      note(
          "it received into the directory that it sent from; here a relay keeps what it passes on in spools, and has "
          "no such directory");
    if (sends && !passes_on) agent(source);
    if (serves || passes_on) receiver(target, passes_on);
    if (sends) routing(serves && !passes_on);
    if (serves && !sends) route("all", {}, "files");
    daemon(serves);
    leftovers(sends, serves);
    out_.toml = std::move(text_);
    return std::move(out_);
  }

 private:
  static Table find(const json::object& root, std::string_view key) {
    const json::value* v = root.if_contains(key);
    return {v && v->is_object() ? &v->get_object() : nullptr, std::string(key)};
  }
  void line(std::string_view text) { text_.append(text).append("\n"); }
  void note(std::string_view text) {
    ++out_.notes;
    line("# LSD: " + std::string(text));
  }
  void key(std::string_view name, const std::string& value) { line(std::string(name) + " = " + value); }
  static std::string bytes(uint64_t n) { return "\"" + std::to_string(n) + "B\""; }
  static std::string seconds(uint64_t n) { return "\"" + std::to_string(n) + "s\""; }

  void size(std::string_view name, uint64_t value, uint64_t least, std::string_view theirs) {
    if (value < least) note(std::string(theirs) + " = " + std::to_string(value) + "; the least here is what follows");
    key(name, bytes(std::max(value, least)));
  }

  void agent(const std::string& source) {
    out_.source_dir = source;
    out_.offsets_db = client_.text("offsets_db");
    line("");
    line("[agent]");
    key("dir", quoted(source));
    if (auto n = client_.number("max_file_size")) size("rotate_size", *n, kRotateSizeMin, "max_file_size");
    key("rotate_age", seconds(std::max<uint64_t>(client_.number("file_rotate_interval").value_or(kRotateInterval), 1)));
    if (auto n = client_.number("periodic_scan_interval"); n && *n > 0) key("rescan_interval", seconds(*n));
    line("line_max = \"4MiB\"");
    note("lines over 1 MiB were dropped; longer ones than line_max are delivered in pieces (line_oversize)");
    if (!out_.offsets_db.empty())
      note("offsets are taken over by: posthouse migrate lsd <lsd.conf> --offsets " + out_.offsets_db +
           " -c <this file>");
  }

  void receiver(const std::string& target, bool passes_on) {
    line("");
    line("[receiver]");
    for (Table listen : daemon_.rows("listen"))
      if (listen.text("proto") == "lsd-gpb" && address_.empty()) address_ = listen.text("address");
    if (address_.starts_with(':')) address_ = "0.0.0.0" + address_;
    if (address_.empty())
      note("daemon_config.listen has no \"lsd-gpb\": set lsd = \"host:port\"");
    else
      key("lsd", quoted(address_));
    line("insecure_plain = true  # LSD's protocol has neither TLS nor authentication");
    if (passes_on) return;
    key("dir", quoted(target));
    for (Table c : server_.rows("per_category_settings")) {
      const std::vector<std::string> masks = c.texts("categories");
      if (!masks.empty()) category(c, masks);
      for (std::string& u : c.unknown()) unknown_.push_back(std::move(u));
    }
    category(server_, {"*"});
  }

  void category(Table& from, const std::vector<std::string>& masks) {
    line("");
    line("[[receiver.category]]");
    key("match", list(masks));
    const json::value* mode = from.value("mode");
    const bool plain_log = mode && ((mode->is_string() && mode->get_string() == "PLAIN_LOG") ||
                                    (mode->is_int64() && mode->get_int64() == 2));
    const bool inherits = !mode && !from.value("chunk_output") && &from != &server_;
    const bool plain = inherits ? plain_ : plain_log || !from.flag("chunk_output", true);
    if (&from == &server_) plain_ = plain;
    key("mode", plain ? "\"plain\"" : "\"chunks\"");
    const uint64_t most =
        from.number("max_file_size").value_or(server_.number("max_file_size").value_or(kReceiverChunk));
    const uint64_t interval = from.number("file_rotate_interval")
                                  .value_or(server_.number("file_rotate_interval").value_or(kReceiverInterval));
    if (!plain) size("chunk_max", most, kChunkMin, "max_file_size");
    if (!plain) key("chunk_interval", seconds(std::max<uint64_t>(interval, 1)));
    if (from.flag("gzip")) {
      if (!options_.gzip_files) note("compression of files is not supported in this version");
      line(std::string(options_.gzip_files ? "" : "# ") + "compress = \"gzip\"");
    }
    from.value("gzip_parallel");
  }

  // --- where to
  struct Receivers {
    std::string text;  // the keys of an upstream's table
    std::string name;
  };

  void routing(bool has_files) {
    std::vector<Table> routes = client_.rows("routing");
    std::vector<std::pair<std::vector<std::string>, std::string>> made;  // masks, upstream
    bool has_default = false;
    for (Table& from : routes) {
      std::vector<std::string> masks = from.texts("categories");
      const std::string upstream = upstream_of(from);
      if (!upstream.empty()) {
        if (masks.empty() && has_default) note("a second default route is not converted; the first one counts");
        if (!masks.empty() || !has_default) made.emplace_back(masks, upstream);
        has_default |= masks.empty();
      }
      for (std::string& u : from.unknown()) unknown_.push_back(std::move(u));
    }
    std::set<std::string> exact;
    size_t n = 0;
    for (auto& [masks, upstream] : made) {
      const bool is_default = masks.empty();
      std::erase_if(masks, [&](const std::string& mask) {
        if (mask.find('*') != mask.npos || exact.insert(mask).second) return false;
        note("category " + quoted(mask) + " stands in an earlier route as well, which is the one that counts");
        return true;
      });
      if (is_default || !masks.empty()) route(is_default ? "default" : "route-" + std::to_string(++n), masks, upstream);
    }
    if (has_default) return;
    note(
        "there was no default route: files of categories that no route takes were left where they are. Here a node "
        "must say what becomes of them");
    if (!has_files && text_.find("\n[receiver]\n") == text_.npos) {
      line("");
      line("[receiver]");
      line("dir = \"/var/lib/posthouse/unrouted\"");
      has_files = true;
    }
    if (has_files) return route("default", {}, "files");
    note("name an upstream, or give [receiver] a dir and write to = [\"files\"]");
    if (!made.empty()) route("default", {}, made.front().second);
  }

  void route(const std::string& name, const std::vector<std::string>& masks, const std::string& to) {
    line("");
    line("[[route]]");
    key("name", quoted(name));
    if (!masks.empty()) key("categories", list(masks));
    key("to", "[" + quoted(to) + "]");
  }

  /// The name of the upstream that a routing entry means, which is written if there is none like it yet.
  std::string upstream_of(Table& from) {
    std::map<std::string, uint64_t> weights;
    std::vector<std::string> order;
    uint64_t times = 1, connect = 0, request = 0;
    for (Table r : from.rows("receivers")) {
      const std::string address = r.text("addr");
      const uint64_t weight = r.number("weight").value_or(1);
      connect = std::max(connect, r.number("connect_timeout").value_or(1));
      request = std::max(request, r.number("request_timeout").value_or(30));
      if (address.empty() || weight == 0) {
        note("a receiver without address or with weight 0 is left out");
        continue;
      }
      if (!weights.contains(address))
        order.push_back(address);
      else
        ++times;
      weights[address] += weight;
      for (std::string& u : r.unknown()) unknown_.push_back(std::move(u));
    }
    if (order.empty()) {
      note("a routing entry without receivers is left out");
      return {};
    }
    std::string addresses;
    for (const std::string& a : order) {
      const uint64_t weight = std::min(weights[a], kWeightMax);
      addresses += (addresses.empty() ? "" : ", ") +
                   (order.size() == 1 || weight == 1
                        ? quoted(a)
                        : "{ address = " + quoted(a) + ", weight = " + std::to_string(weight) + " }");
    }
    std::string body = "protocol = \"lsd\"\naddresses = [" + addresses + "]\n";
    body +=
        "insecure_plain = true  # LSD's protocol has no TLS; protocol = \"link\" has, once the receivers are nodes\n";
    const uint64_t connections = std::min(kConnections * times, kConnectionsMax);
    if (times > 1) body += "connections = " + std::to_string(connections) + "\n";
    body += "connect_timeout = " + seconds(std::clamp<uint64_t>(connect, 1, 60)) + "\n";
    body += "request_timeout = " + seconds(std::clamp<uint64_t>(request, 1, 3600)) + "\n";
    if (from.flag("gzip")) body += "compress = \"gzip\"\n";
    sharding(from, body);
    from.value("out_buffer_size_multiplier");
    for (const Receivers& known : upstreams_)
      if (known.text == body) return known.name;
    const std::string name = "lsd-" + std::to_string(upstreams_.size() + 1);
    line("");
    line("[[upstream]]");
    key("name", quoted(name));
    if (times > 1) note("an address that was listed several times has as many times the connections instead");
    text_ += body;
    upstreams_.push_back({body, name});
    return name;
  }

  void sharding(Table& from, std::string& body) {
    const bool shards = from.flag("prefix_sharding"), cuts = from.flag("cut_prefix");
    const std::string delimiter = from.value("prefix_delimiter") ? from.text("prefix_delimiter") : ":";
    if (shards) {
      if (!options_.hash_balance) note("sharding by the prefix of a line is not supported in this version");
      note("keys are spread otherwise than by LSD's hash: they move once, then stay when a receiver comes or goes");
      body += std::string(options_.hash_balance ? "" : "# ") + "balance = { hash = { prefix = " + quoted(delimiter) +
              " } }\n";
    }
    if (shards && cuts) note("cut_prefix has no equivalent: lines arrive with their prefix");
  }

  // --- what is left
  void daemon(bool serves) {
    line("");
    for (const char* known : {"service_name", "service_instance_name", "daemonize", "user", "group", "log_file",
                              "chdir", "max_cpus", "gc_percent", "http_pprof_addr", "pid_file", "parent_wait_timeout"})
      daemon_.value(known);
    const std::string level = daemon_.text("log_level");
    static const std::map<std::string, std::string_view> kLevels = {{"DEBUG", "debug"},  {"NOTICE", "info"},
                                                                    {"WARNING", "warn"}, {"ERROR", "error"},
                                                                    {"FATAL", "error"},  {"PANIC", "error"}};
    if (auto it = kLevels.find(level); it != kLevels.end()) {
      line("[log]");
      key("level", quoted(it->second));
    }
    for (Table listen : daemon_.rows("listen")) {
      const std::string proto = listen.text("proto");
      if (proto == "lsd-gpb" && serves && listen.text("address") == address_) continue;
      note("listen " + proto + " at " + listen.text("address") + " has no equivalent" +
           (proto.starts_with("service-stats") ? "; see posthouse status" : ""));
    }
    if (daemon_) note("log, user, pid file and restarts are systemd's");
  }

  void leftovers(bool sends, bool serves) {
    std::string without;
    auto no_equivalent = [&](Table& in, std::initializer_list<const char*> keys) {
      for (const char* k : keys)
        if (in.value(k)) without += (without.empty() ? "" : ", ") + in.name() + "." + k;
    };
    no_equivalent(client_, {"always_flock", "file_events_buffer_size", "out_buffer_size", "usage_check_interval",
                            "offsets_save_interval", "traffic_stats_recalc_interval", "backlog_flush_interval"});
    no_equivalent(server_, {"error_sleep_interval", "traffic_stats_recalc_interval"});
    if (!without.empty()) note("without equivalent, since nothing depends on it here: " + without);
    // Asked for above only where the half was converted.
    for (const char* k :
         {"source_dir", "offsets_db", "max_file_size", "file_rotate_interval", "periodic_scan_interval", "routing"})
      client_.value(k);
    for (const char* k : {"target_dir", "mode", "max_file_size", "file_rotate_interval", "per_category_settings",
                          "gzip", "gzip_parallel", "chunk_output"})
      server_.value(k);
    if (sends)
      for (std::string& u : client_.unknown()) unknown_.push_back(std::move(u));
    if (serves)
      for (std::string& u : server_.unknown()) unknown_.push_back(std::move(u));
    for (const std::string& u : unknown_) note("key that LSD itself does not know and ignores: " + quoted(u));
  }

  const LsdOptions& options_;
  Table daemon_, server_, client_;
  std::string text_;
  std::string address_;
  bool plain_ = false;
  std::vector<Receivers> upstreams_;
  std::vector<std::string> unknown_;
  LsdConfig out_;
};

}  // namespace

Result<LsdConfig> convert_lsd(ByteView text, const LsdOptions& options) {
  PH_ASSIGN(json::value root, parse(text));
  if (!root.is_object()) return malformed("no JSON object");
  return Converter(root.get_object(), options).run();
}

Result<std::vector<LsdOffset>> parse_lsd_offsets(ByteView text) {
  PH_ASSIGN(json::value root, parse(text));
  std::vector<LsdOffset> out;
  if (root.is_null()) return out;  // of a client that never had a file
  if (!root.is_array()) return malformed("no JSON array");
  for (const json::value& item : root.get_array()) {
    if (!item.is_object()) return malformed("an entry that is no object");
    Table entry(&item.get_object(), "offset");
    auto inode = entry.number("Ino"), offset = entry.number("Off");
    if (!inode || !offset) return malformed("an entry without Ino and Off");
    out.push_back({*inode, *offset, entry.text("LastFileName")});
  }
  return out;
}

}  // namespace ph::migrate
