// Document: a TOML text as a tree in which every key and value knows its place, read tolerantly: one run finds all
// syntax errors, duplicate keys and duplicate tables, and still hands out everything that could be read.
//
// TOML itself is parsed by toml++, which stops at the first error; so the text is cut into statements (a header, or a
// key with its value), each is parsed alone, and the tree is put together here. A statement never shares a line with
// another one, so places stay exact.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/settings/diagnostic.h"

namespace ph::settings {

struct Entry;

struct Value {
  enum class Kind : uint8_t { broken, string, integer, floating, boolean, time, array, table };
  Kind kind = Kind::table;
  Place place;
  bool by_header = false;      // table: opened by [x]; array: made of [[x]]
  bool is_inline = false;      // table: { ... }, closed to further keys
  std::string text;            // string
  int64_t integer = 0;         // integer
  double floating = 0;         // floating
  bool boolean = false;        // boolean
  std::vector<Value> items;    // array
  std::vector<Entry> entries;  // table, in the order of the file

  bool is(Kind k) const { return kind == k; }
  const Entry* find(std::string_view key) const;
  Entry* find(std::string_view key);
};

struct Entry {
  std::string key;
  Place place;  // of the key
  Value value;
};

/// "a string", "an integer", ...
std::string_view kind_name(Value::Kind kind);

inline constexpr size_t kDocumentMax = 4 << 20;  // bytes; longer is refused unread

/// The root table. A value that could not be read is there as `broken`, so that nobody calls its key missing.
Value read_document(std::string_view text, Diagnostics& out);

}  // namespace ph::settings
