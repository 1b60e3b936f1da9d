#include "core/settings/check.h"

#include <re2/re2.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/mask_overlap.h"
#include "codec/event/block.h"
#include "codec/mqtt/text.h"
#include "core/settings/address.h"
#include "core/settings/key.h"
#include "core/settings/suggest.h"

namespace ph::settings {
namespace {

constexpr size_t kNameMax = 64;
constexpr size_t kMasksMax = 10'000;
constexpr size_t kTemplateMax = 4096;
constexpr size_t kPathMax = 256;
constexpr size_t kFolderMax = 3500;  // with what is made in it, under PATH_MAX
constexpr size_t kPatternMax = 1024;

/// Letters, digits, '.', '_', '-', first a letter or digit: safe as a file name, a store key and a label.
bool is_name(std::string_view text) {
  auto alnum = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); };
  if (text.empty() || text.size() > kNameMax || !alnum(text[0])) return false;
  return std::all_of(text.begin(), text.end(), [&](char c) { return alnum(c) || c == '.' || c == '_' || c == '-'; });
}

/// A table with its places: values are asked by key; what is not there has the table's own place.
struct At {
  const Value* table = nullptr;

  const Value* value(std::string_view key) const {
    const Entry* e = table ? table->find(key) : nullptr;
    return e ? &e->value : nullptr;
  }
  bool has(std::string_view key) const { return value(key) != nullptr; }
  Place place(std::string_view key) const {
    const Value* v = value(key);
    return v ? v->place : table ? table->place : Place{};
  }
  Place item(std::string_view key, size_t i) const {
    const Value* v = value(key);
    return v && i < v->items.size() ? v->items[i].place : place(key);
  }
  At inner(std::string_view key) const { return {value(key)}; }
  At row(std::string_view key, size_t i) const {
    const Value* v = value(key);
    return {v && i < v->items.size() ? &v->items[i] : nullptr};
  }
};

class Check {
 public:
  Check(const Value& root, Settings& settings, const std::string& hostname, Diagnostics& out)
      : root_{&root}, s_(settings), hostname_(hostname), out_(out) {}

  void run() {
    node();
    tls_files();
    api();
    methods();
    agent();
    receiver();
    listeners();
    upstreams();
    for (size_t i = 0; i < s_.routes.size(); ++i) route(i);
    default_route();
    ties();
    unused_upstreams();
  }

