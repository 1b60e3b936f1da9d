#include "io/websocket.h"

#include <mbedtls/base64.h>
#include <mbedtls/md.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/rfc7230.hpp>
#include <string_view>

#include "base/result.h"

namespace ph::io {
namespace {

namespace http = boost::beast::http;

constexpr std::string_view kKeySuffix = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";  // RFC 6455 1.3
constexpr size_t kKeyBytes = 16;

using Request = http::request_parser<http::empty_body>::value_type;

std::string_view reason_phrase(int status) {
  switch (status) {
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 426:
      return "Upgrade Required";
    case 431:
      return "Request Header Fields Too Large";
    default:
      return "Bad Request";
  }
}

bool is_key(std::string_view text) {
  std::array<unsigned char, kKeyBytes + 2> bytes{};
  size_t size = 0;
  return mbedtls_base64_decode(bytes.data(), bytes.size(), &size, reinterpret_cast<const unsigned char*>(text.data()),
                               text.size()) == 0 &&
         size == kKeyBytes;
}

std::string accept_key(std::string_view key) {
  const std::string text = std::string(key).append(kKeySuffix);
  std::array<unsigned char, 20> hash{};
  const int failed = mbedtls_md(mbedtls_md_info_from_type(MBEDTLS_MD_SHA1),
                                reinterpret_cast<const unsigned char*>(text.data()), text.size(), hash.data());
  PH_ASSERT(failed == 0, "the TLS library has no SHA-1");
  std::array<unsigned char, 32> encoded{};
  size_t size = 0;
  (void)mbedtls_base64_encode(encoded.data(), encoded.size(), &size, hash.data(), hash.size());
  return {reinterpret_cast<const char*>(encoded.data()), size};
}

/// Whether a field, which may be there several times, has `token` in one of its lists.
bool lists(const Request& request, http::field name, std::string_view token) {
  auto [at, end] = request.equal_range(name);
  for (; at != end; ++at)
    if (http::token_list(at->value()).exists(token)) return true;
  return false;
}

/// The value of a field that must be there once; empty otherwise.
std::string_view single(const Request& request, http::field name) {
  if (request.count(name) != 1) return {};
  const auto value = request[name];
  return {value.data(), value.size()};
}

std::string_view path_of(const Request& request) {
  const auto target = request.target();
  const std::string_view text(target.data(), target.size());
  return text.substr(0, text.find('?'));
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}

bool same_text(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, lower, lower);
}

bool origin_fits(std::string_view allowed, std::string_view origin) {
  const size_t star = allowed.find("://*.");
  if (star == allowed.npos) return same_text(allowed, origin);
  const std::string_view scheme = allowed.substr(0, star + 3), rest = allowed.substr(star + 4);  // "https://", ".x.y"
  if (origin.size() <= scheme.size() + rest.size()) return false;
  const std::string_view front = origin.substr(scheme.size(), origin.size() - scheme.size() - rest.size());
  return same_text(origin.substr(0, scheme.size()), scheme) &&
         same_text(origin.substr(origin.size() - rest.size()), rest) && front.find_first_of("/:@") == front.npos;
}

/// Pages of anywhere can make a browser connect to us; Origin says whose page it was (RFC 6455 10.2).
bool origin_allowed(const Request& request, const std::vector<std::string>& origins) {
  if (origins.empty() || request.count(http::field::origin) == 0) return true;
  const std::string_view origin = single(request, http::field::origin);
  return std::ranges::any_of(origins, [&](const std::string& allowed) { return origin_fits(allowed, origin); });
}

}  // namespace

UpgradeAnswer refuse_upgrade(int status, std::string why) {
  UpgradeAnswer out{status, {}, std::move(why)};
  out.response = "HTTP/1.1 " + std::to_string(status) + " " + std::string(reason_phrase(status)) + "\r\n";
  if (status == 405) out.response += "Allow: GET\r\n";
  if (status == 426) out.response += "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n";
  out.response +=
      "Connection: close\r\nContent-Type: text/plain\r\nContent-Length: " + std::to_string(out.why.size() + 1) +
      "\r\n\r\n" + out.why + "\n";
  return out;
}

UpgradeAnswer answer_upgrade(ByteView head, ByteView path, const std::vector<std::string>& origins) {
  http::request_parser<http::empty_body> parser;
  parser.header_limit(kUpgradeHeadMax);
  boost::system::error_code failed;
  parser.put(boost::asio::buffer(head.data(), head.size()), failed);
  if (failed || !parser.is_header_done()) return refuse_upgrade(400, "no HTTP request");
  const Request& request = parser.get();
  if (request.version() != 11) return refuse_upgrade(400, "HTTP/1.1 is needed");
  if (single(request, http::field::host).empty()) return refuse_upgrade(400, "no Host");
  if (request.count(http::field::content_length) || request.count(http::field::transfer_encoding))
    return refuse_upgrade(400, "a request with a body");
  if (path_of(request) != path) return refuse_upgrade(404, "no such path");
  if (request.method() != http::verb::get) return refuse_upgrade(405, "only GET is served here");
  if (!lists(request, http::field::connection, "upgrade") || !lists(request, http::field::upgrade, "websocket"))
    return refuse_upgrade(426, "MQTT over WebSocket is served here");
  if (single(request, http::field::sec_websocket_version) != "13")
    return refuse_upgrade(426, "version 13 of WebSocket is served here");
  if (!origin_allowed(request, origins)) return refuse_upgrade(403, "pages of that origin may not connect here");
  const std::string_view key = single(request, http::field::sec_websocket_key);
  if (!is_key(key)) return refuse_upgrade(400, "no valid Sec-WebSocket-Key");
  for (std::string_view protocol : {"mqtt", "mqttv3.1"}) {
    if (!lists(request, http::field::sec_websocket_protocol, protocol)) continue;
    return {101,
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " +
                accept_key(key) + "\r\nSec-WebSocket-Protocol: " + std::string(protocol) + "\r\n\r\n",
            {}};
  }
  return refuse_upgrade(400, "subprotocol \"mqtt\" is needed");
}

}  // namespace ph::io
