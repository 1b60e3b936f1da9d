// A small certificate authority, for fleets that have none: `pki init DIR` and `pki issue DIR NAME`.
//
// Files in DIR, PEM, none ever overwritten: ca.key and ca.crt; NAME.key and NAME.crt for each issued name. Keys are EC
// P-256, mode 0600; certificates 0644. A file is on disk when the call returns, or not there at all.
//
// Certificates: X.509 v3, ECDSA with SHA-256, random serial numbers of 127 bits. The CA may sign leaves only (path
// length 0). Leaves serve as server and client; NAME is the common name and, with what is asked for, an alternative
// name. RFC 5280.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace ph::io {

namespace pki_errors {
inline constexpr ErrorCode bad_name{"pki.bad_name"};  // not a file, host or address name
inline constexpr ErrorCode exists{"pki.exists"};      // never overwritten: remove it first if you mean to
inline constexpr ErrorCode bad_ca{"pki.bad_ca"};      // DIR has no usable CA
inline constexpr ErrorCode failed{"pki.failed"};
}  // namespace pki_errors

inline constexpr auto kCaValidity = std::chrono::days(3650);
inline constexpr auto kLeafValidity = std::chrono::days(825);
/// Certificates begin this long before they are made: clocks of a fleet differ.
inline constexpr auto kClockTolerance = std::chrono::hours(24);

struct PkiValidity {
  WallTime from;
  WallTime until;
};

struct PkiRequest {
  std::string name;              // letters, digits, '.', '-', '_'; at most 64
  std::vector<std::string> dns;  // further host names; "*.site.example" is allowed
  std::vector<std::string> ip;   // further addresses, IPv4 or IPv6
};

struct PkiIssued {
  std::string certificate_file;
  std::string key_file;
};

/// Makes DIR (its parent must exist), a key and a self-signed CA certificate.
Result<PkiIssued> pki_init(const std::string& directory);
Result<PkiIssued> pki_init(const std::string& directory, PkiValidity validity);
/// Makes a key and a certificate signed by DIR's CA. Never valid longer than the CA.
Result<PkiIssued> pki_issue(const std::string& directory, const PkiRequest& request);
Result<PkiIssued> pki_issue(const std::string& directory, const PkiRequest& request, PkiValidity validity);

}  // namespace ph::io
