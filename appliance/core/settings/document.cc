#include "core/settings/document.h"

#include <toml++/toml.h>

#include <algorithm>
#include <utility>

namespace ph::settings {
namespace {

using Path = std::vector<std::pair<std::string, Place>>;

bool is_bare(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

/// Where the statement that begins at `at` ends: behind its last line's newline. `whole` tells whether all brackets and
/// strings were closed.
struct Extent {
  size_t end = 0;
  bool whole = true;
};

/// Skips a string that begins at text[i]; returns the offset behind it. A one-line string ends at a newline at the
/// latest. `closed` is false if its end is missing.
size_t skip_string(std::string_view text, size_t i, bool& closed) {
  const char quote = text[i];
  const bool escapes = quote == '"';
  const std::string three(3, quote);
  const bool multi = text.substr(i, 3) == three;
  i += multi ? 3 : 1;
  for (; i < text.size(); ++i) {
    if (escapes && text[i] == '\\') {
      ++i;
    } else if (multi ? text.substr(i, 3) == three : text[i] == quote) {
      i += multi ? 3 : 1;
      while (multi && i < text.size() && text[i] == quote) ++i;  // """a"""" ends with a quote of its own
      return i;
    } else if (!multi && text[i] == '\n') {
      break;
    }
  }
  closed = false;
  return std::min(i, text.size());
}

Extent statement_extent(std::string_view text, size_t at) {
  int depth = 0;
  bool closed = true;
  size_t i = at;
  while (i < text.size()) {
    const char c = text[i];
    if (c == '"' || c == '\'') {
      i = skip_string(text, i, closed);
      continue;
    }
    if (c == '#') {
      i = std::min(text.find('\n', i), text.size());
      continue;
    }
    if (c == '[' || c == '{') ++depth;
    if ((c == ']' || c == '}') && depth > 0) --depth;
    ++i;
    if (c == '\n' && depth == 0) break;
  }
  return {i, depth == 0 && closed};
}

/// Whether a line looks as if a statement began there: for going on after an unclosed bracket.
bool begins_statement(std::string_view line) {
  size_t i = line.find_first_not_of(" \t");
  if (i == line.npos) return false;
  if (line[i] == '[') return true;
  const size_t key = i;
  while (i < line.size() && (is_bare(line[i]) || line[i] == '.' || line[i] == '"' || line[i] == '\'')) ++i;
  if (i == key) return false;
  i = line.find_first_not_of(" \t", i);
  return i != line.npos && line[i] == '=';
}

Value convert(const toml::node& node, uint32_t line_offset);

Place place_of(const toml::source_region& region, uint32_t line_offset) {
  return {static_cast<uint32_t>(region.begin.line) + line_offset, static_cast<uint32_t>(region.begin.column)};
}

void convert_table(const toml::table& table, uint32_t line_offset, Value& out) {
  out.kind = Value::Kind::table;
  out.is_inline = table.is_inline();
  for (const auto& [key, child] : table)
    out.entries.push_back({std::string(key.str()), place_of(key.source(), line_offset), convert(child, line_offset)});
  std::sort(out.entries.begin(), out.entries.end(), [](const Entry& a, const Entry& b) { return a.place < b.place; });
}

Value convert(const toml::node& node, uint32_t line_offset) {
  Value out;
  out.place = place_of(node.source(), line_offset);
  switch (node.type()) {
    case toml::node_type::string:
      out.kind = Value::Kind::string;
      out.text = node.as_string()->get();
      break;
    case toml::node_type::integer:
      out.kind = Value::Kind::integer;
      out.integer = node.as_integer()->get();
      break;
    case toml::node_type::floating_point:
      out.kind = Value::Kind::floating;
      out.floating = node.as_floating_point()->get();
      break;
    case toml::node_type::boolean:
      out.kind = Value::Kind::boolean;
      out.boolean = node.as_boolean()->get();
      break;
    case toml::node_type::array:
      out.kind = Value::Kind::array;
      for (const auto& item : *node.as_array()) out.items.push_back(convert(item, line_offset));
      break;
    case toml::node_type::table:
      convert_table(*node.as_table(), line_offset, out);
      break;
    default:
      out.kind = Value::Kind::time;
  }
  return out;
}

class Builder {
 public:
  Builder(std::string_view text, Diagnostics& out) : text_(text), out_(out) { current_ = {&root_}; }

  Value build() {
    size_t at = text_.starts_with("\xEF\xBB\xBF") ? 3 : 0;
    while (at < text_.size() && !out_.full()) {
      size_t first = text_.find_first_not_of(" \t\r", at);
      if (first == text_.npos) break;
      if (text_[first] == '\n' || text_[first] == '#')
        at = end_of_line(first);
      else
        at = text_[first] == '[' ? header(at, first) : statement(at);
    }
    return std::move(root_);
  }

 private:
  size_t end_of_line(size_t at) {
    size_t end = text_.find('\n', at);
    return end == text_.npos ? text_.size() : end + 1;
  }
  uint32_t line_of(size_t at) {
    // Asked in ascending order, or a little back after an error.
    if (at < counted_to_) counted_to_ = line_ = 0;
    line_ += static_cast<uint32_t>(std::count(text_.begin() + static_cast<ptrdiff_t>(counted_to_),
                                              text_.begin() + static_cast<ptrdiff_t>(at), '\n'));
    counted_to_ = at;
    return line_;
  }

  // --- headers
  size_t header(size_t at, size_t first) {
    const size_t end = end_of_line(at);
    const uint32_t line = line_of(at);
    bool array = text_.substr(first, 2) == "[[";
    Path path;
    try {
      toml::table parsed = toml::parse(text_.substr(at, end - at));
      const toml::table* table = &parsed;
      while (table && !table->empty()) {
        const auto first_key = table->cbegin();  // named: what it points at lives in the iterator itself
        const toml::key& key = first_key->first;
        const toml::node& child = first_key->second;
        path.emplace_back(std::string(key.str()), place_of(key.source(), line));
        const toml::table* inner = child.as_table();
        if (const toml::array* list = child.as_array(); list && !list->empty()) inner = list->get(0)->as_table();
        table = inner;
      }
    } catch (const toml::parse_error& e) {
      out_.error(place_of(e.source(), line), "this table header cannot be read: " + std::string(e.description()));
      path = guess_path(at, end, line);
    }
    enter(path, array, {line + 1, static_cast<uint32_t>(first - at) + 1});
    return end;
  }
  /// What a damaged header most likely names, so that the keys below it are still checked as what they are.
  Path guess_path(size_t at, size_t end, uint32_t line) {
    Path path;
    std::string name;
    for (size_t i = at; i < end && text_[i] != '#'; ++i) {
      if (is_bare(text_[i]))
        name += text_[i];
      else if (text_[i] == '.' && !name.empty())
        path.emplace_back(std::exchange(name, {}), Place{line + 1, static_cast<uint32_t>(i - at) + 1});
    }
    if (!name.empty()) path.emplace_back(name, Place{line + 1, 1});
    return path;
  }
  void enter(const Path& path, bool array, Place place) {
    current_ = {nullptr};
    Value* table = &root_;
    for (size_t i = 0; table && i < path.size(); ++i) {
      const bool last = i + 1 == path.size();
      const auto& [name, key_place] = path[i];
      Entry* entry = table->find(name);
      if (!entry) {
        table->entries.push_back({name, key_place, {}});
        entry = &table->entries.back();
        entry->value.place = place;
        if (last && array) entry->value.kind = Value::Kind::array;
        if (last) entry->value.by_header = true;
      } else if (last && !reenter(*entry, array, key_place)) {
        return;
      }
      table = descend(entry->value, last && array, place);
      if (!table) out_.error(key_place, "`" + name + "` is already a value", "see line " + line_text(entry->place));
    }
    if (!path.empty()) current_ = {table};
  }
  /// A table's second header. False if it cannot be entered at all.
  bool reenter(Entry& entry, bool array, Place place) {
    Value& value = entry.value;
    const std::string name = entry.key;
    if (array != value.is(Value::Kind::array)) {
      if (!value.is(Value::Kind::array) && !value.is(Value::Kind::table)) return true;  // descend() complains
      out_.error(place, "`" + name + "` is both [" + name + "] and [[" + name + "]]",
                 "see line " + line_text(entry.place));
      return value.is(Value::Kind::array);  // [x] after [[x]]: its keys belong to the last element at best
    }
    if (!array && value.by_header)
      out_.error(place, "table [" + name + "] is there twice", "the first is at line " + line_text(entry.place));
    if (!array) value.by_header = true;
    return true;
  }
  static Value* descend(Value& value, bool append, Place place) {
    if (value.is(Value::Kind::table)) return value.is_inline ? nullptr : &value;
    if (!value.is(Value::Kind::array) || !value.by_header) return nullptr;
    if (append) {
      value.items.emplace_back();
      value.items.back().place = place;
    }
    return value.items.empty() ? nullptr : &value.items.back();
  }

  // --- keys
  size_t statement(size_t at) {
    const Extent extent = statement_extent(text_, at);
    const uint32_t line = line_of(at);
    try {
      toml::table parsed = toml::parse(text_.substr(at, extent.end - at));
      Value value;
      convert_table(parsed, line, value);
      if (current_.table)
        for (Entry& e : value.entries) insert(*current_.table, std::move(e), "");
      return extent.end;
    } catch (const toml::parse_error& e) {
      Place place = place_of(e.source(), line);
      if (e.description().find("not representable") != std::string_view::npos) to_begin_of_number(place);
      out_.error(place, std::string(e.description()));
      note_broken(at, line);
      return extent.whole ? extent.end : resume_after(at, place.line);
    }
  }
  /// From behind a number to where it begins.
  void to_begin_of_number(Place& place) const {
    size_t at = 0;
    for (uint32_t line = 1; line < place.line && at != text_.npos; ++line) {
      at = text_.find('\n', at);
      if (at != text_.npos) ++at;
    }
    if (at == text_.npos) return;
    const std::string_view line = text_.substr(at, text_.find('\n', at) - at);
    auto in_number = [](char c) { return is_bare(c) || c == '+' || c == '.'; };
    size_t begin = std::min<size_t>(place.column - 1, line.size());
    while (begin > 0 && in_number(line[begin - 1])) --begin;
    place.column = static_cast<uint32_t>(begin) + 1;
  }
  /// Goes on at the line of the error, or the first behind it that looks like a statement.
  size_t resume_after(size_t at, uint32_t error_line) {
    size_t next = end_of_line(at);
    while (next < text_.size()) {
      const size_t end = end_of_line(next);
      if (line_of(next) + 1 >= error_line && begins_statement(text_.substr(next, end - next))) return next;
      next = end;
    }
    return next;
  }
  void note_broken(size_t at, uint32_t line) {
    const size_t first = text_.find_first_not_of(" \t", at);
    size_t end = first;
    while (end < text_.size() && is_bare(text_[end])) ++end;
    if (!current_.table || end == first) return;
    std::string key(text_.substr(first, end - first));
    if (current_.table->find(key)) return;
    Value value;
    value.kind = Value::Kind::broken;
    current_.table->entries.push_back({key, {line + 1, static_cast<uint32_t>(first - at) + 1}, std::move(value)});
  }
  void insert(Value& table, Entry entry, const std::string& prefix) {
    const std::string name = prefix + entry.key;
    Entry* old = table.find(entry.key);
    if (!old || old->value.is(Value::Kind::broken)) {
      if (!old) table.entries.push_back(std::move(entry));
      return;
    }
    // a.b = 1 and a.c = 2 share the table a; everything else is a duplicate.
    const bool dotted = entry.value.is(Value::Kind::table) && !entry.value.is_inline;
    if (dotted && old->value.is(Value::Kind::table) && !old->value.is_inline) {
      for (Entry& e : entry.value.entries) insert(old->value, std::move(e), name + ".");
      return;
    }
    out_.error(entry.place, "key `" + name + "` is there twice", "the first is at line " + line_text(old->place));
  }
  static std::string line_text(Place place) { return std::to_string(place.line); }

  struct Current {
    Value* table = nullptr;  // null: under a header that leads nowhere
  };
  std::string_view text_;
  Diagnostics& out_;
  Value root_;
  Current current_;
  size_t counted_to_ = 0;
  uint32_t line_ = 0;
};

}  // namespace

const Entry* Value::find(std::string_view key) const {
  for (const Entry& e : entries)
    if (e.key == key) return &e;
  return nullptr;
}

Entry* Value::find(std::string_view key) {
  return const_cast<Entry*>(std::as_const(*this).find(key));
}

std::string_view kind_name(Value::Kind kind) {
  switch (kind) {
    case Value::Kind::broken:
      return "unreadable";
    case Value::Kind::string:
      return "a string";
    case Value::Kind::integer:
      return "an integer";
    case Value::Kind::floating:
      return "a floating-point number";
    case Value::Kind::boolean:
      return "a boolean";
    case Value::Kind::time:
      return "a date or time";
    case Value::Kind::array:
      return "an array";
    case Value::Kind::table:
      return "a table";
  }
  return "unknown";
}

Value read_document(std::string_view text, Diagnostics& out) {
  if (text.size() > kDocumentMax) {
    out.error({}, "the file is longer than " + std::to_string(kDocumentMax >> 20) + " MiB");
    return {};
  }
  return Builder(text, out).build();
}

}  // namespace ph::settings
