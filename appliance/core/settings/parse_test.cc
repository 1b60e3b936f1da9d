#include "core/settings/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/settings/schema.h"

namespace ph::settings {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> lines(const Outcome& outcome) {
  std::vector<std::string> out;
  for (const Diagnostic& d : outcome.diagnostics) out.push_back(d.to_string("f"));
  return out;
}
std::vector<std::string> complaints(std::string_view text) {
  return lines(parse(text, "host"));
}
Settings good(std::string_view text) {
  Outcome outcome = parse(text, "host");
  EXPECT_TRUE(outcome.settings) << outcome.to_string("f");
  return outcome.settings.value_or(Settings{});
}

constexpr std::string_view kShape = R"(
[node]
name = "gw-17"
site = "ams"
data_dir = "/var/lib/posthouse"

[agent]
dir = "/var/spool/posthouse"
line_max = "1MiB"

[receiver]
link = "0.0.0.0:3706"
dir  = "/var/lib/posthouse/events"
[[receiver.category]]
match = ["error_log"]
mode  = "plain"

[[upstream]]
name = "fra"
addresses = ["fra-1:3706", { address = "fra-2:3706", weight = 2 }]
protocol = "link"
balance  = "round_robin"
window   = "16MiB"

[[route]]
name = "payments"
categories = ["payments_*"]
topics = ["pos/+/payment"]
to = ["fra", "files", { mqtt = "events/{category}" }]
ack = "local"
spool = { max = "20GiB", full = "block" }

[[route]]
name = "rest"
to = ["fra"]

[[listener]]
bind = "127.0.0.1:1883"

[tls]
ca = "/etc/posthouse/ca.crt"
cert = "/etc/posthouse/node.crt"
key = "/etc/posthouse/node.key"
)";

TEST(Parse, reads_the_whole_shape) {
  const Settings s = good(kShape);
  EXPECT_EQ(s.node.name, "gw-17");
  ASSERT_TRUE(s.agent && s.receiver && s.tls);
  EXPECT_EQ(s.agent->line_max, 1_MiB);
  EXPECT_EQ(s.receiver->tls, true);
  ASSERT_EQ(s.receiver->categories.size(), 1u);
  EXPECT_EQ(s.receiver->categories[0].mode, FileMode::plain);
  ASSERT_EQ(s.upstreams.size(), 1u);
  ASSERT_EQ(s.upstreams[0].addresses.size(), 2u);
  EXPECT_EQ(s.upstreams[0].addresses[0].weight, 1u);
  EXPECT_EQ(s.upstreams[0].addresses[1].address, "fra-2:3706");
  EXPECT_EQ(s.upstreams[0].addresses[1].weight, 2u);
  ASSERT_EQ(s.routes.size(), 2u);
  EXPECT_EQ(s.routes[0].to[2].name(), "mqtt:events/{category}");
  EXPECT_EQ(s.routes[0].spool.max, 20_GiB);
  EXPECT_EQ(s.routes[0].category, "payments");
  EXPECT_TRUE(s.routes[1].is_default());
  EXPECT_EQ(s.listeners[0].allow_anonymous, true);
}

TEST(Parse, an_empty_file_is_a_node_with_defaults) {
  const Settings s = good("");
  EXPECT_EQ(s.node.name, "host");
  EXPECT_EQ(s.node.site, "host");
  EXPECT_EQ(s.node.data_dir, "/var/lib/posthouse");
  EXPECT_FALSE(s.agent || s.receiver || s.tls);
}

// Case A1.
TEST(Parse, reports_everything_in_one_run_with_places_and_suggestions) {
  const auto got = complaints(R"([node]
name = "gw-17"
disk_cach_size = "1GB"
line_max = "1MiB"
name = "gw-18"
[broker]
inflight_max = "10"
packet_max = "10 megs"
)");
  EXPECT_THAT(
      got, ElementsAre(AllOf(HasSubstr("f:3:1: error: unknown key `disk_cach_size` in [node]"),
                             HasSubstr("known there: name, site, data_dir")),
                       "f:4:1: error: `line_max` does not belong in [node]; it belongs in [agent]",
                       "f:5:1: error: key `name` is there twice; the first is at line 2",
                       "f:7:16: error: `inflight_max` must be an integer, not a string; write 10 without quotes",
                       AllOf(HasSubstr("f:8:14: error: `packet_max`: unknown unit \"megs\""), HasSubstr("KiB, MiB"))));
  const Checked checked = config_check("[node]\nname = 1\n", "x.toml", "host");
  EXPECT_EQ(checked.exit_code, 2);
  EXPECT_THAT(checked.text, HasSubstr("x.toml:2:8: error: `name` must be a string, not an integer"));
  EXPECT_EQ(config_check("", "x.toml", "host").exit_code, 0);
}

