#include "io/pki.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <mbedtls/oid.h>
#include <mbedtls/platform_util.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>

#include "io/clock.h"
#include "io/mbed.h"
#include "io/posix_files.h"
#include "io/random_seed.h"

namespace ph::io {
namespace {

using Writer = mbed::Owned<mbedtls_x509write_cert, mbedtls_x509write_crt_init, mbedtls_x509write_crt_free>;

constexpr size_t kNameMax = 64;  // ub-common-name, RFC 5280 appendix A.1
constexpr size_t kDnsMax = 253;
constexpr size_t kAlternativeNamesMax = 100;
constexpr size_t kPemMax = 16 * 1024;

// GeneralName, RFC 5280 4.2.1.6, context tags.
constexpr char kDnsTag = static_cast<char>(0x82);
constexpr char kAddressTag = static_cast<char>(0x87);

std::unexpected<Error> mbed_failed(std::string_view what, int code) {
  return fail(pki_errors::failed, std::string(what) + ": " + mbed::reason(code));
}

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
}

bool is_file_name(std::string_view name) {
  return !name.empty() && name.size() <= kNameMax && name.front() != '.' && name.front() != '-' && name != "ca" &&
         std::ranges::all_of(name, is_name_character);
}

bool is_dns_name(std::string_view name) {
  if (name.starts_with("*.")) name.remove_prefix(2);
  return !name.empty() && name.size() <= kDnsMax && name.front() != '.' && std::ranges::all_of(name, is_name_character);
}

/// The 4 or 16 bytes of an address.
std::optional<std::string> address_bytes(const std::string& text) {
  char bytes[sizeof(in6_addr)];
  if (::inet_pton(AF_INET, text.c_str(), bytes) == 1) return std::string(bytes, sizeof(in_addr));
  if (::inet_pton(AF_INET6, text.c_str(), bytes) == 1) return std::string(bytes, sizeof(in6_addr));
  return std::nullopt;
}

/// One DER element: tag, length, content.
std::string der(char tag, std::string_view content) {
  std::string out(1, tag);
  size_t size = content.size();
  if (size < 0x80) {
    out.push_back(static_cast<char>(size));
  } else if (size < 0x100) {
    out.push_back(static_cast<char>(0x81));
    out.push_back(static_cast<char>(size));
  } else {
    out.push_back(static_cast<char>(0x82));
    out.push_back(static_cast<char>(size >> 8));
    out.push_back(static_cast<char>(size));
  }
  out += content;
  return out;
}

constexpr char kSequence = 0x30;
constexpr char kObjectId = 0x06;

/// SubjectAltName of the request, written by hand: mbedTLS 2.28 cannot.
Result<std::string> alternative_names(const PkiRequest& request) {
  std::vector<std::string> names;
  auto add = [&](std::string name) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
  };
  if (auto address = address_bytes(request.name))
    add(der(kAddressTag, *address));
  else
    add(der(kDnsTag, request.name));
  for (const auto& name : request.dns) {
    if (!is_dns_name(name)) return fail(pki_errors::bad_name, "\"" + name + "\" is not a host name");
    add(der(kDnsTag, name));
  }
  for (const auto& text : request.ip) {
    auto address = address_bytes(text);
    if (!address) return fail(pki_errors::bad_name, "\"" + text + "\" is not an IP address");
    add(der(kAddressTag, *address));
  }
  if (names.size() > kAlternativeNamesMax)
    return fail(pki_errors::bad_name, "more than " + std::to_string(kAlternativeNamesMax) + " names");
  std::string all;
  for (const auto& name : names) all += name;
  return der(kSequence, all);
}

/// "YYYYMMDDhhmmss"
std::string to_text(WallTime t) {
  auto day = std::chrono::floor<std::chrono::days>(t);
  std::chrono::year_month_day date(day);
  std::chrono::hh_mm_ss time(std::chrono::floor<std::chrono::seconds>(t - day));
  char text[32];
  std::snprintf(text, sizeof text, "%04d%02u%02u%02d%02d%02d", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                static_cast<int>(time.hours().count()), static_cast<int>(time.minutes().count()),
                static_cast<int>(time.seconds().count()));
  return text;
}

std::string to_text(const mbedtls_x509_time& t) {
  char text[32];
  std::snprintf(text, sizeof text, "%04d%02d%02d%02d%02d%02d", t.year, t.mon, t.day, t.hour, t.min, t.sec);
  return text;
}

