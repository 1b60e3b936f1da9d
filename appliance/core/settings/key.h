// Key and Table: how a TOML table becomes a row of Settings. A Table is a list of keys; a key knows its type, range,
// default and meaning, how it is read and how its value is written. The one list (schema.cc) serves the reader, the
// suggestions and the reference file, so they cannot differ.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/settings/diagnostic.h"
#include "core/settings/document.h"
#include "core/settings/schema.h"
#include "core/settings/units.h"

namespace ph::settings {

/// Reads one key's value; complains through `out`. `key` is its full name, "upstream.window".
struct Field {
  std::string_view table;
  std::string_view key;
  Diagnostics& out;

  void error(Place place, std::string message, std::string hint = {}) const {
    out.error(place, std::move(message), std::move(hint));
  }
  std::string name() const { return "`" + std::string(key) + "`"; }
  /// False, after complaining, if the value is of another kind. Silent for what could not be read at all.
  bool expect(const Value& value, Value::Kind kind, std::string_view wanted) const;
  /// Complains and returns true if this value (or the key as such) has no machinery yet.
  bool not_built(Place place, std::string_view value) const;
};

template <class Row>
struct Key {
  std::string_view name;
  std::string type;
  std::string range;
  std::string_view doc;
  std::function<void(Row&, const Value&, const Field&)> read;
  std::function<std::string(const Row&)> show;  // the value as TOML; empty: there is none
  std::string example;                          // for the reference, where there is no default
  bool required = false;