 private:
  // --- single tables
  void node() {
    const At at = root_.inner("node");
    if (s_.node.name.empty()) s_.node.name = hostname_;
    if (s_.node.site.empty()) s_.node.site = s_.node.name;
    if (at.has("name")) name(s_.node.name, at.place("name"), "node.name");
    if (at.has("site")) name(s_.node.site, at.place("site"), "node.site");
    if (!at.has("name") && !is_name(s_.node.name))
      out_.error(at.place("name"), "the host's name " + in_quotes(s_.node.name) + " cannot name a node",
                 "set node.name");
    absolute(s_.node.data_dir, at.place("data_dir"), "node.data_dir");
  }
  void tls_files() {
    if (!s_.tls) return;
    const At at = root_.inner("tls");
    absolute(s_.tls->ca, at.place("ca"), "tls.ca");
    absolute(s_.tls->cert, at.place("cert"), "tls.cert");
    absolute(s_.tls->key, at.place("key"), "tls.key");
    if (!s_.tls->crl.empty() || at.has("crl")) absolute(s_.tls->crl, at.place("crl"), "tls.crl");
  }
  void api() {
    constexpr size_t kSocketPathMax = 107;  // sockaddr_un
    const At at = root_.inner("api");
    absolute(s_.api.socket, at.place("socket"), "api.socket");
    if (s_.api.socket.size() > kSocketPathMax)
      out_.error(at.place("socket"), "`api.socket` is longer than " + std::to_string(kSocketPathMax) + " bytes");
    const std::pair<const char*, std::string> folders[] = {{"node.data_dir", s_.node.data_dir},
                                                           {"agent.dir", s_.agent ? s_.agent->dir : ""},
                                                           {"receiver.dir", s_.receiver ? s_.receiver->dir : ""}};
    for (const auto& [key, folder] : folders)
      if (overlaps(folder, s_.api.socket) && within(folder, s_.api.socket))
        out_.error(at.place("socket"), "`api.socket` is where the folder " + std::string(key) + " is",
                   "name a file, in that folder for example");
  }
  /// Methods that are asked for by name and have nothing to go by.
  void methods() {
    const Access& access = s_.broker.access;
    const At authn = root_.inner("broker").inner("authn");
    if (authn.has("order")) methods(access.authn.order, authn, "order");
    for (size_t i = 0; i < s_.listeners.size(); ++i)
      if (s_.listeners[i].authn) methods(*s_.listeners[i].authn, root_.row("listener", i), "authn");
  }
  void methods(const std::vector<AuthMethod>& list, const At& at, std::string_view key) {
    const Access& access = s_.broker.access;
    auto missing = [&](AuthMethod method, bool there, std::string_view name, std::string_view table) {
      const auto found = std::ranges::find(list, method);
      if (there || found == list.end()) return;
      out_.error(at.item(key, static_cast<size_t>(found - list.begin())),
                 "`" + std::string(key) + "` has " + in_quotes(name) + ", but there is no " + std::string(table));
    };
    const Value* written = at.value(key);
    if (!written || written->items.size() != list.size()) return;  // told already
    missing(AuthMethod::jwt, access.jwt.has_value(), "jwt", "[broker.jwt]");
    missing(AuthMethod::http, access.http.has_value(), "http", "[broker.http]");
    missing(AuthMethod::psk, access.psk || !access.psk_identities.empty(), "psk",
            "[broker.psk] and no [[broker.psk_identity]]");
  }
  void agent() {
    if (!s_.agent) return;
    const At at = root_.inner("agent");
    absolute(s_.agent->dir, at.place("dir"), "agent.dir");
    const std::string& own = s_.agent->dir;
    if (s_.receiver && overlaps(own, s_.receiver->dir))
      out_.error(at.place("dir"), "agent.dir and receiver.dir overlap",
                 "the agent would send and delete what the receiver writes");
    if (overlaps(own, s_.node.data_dir) && own.size() <= s_.node.data_dir.size())
      out_.error(at.place("dir"), "agent.dir holds node.data_dir",
                 "the agent would send and delete the node's own state");
    if (auto part = part_of_state(own); !part.empty())
      out_.error(at.place("dir"), "agent.dir is the node's own " + in_quotes(part),
                 "the agent would send and delete the node's own state");
    for (size_t i = 0; i < s_.agent->categories.size(); ++i) {
      const AgentCategory& c = s_.agent->categories[i];
      const At row = at.row("category", i);
      for (size_t m = 0; m < c.match.size(); ++m) mask(c.match[m], row.item("match", m), "agent.category.match");
      if (auto fault = pattern_fault(c.multiline_start); !fault.empty())
        out_.error(row.place("multiline_start"), "`agent.category.multiline_start` is no regular expression: " + fault);
      for (const char* key : {"multiline_lines", "multiline_bytes", "multiline_timeout"})
        if (row.has(key) && c.multiline_start.empty())
          out_.error(row.place(key), "`" + std::string(key) + "` needs `multiline_start`");
    }
  }
  static std::string pattern_fault(const std::string& text) {
    if (text.size() > kPatternMax) return "longer than " + std::to_string(kPatternMax) + " bytes";
    RE2::Options options(RE2::Latin1);  // as the agent has it
    options.set_log_errors(false);
    const RE2 tried(text, options);
    if (!tried.ok()) return tried.error();
    return RE2::FullMatch("", tried) && !text.empty() ? "it matches every line" : "";
  }
  void receiver() {
    if (!s_.receiver) return;
    Receiver& r = *s_.receiver;
    const At at = root_.inner("receiver");
    if (!at.has("link") && !at.has("lsd") && !at.has("dir"))
      out_.error(at.place("link"), "[receiver] does nothing",
                 "give it `link` (an address to listen at), `dir`, or both");
    if (!r.dir.empty()) absolute(r.dir, at.place("dir"), "receiver.dir");
    const char* why = "a peer may name a category as a part of the node's state is named";
    if (overlaps(r.dir, s_.node.data_dir) && within(s_.node.data_dir, r.dir))
      out_.error(at.place("dir"), "receiver.dir holds node.data_dir", why);
    if (auto part = part_of_state(r.dir); !part.empty())
      out_.error(at.place("dir"), "receiver.dir is the node's own " + in_quotes(part), why);
    std::vector<std::string> links;
    if (!r.link.empty()) endpoint(r.link, at.place("link"), "receiver.link", true);
    if (!r.link.empty()) links.push_back(r.link);
    transport(r.tls, r.insecure_plain, links, at, "link", "receiver");
    if (!r.lsd.empty() && endpoint(r.lsd, at.place("lsd"), "receiver.lsd", true))
      plain_only(r.insecure_plain, {r.lsd}, at.place("lsd"), "receiver.lsd");
    for (size_t i = 0; i < r.categories.size(); ++i)
      for (size_t m = 0; m < r.categories[i].match.size(); ++m)
        mask(r.categories[i].match[m], at.row("category", i).item("match", m), "receiver.category.match");
  }
  void listeners() {
    std::map<std::string, Place> names;
    for (size_t i = 0; i < s_.listeners.size(); ++i) {
      Listener& l = s_.listeners[i];
      const At at = root_.row("listener", i);
      if (l.name.empty()) l.name = l.bind;
      if (at.has("name")) name(l.name, at.place("name"), "listener.name");
      unique(names, l.name, at.has("name") ? at.place("name") : at.place("bind"), "listener");
      mountpoint(l.mountpoint, at.place("mountpoint"));
      if (!l.mountpoint.empty() && (!mqtt::utf8_valid(l.mountpoint) || !mqtt::topic_valid(l.mountpoint) ||
                                    l.mountpoint.starts_with('$') || l.mountpoint.size() > 1024))
        out_.error(at.place("mountpoint"), in_quotes(l.mountpoint) + " cannot stand in front of topics",
                   "no wildcards, no $ at its beginning, at most 1024 bytes");
      if (l.bind.empty()) continue;
      const auto address = endpoint(l.bind, at.place("bind"), "listener.bind", true);
      // Behind a balancer on this machine clients come from anywhere.
      if (!l.allow_anonymous) l.allow_anonymous = address && address->is_loopback() && !l.proxy_protocol;
      websocket(l, at);
      if (l.client_certificate == ClientCertificate::required && !l.tls)
        out_.error(at.place("client_certificate"), "`client_certificate = \"required\"` needs `tls = true`");
      if (l.tls && !s_.tls) out_.error(at.place("tls"), "`tls = true` needs a [tls] table with ca, cert and key");
      if (l.psk && s_.broker.access.psk_identities.empty() && !s_.broker.access.psk)
        out_.error(at.place("psk"), "`psk = true` needs keys", "give them in [broker.psk] or [[broker.psk_identity]]");
      if (l.certificate_field != CertificateField::cn && l.certificate_as == CertificateAs::none)
        out_.error(at.place("certificate_field"), "`certificate_field` needs `certificate_as`",
                   "as it is, no name of a certificate is used");
      if (l.certificate_as != CertificateAs::none && !l.tls)
        out_.error(at.place("certificate_as"), "`certificate_as` needs `tls = true`",
                   "without TLS nobody shows a certificate");
    }
  }
  /// Two names must not make one mountpoint, nor one that another begins with: they would share their topics.
  void mountpoint(const std::string& text, Place place) {
    std::string_view rest = text;
    while (!rest.empty()) {
      const size_t slash = rest.find('/');
      const std::string_view level = rest.substr(0, slash);
      size_t names = 0;
      for (const std::string_view name : {"%c", "%u"})
        for (size_t i = level.find(name); i != level.npos; i = level.find(name, i + 1)) ++names;
      if (names > 1)
        out_.error(place, "`mountpoint` has two names in one level of " + in_quotes(text.substr(0, 80)),
                   "put a / between them: else \"ab\" and \"c\" make the same as \"a\" and \"bc\"");
      if (names > 0 && slash == rest.npos)
        out_.error(place, "`mountpoint` ends with a name: " + in_quotes(text.substr(0, 80)),
                   "put a / behind it: else client \"a\" reaches topics of client \"ab\"");
      if (slash == rest.npos) break;
      rest.remove_prefix(slash + 1);
    }
  }
  void websocket(const Listener& l, const At& at) {
    const bool ws = l.protocol == ListenerProtocol::ws;
    if (!ws && l.path != Listener{}.path)
      out_.error(at.place("path"), "`path` is for listeners with `protocol = \"ws\"`");
    if (!ws && at.has("origins"))
      out_.warning(at.place("origins"), "`origins` is for listeners with `protocol = \"ws\"`");
    if (at.has("origins") && l.origins.empty() && at.value("origins")->is(Value::Kind::array))
      out_.error(at.place("origins"), "`origins` is empty", "without the key pages of anywhere may connect");
    for (size_t i = 0; i < l.origins.size(); ++i) origin(l.origins[i], at.item("origins", i));
    auto in_path = [](char c) { return c > ' ' && c < 0x7F && c != '?' && c != '#'; };
    if (ws &&
        (!l.path.starts_with('/') || l.path.size() > kPathMax || !std::all_of(l.path.begin(), l.path.end(), in_path)))
      out_.error(at.place("path"),
                 "`listener.path` is " + in_quotes(l.path.substr(0, 80)) + "; it must be like \"/mqtt\"");
  }
  void origin(const std::string& text, Place place) {
    std::string_view rest = text;
    const bool scheme = rest.starts_with("https://") || rest.starts_with("http://");
    rest.remove_prefix(scheme ? rest.find("://") + 3 : 0);
    if (rest.starts_with("*.")) rest.remove_prefix(2);
    const bool port = rest.rfind(':') != rest.npos && !rest.ends_with(']');
    if (!scheme || !parse_host_port(std::string(rest) + (port ? "" : ":1"), false))
      out_.error(place, in_quotes(text.substr(0, 80)) + " is no origin",
                 "write scheme, host and, if it is not the usual one, port: \"https://app.example:8443\"");
  }
  void upstreams() {
    std::map<std::string, Place> names;
    for (size_t i = 0; i < s_.upstreams.size(); ++i) {
      Upstream& u = s_.upstreams[i];
      const At at = root_.row("upstream", i);
      if (!u.name.empty()) {
        name(u.name, at.place("name"), "upstream.name");
        unique(names, u.name, at.place("name"), "upstream");
        if (u.name == "files")
          out_.error(at.place("name"), "an upstream cannot be named \"files\"", "in `to` it means this node's files");
      }
      const Value* addresses = at.value("addresses");
      if (addresses && addresses->is(Value::Kind::array) && addresses->items.empty())
        out_.error(addresses->place, "`addresses` is empty");
      std::vector<std::string> plain;
      std::set<std::string> seen;
      for (size_t a = 0; a < u.addresses.size(); ++a) {
        const std::string& text = u.addresses[a].address;
        if (text.empty()) continue;
        if (endpoint(text, at.item("addresses", a), "upstream.addresses", false)) plain.push_back(text);
        if (!seen.insert(text).second)
          out_.error(at.item("addresses", a), "address " + in_quotes(text) + " is there twice", "give it a weight");
      }
      if (u.protocol == Protocol::lsd)
        lsd_upstream(u, plain, at);
      else
        link_upstream(u, plain, at);
    }
  }