Result<> make_key(mbedtls_pk_context* key, mbed::Generator& generator) {
  if (int code = mbedtls_pk_setup(key, mbedtls_pk_info_from_type(MBEDTLS_PK_ECKEY))) return mbed_failed("key", code);
  if (int code =
          mbedtls_ecp_gen_key(MBEDTLS_ECP_DP_SECP256R1, mbedtls_pk_ec(*key), mbedtls_ctr_drbg_random, generator.get()))
    return mbed_failed("key", code);
  return {};
}

struct Subject {
  std::string subject;  // "CN=..."
  std::string issuer;
  std::string from;
  std::string until;
  bool authority = false;
  std::string alternative_names;  // DER; leaves only
};

Result<> set_extensions(mbedtls_x509write_cert* certificate, const Subject& subject) {
  int code = mbedtls_x509write_crt_set_basic_constraints(certificate, subject.authority, subject.authority ? 0 : -1);
  if (code == 0)
    code = mbedtls_x509write_crt_set_key_usage(
        certificate, subject.authority ? MBEDTLS_X509_KU_KEY_CERT_SIGN | MBEDTLS_X509_KU_CRL_SIGN
                                       : MBEDTLS_X509_KU_DIGITAL_SIGNATURE);
  if (code == 0) code = mbedtls_x509write_crt_set_subject_key_identifier(certificate);
  if (code == 0) code = mbedtls_x509write_crt_set_authority_key_identifier(certificate);
  auto extension = [&](const char* oid, size_t oid_size, const std::string& value) {
    return mbedtls_x509write_crt_set_extension(certificate, oid, oid_size, 0,
                                               reinterpret_cast<const unsigned char*>(value.data()), value.size());
  };
  if (code == 0 && !subject.authority) {
    std::string usage =
        der(kSequence, der(kObjectId, MBEDTLS_OID_SERVER_AUTH) + der(kObjectId, MBEDTLS_OID_CLIENT_AUTH));
    code = extension(MBEDTLS_OID_EXTENDED_KEY_USAGE, MBEDTLS_OID_SIZE(MBEDTLS_OID_EXTENDED_KEY_USAGE), usage);
    if (code == 0)
      code = extension(MBEDTLS_OID_SUBJECT_ALT_NAME, MBEDTLS_OID_SIZE(MBEDTLS_OID_SUBJECT_ALT_NAME),
                       subject.alternative_names);
  }
  if (code != 0) return mbed_failed("certificate extensions", code);
  return {};
}

Result<std::string> sign(const Subject& subject, mbedtls_pk_context* subject_key, mbedtls_pk_context* issuer_key,
                         mbed::Generator& generator) {
  Writer certificate;
  mbedtls_x509write_crt_set_version(certificate.get(), MBEDTLS_X509_CRT_VERSION_3);
  mbedtls_x509write_crt_set_md_alg(certificate.get(), MBEDTLS_MD_SHA256);
  mbedtls_x509write_crt_set_subject_key(certificate.get(), subject_key);
  mbedtls_x509write_crt_set_issuer_key(certificate.get(), issuer_key);
  std::string serial = random_bytes(16);
  serial[0] = static_cast<char>((serial[0] & 0x3F) | 0x40);  // positive, and never shorter
  int code = mbed::set_serial(certificate.get(), serial);
  if (code == 0) code = mbedtls_x509write_crt_set_subject_name(certificate.get(), subject.subject.c_str());
  if (code == 0) code = mbedtls_x509write_crt_set_issuer_name(certificate.get(), subject.issuer.c_str());
  if (code == 0)
    code = mbedtls_x509write_crt_set_validity(certificate.get(), subject.from.c_str(), subject.until.c_str());
  if (code != 0) return mbed_failed("certificate", code);
  PH_TRY(set_extensions(certificate.get(), subject));
  std::array<unsigned char, kPemMax> pem{};
  code = mbedtls_x509write_crt_pem(certificate.get(), pem.data(), pem.size(), mbedtls_ctr_drbg_random, generator.get());
  if (code != 0) return mbed_failed("certificate", code);
  return std::string(reinterpret_cast<const char*>(pem.data()));
}

