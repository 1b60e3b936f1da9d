#include "core/security/http_verdict.h"

#include <algorithm>
#include <boost/json.hpp>

#include "codec/mqtt/text.h"
#include "core/security/acl_claim.h"

namespace ph::security {
namespace {

namespace json = boost::json;

const HttpVerdict kBroken{HttpVerdict::Result::ignore, {}, false, true};

struct Head {
  int status = 0;
  std::optional<size_t> length;
  bool plain = true;  // no transfer coding
};

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}

bool same_name(ByteView a, ByteView b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

std::optional<size_t> number(ByteView text) {
  size_t out = 0;
  if (text.empty() || text.size() > 9) return std::nullopt;
  for (char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    out = out * 10 + static_cast<size_t>(c - '0');
  }
  return out;
}

/// "HTTP/1.1 200 OK" and the header's lines; nullopt: this is no HTTP.
std::optional<Head> parse_head(ByteView text) {
  Head out;
  const size_t end = text.find("\r\n");
  const ByteView first = text.substr(0, end);
  if (!first.starts_with("HTTP/1.") || first.size() < 12 || first[8] != ' ') return std::nullopt;
  const auto status = number(first.substr(9, 3));
  if (!status) return std::nullopt;
  out.status = static_cast<int>(*status);
  for (ByteView rest = end == text.npos ? ByteView() : text.substr(end + 2); !rest.empty();) {
    const size_t stop = rest.find("\r\n");
    const ByteView line = rest.substr(0, stop);
    rest = stop == rest.npos ? ByteView() : rest.substr(stop + 2);
    const size_t colon = line.find(':');
    if (colon == line.npos) return std::nullopt;
    ByteView value = line.substr(colon + 1);
    while (!value.empty() && (value.front() == ' ' || value.front() == '\t')) value.remove_prefix(1);
    while (!value.empty() && (value.back() == ' ' || value.back() == '\t')) value.remove_suffix(1);
    if (same_name(line.substr(0, colon), "content-length")) out.length = number(value);
    if (same_name(line.substr(0, colon), "transfer-encoding") && !same_name(value, "identity")) out.plain = false;
  }
  return out;
}

HttpVerdict parse_body(ByteView body) {
  boost::system::error_code failed;
  const json::value v = json::parse(body, failed);
  if (failed || !v.is_object()) return kBroken;
  const json::object& o = v.get_object();
  HttpVerdict out;
  const json::value* result = o.if_contains("result");
  if (!result || !result->is_string()) return kBroken;
  if (result->get_string() == "allow")
    out.result = HttpVerdict::Result::allow;
  else if (result->get_string() == "deny")
    out.result = HttpVerdict::Result::deny;
  else
    out.broken = result->get_string() != "ignore";
  const json::value* superuser = o.if_contains("is_superuser");
  out.superuser = superuser && superuser->is_bool() && superuser->get_bool();
  // Rules that cannot be read must not turn into none.
  if (const json::value* acl = o.if_contains("acl"); acl && !read_acl_claim(*acl, out.rules))
    return {HttpVerdict::Result::deny, {}, false, false};
  return out;
}

}  // namespace

std::optional<HttpVerdict> parse_http_answer(ByteView bytes, bool ended) {
  const size_t end = bytes.find("\r\n\r\n");
  if (end == bytes.npos) return std::nullopt;
  const auto head = parse_head(bytes.substr(0, end));
  if (!head) return kBroken;
  if (head->status == 204) return HttpVerdict{HttpVerdict::Result::allow, {}, false, false};
  if (head->status != 200 || !head->plain) return kBroken;
  ByteView body = bytes.substr(end + 4);
  if (head->length && body.size() < *head->length) return ended ? std::optional<HttpVerdict>(kBroken) : std::nullopt;
  if (!head->length && !ended) return std::nullopt;
  if (head->length) body = body.substr(0, *head->length);
  return parse_body(body);
}

std::string AccessQuestion::key() const {
  std::string out;
  out += action == Action::publish ? 'p' : 's';
  out += static_cast<char>('0' + qos);
  out += retain ? 'r' : '-';
  return out.append(subject_of(topic));
}

std::string authorization_question(const Identity& who, const AccessQuestion& question) {
  json::object out{{"clientid", who.client_id},
                   {"action", question.action == Action::publish ? "publish" : "subscribe"},
                   {"topic", subject_of(question.topic)},
                   {"qos", question.qos}};
  if (who.username) out["username"] = *who.username;
  if (who.address) out["peerhost"] = who.address->to_string();
  if (question.action == Action::publish) out["retain"] = question.retain;
  return json::serialize(out);
}

std::string http_question(ByteView client_id, const std::optional<std::string>& username,
                          const std::optional<std::string>& password, ByteView address, ByteView certificate) {
  json::object out{{"clientid", client_id}, {"peerhost", address}};
  if (username) out["username"] = *username;
  // A password may be any bytes; JSON cannot say them all.
  if (password && mqtt::utf8_valid(*password)) out["password"] = *password;
  if (!certificate.empty()) out["cert_common_name"] = certificate;
  return json::serialize(out);
}

}  // namespace ph::security
