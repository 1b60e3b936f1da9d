#include "core/migrate/lsd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ph::migrate {
namespace {

using testing::HasSubstr;
using testing::Not;

const char* const kClient = R"({
  // a comment, and trailing commas, as LSD allows them
  "daemon_config": {
    "listen": [{"proto": "lsd-gpb", "address": "0.0.0.0:7100"}, {"proto": "service-stats-gpb", "address": "0.0.0.0:7102"},],
    "pid_file": "/run/lsd.pid", "log_level": "WARNING", "service_name": "lsd", "service_instance_name": "x",
  },
  "client_config": {
    "source_dir": "/var/spool/lsd/", /* another */ "offsets_db": "/var/lib/lsd.db",
    "max_file_size": 10000, "usage_check_interval": 10, "routng": 1,
    "routing": [
      {"receivers": [{"addr": "a:8100", "weight": 1}, {"addr": "b:8100", "weight": 3, "request_timeout": 60}]},
      {"categories": ["test1_*", "exact"], "gzip": true,
       "receivers": [{"addr": "c:9100", "weight": 1}, {"addr": "c:9100", "weight": 1}]},
      {"categories": ["exact", "late"], "receivers": [{"addr": "a:8100", "weight": 1}, {"addr": "b:8100", "weight": 3, "request_timeout": 60}]},
    ],
  },
})";

std::string converted(ByteView text, LsdOptions options = {}) {
  auto out = convert_lsd(text, options);
  return out ? out->toml : out.error().to_string();
}

TEST(MigrateLsd, a_client_becomes_agent_upstreams_and_routes) {
  auto out = convert_lsd(kClient, {});
  ASSERT_TRUE(out) << out.error().to_string();
  EXPECT_EQ(out->source_dir, "/var/spool/lsd");
  EXPECT_EQ(out->offsets_db, "/var/lib/lsd.db");
  EXPECT_EQ(out->pid_file, "/run/lsd.pid");
  const std::string& t = out->toml;
  EXPECT_THAT(t, HasSubstr("[agent]\ndir = \"/var/spool/lsd\"\n"));
  EXPECT_THAT(t, HasSubstr("max_file_size = 10000; the least here is what follows\nrotate_size = \"65536B\"\n"));
  EXPECT_THAT(t, HasSubstr("rotate_age = \"120s\""));
  EXPECT_THAT(t, HasSubstr("name = \"lsd-1\"\nprotocol = \"lsd\"\n"
                           "addresses = [\"a:8100\", { address = \"b:8100\", weight = 3 }]\n"));
  EXPECT_THAT(t, HasSubstr("request_timeout = \"60s\""));
  EXPECT_THAT(t, HasSubstr("addresses = [\"c:9100\"]\n"));
  EXPECT_THAT(t, HasSubstr("connections = 8\n"));
  EXPECT_THAT(t, HasSubstr("compress = \"gzip\"\n"));
  EXPECT_THAT(t, HasSubstr("name = \"default\"\nto = [\"lsd-1\"]\n"));
  EXPECT_THAT(t, HasSubstr("categories = [\"test1_*\", \"exact\"]\nto = [\"lsd-2\"]\n"));
  EXPECT_THAT(t, HasSubstr("categories = [\"late\"]\nto = [\"lsd-1\"]\n")) << "the same receivers are one upstream";
  EXPECT_THAT(t, Not(HasSubstr("lsd-3")));
  EXPECT_THAT(t, HasSubstr("category \"exact\" stands in an earlier route as well"));
  EXPECT_THAT(t, HasSubstr("ignores: \"client_config.routng\""));
  EXPECT_THAT(t, HasSubstr("without equivalent, since nothing depends on it here: client_config.usage_check_interval"));
  EXPECT_THAT(t, HasSubstr("[log]\nlevel = \"warn\"\n"));
  EXPECT_THAT(t, Not(HasSubstr("[receiver]")));
}

const char* const kServer = R"({"daemon_config": {"listen": [{"proto": "lsd-gpb", "address": "0.0.0.0:3701"}]},
  "server_config": {"target_dir": "/data/lsd", "mode": "PLAIN_LOG", "error_sleep_interval": 60,
    "per_category_settings": [{"categories": ["big_*"], "mode": 1, "max_file_size": 1000, "file_rotate_interval": 30,
                               "gzip": true, "gzip_parallel": 2}]}})";

TEST(MigrateLsd, a_server_becomes_a_receiver) {
  std::string t = converted(kServer);
  EXPECT_THAT(t, HasSubstr("[receiver]\nlsd = \"0.0.0.0:3701\"\n"));
  EXPECT_THAT(t, HasSubstr("dir = \"/data/lsd\"\n"));
  EXPECT_THAT(t, HasSubstr("match = [\"big_*\"]\nmode = \"chunks\"\n"));
  EXPECT_THAT(t, HasSubstr("chunk_max = \"4096B\"\nchunk_interval = \"30s\"\n"));
  EXPECT_THAT(t, HasSubstr("\n# compress = \"gzip\"\n"));
  EXPECT_THAT(t, HasSubstr("match = [\"*\"]\nmode = \"plain\"\n"));
  EXPECT_THAT(t, HasSubstr("name = \"all\"\nto = [\"files\"]\n"));
  LsdOptions built;
  built.gzip_files = true;
  EXPECT_THAT(converted(kServer, built), HasSubstr("\ncompress = \"gzip\"\n"));
}

