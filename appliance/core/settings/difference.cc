#include "core/settings/difference.h"

#include <algorithm>
#include <array>

#include "core/settings/diagnostic.h"
#include "core/settings/document.h"

namespace ph::settings {
namespace {

constexpr std::array<std::string_view, 6> kLive = {"log", "log.level", "tls.ca", "tls.cert", "tls.key", "tls.crl"};
// Tables of which everything is live, rows of an array among them.
constexpr std::array<std::string_view, 7> kLiveTables = {
    "broker.user", "broker.acl", "broker.authz",       "broker.authn.password_file",
    "broker.jwt",  "broker.psk", "broker.psk_identity"};

bool same(const Value& a, const Value& b) {
  if (a.kind != b.kind || a.text != b.text || a.integer != b.integer || a.floating != b.floating ||
      a.boolean != b.boolean)
    return false;
  if (!std::ranges::equal(a.items, b.items, same)) return false;
  if (a.entries.size() != b.entries.size()) return false;
  return std::ranges::all_of(a.entries, [&](const Entry& e) {
    const Entry* other = b.find(e.key);
    return other && same(e.value, other->value);
  });
}

bool is_rows(const Value& value) {
  return value.is(Value::Kind::array) && value.by_header;
}

std::string row_name(const std::string& path, const Value& row, size_t index) {
  const Entry* name = row.find("name");
  if (name && name->value.is(Value::Kind::string)) return path + " \"" + name->value.text + "\"";
  return "[[" + path + "]] " + std::to_string(index + 1);
}

class Differences {
 public:
  void tables(const std::string& path, const Value& before, const Value& after) {
    for (const Entry& e : before.entries) entry(path, e.key, &e.value, after.find(e.key));
    for (const Entry& e : after.entries)
      if (!before.find(e.key)) note(path.empty() ? e.key : path + "." + e.key);
  }
  std::vector<std::string> take() { return std::move(out_); }

 private:
  void note(std::string name) {
    if (std::ranges::find(out_, name) == out_.end()) out_.push_back(std::move(name));
  }
  void entry(const std::string& path, const std::string& key, const Value* before, const Entry* now) {
    const std::string name = path.empty() ? key : path + "." + key;
    if (!now) return note(name);
    const Value& after = now->value;
    if (is_rows(*before) && is_rows(after))
      rows(name, *before, after);
    else if (before->is(Value::Kind::table) && after.is(Value::Kind::table))
      tables(name, *before, after);
    else if (!same(*before, after))
      note(name);
  }
  void rows(const std::string& path, const Value& before, const Value& after) {
    const size_t count = std::max(before.items.size(), after.items.size());
    for (size_t i = 0; i < before.items.size(); ++i) {
      const std::string name = row_name(path, before.items[i], i);
      const Value* other = named(path, after, name);
      if (!other || !same(before.items[i], *other)) note(name);
    }
    for (size_t i = 0; i < after.items.size(); ++i)
      if (const std::string name = row_name(path, after.items[i], i); !named(path, before, name)) note(name);
    // Rows with names that changed places: the first match counts for some of them.
    for (size_t i = 0; i < count && before.items.size() == after.items.size(); ++i)
      if (row_name(path, before.items[i], i) != row_name(path, after.items[i], i)) return note(path + " (order)");
  }
  static const Value* named(const std::string& path, const Value& rows, const std::string& name) {
    for (size_t i = 0; i < rows.items.size(); ++i)
      if (row_name(path, rows.items[i], i) == name) return &rows.items[i];
    return nullptr;
  }
  std::vector<std::string> out_;
};

}  // namespace

std::vector<std::string> differences(std::string_view before, std::string_view after) {
  Diagnostics ignored;
  Differences found;
  found.tables({}, read_document(before, ignored), read_document(after, ignored));
  return found.take();
}

bool is_live(std::string_view key) {
  if (std::ranges::find(kLive, key) != kLive.end()) return true;
  if (key.starts_with("[[")) key.remove_prefix(2);
  return std::ranges::any_of(kLiveTables, [&](std::string_view table) {
    return key.starts_with(table) &&
           (key.size() == table.size() || std::string_view(".] ").contains(key[table.size()]));
  });
}

}  // namespace ph::settings
