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

/// The table at a dotted path; null: it is not there.
const Value* table_at(const Value& root, std::string_view path) {
  const Value* table = &root;
  while (table && !path.empty()) {
    const size_t dot = path.find('.');
    const Entry* e = table->find(path.substr(0, dot));
    table = e ? &e->value : nullptr;
    path = dot == path.npos ? std::string_view() : path.substr(dot + 1);
  }
  return table;
}

/// The files named in strings of a table.
void add_files(const Value& root, std::string_view path,
               std::initializer_list<std::pair<std::string_view, NamedFile::Kind>> keys, std::vector<NamedFile>& to) {
  const Value* table = table_at(root, path);
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

std::vector<NamedPlace> named_places(const Value& root) {
  using Kind = NamedPlace::Kind;
  std::vector<NamedPlace> out;
  auto add = [&](const Value* table, std::string_view name, std::string_view key, Kind kind) {
    if (const Entry* e = table ? table->find(key) : nullptr; e && e->value.is(Value::Kind::string))
      out.push_back({kind, std::string(name).append(".").append(key), e->value.text, e->value.place});
  };
  add(table_at(root, "node"), "node", "data_dir", Kind::state);
  add(table_at(root, "api"), "api", "socket", Kind::socket);
  add(table_at(root, "agent"), "agent", "dir", Kind::folder);
  const Value* receiver = table_at(root, "receiver");
  add(receiver, "receiver", "dir", Kind::folder);
  add(receiver, "receiver", "link", Kind::address);
  add(receiver, "receiver", "lsd", Kind::address);
  if (const Value* listeners = table_at(root, "listener"))
    for (const Value& row : listeners->items) add(&row, "listener", "bind", Kind::address);
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
  out.places = named_places(root);
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
