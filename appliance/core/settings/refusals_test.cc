// What would fail at run, or never work, is refused where it stands: one wrong line each. And every key of the schema,
// with values of every wrong kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/settings/parse.h"
#include "core/settings/schema.h"

namespace ph::settings {
namespace {

using testing::HasSubstr;

struct Wrong {
  std::string text;   // the last line is the wrong one
  std::string place;  // its column
  std::string says;
};

class Refusals : public testing::TestWithParam<Wrong> {};

TEST_P(Refusals, are_told_at_their_place) {
  const Wrong& wrong = GetParam();
  const auto line = 1 + std::count(wrong.text.begin(), wrong.text.end(), '\n');
  const Outcome outcome = parse(wrong.text + "\n", "host");
  EXPECT_FALSE(outcome.settings) << wrong.text;
  EXPECT_THAT(outcome.to_string("f"), HasSubstr("f:" + std::to_string(line) + ":" + wrong.place + ": error: "));
  EXPECT_THAT(outcome.to_string("f"), HasSubstr(wrong.says));
}

const std::string kListener = "[[listener]]\nbind = \"127.0.0.1:1883\"\n";

INSTANTIATE_TEST_SUITE_P(
    , Refusals,
    testing::Values(
        Wrong{"[broker.authn]\norder = [\"users\", \"jwt\"]", "19", "no [broker.jwt]"},
        Wrong{kListener + "authn = [\"http\"]", "10", "no [broker.http]"},
        Wrong{kListener + "authn = [\"psk\"]", "10", "no [broker.psk]"},
        Wrong{kListener + "authn = [\"users\", \"users\"]", "19", "twice"},
        Wrong{kListener + "psk = true", "7", "needs keys"},
        Wrong{kListener + "certificate_field = \"dns\"", "21", "needs `certificate_as`"},
        Wrong{kListener + "protocol = \"ws\"\norigins = [\"app.example\"]", "12", "is no origin"},
        Wrong{kListener + "protocol = \"ws\"\norigins = []", "11", "is empty"},
        Wrong{kListener + "proxy_protocol = \"yes\"", "18", "write true, without quotes"},
        Wrong{kListener + "tls = 0", "7", "write false, without quotes"},
        Wrong{kListener + "connections_max = 99999999999999999999", "19", "not representable"},
        Wrong{"[broker.jwt]\nsecret = \"a\"\nsecret_file = \"/x\"", "15", "both there"},
        Wrong{"[broker.jwt]\nsecret_base64_encoded = true\nsecret = \"#\"", "10", "no base64"},
        Wrong{"[broker.jwt]\njwks_file = \"/x\"\nsecret_base64_encoded = true", "25", "needs `secret`"},
        Wrong{"[broker.http]\nurl = \"ftp://x/\"", "7", "http:// or https://"},
        Wrong{"[broker.http_authz]\nurl = \"https://a b/\"", "7", "is not a host"},
        Wrong{"[[broker.psk_identity]]\nidentity = \"a\"\nkey = \"0g\"", "7", "not hexadecimal"},
        Wrong{"[[broker.rewrite]]\nfrom = \"a/+\"\nto = \"x/{2}\"", "6", "has 1 wildcard"},
        Wrong{"[[broker.rewrite]]\nfrom = \"a/+\"\nto = \"x/{0}\"", "6", "has {0}"},
        Wrong{"[[broker.rewrite]]\nfrom = \"a/+\"\nto = \"\"", "6", "is no topic"},
        Wrong{"[[broker.rewrite]]\nfrom = \"a/+\"\nto = \"x/#\"", "6", "is no topic"},
        Wrong{"[[broker.auto_subscribe]]\nfilter = \"$share/g/x\"\nno_local = true", "12", "exclude each other"},
        Wrong{"[broker]\nresponse_information = \"a#\"", "24", "no wildcards"},
        Wrong{"[[broker.acl]]\npermission = \"deny\"\ntopics = [\"$delayed/#\"]", "11", "fits nothing"},
        Wrong{"[[broker.acl]]\npermission = \"deny\"\ntopics = [\"a\", \"$share/g/x\"]", "16", "write \"x\""},
        Wrong{"[[broker.acl]]\npermission = \"deny\"\ntopics = [\"$queue/x\"]", "11", "write \"x\""},
        Wrong{"[api]\nsocket = \"api.sock\"", "10", "absolute path"},
        Wrong{"[api]\nsocket = \"/" + std::string(107, 'x') + "\"", "10", "longer than 107"},
        Wrong{"[[upstream]]\nname = \"u\"\naddresses = [\"a..b:1\"]", "14", "no host can be called that"},
        Wrong{"[[upstream]]\nname = \"u\"\naddresses = [\"1.2.3.400:1\"]", "14", "no host can be called that"},
        Wrong{"[[upstream]]\nname = \"u\"\naddresses = [\"[1::2::3]:1\"]", "14", "no IPv6 address"},
        Wrong{"[[upstream]]\nname = \"u\"\naddresses = [\"127.0.0.1:1\"]\nwindow = 16777216", "10",
              "write \"16MiB\""}));

TEST(Targets, are_listed_once) {
  const std::string said =
      parse("[[upstream]]\nname = \"files\"\naddresses = [\"127.0.0.1:1\"]\n[[route]]\nname = \"r\"\nto = [\"zz\"]\n",
            "h")
          .to_string("f");
  EXPECT_THAT(said, HasSubstr("known targets: files\n"));
}

/// The headers under which a table's keys can stand: [route.spool] belongs to the [[route]] before it.
std::string headers_of(const TableInfo& table) {
  const std::string parent(table.path.substr(0, table.path.rfind('.')));
  std::string out;
  for (const TableInfo& t : schema())
    if (t.path == parent && t.array && parent != table.path) out = t.header() + "\n";
  return out + table.header() + "\n";
}

/// Each key with a value of each kind: whatever is not taken is told at its own line.
TEST(EveryKey, tells_a_wrong_value_at_its_line) {
  const std::string values[] = {"\"\x01\"", "-1",        "1.5",        "true",
                                "[[1]]",    "{ x = 1 }", "1979-05-27", "\"99999999999999999999TiB\""};
  size_t refused = 0;
  for (const TableInfo& table : schema())
    for (const KeyInfo& key : table.keys)
      for (const std::string& value : values) {
        const std::string headers = headers_of(table);
        const auto line = 1 + static_cast<uint32_t>(std::count(headers.begin(), headers.end(), '\n'));
        const std::string text = headers + std::string(key.name) + " = " + value + "\n";
        const Outcome outcome = parse(text, "host");
        bool at_line = false;
        for (const Diagnostic& d : outcome.diagnostics)
          at_line |= d.severity == Severity::error && d.place.line == line;
        refused += at_line ? 1 : 0;
        EXPECT_TRUE(at_line || (value != "1979-05-27" && value != "1.5")) << text;
      }
  EXPECT_GT(refused, 500U);
}

}  // namespace
}  // namespace ph::settings