  void link_upstream(Upstream& u, const std::vector<std::string>& addresses, const At& at) {
    transport(u.tls, u.insecure_plain, addresses, at, "addresses", "upstream");
    if (u.compress == LinkCompress::gzip)
      out_.error(at.place("compress"), "`upstream.compress = \"gzip\"` is for `protocol = \"lsd\"` alone",
                 "write \"zstd\" or \"auto\"");
    if (u.strict_give_up && u.dedup != Dedup::strict)
      out_.warning(at.place("strict_give_up"), "`strict_give_up` is for `dedup = \"strict\"`");
  }
  void lsd_upstream(Upstream& u, const std::vector<std::string>& addresses, const At& at) {
    constexpr uint32_t kConnections = 4;
    if (!at.has("connections")) u.connections = kConnections;
    if (u.tls.value_or(false))
      out_.error(at.place("tls"), "`tls = true` with `protocol = \"lsd\"`", "LSD's protocol has no TLS");
    u.tls = false;
    plain_only(u.insecure_plain, addresses, at.place("addresses"), "upstream.addresses");
    if (u.compress == LinkCompress::zstd)
      out_.error(at.place("compress"), "`upstream.compress = \"zstd\"` with `protocol = \"lsd\"`",
                 "LSD's protocol knows gzip");
    for (const char* key : {"resume_timeout", "server_name", "balance", "rate", "dedup", "strict_give_up"})
      if (at.has(key))
        out_.error(at.place(key), "`upstream." + std::string(key) + "` is for `protocol = \"link\"` alone");
  }