  Key needed() && {
    required = true;
    return std::move(*this);
  }
  Key like(std::string text) && {
    example = std::move(text);
    return std::move(*this);
  }
};

std::string in_quotes(std::string_view text);  // as a TOML string
std::string quoted_list(const std::vector<std::string>& list);

std::optional<uint64_t> read_integer(const Value& value, const Field& field, uint64_t min, uint64_t max);
std::optional<Bytes> read_size(const Value& value, const Field& field, Bytes min, Bytes max);
std::optional<Bytes> read_rate(const Value& value, const Field& field);
std::optional<Duration> read_duration(const Value& value, const Field& field, Duration min, Duration max);
std::optional<std::vector<std::string>> read_list(const Value& value, const Field& field);
/// Index of the chosen name.
std::optional<size_t> read_choice(const Value& value, const Field& field, const std::vector<std::string_view>& names);
std::string choices_text(const std::vector<std::string_view>& names);

template <class Row>
Key<Row> text(std::string_view name, std::string Row::* member, std::string_view doc) {
  return {name,
          "string",
          "",
          doc,
          [member](Row& row, const Value& v, const Field& f) {
            if (f.expect(v, Value::Kind::string, "a string")) row.*member = v.text;
          },
          [member](const Row& row) { return (row.*member).empty() ? std::string() : in_quotes(row.*member); },
          "",
          false};
}

template <class Row>
Key<Row> texts(std::string_view name, std::vector<std::string> Row::* member, std::string_view doc) {
  return {name,
          "array of strings",
          "",
          doc,
          [member](Row& row, const Value& v, const Field& f) {
            if (auto list = read_list(v, f)) row.*member = std::move(*list);
          },
          [member](const Row& row) { return (row.*member).empty() ? std::string() : quoted_list(row.*member); },
          "",
          false};
}

/// `Member` is bool or optional<bool>.
template <class Row, class Member>
Key<Row> flag(std::string_view name, Member Row::* member, std::string_view doc) {
  return {name,
          "boolean",
          "",
          doc,
          [member](Row& row, const Value& v, const Field& f) {
            if (f.expect(v, Value::Kind::boolean, "true or false")) row.*member = v.boolean;
          },
          [member](const Row& row) {
            const std::optional<bool> value = row.*member;
            return value ? (*value ? "true" : "false") : std::string();
          },
          "",
          false};
}

template <class Row>
Key<Row> integer(std::string_view name, uint32_t Row::* member, uint32_t min, uint32_t max, std::string_view doc) {
  return {name,
          "integer",
          std::to_string(min) + " .. " + std::to_string(max),
          doc,
          [=](Row& row, const Value& v, const Field& f) {
            if (auto n = read_integer(v, f, min, max)) row.*member = static_cast<uint32_t>(*n);
          },
          [member](const Row& row) { return std::to_string(row.*member); },
          "",
          false};
}

/// `Member` is Bytes or optional<Bytes>.
template <class Row, class Member>
Key<Row> size(std::string_view name, Member Row::* member, Bytes min, Bytes max, std::string_view doc) {
  return {name,
          "size",
          format_size(min) + " .. " + format_size(max),
          doc,
          [=](Row& row, const Value& v, const Field& f) {
            if (auto n = read_size(v, f, min, max)) row.*member = *n;
          },
          [member](const Row& row) {
            const std::optional<Bytes> value = row.*member;
            return value ? in_quotes(format_size(*value)) : std::string();
          },
          "",
          false};
}

/// `Member` is Duration or optional<Duration>.
template <class Row, class Member>
Key<Row> duration(std::string_view name, Member Row::* member, Duration min, Duration max, std::string_view doc) {
  return {name,
          "duration",
          format_duration(min) + " .. " + format_duration(max),
          doc,
          [=](Row& row, const Value& v, const Field& f) {
            if (auto d = read_duration(v, f, min, max)) row.*member = *d;
          },
          [member](const Row& row) {
            const std::optional<Duration> value = row.*member;
            return value ? in_quotes(format_duration(*value)) : std::string();
          },
          "",
          false};
}

/// Bytes per second.
template <class Row>
Key<Row> byte_rate(std::string_view name, std::optional<Bytes> Row::* member, std::string_view doc) {
  return {name,
          "rate",
          "",
          doc,
          [member](Row& row, const Value& v, const Field& f) {
            if (auto rate = read_rate(v, f)) row.*member = *rate;
          },
          nullptr,
          "\"8MiB/s\"",
          false};
}

/// `Member` is an enum or an optional one.
template <class Row, class Member, class Choice>
Key<Row> choice(std::string_view name, Member Row::* member, std::vector<std::pair<std::string_view, Choice>> choices,
                std::string_view doc) {
  std::vector<std::string_view> names;
  for (const auto& c : choices) names.push_back(c.first);
  return {name,
          "string",
          choices_text(names),
          doc,
          [=](Row& row, const Value& v, const Field& f) {
            if (auto i = read_choice(v, f, names)) row.*member = choices[*i].second;
          },
          [=](const Row& row) {
            const std::optional<Choice> value = row.*member;
            for (const auto& c : choices)
              if (value == c.second) return in_quotes(c.first);
            return std::string();
          },
          "",
          false};
}

/// The keys of a table that are there and unknown, or missing and needed, are reported by these two.
void report_unknown(std::string_view table, const Entry& entry, Diagnostics& out);
void report_missing(std::string_view table, std::string_view key, Place place, Diagnostics& out);

template <class Row>
class Table {
 public:
  Table(std::string_view path, bool array, std::string_view doc, std::vector<Key<Row>> keys,
        std::vector<std::string_view> inner = {})
      : path_(path), array_(array), doc_(doc), keys_(std::move(keys)), inner_(std::move(inner)) {}

  /// Reads what is a table. Keys named in `inner` are tables of their own, read by the caller.
  void read(const Value& table, Row& row, Diagnostics& out) const {
    for (const Entry& e : table.entries) {
      const Key<Row>* key = find(e.key);
      if (!key) {
        if (std::find(inner_.begin(), inner_.end(), e.key) == inner_.end()) report_unknown(path_, e, out);
        continue;
      }
      const Field field{path_, key->name, out};
      if (!field.not_built(e.place, "")) key->read(row, e.value, field);
    }
    for (const Key<Row>& k : keys_)
      if (k.required && !table.find(k.name)) report_missing(path_, k.name, table.place, out);
  }

  TableInfo info() const {
    TableInfo out{path_, array_, doc_, inner_, {}};
    const Row defaults{};
    for (const Key<Row>& k : keys_)
      out.keys.push_back({k.name, k.type, k.range, k.show ? k.show(defaults) : "", k.example, k.doc, k.required});
    return out;
  }

 private:
  const Key<Row>* find(std::string_view name) const {
    for (const Key<Row>& k : keys_)
      if (k.name == name) return &k;
    return nullptr;
  }
  std::string_view path_;
  bool array_;
  std::string_view doc_;
  std::vector<Key<Row>> keys_;
  std::vector<std::string_view> inner_;
};

}  // namespace ph::settings
