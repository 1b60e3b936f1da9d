// The reference file is written from the schema. Every setting stands behind a single '#', every explanation behind
// "# ": who takes the '#' of a line away has a setting.
#include <string>

#include "core/settings/key.h"
#include "core/settings/parse.h"
#include "core/settings/schema.h"

namespace ph::settings {
namespace {

constexpr size_t kWidth = 100;

void wrap(std::string_view text, std::string& out) {
  std::string line = "#";
  while (!text.empty()) {
    const size_t space = text.find(' ');
    const std::string_view word = text.substr(0, space);
    if (line.size() + 1 + word.size() > kWidth) {
      out += line + "\n";
      line = "#";
    }
    line += " ";
    line += word;
    text = space == text.npos ? std::string_view() : text.substr(space + 1);
  }
  if (line.size() > 1) out += line + "\n";
}

void write_key(const TableInfo& table, const KeyInfo& key, std::string& out) {
  bool built = true;
  std::string missing;
  for (const NotBuilt& n : not_built()) {
    if (n.key != std::string(table.path) + "." + std::string(key.name)) continue;
    built = built && !n.value.empty();
    missing += (missing.empty() ? "" : ", ") + std::string(n.value);
  }
  wrap(key.doc, out);
  std::string facts = key.type;
  if (!key.range.empty()) facts += ": " + key.range;
  facts += key.required ? "; required" : !key.fallback.empty() ? "; default " + key.fallback : "; no fixed default";
  if (!built)
    facts += "; not supported in this version";
  else if (!missing.empty())
    facts += "; not supported in this version: " + missing;
  wrap("(" + facts + ")", out);
  out += std::string(built ? "#" : "##") + std::string(key.name) + " = " +
         (key.fallback.empty() ? key.example : key.fallback) + "\n\n";
}

}  // namespace

std::string reference() {
  std::string out;
  wrap(
      "Reference of posthouse.toml, written by `posthouse config reference`: every table and key with its meaning, "
      "type, "
      "range and default. Where there is no default an example is shown.",
      out);
  out += "#\n";
  wrap(
      "Sizes are \"64KiB\", \"10MiB\", \"2GiB\" (powers of two) or \"64kB\", \"10MB\", \"2GB\" (powers of ten), "
      "durations "
      "\"500ms\", \"30s\", \"5m\", \"2h\", \"7d\", rates \"8MiB/s\". A number without a unit is an error where a unit "
      "belongs, "
      "and so are unknown keys. [[...]] tables may be repeated.",
      out);
  for (const TableInfo& table : schema()) {
    out += "\n" + std::string(kWidth, '#') + "\n";
    wrap(table.doc, out);
    out += "#" + table.header() + "\n\n";
    for (const KeyInfo& key : table.keys) write_key(table, key, out);
    out.pop_back();
  }
  return out;
}

}  // namespace ph::settings
