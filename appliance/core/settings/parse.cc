#include "core/settings/parse.h"

#include <algorithm>

#include "core/settings/check.h"
#include "core/settings/document.h"
#include "core/settings/schema.h"

namespace ph::settings {

size_t Outcome::errors() const {
  return static_cast<size_t>(std::count_if(diagnostics.begin(), diagnostics.end(),
                                           [](const Diagnostic& d) { return d.severity == Severity::error; }));
}

std::string Outcome::to_string(std::string_view file) const {
  std::string out;
  for (const Diagnostic& d : diagnostics) out += d.to_string(file) + "\n";
  return out;
}

namespace {

/// The files named in strings of a table.
void add_files(const Value& root, std::string_view path,
               std::initializer_list<std::pair<std::string_view, NamedFile::Kind>> keys, std::vector<NamedFile>& to) {
  const Value* table = &root;
  while (table && !path.empty()) {
    const size_t dot = path.find('.');
    const Entry* e = table->find(path.substr(0, dot));
    table = e ? &e->value : nullptr;
    path = dot == path.npos ? std::string_view() : path.substr(dot + 1);
  }
  if (!table) return;
  for (const auto& [key, kind] : keys)
    if (const Entry* e = table->find(key); e && e->value.is(Value::Kind::string) && !e->value.text.empty())
      to.push_back({kind, e->value.text, e->value.place});
}

std::vector<NamedFile> named_files(const Value& root) {
  using Kind = NamedFile::Kind;
  std::vector<NamedFile> out;
  add_files(root, "tls",
            {{"ca", Kind::authorities}, {"cert", Kind::certificate}, {"key", Kind::key}, {"crl", Kind::revocations}},
            out);
  add_files(root, "broker.authn", {{"password_file", Kind::passwords}}, out);
  add_files(root, "broker.psk", {{"file", Kind::psk}}, out);
  add_files(root, "broker.jwt",
            {{"secret_file", Kind::jwt_secret}, {"public_key_file", Kind::jwt_key}, {"jwks_file", Kind::jwks}}, out);
  add_files(root, "broker.http", {{"ca", Kind::authorities}}, out);
  add_files(root, "broker.http_authz", {{"ca", Kind::authorities}}, out);
  return out;
}

}  // namespace

Outcome parse(std::string_view text, const std::string& hostname) {
  Diagnostics diagnostics;
  Settings settings;
  const Value root = read_document(text, diagnostics);
  read_settings(root, settings, diagnostics);
  check_settings(root, settings, hostname, diagnostics);
  Outcome out;
  if (diagnostics.errors() == 0) out.settings = std::move(settings);
  out.diagnostics = diagnostics.take();
  out.files = named_files(root);
  return out;
}

Checked config_check(std::string_view text, std::string_view file, const std::string& hostname) {
  return to_checked(parse(text, hostname), file);
}

Checked to_checked(const Outcome& outcome, std::string_view file) {
  Checked out;
  out.text = outcome.to_string(file);
  const size_t errors = outcome.errors(), warnings = outcome.diagnostics.size() - errors;
  out.exit_code = errors ? 2 : 0;
  auto count = [](size_t n, std::string_view what) {
    return std::to_string(n) + " " + std::string(what) + (n == 1 ? "" : "s");
  };
  out.text += std::string(file) + ": ";
  if (errors) out.text += count(errors, "error") + (warnings ? ", " : "");
  if (warnings) out.text += count(warnings, "warning");
  if (!errors) out.text += warnings ? ", otherwise valid" : "valid";
  out.text += "\n";
  return out;
}

}  // namespace ph::settings
