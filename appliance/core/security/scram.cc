#include "core/security/scram.h"

#include "codec/mqtt/text.h"
#include "core/security/base64.h"
#include "core/security/password.h"

namespace ph::security {
namespace {

/// The attribute at the front, "x=...", up to a comma, which goes, too.
std::optional<ByteView> take_attribute(ByteView& rest, char name) {
  if (rest.size() < 2 || rest[0] != name || rest[1] != '=') return std::nullopt;
  const size_t end = rest.find(',');
  const ByteView value = rest.substr(2, end == rest.npos ? rest.npos : end - 2);
  rest = end == rest.npos ? ByteView() : rest.substr(end + 1);
  return value;
}

/// "=2C" is a comma and "=3D" an equals sign; another '=' is an error.
std::optional<std::string> unescape(ByteView name) {
  std::string out;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] != '=') {
      out += name[i];
      continue;
    }
    const ByteView code = name.substr(i + 1, 2);
    if (code != "2C" && code != "3D") return std::nullopt;
    out += code == "2C" ? ',' : '=';
    i += 2;
  }
  return out;
}

bool nonce_valid(ByteView nonce) {
  if (nonce.empty() || nonce.size() > 512) return false;
  for (char c : nonce)
    if (c < 0x21 || c > 0x7E || c == ',') return false;
  return true;
}

std::unexpected<Error> bad(std::string why) {
  return fail(errors::bad_scram, std::move(why));
}

}  // namespace

std::string ScramSecret::to_string() const {
  return std::string(kScramMethod) + "$" + std::to_string(iterations) + ":" + base64_encode(salt) + "$" +
         base64_encode(stored_key) + ":" + base64_encode(server_key);
}

std::optional<ScramSecret> parse_scram_secret(ByteView text) {
  const std::string start = std::string(kScramMethod) + "$";
  if (!text.starts_with(start)) return std::nullopt;
  text.remove_prefix(start.size());
  ScramSecret out;
  uint64_t count = 0;
  const size_t colon = text.find(':');
  if (colon == text.npos || colon == 0 || colon > 8) return std::nullopt;
  for (char c : text.substr(0, colon)) {
    if (c < '0' || c > '9') return std::nullopt;
    count = count * 10 + static_cast<uint64_t>(c - '0');
  }
  text.remove_prefix(colon + 1);
  const size_t dollar = text.find('$');
  const size_t middle = text.rfind(':');
  if (dollar == text.npos || middle == text.npos || middle < dollar) return std::nullopt;
  auto salt = base64_decode(text.substr(0, dollar));
  auto stored = base64_decode(text.substr(dollar + 1, middle - dollar - 1));
  auto server = base64_decode(text.substr(middle + 1));
  if (!salt || salt->empty() || salt->size() > kSaltMax || !stored || stored->size() != kScramDigest || !server ||
      server->size() != kScramDigest || count == 0 || count > kIterationsMax)
    return std::nullopt;
  return ScramSecret{static_cast<uint32_t>(count), std::move(*salt), std::move(*stored), std::move(*server)};
}

Result<ScramFirst> parse_scram_first(ByteView message) {
  if (message.size() > kScramMessageMax) return bad("the message is too long");
  if (!mqtt::utf8_valid(message)) return bad("the message is no UTF-8");
  ScramFirst out;
  const size_t one = message.find(',');
  const size_t two = one == message.npos ? one : message.find(',', one + 1);
  if (two == message.npos) return bad("no header");
  const ByteView binding = message.substr(0, one);
  if (binding != "n" && binding != "y") return bad("channel binding is not supported");
  const ByteView identity = message.substr(one + 1, two - one - 1);
  if (!identity.empty() && !identity.starts_with("a=")) return bad("no header");
  out.gs2_header = message.substr(0, two + 1);
  ByteView rest = message.substr(two + 1);
  out.bare = rest;
  if (rest.starts_with("m=")) return bad("a mandatory extension is not known");
  const auto name = take_attribute(rest, 'n');
  auto username = name ? unescape(*name) : std::nullopt;
  if (!username || username->empty()) return bad("no user name");
  // Who acts for somebody else is not known here.
  if (!identity.empty() && unescape(identity.substr(2)) != username) return bad("another authorization identity");
  const auto nonce = take_attribute(rest, 'r');
  if (!nonce || !nonce_valid(*nonce)) return bad("no nonce");
  out.username = std::move(*username);
  out.nonce = *nonce;
  return out;
}

std::string scram_server_first(const ScramFirst& first, ByteView server_nonce, ByteView salt, uint32_t iterations) {
  return "r=" + first.nonce + std::string(server_nonce) + ",s=" + base64_encode(salt) +
         ",i=" + std::to_string(iterations);
}

Result<ScramFinal> parse_scram_final(ByteView message, const ScramFirst& first) {
  if (message.size() > kScramMessageMax) return bad("the message is too long");
  const size_t last = message.rfind(",p=");
  if (last == message.npos) return bad("no proof");
  ScramFinal out;
  out.without_proof = message.substr(0, last);
  auto proof = base64_decode(message.substr(last + 3));
  if (!proof || proof->size() != kScramDigest) return bad("the proof cannot be read");
  out.proof = std::move(*proof);
  ByteView rest = out.without_proof;
  const auto binding = take_attribute(rest, 'c');
  if (!binding || base64_decode(*binding) != first.gs2_header) return bad("the header is not that of before");
  const auto nonce = take_attribute(rest, 'r');
  if (!nonce) return bad("no nonce");
  out.nonce = *nonce;
  return out;
}

std::string scram_auth_message(const ScramFirst& first, ByteView server_first, const ScramFinal& last) {
  return first.bare + "," + std::string(server_first) + "," + last.without_proof;
}

}  // namespace ph::security
