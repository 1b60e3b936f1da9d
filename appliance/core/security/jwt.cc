#include "core/security/jwt.h"

#include <boost/json.hpp>
#include <cmath>

#include "core/security/acl_claim.h"
#include "core/security/base64.h"

namespace ph::security {
namespace {

namespace json = boost::json;

constexpr std::pair<std::string_view, JwtAlgorithm> kAlgorithms[] = {{"HS256", JwtAlgorithm::hs256},
                                                                     {"HS384", JwtAlgorithm::hs384},
                                                                     {"HS512", JwtAlgorithm::hs512},
                                                                     {"RS256", JwtAlgorithm::rs256},
                                                                     {"ES256", JwtAlgorithm::es256}};

std::unexpected<Error> bad(std::string why) {
  return fail(errors::bad_jwt, std::move(why));
}

std::optional<json::object> parse_object(ByteView text) {
  boost::system::error_code failed;
  json::value v = json::parse(text, failed);
  if (failed || !v.is_object()) return std::nullopt;
  return std::move(v.get_object());
}

std::optional<json::object> decode_object(ByteView part) {
  const auto text = base64url_decode(part);
  return text ? parse_object(*text) : std::nullopt;
}

std::optional<std::string> text(const json::object& from, std::string_view key) {
  const json::value* v = from.if_contains(key);
  return v && v->is_string() ? std::optional(std::string(v->get_string())) : std::nullopt;
}

/// Seconds since the epoch; a date that is there and cannot be read is an error.
bool read_date(const json::object& from, std::string_view key, std::optional<int64_t>& out) {
  const json::value* v = from.if_contains(key);
  if (!v) return true;
  constexpr double kMax = 1e15;  // seconds, far beyond every calendar, and exact
  if (!v->is_number()) return false;
  const auto seconds = v->to_number<double>();
  if (!std::isfinite(seconds) || seconds < -kMax || seconds > kMax) return false;
  out = static_cast<int64_t>(std::floor(seconds));
  return true;
}

/// A DER element with a length of up to 65535.
std::string der(char tag, ByteView body) {
  std::string out(1, tag);
  const size_t n = body.size();
  if (n >= 0x80) out += static_cast<char>(n < 0x100 ? 0x81 : 0x82);
  if (n >= 0x100) out += static_cast<char>(n >> 8);
  out += static_cast<char>(n & 0xFF);
  return out.append(body);
}

std::string der_integer(ByteView number) {
  while (number.size() > 1 && number[0] == 0) number.remove_prefix(1);
  std::string body(number);
  if (static_cast<unsigned char>(body[0]) >= 0x80) body.insert(0, 1, '\0');
  return der(2, body);
}

std::string bit_string(ByteView body) {
  return der(3, std::string(1, '\0').append(body));
}

/// The key of one JWK; nullopt: not of a kind known here.
std::optional<JwtKey> read_jwk(const json::object& from) {
  constexpr ByteView kRsa("\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00", 15);  // rsaEncryption, NULL
  constexpr ByteView kP256("\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07", 21);
  constexpr size_t kModulusMax = 1024, kExponentMax = 8, kCoordinate = 32;
  if (text(from, "use").value_or("sig") != "sig") return std::nullopt;
  const auto part = [&from](std::string_view key) {
    const auto encoded = text(from, key);
    return encoded ? base64url_decode(*encoded).value_or("") : std::string();
  };
  JwtKey out;
  out.id = text(from, "kid");
  const auto kind = text(from, "kty");
  if (kind == "oct") {
    out.key = part("k");
    return out.key.empty() ? std::nullopt : std::optional(out);
  }
  if (kind == "RSA") {
    const std::string n = part("n"), e = part("e");
    if (n.empty() || n.size() > kModulusMax || e.empty() || e.size() > kExponentMax) return std::nullopt;
    out.kind = JwtKey::Kind::rsa;
    out.key = der(0x30, std::string(kRsa) + bit_string(der(0x30, der_integer(n) + der_integer(e))));
    return out;
  }
  if (kind == "EC" && text(from, "crv") == "P-256") {
    const std::string x = part("x"), y = part("y");
    if (x.size() != kCoordinate || y.size() != kCoordinate) return std::nullopt;
    out.kind = JwtKey::Kind::p256;
    out.key = der(0x30, std::string(kP256) + bit_string("\x04" + x + y));
    return out;
  }
  return std::nullopt;
}

}  // namespace

bool looks_like_jwt(ByteView token) {
  const size_t one = token.find('.');
  if (one == token.npos || token.size() > kJwtMax) return false;
  const size_t two = token.find('.', one + 1);
  if (two == token.npos || token.find('.', two + 1) != token.npos) return false;
  const auto header = decode_object(token.substr(0, one));
  return header && header->contains("alg");
}

Result<Jwt> parse_jwt(ByteView token, const JwtClaimNames& names) {
  if (token.size() > kJwtMax) return bad("the token is too long");
  const size_t one = token.find('.');
  const size_t two = one == token.npos ? one : token.find('.', one + 1);
  if (two == token.npos || token.find('.', two + 1) != token.npos) return bad("a token has three parts");
  Jwt out;
  const auto header = decode_object(token.substr(0, one));
  const auto claims = decode_object(token.substr(one + 1, two - one - 1));
  auto signature = base64url_decode(token.substr(two + 1));
  if (!header || !claims || !signature || signature->empty()) return bad("a part cannot be read");
  const auto algorithm = text(*header, "alg");
  const auto* known =
      std::find_if(std::begin(kAlgorithms), std::end(kAlgorithms), [&](const auto& a) { return algorithm == a.first; });
  if (known == std::end(kAlgorithms)) return bad("the algorithm is not known");
  if (header->contains("crit")) return bad("an extension is not known");  // RFC 7515 4.1.11
  out.algorithm = known->second;
  out.key_id = text(*header, "kid");
  out.signed_text = token.substr(0, two);
  out.signature = std::move(*signature);
  if (!read_date(*claims, "exp", out.expires) || !read_date(*claims, "nbf", out.not_before))
    return bad("a date cannot be read");
  out.username = text(*claims, names.username);
  if (!out.username) out.username = text(*claims, "sub");
  if (const json::value* acl = claims->if_contains(names.acl); acl && !read_acl_claim(*acl, out.rules))
    return bad("the acl claim cannot be read");
  return out;
}

bool JwtKey::fits(const Jwt& token) const {
  if (token.key_id && id && *token.key_id != *id) return false;
  switch (kind) {
    case Kind::secret:
      return token.algorithm <= JwtAlgorithm::hs512;
    case Kind::rsa:
      return token.algorithm == JwtAlgorithm::rs256;
    case Kind::p256:
      return token.algorithm == JwtAlgorithm::es256;
  }
  return false;
}

Result<std::vector<JwtKey>> parse_jwks(ByteView document) {
  const auto root = parse_object(document);
  const json::value* keys = root ? root->if_contains("keys") : nullptr;
  if (!keys || !keys->is_array()) return fail(errors::bad_jwks, "no list of keys");
  if (keys->get_array().size() > kJwtKeysMax) return fail(errors::bad_jwks, "too many keys");
  std::vector<JwtKey> out;
  for (const json::value& v : keys->get_array()) {
    if (!v.is_object()) return fail(errors::bad_jwks, "a key is no object");
    if (auto key = read_jwk(v.get_object())) out.push_back(std::move(*key));
  }
  if (out.empty()) return fail(errors::bad_jwks, "no key of a kind that is known: oct, RSA, EC with P-256");
  return out;
}

}  // namespace ph::security
