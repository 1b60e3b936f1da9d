#include "io/config_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/security/base64.h"
#include "core/security/jwt.h"
#include "core/security/password.h"
#include "core/security/psk.h"
#include "io/crypto.h"
#include "io/tls.h"

namespace ph::io {
namespace {

using settings::Diagnostic;
using settings::NamedFile;
using settings::Severity;
using Kind = NamedFile::Kind;

constexpr size_t kFileMax = 64UL << 20;

class FileCheck {
 public:
  explicit FileCheck(settings::Outcome& outcome) : outcome_(outcome) {}

  void run() {
    bool tls_there = true;
    for (const NamedFile& file : outcome_.files) {
      const bool there = readable(file);
      if (of_tls(file)) tls_there = tls_there && there;
      if (there) content(file);
    }
    // Its four files as they are used: together.
    if (!outcome_.settings || !outcome_.settings->tls || !tls_there || !sound_) return;
    const settings::Tls& tls = *outcome_.settings->tls;
    const auto read = port::TlsContext::read(
        {.ca_file = tls.ca, .certificate_file = tls.cert, .key_file = tls.key, .crl_file = tls.crl});
    if (!read) add(Severity::error, place_of(tls.key), read.error().detail);
  }

 private:
  static bool of_tls(const NamedFile& file) { return file.kind <= Kind::revocations; }
  settings::Place place_of(const std::string& path) const {
    const auto it = std::ranges::find(outcome_.files, path, &NamedFile::path);
    return it == outcome_.files.end() ? settings::Place{} : it->place;
  }
  void add(Severity severity, settings::Place place, std::string message, std::string hint = {}) {
    outcome_.diagnostics.push_back({severity, place, std::move(message), std::move(hint)});
    sound_ = sound_ && severity != Severity::error;
  }

  bool readable(const NamedFile& file) {
    struct stat info{};
    if (::stat(file.path.c_str(), &info) != 0) {
      const int why = errno;
      const std::string folder = file.path.substr(0, std::max<size_t>(file.path.rfind('/'), 1));
      const bool elsewhere = why == ENOENT && file.path.starts_with('/') && ::stat(folder.c_str(), &info) != 0;
      const bool unknown = elsewhere || why == EACCES;
      add(unknown ? Severity::warning : Severity::error, file.place, file.path + ": " + std::strerror(why),
          unknown ? "what is in it was not checked" : "");
      return false;
    }
    if (S_ISDIR(info.st_mode)) return add(Severity::error, file.place, file.path + ": Is a directory"), false;
    if (::access(file.path.c_str(), R_OK) != 0)
      return add(Severity::warning, file.place, file.path + ": " + std::strerror(errno),
                 "what is in it was not checked"),
             false;
    return true;
  }

  void content(const NamedFile& file) {
    std::ifstream in(file.path, std::ios::binary);
    std::string text(kFileMax + 1, '\0');
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(std::max<std::streamsize>(in.gcount(), 0)));
    if (text.size() > kFileMax) return add(Severity::error, file.place, file.path + ": longer than 64 MiB");
    const std::string fault = fault_of(file, text);
    if (!fault.empty())
      add(Severity::error, file.place, fault.starts_with(file.path) ? fault : file.path + ": " + fault);
  }
  std::string fault_of(const NamedFile& file, std::string text) const {
    auto why = [](const auto& result) { return result ? std::string() : result.error().detail; };
    switch (file.kind) {
      case Kind::passwords:
        return why(security::parse_password_file(text));
      case Kind::psk:
        return why(security::parse_psk_file(text));
      case Kind::jwks:
        return why(security::parse_jwks(text));
      case Kind::jwt_key:
        return why(public_key_kind(text, file.path));
      case Kind::jwt_secret: {
        while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
        const auto& jwt = outcome_.settings ? outcome_.settings->broker.access.jwt : std::nullopt;
        const bool decoded = !jwt || !jwt->secret_base64 || !security::base64_decode(text).value_or("").empty();
        return text.empty() ? "the secret is empty"
               : decoded    ? ""
                            : "no base64, which secret_base64_encoded says it is";
      }
      case Kind::authorities: {
        TlsOptions options{.ca_file = file.path};
        options.ca_may_have_others = file.path == settings::kSystemAuthorities;
        return why(port::TlsContext::read(options));
      }
      case Kind::certificate:
      case Kind::key:
      case Kind::revocations:
        return {};  // together, in run()
    }
    return {};
  }

  settings::Outcome& outcome_;
  bool sound_ = true;
};

}  // namespace

void check_files(settings::Outcome& outcome) {
  FileCheck(outcome).run();
  std::ranges::stable_sort(outcome.diagnostics, {}, &Diagnostic::place);
}

}  // namespace ph::io