TEST(MigrateLsd, the_first_generations_keys_are_known) {
  const char* const old = R"({"daemon_config": {}, "client_config": {"source_dir": "/s", "offsets_db": "/o", "routing":
    [{"prefix_sharding": true, "cut_prefix": true, "prefix_delimiter": "|", "receivers": [{"addr": "a:1", "weight": 1}]}]}})";
  std::string t = converted(old);
  EXPECT_THAT(t, HasSubstr("\n# balance = { hash = { prefix = \"|\" } }\n"));
  EXPECT_THAT(t, HasSubstr("cut_prefix has no equivalent"));
  LsdOptions built;
  built.hash_balance = true;
  EXPECT_THAT(converted(old, built), HasSubstr("\nbalance = { hash = { prefix = \"|\" } }\n"));
  t = converted(R"({"server_config": {"target_dir": "/t", "chunk_output": false,
    "per_category_settings": [{"categories": ["c"], "chunk_output": true}]}})");
  EXPECT_THAT(t, HasSubstr("match = [\"c\"]\nmode = \"chunks\""));
  EXPECT_THAT(t, HasSubstr("match = [\"*\"]\nmode = \"plain\""));
  EXPECT_THAT(t, Not(HasSubstr("ignores")));
}

TEST(MigrateLsd, both_halves_are_a_relay_or_two_nodes) {
  auto both = [](std::string_view target) {
    return R"({"daemon_config": {"listen": [{"proto": "lsd-gpb", "address": ":1"}]}, "server_config": {"target_dir": ")" +
           std::string(target) +
           R"("}, "client_config": {"source_dir": "/s", "offsets_db": "/o", "routing": [{"receivers": [{"addr": "a:1", "weight": 1}]}]}})";
  };
  std::string relay = converted(both("/s/"));
  EXPECT_THAT(relay, HasSubstr("[receiver]\nlsd = \"0.0.0.0:1\"\n"));
  EXPECT_THAT(relay, Not(HasSubstr("[agent]")))
      << "a relay that deletes what its own receiver writes is what we replace";
  EXPECT_THAT(relay, HasSubstr("to = [\"lsd-1\"]"));
  EXPECT_EQ(convert_lsd(both("/t"), {}).error().code, errors::two_halves);
  LsdOptions part;
  part.part = Part::client;
  EXPECT_THAT(converted(both("/t"), part), HasSubstr("[agent]"));
  EXPECT_THAT(converted(both("/t"), part), Not(HasSubstr("[receiver]")));
  part.part = Part::server;
  EXPECT_THAT(converted(both("/t"), part), HasSubstr("[receiver]"));
  EXPECT_THAT(converted(both("/t"), part), Not(HasSubstr("[agent]")));
  EXPECT_EQ(convert_lsd(kClient, part).error().code, errors::malformed) << "it has no such half";
}

TEST(MigrateLsd, without_a_default_route_files_are_kept) {
  std::string t = converted(R"({"client_config": {"source_dir": "/s", "offsets_db": "/o", "routing":
    [{"categories": ["a"], "receivers": [{"addr": "a:1", "weight": 1}]}]}})");
  EXPECT_THAT(t, HasSubstr("there was no default route"));
  EXPECT_THAT(t, HasSubstr("[receiver]\ndir = \"/var/lib/posthouse/unrouted\"\n"));
  EXPECT_THAT(t, HasSubstr("name = \"default\"\nto = [\"files\"]\n"));
}

TEST(MigrateLsd, what_is_no_configuration_is_refused) {
  for (const char* text : {"", "[]", "{", "{}", R"({"client_config": {"source_dir": "relative"}})",
                           R"({"server_config": {}})", R"({"daemon_config": {}})"})
    EXPECT_EQ(convert_lsd(text, {}).error().code, errors::malformed) << text;
}

TEST(MigrateLsd, offsets_are_read_and_fit_by_name) {
  auto offsets = parse_lsd_offsets(R"([{"Ino":11266537,"Off":10,"LastFileName":"/abs/path/plain.log"},
                                      {"Ino":18446744073709551615,"Off":0}])");
  ASSERT_TRUE(offsets && offsets->size() == 2);
  EXPECT_EQ((*offsets)[0].offset, 10u);
  EXPECT_EQ((*offsets)[1].inode, UINT64_MAX);
  EXPECT_TRUE((*offsets)[0].fits("/abs/path/plain.log.old"));
  EXPECT_FALSE((*offsets)[0].fits("/abs/path/other.log"));
  EXPECT_TRUE((*offsets)[1].fits("/any")) << "an older generation has no names";
  EXPECT_TRUE(parse_lsd_offsets("null")->empty());
  EXPECT_TRUE(parse_lsd_offsets("[]")->empty());
  for (const char* text : {"", "{}", "[1]", R"([{"Ino": 1}])", R"([{"Ino": -1, "Off": 2}])", R"([{"Ino":1,"Off":2})"})
    EXPECT_EQ(parse_lsd_offsets(text).error().code, errors::malformed) << text;
}

}  // namespace
}  // namespace ph::migrate
