#include "core/settings/key.h"

#include <algorithm>
#include <array>

#include "core/settings/suggest.h"

namespace ph::settings {
namespace {

const TableInfo* table_of(std::string_view path) {
  for (const TableInfo& t : schema())
    if (t.path == path) return &t;
  return nullptr;
}

std::string code(std::string_view name) {
  return "`" + std::string(name) + "`";
}

/// "[agent]" and so on, of all tables other than `but` that know the key.
std::string homes_of(std::string_view key, std::string_view but) {
  std::string out;
  for (const TableInfo& t : schema()) {
    // A table inside of another one: its header is where it belongs.
    if (t.path != but && t.path.ends_with("." + std::string(key))) out += (out.empty() ? "" : " or ") + t.header();
    for (const KeyInfo& k : t.keys)
      if (k.name == key && t.path != but) out += (out.empty() ? "" : " or ") + t.header();
  }
  return out;
}

bool is_digits(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

/// What somebody meant who wrote "yes", or 1.
std::string boolean_hint(const Value& value) {
  static constexpr std::array<std::string_view, 4> kYes = {"true", "yes", "on", "1"}, kNo = {"false", "no", "off", "0"};
  std::string text = value.is(Value::Kind::integer) ? std::to_string(value.integer) : value.text;
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  if (std::ranges::find(kYes, text) != kYes.end()) return "write true, without quotes";
  if (std::ranges::find(kNo, text) != kNo.end()) return "write false, without quotes";
  return {};
}

std::string shortened(std::string_view text) {
  constexpr size_t kMax = 80;
  return text.size() <= kMax ? std::string(text) : std::string(text.substr(0, kMax)) + "...";
}

}  // namespace

bool Field::expect(const Value& value, Value::Kind kind, std::string_view wanted) const {
  if (value.is(kind)) return true;
  if (value.is(Value::Kind::broken)) return false;
  std::string hint;
  if (value.is(Value::Kind::string) && kind == Value::Kind::integer && is_digits(value.text))
    hint = "write " + shortened(value.text) + " without quotes";
  if (kind == Value::Kind::boolean) hint = boolean_hint(value);
  if (value.is(Value::Kind::string) && kind == Value::Kind::array)
    hint = "write [" + in_quotes(shortened(value.text)) + "]";
  if (value.is(Value::Kind::array) && kind == Value::Kind::string) hint = "write it without brackets";
  error(value.place, name() + " must be " + std::string(wanted) + ", not " + std::string(kind_name(value.kind)), hint);
  return false;
}

bool Field::not_built(Place place, std::string_view value) const {
  const std::string full = std::string(table) + "." + std::string(key);
  for (const NotBuilt& n : settings::not_built()) {
    if (n.key != full || n.value != value) continue;
    error(place, "`" + full + (value.empty() ? "" : (value.starts_with('>') ? " " : " = ") + std::string(value)) +
                     "` is not supported in this version");
    return true;
  }
  return false;
}

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (unsigned char c : text) {
    static constexpr char kDigits[] = "0123456789abcdef";
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < ' ' || c == 0x7F) {
      out += "\\u00";
      out += kDigits[c >> 4];
      out += kDigits[c & 15];
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + '"';
}

std::string quoted_list(const std::vector<std::string>& list) {
  std::string out = "[";
  for (const std::string& s : list) out += (out.size() > 1 ? ", " : "") + in_quotes(s);
  return out + "]";
}

std::optional<uint64_t> read_integer(const Value& value, const Field& field, uint64_t min, uint64_t max) {
  if (!field.expect(value, Value::Kind::integer, "an integer")) return std::nullopt;
  if (value.integer >= 0 && static_cast<uint64_t>(value.integer) >= min && static_cast<uint64_t>(value.integer) <= max)
    return static_cast<uint64_t>(value.integer);
  field.error(value.place, field.name() + " is " + std::to_string(value.integer) + ", outside of " +
                               std::to_string(min) + " .. " + std::to_string(max));
  return std::nullopt;
}

namespace {

/// What sizes, durations and rates have in common: a string; a bare number gets its own words.
template <class T>
std::optional<T> read_unit(const Value& value, const Field& field, Unit<T> (*parse)(std::string_view),
                           std::string_view what, std::string_view units) {
  if (value.is(Value::Kind::integer) || value.is(Value::Kind::floating)) {
    const std::string unit(units.substr(0, units.find(' ')));
    std::string example =
        (value.is(Value::Kind::integer) && value.integer >= 0 ? std::to_string(value.integer) : "10") + unit;
    // A number of that size was meant in bytes.
    if (value.is(Value::Kind::integer) && value.integer >= 1024 && unit.starts_with("MiB"))
      example = format_size(Bytes{static_cast<uint64_t>(value.integer)}) + unit.substr(3);
    field.error(value.place, field.name() + " is " + std::string(what) + " and needs a unit",
                "write \"" + example + "\" (" + std::string(units) + ")");
    return std::nullopt;
  }
  if (!field.expect(value, Value::Kind::string, std::string(what) + " in quotes, with a unit")) return std::nullopt;
  auto parsed = parse(value.text);
  if (parsed) return *parsed;
  field.error(value.place, field.name() + ": " + parsed.error());
  return std::nullopt;
}

template <class T>
std::optional<T> in_range(std::optional<T> got, const Value& value, const Field& field, T min, T max,
                          std::string (*show)(T)) {
  if (!got || (*got >= min && *got <= max)) return got;
  field.error(value.place,
              field.name() + " is " + shortened(value.text) + ", outside of " + show(min) + " .. " + show(max));
  return std::nullopt;
}

}  // namespace

std::optional<Bytes> read_size(const Value& value, const Field& field, Bytes min, Bytes max) {
  return in_range(read_unit(value, field, parse_size, "a size", "MiB or kB, MB, GB, KiB, GiB"), value, field, min, max,
                  format_size);
}

std::optional<Bytes> read_rate(const Value& value, const Field& field) {
  return read_unit(value, field, parse_rate, "a rate", "MiB/s or kB/s, MB/s, KiB/s, GiB/s");
}

std::optional<Duration> read_duration(const Value& value, const Field& field, Duration min, Duration max) {
  return in_range(read_unit(value, field, parse_duration, "a duration", "s or ms, m, h, d"), value, field, min, max,
                  format_duration);
}

std::optional<std::vector<std::string>> read_list(const Value& value, const Field& field) {
  if (!field.expect(value, Value::Kind::array, "an array of strings")) return std::nullopt;
  std::vector<std::string> out;
  for (const Value& item : value.items) {
    if (!field.expect(item, Value::Kind::string, "an array of strings only")) return std::nullopt;
    out.push_back(item.text);
  }
  return out;
}

std::optional<size_t> read_choice(const Value& value, const Field& field, const std::vector<std::string_view>& names) {
  if (!field.expect(value, Value::Kind::string, choices_text(names))) return std::nullopt;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] != value.text) continue;
    if (field.not_built(value.place, in_quotes(value.text))) return std::nullopt;
    return i;
  }
  const std::string_view near = nearest(value.text, names);
  field.error(value.place, field.name() + " is " + in_quotes(shortened(value.text)) + ", not " + choices_text(names),
              near.empty() ? "" : "did you mean " + in_quotes(near) + "?");
  return std::nullopt;
}