  // --- routes
  void route(size_t i) {
    Route& r = s_.routes[i];
    const At at = root_.row("route", i);
    if (!r.name.empty()) {
      name(r.name, at.place("name"), "route.name");
      unique(route_names_, r.name, at.place("name"), "route");
    }
    for (const char* list : {"categories", "topics"})
      if (const Value* v = at.value(list); v && v->is(Value::Kind::array) && v->items.empty())
        out_.error(v->place, "`" + std::string(list) + "` is empty",
                   "leave it out; without both the route is the default");
    for (size_t m = 0; m < r.categories.size(); ++m)
      mask(r.categories[m], at.item("categories", m), "route.categories");
    for (size_t t = 0; t < r.topics.size(); ++t) topic(r.topics[t], at.item("topics", t));
    targets(r, at);
    category_of(r, at);
    if (r.when == When::subscribed) demand(r, at);
    spool(r, at);
    if (r.ack == Ack::far && !r.topics.empty())
      out_.warning(at.place("ack"), "`ack = \"far\"` on a route with topics withholds PUBACK during an outage",
                   "clients stop once their window of unacknowledged messages is full");
    if (!r.topics.empty() && s_.listeners.empty())
      out_.warning(at.place("topics"), "this route takes MQTT topics, but there is no [[listener]]");
  }
  /// What is wanted is known per upstream, and told on our own link protocol.
  void demand(const Route& r, const At& at) {
    const auto wrong = [&](const std::string& text, const std::string& hint) {
      out_.error(at.place("when"), "`when = \"subscribed\"` " + text, hint);
    };
    if (r.topics.empty() || !r.categories.empty())
      wrong("is for routes with `topics` and no `categories`", "events from files and peers are always sent");
    if (r.to.size() != 1 || r.to.front().kind != Target::Kind::upstream)
      wrong("needs exactly one upstream in `to`", "write a route for each upstream; no event arrives twice by that");
    for (const Upstream& u : s_.upstreams)
      if (r.to.size() == 1 && u.name == r.to.front().text && u.protocol != Protocol::link)
        wrong("needs an upstream with `protocol = \"link\"`", "others cannot tell what is wanted there");
  }
  void spool(const Route& r, const At& at) {
    const bool drops = r.spool.full != Full::block;
    if (r.ack == Ack::far && (drops || r.spool.keep))
      out_.error(at.place("ack"),
                 std::string("`ack = \"far\"` and `spool.") + (drops ? "full = \"drop_...\"" : "keep") +
                     "` contradict each other",
                 "what is dropped never arrives at the far end, so its source would wait for ever");
    if (drops && !r.spool.max)
      out_.error(at.inner("spool").place("full"), "`spool.full` needs `spool.max`: without it nothing is ever full");
    if (s_.agent && r.topics.empty() && (drops || r.spool.keep))
      out_.warning(at.inner("spool").place(drops ? "full" : "keep"),
                   "nothing is dropped of files that this node's agent reads: they wait where they are",
                   "it holds for what comes from peers; an alarm tells when more files wait than `max`");
  }
  void topic(const std::string& filter, Place place) {
    if (filter.starts_with("$share/") || filter.starts_with("$queue/"))
      out_.error(place, "`topics` cannot have the shared filter " + in_quotes(filter),
                 "a route gets every message; name the filter without its group");
    else if (filter.size() > 65535 || !mqtt::utf8_valid(filter) || !mqtt::filter_valid(filter))
      out_.error(place, in_quotes(filter) + " is not an MQTT topic filter",
                 "+ and # fill a whole level, # is the last");
  }
  void targets(const Route& r, const At& at) {
    const Value* to = at.value("to");
    if (to && to->is(Value::Kind::array) && to->items.empty()) out_.error(to->place, "`to` is empty");
    std::set<std::string> seen;
    for (size_t t = 0; t < r.to.size(); ++t) {
      const Target& target = r.to[t];
      const Place place = at.item("to", t);
      if (target.text.empty()) continue;
      if (!seen.insert(target.name()).second)
        out_.error(place, "target " + in_quotes(target.name()) + " is there twice");
      if (target.kind == Target::Kind::files) files_target(place);
      if (target.kind == Target::Kind::upstream) upstream_target(target.text, place);
      if (target.kind == Target::Kind::mqtt) mqtt_target(target.text, place);
    }
  }
  void files_target(Place place) {
    if (root_.inner("receiver").has("dir")) return;
    out_.error(place, "target \"files\" has no directory", "set `dir` in [receiver]");
  }
  void upstream_target(const std::string& wanted, Place place) {
    used_.insert(wanted);
    std::vector<std::string_view> known;
    for (const Upstream& u : s_.upstreams) {
      if (u.name == wanted || u.name.empty()) return;  // one whose name could not be read may be meant
      if (u.name != "files") known.emplace_back(u.name);
    }
    known.emplace_back("files");
    const std::string_view near = nearest(wanted, known);
    std::string all;
    for (std::string_view k : known) all += (all.empty() ? "" : ", ") + std::string(k);
    out_.error(place, "there is no upstream " + in_quotes(wanted),
               near.empty() ? "known targets: " + all : "did you mean " + in_quotes(near) + "?");
  }
  void mqtt_target(const std::string& text, Place place) {
    std::string topic;
    for (size_t i = 0; i < text.size();) {
      if (text[i] != '{') {
        topic += text[i++];
        continue;
      }
      const size_t close = text.find('}', i);
      const std::string_view word = std::string_view(text).substr(i, close == text.npos ? close : close - i + 1);
      static constexpr std::string_view kWords[] = {"{topic}", "{category}", "{origin}", "{site}", "{node}"};
      if (std::ranges::find(kWords, word) == std::end(kWords)) {
        out_.error(place, in_quotes(word.substr(0, 40)) + " is no part of a topic template",
                   "known are {topic}, {category}, {origin}, {site} and {node}");
        return;
      }
      topic += 'x';
      i += word.size();
    }
    if (text.size() > kTemplateMax || !mqtt::utf8_valid(topic) || !mqtt::topic_valid(topic) || topic.starts_with('$'))
      out_.error(place, in_quotes(text.substr(0, 80)) + " does not make a topic that can be published to");
    if (s_.listeners.empty())
      out_.warning(place, "this route publishes to MQTT, but there is no [[listener]] for subscribers");
  }
  void category_of(Route& r, const At& at) {
    if (at.has("category") && r.topics.empty())
      out_.error(at.place("category"), "`category` is for routes with `topics`; events from files and peers have one");
    if (at.has("format") && r.topics.empty())
      out_.error(at.place("format"), "`format` is for routes with `topics`; lines stay what they are");
    if (r.category.empty()) r.category = r.name;
    if (auto fault = event::category_fault(r.category); !fault.empty() && at.has("category"))
      out_.error(at.place("category"),
                 in_quotes(r.category.substr(0, 80)) + " cannot be a category: " + std::string(fault));
  }
  void default_route() {
    std::optional<size_t> first;
    for (size_t i = 0; i < s_.routes.size(); ++i) {
      const At at = root_.row("route", i);
      if (!s_.routes[i].is_default() || at.has("categories") || at.has("topics")) continue;
      if (first)
        out_.error(at.place("name"), "a second default route (no categories, no topics)",
                   "the first is at line " + std::to_string(root_.row("route", *first).place("name").line));
      else
        first = i;
    }
    const bool takes = s_.agent || (s_.receiver && (!s_.receiver->link.empty() || !s_.receiver->lsd.empty()));
    if (first || !takes || (root_.has("route") && root_.value("route")->is(Value::Kind::broken))) return;
    out_.error(root_.inner(s_.agent ? "agent" : "receiver").place(""),
               std::string(s_.agent ? "[agent]" : "[receiver]") + " needs a default route",
               "add a [[route]] with `name` and `to`, without categories and topics: it takes what no other one takes");
  }
  void ties() {
    struct Mask {
      std::string_view text;
      size_t route;
      Place place;
    };
    std::map<std::string_view, std::vector<Mask>> groups;  // by what stands before the first '*'; exact ones apart
    std::map<std::string_view, Mask> exact;
    size_t count = 0;
    for (size_t r = 0; r < s_.routes.size(); ++r)
      for (size_t m = 0; m < s_.routes[r].categories.size(); ++m) {
        const std::string& text = s_.routes[r].categories[m];
        const Mask mask{text, r, root_.row("route", r).item("categories", m)};
        if (++count > kMasksMax) return out_.error(mask.place, "more than " + std::to_string(kMasksMax) + " masks");
        if (text.find('*') != text.npos) {
          groups[std::string_view(text).substr(0, mask_prefix(text))].push_back(mask);
          continue;
        }
        const auto [it, fresh] = exact.emplace(text, mask);
        if (!fresh && it->second.route != r)
          tie(it->second.text, it->second.place, it->second.route, mask.place, r, text);
      }
    for (const auto& [prefix, masks] : groups)
      for (size_t b = 1; b < masks.size(); ++b)
        for (size_t a = 0; a < b; ++a) {
          if (out_.full()) return;
          if (masks[a].route == masks[b].route) continue;
          if (auto common = mask_overlap(masks[a].text, masks[b].text)) {
            tie(masks[a].text, masks[a].place, masks[a].route, masks[b].place, masks[b].route, *common);
            break;
          }
        }
  }
  void tie(std::string_view mask, Place first, size_t first_route, Place second, size_t second_route,
           const std::string& category) {
    out_.error(
        second,
        "mask ties with " + in_quotes(mask) + " of route " + in_quotes(s_.routes[first_route].name) + " at line " +
            std::to_string(first.line) + ": category " + in_quotes(category) + " fits both as well",
        "make one of them longer before its *, or give both to route " + in_quotes(s_.routes[second_route].name));
  }
  void unused_upstreams() {
    for (size_t i = 0; i < s_.upstreams.size(); ++i)
      if (const std::string& called = s_.upstreams[i].name;
          !called.empty() && called != "files" && !used_.contains(called))
        out_.warning(root_.row("upstream", i).place("name"), "no route sends to upstream " + in_quotes(called));
  }