/// Creates `path` with these bytes, on disk; never replaces a file.
Result<> write_new(const std::string& path, std::string_view bytes, mode_t mode) {
  int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
  if (descriptor < 0) {
    if (errno == EEXIST) return fail(pki_errors::exists, path + " is there already", EEXIST);
    return fail_errno(pki_errors::failed, path, errno);
  }
  bool ok = ::fchmod(descriptor, mode) == 0;  // whatever the umask
  while (ok && !bytes.empty()) {
    ssize_t put = ::write(descriptor, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    ok = put > 0;
    if (ok) bytes.remove_prefix(static_cast<size_t>(put));
  }
  ok = ok && ::fsync(descriptor) == 0;
  int os_error = errno;
  ::close(descriptor);
  if (ok) return {};
  (void)::unlink(path.c_str());
  return fail_errno(pki_errors::failed, path, os_error);
}

/// Key and certificate as two files that are both there, or neither.
Result<PkiIssued> store(const std::string& directory, const std::string& name, mbedtls_pk_context* key,
                        const std::string& certificate) {
  PkiIssued issued{directory + "/" + name + ".crt", directory + "/" + name + ".key"};
  struct stat found{};
  if (::lstat(issued.certificate_file.c_str(), &found) == 0)
    return fail(pki_errors::exists, issued.certificate_file + " is there already", EEXIST);
  std::array<unsigned char, kPemMax> pem{};
  if (int code = mbedtls_pk_write_key_pem(key, pem.data(), pem.size())) return mbed_failed("key", code);
  auto written = write_new(issued.key_file, reinterpret_cast<const char*>(pem.data()), 0600);
  mbedtls_platform_zeroize(pem.data(), pem.size());
  PH_TRY(written);
  written = write_new(issued.certificate_file, certificate, 0644);
  if (written) written = PosixFiles().sync_directory(directory);
  if (!written) {
    (void)::unlink(issued.key_file.c_str());
    return std::unexpected(written.error());
  }
  return issued;
}

}  // namespace

Result<PkiIssued> pki_init(const std::string& directory) {
  WallTime now = wall_now();
  return pki_init(directory, {now - kClockTolerance, now + kCaValidity});
}

Result<PkiIssued> pki_init(const std::string& directory, PkiValidity validity) {
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return fail_errno(pki_errors::failed, directory, errno);
  mbed::Generator generator;
  mbed::Key key;
  PH_TRY(make_key(key.get(), generator));
  Subject subject;
  // A name of its own: certificates of two CAs of one site must not look as if one had signed both.
  subject.subject = subject.issuer = "O=posthouse,CN=posthouse CA " + to_hex(random_bytes(4));
  subject.from = to_text(validity.from);
  subject.until = to_text(validity.until);
  subject.authority = true;
  PH_ASSIGN(std::string certificate, sign(subject, key.get(), key.get(), generator));
  return store(directory, "ca", key.get(), certificate);
}

Result<PkiIssued> pki_issue(const std::string& directory, const PkiRequest& request) {
  WallTime now = wall_now();
  return pki_issue(directory, request, {now - kClockTolerance, now + kLeafValidity});
}

Result<PkiIssued> pki_issue(const std::string& directory, const PkiRequest& request, PkiValidity validity) {
  if (!is_file_name(request.name) && !(address_bytes(request.name) && request.name.size() <= kNameMax))
    return fail(pki_errors::bad_name, "\"" + request.name + "\": letters, digits, '.', '-' and '_', at most " +
                                          std::to_string(kNameMax) + ", and not \"ca\"");
  Subject subject;
  PH_ASSIGN(subject.alternative_names, alternative_names(request));
  mbed::Generator generator;
  mbed::Certificates authority;
  std::string ca_file = directory + "/ca.crt";
  std::string ca_key_file = directory + "/ca.key";
  if (int code = mbedtls_x509_crt_parse_file(authority.get(), ca_file.c_str()))
    return fail(pki_errors::bad_ca, ca_file + ": " + mbed::reason(code));
  mbed::Key authority_key;
  if (int code = mbed::parse_key_file(authority_key.get(), ca_key_file.c_str(), generator))
    return fail(pki_errors::bad_ca, ca_key_file + ": " + mbed::reason(code));
  if (mbed::check_pair(authority.get(), authority_key.get(), generator) != 0)
    return fail(pki_errors::bad_ca, ca_key_file + " is not the key of " + ca_file);

  char issuer[512];
  int size = mbedtls_x509_dn_gets(issuer, sizeof issuer, &authority->subject);
  if (size < 0) return fail(pki_errors::bad_ca, ca_file + ": " + mbed::reason(size));
  subject.issuer = issuer;
  subject.subject = "O=posthouse,CN=" + request.name;
  subject.from = to_text(validity.from);
  subject.until = std::min(to_text(validity.until), to_text(authority->valid_to));
  mbed::Key key;
  PH_TRY(make_key(key.get(), generator));
  PH_ASSIGN(std::string certificate, sign(subject, key.get(), authority_key.get(), generator));
  return store(directory, request.name, key.get(), certificate);
}

}  // namespace ph::io
