// How tables inside of the document become rows: one table, or an array of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/settings/key.h"

namespace ph::settings {

/// A table of the root; nullptr if it is not there or no table.
const Value* table_at(const Value& root, std::string_view key, std::string_view shown, Diagnostics& out);

/// The elements of [[key]]; nullptr, after complaining where that is due, if there are none.
const std::vector<Value>* rows_at(const Value& parent, std::string_view key, std::string_view path, Diagnostics& out);

/// Reads [[key]] into rows, one per element, so that indexes of rows and elements agree.
template <class Row>
void read_rows(const Value& parent, std::string_view key, const Table<Row>& table, std::vector<Row>& rows,
               Diagnostics& out) {
  const std::string path(table.info().path);
  const std::vector<Value>* items = rows_at(parent, key, path, out);
  if (!items) return;
  for (const Value& item : *items) {
    rows.emplace_back();
    if (item.is(Value::Kind::table))
      table.read(item, rows.back(), out);
    else
      out.error(item.place, "`" + path + "` must hold tables, not " + std::string(kind_name(item.kind)));
  }
}

}  // namespace ph::settings