TEST(Parse, suggests_the_nearest_key_and_table) {
  EXPECT_THAT(complaints("[broker]\ninflight_mx = 3\n"), ElementsAre(HasSubstr("did you mean `inflight_max`?")));
  EXPECT_THAT(
      complaints("[brokr]\n"),
      ElementsAre(HasSubstr("f:1:2: error: unknown key `brokr` in the file's top level; did you mean `broker`?")));
  EXPECT_THAT(complaints("inflight_mx = 3\n"),
              ElementsAre(HasSubstr("did you mean `inflight_max`, which belongs in [broker]?")));
  EXPECT_THAT(complaints("[[category]]\n"),
              ElementsAre(HasSubstr("it belongs in [[agent.category]] or [[receiver.category]]")));
  EXPECT_THAT(complaints("[[node]]\n"), ElementsAre(HasSubstr("there is only one: write [node]")));
  EXPECT_THAT(complaints("[upstream]\nname = \"a\"\n"), ElementsAre(HasSubstr("write [[upstream]]")));
}

TEST(Parse, goes_on_behind_syntax_errors) {
  const auto got = complaints(R"([node
name = "a
site = = "b"
data_dir = "/x"
[broker]
workers = 1 2
inflight_max = [1,
client_id_max = 22
[broker]
topic_alias_max = "x"
)");
  ASSERT_EQ(got.size(), 8u) << testing::PrintToString(got);
  EXPECT_THAT(got[0], HasSubstr("f:1:6: error: this table header cannot be read"));
  EXPECT_THAT(got[1], HasSubstr("f:2:"));
  EXPECT_THAT(got[2], HasSubstr("f:3:"));
  EXPECT_THAT(got[3], HasSubstr("f:6:"));
  EXPECT_THAT(got[4], HasSubstr("f:8:"));
  EXPECT_THAT(got[5], HasSubstr("f:8:17: error: `client_id_max` is 22, outside of 23 .. 65535"));
  EXPECT_THAT(got[6], HasSubstr("f:9:2: error: table [broker] is there twice; the first is at line 5"));
  EXPECT_THAT(got[7], HasSubstr("f:10:19: error: `topic_alias_max` must be an integer"));
}

TEST(Parse, units_are_asked_for_and_named) {
  EXPECT_EQ(good("[broker]\npacket_max = \"1MB\"\n").broker.packet_max, Bytes{1'000'000});
  EXPECT_EQ(good("[broker]\npacket_max = \"1MiB\"\n").broker.packet_max, 1_MiB);
  EXPECT_THAT(complaints("[broker]\npacket_max = 10\n"),
              ElementsAre(AllOf(HasSubstr("needs a unit"), HasSubstr("\"10MiB\""))));
  EXPECT_THAT(complaints("[broker]\nconnect_timeout = 10\n"), ElementsAre(HasSubstr("write \"10s\"")));
  EXPECT_THAT(complaints("[broker]\npacket_max = \"10mib\"\n"), ElementsAre(HasSubstr("did you mean \"MiB\"?")));
  EXPECT_THAT(complaints("[broker]\npacket_max = \"1.5MiB\"\n"), ElementsAre(HasSubstr("not a whole number")));
  EXPECT_THAT(complaints("[broker]\npacket_max = \"999999999TiB\"\n"), ElementsAre(HasSubstr("too great")));
  EXPECT_THAT(complaints("[broker]\npacket_max = \"1B\"\n"), ElementsAre(HasSubstr("outside of 1KiB .. 256MiB")));
}

TEST(Parse, what_is_not_built_is_said_to_be_not_supported) {
  const auto got = complaints(R"([receiver]
dir = "/e"
[[receiver.category]]
match = ["a"]
chunk_max = "1MiB"
[[upstream]]
name = "u"
addresses = ["127.0.0.1:1"]
balance = { hash = { prefix = ":" } }
rate = "8MiB/s"
connections = 4
dedup = "strict"
[[route]]
name = "r"
to = ["u"]
ack = "far"
spool = { keep = "7d", full = "drop_oldest" }
)");
  std::vector<std::string> unsupported;
  for (const auto& line : got)
    if (line.find("not supported in this version") != line.npos) unsupported.push_back(line);
  EXPECT_THAT(unsupported, testing::IsEmpty());
  EXPECT_THAT(got, testing::Contains(HasSubstr("f:16:7: error: `ack = \"far\"` and `spool.full")));
}

TEST(Parse, what_is_for_strict_alone_is_told_of_elsewhere) {
  const std::string rest = "[[route]]\nname = \"r\"\nto = [\"u\"]\n";
  const std::string head = "[[upstream]]\nname = \"u\"\naddresses = [\"127.0.0.1:1\"]\nstrict_give_up = \"1h\"\n";
  EXPECT_THAT(complaints(head + rest), ElementsAre(HasSubstr("f:4:18: warning: `strict_give_up` is for `dedup")));
  EXPECT_THAT(complaints(head + "dedup = \"strict\"\n" + rest), testing::IsEmpty());
  EXPECT_THAT(complaints(head + "protocol = \"lsd\"\n" + rest),
              ElementsAre(HasSubstr("f:4:18: error: `upstream.strict_give_up` is for `protocol = \"link\"` alone")));
}

TEST(Parse, lsd_has_no_tls_and_several_connections) {
  const std::string rest = "[[route]]\nname = \"r\"\nto = [\"u\"]\n";
  const std::string head = "[[upstream]]\nname = \"u\"\nprotocol = \"lsd\"\n";
  const std::string tls = "[tls]\nca = \"/c\"\ncert = \"/c\"\nkey = \"/k\"\n";
  const Settings lsd = good(tls + "[receiver]\nlsd = \"127.0.0.1:3701\"\n" + head +
                            "addresses = [\"127.0.0.1:1\"]\ncompress = \"gzip\"\n" + rest);
  EXPECT_EQ(lsd.upstreams[0].tls, false) << "also where there are certificates";
  EXPECT_EQ(lsd.upstreams[0].connections, 4u);
  EXPECT_EQ(lsd.upstreams[0].compress, LinkCompress::gzip);
  EXPECT_EQ(lsd.receiver->lsd, "127.0.0.1:3701");
  EXPECT_EQ(good(head + "addresses = [\"127.0.0.1:1\"]\nconnections = 1\n" + rest).upstreams[0].connections, 1u);
  EXPECT_THAT(complaints(head + "addresses = [\"far:1\"]\n" + rest),
              ElementsAre(HasSubstr("f:4:13: error: `upstream.addresses`: LSD's protocol would be used at \"far:1\"")));
  EXPECT_THAT(complaints(head + "addresses = [\"127.0.0.1:1\"]\ntls = true\nserver_name = \"x\"\n" + rest),
              ElementsAre(HasSubstr("f:5:7: error: `tls = true` with `protocol = \"lsd\"`"),
                          HasSubstr("f:6:15: error: `upstream.server_name` is for `protocol = \"link\"` alone")));
  EXPECT_THAT(
      complaints("[receiver]\nlsd = \"0.0.0.0:3701\"\ndir = \"/e\"\n[[route]]\nname = \"r\"\nto = [\"files\"]\n"),
      ElementsAre(HasSubstr("f:2:7: error: `receiver.lsd`: LSD's protocol would be used at \"0.0.0.0:3701\"")));
  EXPECT_THAT(
      complaints("[[upstream]]\nname = \"u\"\naddresses = [\"127.0.0.1:1\"]\ncompress = \"gzip\"\n" + rest),
      ElementsAre(HasSubstr("f:4:12: error: `upstream.compress = \"gzip\"` is for `protocol = \"lsd\"` alone")));
}

TEST(Parse, topics_of_clients_are_configured_in_tables_of_the_broker) {
  const Settings got = good(R"(
[node]
name = "n"
[[listener]]
bind = "127.0.0.1:1883"
mountpoint = "tenants/%c/"
[broker]
shared_strategy = "hash_topic"
overlapping = "each"
qos_max = 1
sys_interval = "0s"
[[broker.rewrite]]
from = "old/+/#"
to = "new/{2}/{1}"
on = "publish"
[[broker.auto_subscribe]]
filter = "inbox/%c"
qos = 1
retain_handling = 2
)");
  const Broker& b = got.broker;
  ASSERT_EQ(got.listeners.size(), 1u);
  EXPECT_EQ(got.listeners[0].mountpoint, "tenants/%c/");
  EXPECT_EQ(b.shared_strategy, SharedStrategy::hash_topic);
  EXPECT_EQ(b.overlapping, Overlapping::each);
  EXPECT_EQ(b.qos_max, 1u);
  EXPECT_EQ(b.sys_interval, Duration::zero());
  ASSERT_EQ(b.rewrites.size(), 1u);
  EXPECT_EQ(b.rewrites[0].on, Rewrite::On::publish);
  EXPECT_EQ(b.rewrites[0].to, "new/{2}/{1}");
  ASSERT_EQ(b.auto_subscriptions.size(), 1u);
  EXPECT_EQ(b.auto_subscriptions[0].retain_handling, 2u);
}

TEST(Parse, topics_of_clients_that_cannot_work_are_refused) {
  const auto got = complaints(R"(
[[listener]]
bind = "127.0.0.1:1883"
mountpoint = "a/+/"
[[broker.rewrite]]
from = "a/#/b"
to = "x"
[[broker.rewrite]]
from = "a"
[[broker.auto_subscribe]]
filter = "$exclusive/x"
qos = 3
)");
  EXPECT_THAT(got, ElementsAre(HasSubstr("f:4:14: error: \"a/+/\" cannot stand in front of topics"),
                               HasSubstr("f:6:8: error: `from` is no topic filter"), HasSubstr("f:8:1: error: "),
                               HasSubstr("f:11:10: error: `filter` is no topic filter"), HasSubstr("f:12:7: error: ")));
}

TEST(Parse, a_mountpoint_gives_each_name_topics_of_its_own) {
  const auto of = [](const std::string& mountpoint) {
    return complaints("[[listener]]\nbind = \"127.0.0.1:1883\"\nmountpoint = \"" + mountpoint + "\"\n");
  };
  for (const char* good : {"a", "a/", "%u/", "t/%u/%c/", "t-%u/x", "%u.x/y/%c-z/", "100%/"})
    EXPECT_THAT(of(good), IsEmpty()) << good;
  for (const char* bad : {"%u", "t/%c", "t/x-%u-y"})
    EXPECT_THAT(of(bad), ElementsAre(HasSubstr("f:3:14: error: `mountpoint` ends with a name"))) << bad;
  for (const char* bad : {"%u%c/", "a/%u-%c/", "%c.%c/"})
    EXPECT_THAT(of(bad), ElementsAre(HasSubstr("f:3:14: error: `mountpoint` has two names in one level"))) << bad;
}

TEST(Parse, addresses_that_exclude_each_other_are_told_of_all_at_once) {
  const auto of = [](const std::vector<std::string>& binds) {
    std::string text;
    for (const auto& b : binds) text += "[[listener]]\nbind = \"" + b + "\"\n";
    return complaints(text);
  };
  const std::vector<std::vector<std::string>> fine = {{"127.0.0.1:1", "0.0.0.0:2"}, {"127.0.0.1:1", "127.0.0.2:1"},
                                                      {"127.0.0.1:1", "[::1]:1"},   {"0.0.0.0:1", "[fe80::1]:1"},
                                                      {"127.0.0.1:0", "0.0.0.0:0"}, {"0.0.0.0:1", "localhost:1"}};
  for (const auto& binds : fine) EXPECT_THAT(of(binds), IsEmpty()) << binds[0] << " " << binds[1];
  const std::vector<std::vector<std::string>> bad = {
      {"127.0.0.1:1", "0.0.0.0:1"}, {"0.0.0.0:1", "127.0.0.1:1"},
      {"[::]:1", "10.0.0.1:1"},     {"*:1", "[::1]:1"},
      {"*:1", "0.0.0.0:1"},         {"[::]:1", "localhost:1"},
      {"[::1]:1", "[0:0:0::1]:1"},  {"127.0.0.1:1", "[::ffff:127.0.0.1]:1"}};
  for (const auto& binds : bad)
    EXPECT_THAT(of(binds), ElementsAre(HasSubstr("f:4:8: error: "))) << binds[0] << " " << binds[1];
  EXPECT_THAT(of({"*:1", "127.0.0.1:1", "*:2", "127.0.0.1:2"}),
              ElementsAre(HasSubstr("f:4:8: error: this cannot listen beside \":1\"; which is at line 2"),
                          HasSubstr("f:8:8: error: this cannot listen beside \":2\"; which is at line 6")));
  EXPECT_THAT(
      complaints(
          "[[listener]]\nbind = \"127.0.0.1:1\"\n[receiver]\nlink = \"*:1\"\ninsecure_plain = true\n[[route]]\nname = "
          "\"r\"\nto = [\"files\"]\n"),
      testing::Contains(HasSubstr("error: this cannot listen beside")));
}

TEST(Parse, the_socket_of_the_api_is_no_folder) {
  EXPECT_THAT(complaints("[node]\ndata_dir = \"/a/b\"\n[api]\nsocket = \"/a/b\"\n"),
              ElementsAre(HasSubstr("f:4:10: error: `api.socket` is where the folder node.data_dir is")));
  EXPECT_THAT(complaints("[node]\ndata_dir = \"/a/b/c\"\n[api]\nsocket = \"/a/b\"\n"),
              ElementsAre(HasSubstr("f:4:10: error: ")));
  EXPECT_THAT(complaints("[node]\ndata_dir = \"/a/b\"\n[api]\nsocket = \"/a/b/api.sock\"\n"), IsEmpty());
}

TEST(Parse, a_default_route_is_needed_as_soon_as_events_come_in) {
  EXPECT_THAT(complaints("[agent]\ndir = \"/s\"\n"),
              ElementsAre(HasSubstr("f:1:1: error: [agent] needs a default route")));
  EXPECT_THAT(complaints("[receiver]\nlink = \"127.0.0.1:1\"\n"),
              ElementsAre(HasSubstr("[receiver] needs a default route")));
  EXPECT_THAT(complaints("[receiver]\ndir = \"/e\"\n"), IsEmpty());
  EXPECT_THAT(complaints("[agent]\ndir = \"/s\"\n[receiver]\ndir = \"/e\"\n[[route]]\nname = \"a\"\nto = [\"files\"]\n"
                         "[[route]]\nname = \"b\"\nto = [\"files\"]\n"),
              ElementsAre(HasSubstr(
                  "f:9:8: error: a second default route (no categories, no topics); the first is at line 6")));
}

TEST(Parse, masks_that_tie_are_an_error_with_a_category_that_shows_it) {
  const auto got = complaints(R"([receiver]
dir = "/e"
[[route]]
name = "a"
categories = ["pay_*", "x", "*_ams"]
to = ["files"]
[[route]]
name = "b"
categories = ["pay_*_eu", "x", "*_fra", "pa*"]
to = ["files"]
)");
  EXPECT_THAT(got, ElementsAre(AllOf(HasSubstr("f:9:15: error: mask ties with \"pay_*\" of route \"a\" at line 5"),
                                     HasSubstr("\"pay__eu\"")),
                               HasSubstr("f:9:27: error: mask ties with \"x\"")));
}

TEST(Parse, targets_must_exist) {
  const auto got = complaints(R"([[upstream]]
name = "fra"
addresses = ["127.0.0.1:1"]
[[upstream]]
name = "fra"
addresses = []
[[upstream]]
name = "files"
addresses = ["127.0.0.1:1", "localhost:2", "nonsense", "[::1]:3", "::1:4"]
[[route]]
name = "r"
categories = ["c", "a/b", ""]
topics = ["$share/g/x", "a/#/b", "ok/+"]
to = ["fro", "files", "fra", "fra", { mqtt = "x/{tpic}" }, { mqtt = "a/#" }, { topic = "x" }]
)");
  EXPECT_THAT(
      got, ElementsAre(HasSubstr("f:5:8: error: a second upstream \"fra\"; the first is at line 2"),
                       HasSubstr("f:6:13: error: `addresses` is empty"),
                       HasSubstr("f:8:8: error: an upstream cannot be named \"files\""),
                       HasSubstr("f:9:44: error: `upstream.addresses`: \"nonsense\" has no port"),
                       HasSubstr("f:9:67: error: `upstream.addresses`: \"::1:4\": write an IPv6 address in brackets"),
                       HasSubstr("f:12:20: error: `route.categories`: \"a/b\" can match no category"),
                       HasSubstr("f:12:27: error: `route.categories`: \"\" can match no category"),
                       HasSubstr("f:13:10: warning: this route takes MQTT topics"),
                       HasSubstr("f:13:11: error: `topics` cannot have the shared filter"),
                       HasSubstr("f:13:25: error: \"a/#/b\" is not an MQTT topic filter"),
                       HasSubstr("f:14:7: error: there is no upstream \"fro\"; did you mean \"fra\"?"),
                       HasSubstr("f:14:14: error: target \"files\" has no directory; set `dir` in [receiver]"),
                       HasSubstr("f:14:30: error: target \"fra\" is there twice"),
                       HasSubstr("f:14:37: error: \"{tpic}\" is no part of a topic template"),
                       HasSubstr("f:14:60: error: \"a/#\" does not make a topic"),
                       HasSubstr("f:14:60: warning: this route publishes to MQTT"),
                       HasSubstr("f:14:78: error: a target is an upstream's name")));
}

TEST(Parse, a_route_that_is_asked_for_leads_topics_to_one_upstream) {
  const std::string rest =
      "[[listener]]\nbind = \"127.0.0.1:1883\"\n[[upstream]]\nname = \"u\"\naddresses = "
      "[\"127.0.0.1:1\"]\n[[upstream]]\n"
      "name = \"v\"\naddresses = [\"127.0.0.1:2\"]\n";
  const auto route = [&](const std::string& keys) {
    return rest + "[[route]]\nname = \"r\"\nwhen = \"subscribed\"\n" + keys +
           "[[route]]\nname = \"s\"\nto = [\"u\", \"v\"]\n";
  };
  EXPECT_EQ(good(route("topics = [\"#\"]\nto = [\"u\"]\n")).routes[0].when, When::subscribed);
  EXPECT_EQ(good(route("topics = [\"#\"]\nto = [\"u\"]\n")).routes[1].when, When::always);
  EXPECT_THAT(complaints(route("topics = [\"#\"]\nto = [\"u\", \"v\"]\n")),
              ElementsAre(HasSubstr("f:11:8: error: `when = \"subscribed\"` needs exactly one upstream in `to`")));
  EXPECT_THAT(complaints(route("topics = [\"#\"]\nto = [{ mqtt = \"{topic}\" }]\n")),
              ElementsAre(HasSubstr("needs exactly one upstream")));
  EXPECT_THAT(complaints(route("topics = [\"#\"]\ncategories = [\"c\"]\nto = [\"u\"]\n")),
              ElementsAre(HasSubstr("is for routes with `topics` and no `categories`")));
}

TEST(Parse, how_an_agents_files_are_read_is_said_by_category) {
  const std::string head = "[agent]\ndir = \"/a\"\ninclude = [\"*.log\"]\nexclude = [\"x*\"]\nmode = \"tail\"\n";
  const std::string tail =
      "[[upstream]]\nname = \"u\"\naddresses = [\"127.0.0.1:1\"]\n[[route]]\nname = \"r\"\nto = [\"u\"]\n";
  const Settings s =
      good(head + "[[agent.category]]\nmatch = [\"app_*\"]\nmode = \"spool\"\nmultiline_start = '\\d '\n" +
           "multiline_lines = 7\nmultiline_bytes = \"2KiB\"\nmultiline_timeout = \"3s\"\n" + tail);
  EXPECT_EQ(s.agent->mode, AgentMode::tail);
  EXPECT_THAT(s.agent->include, ElementsAre("*.log"));
  EXPECT_THAT(s.agent->exclude, ElementsAre("x*"));
  ASSERT_EQ(s.agent->categories.size(), 1u);
  const AgentCategory& c = s.agent->categories.front();
  EXPECT_EQ(c.mode, AgentMode::spool);
  EXPECT_EQ(c.multiline_start, "\\d ");
  EXPECT_EQ(c.multiline_lines, 7u);
  EXPECT_EQ(c.multiline_bytes.value, 2048u);
  EXPECT_EQ(c.multiline_timeout, 3s);
  EXPECT_THAT(
      complaints(head + "[[agent.category]]\nmatch = [\"a/b\"]\nmultiline_start = '(a)\\1'\n[[agent.category]]\n" +
                 "match = [\"*\"]\nmultiline_lines = 3\n[[agent.category]]\nmatch = [\"*\"]\nmultiline_start = '.*'\n" +
                 tail),
      ElementsAre(HasSubstr("f:7:10: error: `agent.category.match`: \"a/b\" can match no category"),
                  HasSubstr("f:8:19: error: `agent.category.multiline_start` is no regular expression"),
                  HasSubstr("f:11:19: error: `multiline_lines` needs `multiline_start`"),
                  HasSubstr("f:14:19: error: `agent.category.multiline_start` is no regular expression: it "
                            "matches every line")));
}

TEST(Parse, a_rate_by_the_hour_of_the_day) {
  auto with = [](std::string rate) {
    return "[[upstream]]\nname = \"fra\"\naddresses = [\"127.0.0.1:1\"]\nrate = " + rate +
           "\n[[route]]\nname = \"r\"\nto = [\"fra\"]\n[agent]\ndir = \"/a\"\n";
  };
  Settings s = good(with("\"8MiB/s\""));
  EXPECT_EQ(s.upstreams[0].rate.at(0), 8u << 20);
  s =
      good(with("{ \"08:00-18:00\" = \"1MiB/s\", \"22:00-06:00\" = \"unlimited\", \"18:00-20:00\" = \"off\", default = "
                "\"2MiB/s\" }"));
  const RateSchedule& rate = s.upstreams[0].rate;
  EXPECT_EQ(rate.at(8 * 60), 1u << 20);
  EXPECT_EQ(rate.at(18 * 60 - 1), 1u << 20);
  EXPECT_EQ(rate.at(18 * 60), 0u);
  EXPECT_EQ(rate.at(21 * 60), 2u << 20);
  EXPECT_EQ(rate.at(23 * 60), std::nullopt);
  EXPECT_EQ(rate.at(0), std::nullopt);
  EXPECT_EQ(rate.at(6 * 60), 2u << 20);
  EXPECT_THAT(complaints(with("{ \"8-18\" = \"1MiB/s\" }")), ElementsAre(HasSubstr("has no hours `8-18`")));
  EXPECT_THAT(complaints(with("{ \"08:00-18:00\" = \"1MiB/s\", \"17:00-19:00\" = \"off\" }")),
              ElementsAre(HasSubstr("two things for the same hours")));
  for (const char* zero : {"\"0B/s\"", "{ \"08:00-18:00\" = \"0MiB/s\" }", "{ default = \"0B/s\" }"})
    EXPECT_THAT(complaints(with(zero)), ElementsAre(HasSubstr("`rate` is 0; write \"off\" to send nothing")));
}

TEST(Parse, a_hash_is_checked_where_it_is_configured) {
  auto with = [](std::string hash) {
    return "[[upstream]]\nname = \"fra\"\naddresses = [\"127.0.0.1:1\"]\nbalance = { hash = " + hash +
           " }\n[[route]]\nname = \"r\"\nto = [\"fra\"]\n[agent]\ndir = \"/a\"\n";
  };
  EXPECT_EQ(good(with("{ regex = \"user_id=(\\\\d+)\" }")).upstreams[0].balance.text, "user_id=(\\d+)");
  EXPECT_EQ(good(with("{ topic_level = 2 }")).upstreams[0].balance.level, 2u);
  EXPECT_THAT(complaints(with("{ regex = \"(\" }")), ElementsAre(HasSubstr("the regular expression is wrong")));
  EXPECT_THAT(complaints(with("{ prefix = \"\" }")), ElementsAre(HasSubstr("cannot be empty")));
}

TEST(Parse, plain_connections_beyond_loopback_need_a_word) {
  const std::string upstream = "[[upstream]]\nname = \"u\"\naddresses = [\"127.0.0.1:1\", \"fra:2\"]\n";
  const std::string route = "[[route]]\nname = \"r\"\nto = [\"u\"]\n";
  EXPECT_THAT(complaints(upstream + route),
              ElementsAre(HasSubstr("f:3:13: error: upstream: \"fra:2\" would be used without TLS")));
  EXPECT_EQ(good(upstream + "insecure_plain = true\n" + route).upstreams[0].tls, false);
  EXPECT_THAT(complaints(upstream + "tls = true\n" + route), ElementsAre(HasSubstr("needs a [tls] table")));
  EXPECT_THAT(complaints("[receiver]\nlink = \"[::]:1\"\n" + upstream + "insecure_plain = true\n" + route),
              ElementsAre(HasSubstr("f:2:8: error: receiver: \"[::]:1\" would be used without TLS")));
  EXPECT_THAT(complaints("[receiver]\nlink = \"127.example.com:1\"\n" + upstream + "insecure_plain = true\n" + route),
              ElementsAre(HasSubstr("would be used without TLS")));
}

TEST(Parse, anonymous_clients_are_let_in_on_loopback_only_by_default) {
  const Settings s = good("[[listener]]\nbind = \"[::1]:1883\"\n[[listener]]\nbind = \":1884\"\n");
  EXPECT_EQ(s.listeners[0].allow_anonymous, true);
  EXPECT_EQ(s.listeners[1].allow_anonymous, false);
  EXPECT_THAT(complaints("[[listener]]\nbind = \":1\"\n[[listener]]\nbind = \"*:1\"\n"),
              ElementsAre(HasSubstr("a second listener")));
}

TEST(Parse, a_listener_may_be_a_websocket_behind_a_balancer) {
  const Settings s = good(
      "[tls]\nca = \"/a\"\ncert = \"/b\"\nkey = \"/c\"\ncrl = \"/d\"\n"
      "[[listener]]\nbind = \"127.0.0.1:8083\"\nprotocol = \"ws\"\n"
      "[[listener]]\nbind = \"127.0.0.1:8084\"\nprotocol = \"ws\"\npath = \"/x/y\"\ntls = true\n"
      "client_certificate = \"required\"\nproxy_protocol = true\n");
  EXPECT_EQ(s.tls->crl, "/d");
  EXPECT_EQ(s.listeners[0].protocol, ListenerProtocol::ws);
  EXPECT_EQ(s.listeners[0].path, "/mqtt");
  EXPECT_EQ(s.listeners[0].client_certificate, ClientCertificate::optional);
  EXPECT_EQ(s.listeners[0].allow_anonymous, true);
  EXPECT_EQ(s.listeners[1].path, "/x/y");
  EXPECT_EQ(s.listeners[1].client_certificate, ClientCertificate::required);
  EXPECT_TRUE(s.listeners[1].proxy_protocol);
  EXPECT_EQ(s.listeners[1].allow_anonymous, false) << "its clients come from anywhere";
  EXPECT_THAT(complaints("[[listener]]\nbind = \":1\"\npath = \"/x\"\n"),
              ElementsAre(HasSubstr("`path` is for listeners with")));
  EXPECT_THAT(complaints("[[listener]]\nbind = \":1\"\nprotocol = \"ws\"\npath = \"mqtt\"\n"),
              ElementsAre(AllOf(HasSubstr("f:4:8"), HasSubstr("must be like \"/mqtt\""))));
  EXPECT_THAT(complaints("[[listener]]\nbind = \":1\"\nclient_certificate = \"required\"\n"),
              ElementsAre(HasSubstr("needs `tls = true`")));
}

TEST(Parse, the_agent_never_reads_what_the_node_writes) {
  const std::string route = "[[route]]\nname = \"r\"\nto = [\"files\"]\n";
  EXPECT_THAT(complaints("[agent]\ndir = \"/a/\"\n[receiver]\ndir = \"/a/b\"\n" + route),
              ElementsAre(HasSubstr("f:2:7: error: agent.dir and receiver.dir overlap")));
  EXPECT_THAT(complaints("[agent]\ndir = \"/var\"\n[receiver]\ndir = \"/a/b\"\n" + route),
              ElementsAre(HasSubstr("agent.dir holds node.data_dir")));
  EXPECT_THAT(complaints("[agent]\ndir = \"a\"\n[receiver]\ndir = \"/a/b\"\n" + route),
              ElementsAre(HasSubstr("must be an absolute path")));
  // However it is written.
  for (const char* dir : {"/", "//", "/a//b/.", "/a/./c/../b", "/a/b/../../a/b/", "/x/.."})
    EXPECT_THAT(complaints("[node]\ndata_dir = \"/d/\"\n[agent]\ndir = \"" + std::string(dir) +
                           "\"\n[receiver]\ndir = \"/a//b\"\n" + route),
                testing::Contains(HasSubstr("agent.dir and receiver.dir overlap")))
        << dir;
  EXPECT_THAT(complaints("[node]\ndata_dir = \"/d/./e\"\n[agent]\ndir = \"/d//\"\n[receiver]\ndir = \"/a\"\n" + route),
              ElementsAre(HasSubstr("agent.dir holds node.data_dir")));
}

TEST(Parse, no_folder_of_events_is_one_of_the_nodes_state) {
  const std::string head = "[node]\ndata_dir = \"/d/./\"\n", tail = "\n[[route]]\nname = \"r\"\nto = [\"files\"]\n";
  for (const char* dir : {"/d", "/", "//d/"})
    EXPECT_THAT(complaints(head + "[receiver]\ndir = \"" + dir + "\"" + tail),
                ElementsAre(HasSubstr("f:4:7: error: receiver.dir holds node.data_dir")))
        << dir;
  for (const char* dir : {"/d/store", "/d/spool/r", "/d/x/../staged"}) {
    EXPECT_THAT(complaints(head + "[receiver]\ndir = \"" + dir + "\"" + tail),
                ElementsAre(HasSubstr("f:4:7: error: receiver.dir is the node's own")))
        << dir;
    EXPECT_THAT(complaints(head + "[agent]\ndir = \"" + dir + "\"\n[receiver]\ndir = \"/d/events\"" + tail),
                ElementsAre(HasSubstr("f:4:7: error: agent.dir is the node's own")))
        << dir;
  }
  good(head + "[receiver]\ndir = \"/d/events\"\n[agent]\ndir = \"/d/in\"" + tail);
  good(head + "[receiver]\ndir = \"/d/store2\"" + tail);
}

/// Takes the '#' away from every setting of the reference.
std::string uncommented(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at) + 1;
    std::string line = text.substr(at, end - at);
    if (line.size() > 2 && line[0] == '#' && line[1] != ' ' && line[1] != '#' && line[1] != '\n') line.erase(0, 1);
    out += line;
    at = end;
  }
  return out;
}