std::string choices_text(const std::vector<std::string_view>& names) {
  std::string out;
  for (size_t i = 0; i < names.size(); ++i)
    out += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + in_quotes(names[i]);
  return out;
}

void report_unknown(std::string_view table, const Entry& entry, Diagnostics& out) {
  const TableInfo* own = table_of(table);
  const std::string where = own ? own->header() : "the file's top level";
  const std::string message = "unknown key " + code(shortened(entry.key)) + " in " + where;
  if (std::string homes = homes_of(entry.key, table); !homes.empty()) {
    out.error(entry.place, code(entry.key) + " does not belong in " + where, "it belongs in " + homes);
    return;
  }
  std::vector<std::string_view> here, everywhere;
  if (own)
    for (const KeyInfo& k : own->keys) here.push_back(k.name);
  if (own) here.insert(here.end(), own->inner.begin(), own->inner.end());
  for (const TableInfo& t : schema()) {
    if (!own && t.path.find('.') == t.path.npos) here.push_back(t.path);
    for (const KeyInfo& k : t.keys) everywhere.push_back(k.name);
  }
  if (std::string_view near = nearest(entry.key, here); !near.empty()) {
    out.error(entry.place, message, "did you mean " + code(near) + "?");
    return;
  }
  if (std::string_view near = nearest(entry.key, everywhere); !near.empty()) {
    out.error(entry.place, message, "did you mean " + code(near) + ", which belongs in " + homes_of(near, table) + "?");
    return;
  }
  std::string all;
  for (std::string_view k : here) all += (all.empty() ? "" : ", ") + std::string(k);
  out.error(entry.place, message, "known there: " + all);
}

void report_missing(std::string_view table, std::string_view key, Place place, Diagnostics& out) {
  const TableInfo* own = table_of(table);
  out.error(place, (own ? own->header() : std::string(table)) + " needs " + code(key));
}

}  // namespace ph::settings
