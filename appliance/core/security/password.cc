#include "core/security/password.h"

#include <set>

#include "codec/mqtt/text.h"
#include "core/security/base64.h"
#include "core/security/rows.h"

namespace ph::security {
namespace {

std::optional<uint32_t> parse_count(ByteView text) {
  if (text.empty() || text.size() > 8) return std::nullopt;
  uint32_t value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<uint32_t>(c - '0');
  }
  return value;
}

/// The text up to the next '$', which goes, too.
ByteView next_part(ByteView& text) {
  const size_t end = text.find('$');
  const ByteView part = text.substr(0, end);
  text = end == text.npos ? ByteView() : text.substr(end + 1);
  return part;
}

}  // namespace

std::string PasswordHash::to_string() const {
  const std::string tail = base64_encode(salt) + "$" + base64_encode(digest);
  return scheme == Scheme::sha512 ? "$6$" + tail : "$7$" + std::to_string(iterations) + "$" + tail;
}

Result<PasswordHash> parse_password_hash(ByteView text) {
  PasswordHash out;
  if (text.starts_with("$7$")) {
    text.remove_prefix(3);
    const auto count = parse_count(next_part(text));
    if (!count || *count == 0) return fail(errors::bad_hash, "the number of iterations cannot be read");
    if (*count > kIterationsMax)
      return fail(errors::bad_hash, "more than " + std::to_string(kIterationsMax) + " iterations");
    out.iterations = *count;
  } else if (text.starts_with("$6$")) {
    text.remove_prefix(3);
    out.scheme = PasswordHash::Scheme::sha512;
    out.iterations = 0;
  } else {
    return fail(errors::bad_hash, "a hash begins with $7$ or $6$");
  }
  const auto salt = base64_decode(next_part(text));
  if (!salt || salt->empty() || salt->size() > kSaltMax) return fail(errors::bad_hash, "the salt cannot be read");
  auto digest = base64_decode(text);
  if (!digest || digest->size() != kDigestBytes) return fail(errors::bad_hash, "the digest has not 64 bytes of base64");
  out.salt = *salt;
  out.digest = std::move(*digest);
  return out;
}

bool name_valid(ByteView name) {
  if (name.empty() || name.size() > kUsernameMax || !mqtt::utf8_valid(name)) return false;
  for (unsigned char c : name)
    if (c < 0x20 || c == 0x7F) return false;
  return true;
}

bool username_valid(ByteView name) {
  return name_valid(name) && name.find(':') == name.npos;
}

Result<PasswordEntries> parse_password_file(ByteView text) {
  PasswordEntries out;
  std::set<ByteView> seen;
  PH_TRY(for_each_row(text, errors::bad_file, "user", "hash", [&](ByteView name, ByteView encoded) -> Result<> {
    if (!username_valid(name)) return fail(errors::bad_file, "no valid user name");
    PH_ASSIGN(auto hash, parse_password_hash(encoded));
    if (!seen.insert(name).second) return fail(errors::bad_file, "the user is there already");
    if (out.size() >= kUsersMax) return fail(errors::bad_file, "more than " + std::to_string(kUsersMax) + " users");
    out.emplace_back(std::string(name), std::move(hash));
    return {};
  }));
  return out;
}

bool equal_secrets(ByteView a, ByteView b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned>(static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]));
  return difference == 0;
}

}  // namespace ph::security
