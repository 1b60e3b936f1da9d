#include "core/settings/rows.h"

namespace ph::settings {

const Value* table_at(const Value& root, std::string_view key, std::string_view shown, Diagnostics& out) {
  const Entry* entry = root.find(key);
  if (!entry || entry->value.is(Value::Kind::broken)) return nullptr;
  if (entry->value.is(Value::Kind::table)) return &entry->value;
  const bool doubled = entry->value.is(Value::Kind::array) && entry->value.by_header;
  const std::string name(shown);
  out.error(entry->place, "`" + name + "` must be a table, not " + std::string(kind_name(entry->value.kind)),
            doubled ? "there is only one: write [" + name + "]" : "write [" + name + "]");
  return nullptr;
}

const std::vector<Value>* rows_at(const Value& parent, std::string_view key, std::string_view path, Diagnostics& out) {
  const Entry* entry = parent.find(key);
  if (!entry || entry->value.is(Value::Kind::broken)) return nullptr;
  if (entry->value.is(Value::Kind::array)) return &entry->value.items;
  out.error(entry->place, "`" + std::string(path) + "` must be an array of tables",
            "write [[" + std::string(path) + "]]");
  return nullptr;
}

}  // namespace ph::settings