  // --- values
  void name(const std::string& text, Place place, std::string_view key) {
    if (!is_name(text))
      out_.error(place, "`" + std::string(key) + "` is " + in_quotes(text.substr(0, 80)) +
                            "; it must be 1 to 64 letters, digits, '.', '_' or '-', first a letter or digit");
  }
  void unique(std::map<std::string, Place>& names, const std::string& text, Place place, std::string_view what) {
    const auto [it, fresh] = names.emplace(text, place);
    if (!fresh && !text.empty())
      out_.error(place, "a second " + std::string(what) + " " + in_quotes(text),
                 "the first is at line " + std::to_string(it->second.line));
  }
  void absolute(std::string& path, Place place, std::string_view key) {
    if (path.empty()) {
      if (place.line && root_.table->find(key.substr(0, key.find('.'))) && is_empty_string(key))
        out_.error(place, "`" + std::string(key) + "` is empty");
      return;
    }
    if (path[0] != '/' || path.find('\0') != path.npos || path.size() > kFolderMax)
      out_.error(place, "`" + std::string(key) + "` must be an absolute path");
    else
      path = plain(path);
  }
  /// Without "//", "/./", "/../" and a slash at the end, so that paths can be compared.
  static std::string plain(const std::string& path) {
    std::vector<std::string_view> names;
    for (size_t at = 0; at < path.size();) {
      const size_t end = std::min(path.find('/', at), path.size());
      const std::string_view name = std::string_view(path).substr(at, end - at);
      at = end + 1;
      if (name.empty() || name == ".") continue;
      if (name != "..")
        names.push_back(name);
      else if (!names.empty())
        names.pop_back();
    }
    std::string out;
    for (const std::string_view name : names) out.append("/").append(name);
    return out.empty() ? "/" : out;
  }
  bool is_empty_string(std::string_view key) {
    const Value* v = root_.inner(key.substr(0, key.find('.'))).value(key.substr(key.find('.') + 1));
    return v && v->is(Value::Kind::string) && v->text.empty();
  }
  static bool overlaps(const std::string& one, const std::string& other) {
    if (!one.starts_with('/') || !other.starts_with('/')) return false;  // not given, or told already
    const std::string a = plain(one), b = plain(other);
    if (a == "/" || b == "/") return true;
    return (a + "/").starts_with(b + "/") || (b + "/").starts_with(a + "/");
  }
  /// Both absolute.
  static bool within(const std::string& inner, const std::string& outer) {
    const std::string top = plain(outer);
    return top == "/" || (plain(inner) + "/").starts_with(top + "/");
  }
  /// The folder that the node keeps state in which `dir` is or lies in; empty if there is none.
  std::string part_of_state(const std::string& dir) const {
    for (const char* name : {"store", "spool", "staged", "files", "dead-letters"})
      if (const std::string own = s_.node.data_dir + "/" + name; overlaps(dir, own) && within(dir, own)) return own;
    return "";
  }
  void mask(const std::string& text, Place place, std::string_view key) {
    std::string sample = text;
    std::replace(sample.begin(), sample.end(), '*', 'x');
    if (auto fault = event::category_fault(sample); !fault.empty())
      out_.error(place, "`" + std::string(key) + "`: " + in_quotes(text.substr(0, 80)) +
                            " can match no category: " + std::string(fault));
  }
  std::optional<HostPort> endpoint(const std::string& text, Place place, std::string_view key, bool to_listen) {
    auto parsed = parse_host_port(text, to_listen);
    if (!parsed) {
      out_.error(place, "`" + std::string(key) + "`: " + parsed.error());
      return std::nullopt;
    }
    if (to_listen && parsed->port != 0) bound(*parsed, place);
    return *parsed;
  }
  /// The system lets one listen at a port of an address, and nobody beside him who listens at all addresses.
  void bound(const HostPort& at, Place place) {
    for (const auto& [other, where] : bound_) {
      if (!at.excludes(other)) continue;
      const bool same = at == other;
      out_.error(place,
                 std::string(same ? "a second listener at " : "this cannot listen beside ") +
                     in_quotes(other.host + ":" + std::to_string(other.port)),
                 (same ? "the first is at line " : "which is at line ") + std::to_string(where.line) +
                     (same ? "" : ": one of them is for all addresses, with the port of the other"));
      break;
    }
    bound_.emplace_back(at, place);
  }
  /// For a protocol without TLS: beyond loopback only by explicit choice.
  void plain_only(bool insecure, const std::vector<std::string>& addresses, Place place, std::string_view key) {
    for (const std::string& text : addresses) {
      const auto parsed = parse_host_port(text, true);
      if (insecure || !parsed || parsed->is_loopback()) continue;
      out_.error(place,
                 "`" + std::string(key) + "`: LSD's protocol would be used at " + in_quotes(text) + " without TLS",
                 "it has none; write `insecure_plain = true` here if that is meant");
      return;
    }
  }
  /// TLS by default where there are certificates; plain beyond loopback only by explicit choice.
  void transport(std::optional<bool>& tls, bool insecure, const std::vector<std::string>& addresses, const At& at,
                 std::string_view key, std::string_view table) {
    const bool asked = tls.value_or(false);
    if (asked && !s_.tls) out_.error(at.place("tls"), "`tls = true` needs a [tls] table with ca, cert and key");
    if (!tls) tls = root_.has("tls");
    if (*tls || insecure) return;
    for (const std::string& text : addresses) {
      const auto parsed = parse_host_port(text, true);
      if (!parsed || parsed->is_loopback()) continue;
      out_.error(at.place(key), std::string(table) + ": " + in_quotes(text) + " would be used without TLS",
                 "add a [tls] table, or `insecure_plain = true` here if that is meant");
      return;
    }
  }

  const At root_;
  Settings& s_;
  const std::string& hostname_;
  Diagnostics& out_;
  std::map<std::string, Place> route_names_;
  std::vector<std::pair<HostPort, Place>> bound_;
  std::set<std::string> used_;
};

}  // namespace

void check_settings(const Value& root, Settings& settings, const std::string& hostname, Diagnostics& out) {
  Check(root, settings, hostname, out).run();
}

}  // namespace ph::settings