TEST(Reference, is_valid_as_it_is_and_with_every_setting_switched_on) {
  good(reference());
  std::string all = uncommented(reference());
  const size_t one_of_two = all.find("\nsecret_file = ");  // excludes `secret`
  ASSERT_NE(one_of_two, std::string::npos);
  all.insert(one_of_two + 1, "#");
  const Settings s = good(all + "[[route]]\nname = \"rest\"\nto = [\"files\"]\n");
  EXPECT_TRUE(s.agent && s.receiver && s.tls);
  EXPECT_EQ(s.upstreams.size(), 1u);
}

TEST(Reference, names_every_key_with_its_default) {
  const std::string text = reference();
  for (const TableInfo& table : schema()) {
    EXPECT_THAT(text, HasSubstr("\n#" + table.header() + "\n"));
    for (const KeyInfo& key : table.keys) {
      EXPECT_FALSE(key.doc.empty()) << key.name;
      EXPECT_FALSE(key.fallback.empty() && key.example.empty()) << table.path << "." << key.name;
    }
  }
}

TEST(NotBuilt, names_only_keys_that_exist) {
  for (const NotBuilt& n : not_built()) {
    bool found = false;
    for (const TableInfo& t : schema())
      for (const KeyInfo& k : t.keys) found |= n.key == std::string(t.path) + "." + std::string(k.name);
    EXPECT_TRUE(found) << n.key;
  }
}

}  // namespace
}  // namespace ph::settings
