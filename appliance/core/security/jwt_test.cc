#include "core/security/jwt.h"

#include <gtest/gtest.h>

#include "core/security/base64.h"

namespace ph::security {
namespace {

std::string token(std::string_view header, std::string_view claims, std::string_view signature = "sig") {
  return base64url_encode(header) + "." + base64url_encode(claims) + "." + base64url_encode(signature);
}
constexpr std::string_view kHs = R"({"alg":"HS256","typ":"JWT"})";

TEST(Jwt, reads_header_claims_and_signature) {
  const std::string text =
      token(R"({"alg":"ES256","kid":"k1"})", R"({"username":"u","sub":"s","exp":2000000000,"nbf":1.5})");
  const auto jwt = parse_jwt(text);
  ASSERT_TRUE(jwt) << jwt.error().to_string();
  EXPECT_EQ(jwt->algorithm, JwtAlgorithm::es256);
  EXPECT_EQ(jwt->key_id, "k1");
  EXPECT_EQ(jwt->username, "u");
  EXPECT_EQ(jwt->expires, 2000000000);
  EXPECT_EQ(jwt->not_before, 1);
  EXPECT_EQ(jwt->signature, "sig");
  EXPECT_EQ(jwt->signed_text, text.substr(0, text.rfind('.')));
  EXPECT_EQ(parse_jwt(token(kHs, R"({"sub":"s"})"))->username, "s");
  EXPECT_EQ(parse_jwt(token(kHs, R"({"name":"n"})"), {"name", "acl"})->username, "n");
  EXPECT_TRUE(looks_like_jwt(text));
}

TEST(Jwt, refuses_what_is_none_or_could_be_forged) {
  for (const std::string& bad :
       {std::string(), std::string("a.b.c"), std::string("a.b"), token(kHs, "{}") + ".x",
        token(R"({"alg":"none"})", "{}"), token(R"({"alg":"HS256"})", "{}", ""), token(R"({"alg":5})", "{}"),
        token("[]", "{}"), token(kHs, "[]"), token(kHs, "{"), token(R"({"alg":"HS256","crit":["x"]})", "{}"),
        token(kHs, R"({"exp":"soon"})"), token(kHs, R"({"exp":1e300})"), token(kHs, R"({"acl":"all"})"),
        token(kHs, R"({"acl":{"pub":["a/#/b"]}})"), token(kHs, R"({"acl":[{"permission":"allow"}]})"),
        token(kHs, R"({"acl":[{"permission":"may","topic":"a"}]})")})
    EXPECT_FALSE(parse_jwt(bad)) << bad;
  EXPECT_FALSE(looks_like_jwt("a.b.c"));
  EXPECT_FALSE(looks_like_jwt("plain password"));
  EXPECT_FALSE(looks_like_jwt(base64url_encode(R"({"typ":"x"})") + ".b.c"));
}

TEST(Jwt, reads_both_forms_of_rules) {
  const auto lists = parse_jwt(token(kHs, R"({"acl":{"pub":["a/%u"],"sub":["b/#","eq c"],"all":"d"}})"));
  ASSERT_TRUE(lists) << lists.error().to_string();
  ASSERT_EQ(lists->rules.size(), 3U);
  EXPECT_EQ(lists->rules[0].action, Action::publish);
  EXPECT_TRUE(lists->rules[0].topics[0].placeholders);
  EXPECT_TRUE(lists->rules[1].topics[1].exact);
  const auto rows = parse_jwt(token(
      kHs,
      R"({"acl":[{"permission":"deny","action":"publish","topic":"a"},{"permission":"allow","topics":["b","c"]}]})"));
  ASSERT_TRUE(rows);
  ASSERT_EQ(rows->rules.size(), 2U);
  EXPECT_EQ(rows->rules[0].permission, Permission::deny);
  EXPECT_EQ(rows->rules[1].topics.size(), 2U);
}

TEST(JwtKey, fits_its_own_family_and_id_only) {
  Jwt hs, rs;
  rs.algorithm = JwtAlgorithm::rs256;
  JwtKey secret{JwtKey::Kind::secret, std::nullopt, "s"}, rsa{JwtKey::Kind::rsa, "k", "PEM"};
  EXPECT_TRUE(secret.fits(hs));
  EXPECT_FALSE(secret.fits(rs));
  EXPECT_FALSE(rsa.fits(hs)) << "a public key is no secret";
  EXPECT_TRUE(rsa.fits(rs));
  rs.key_id = "other";
  EXPECT_FALSE(rsa.fits(rs));
}

TEST(Jwks, takes_the_keys_it_knows) {
  const std::string n = base64url_encode(std::string(256, '\xee')), x = base64url_encode(std::string(32, 'x'));
  const auto keys = parse_jwks(R"({"keys":[{"kty":"RSA","kid":"r","n":")" + n +
                               R"(","e":"AQAB"},{"kty":"EC","crv":"P-256","x":")" + x + R"(","y":")" + x +
                               R"("},{"kty":"oct","k":"c2VjcmV0"},{"kty":"OKP"},{"kty":"oct","use":"enc","k":"eA"}]})");
  ASSERT_TRUE(keys) << keys.error().to_string();
  ASSERT_EQ(keys->size(), 3U);
  EXPECT_EQ((*keys)[0].key.size(), 294U);  // as openssl writes a 2048-bit key
  EXPECT_EQ((*keys)[1].key.size(), 91U);
  EXPECT_EQ((*keys)[2].key, "secret");
  for (ByteView bad :
       {"", "[]", "{}", R"({"keys":5})", R"({"keys":[5]})", R"({"keys":[]})", R"({"keys":[{"kty":"RSA"}]})"})
    EXPECT_FALSE(parse_jwks(bad)) << bad;
}

}  // namespace
}  // namespace ph::security
