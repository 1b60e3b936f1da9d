// Rows as columns for a terminal: text to the left, numbers to the right.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace ph::admin {

/// Text from outside (file names, categories, reasons) as one line that moves no cursor: control characters as \xNN.
inline std::string printable(std::string_view text) {
  std::string out;
  for (unsigned char c : text)
    if (c < 0x20 || c == 0x7F)
      out += fmt::format("\\x{:02x}", c);
    else
      out += static_cast<char>(c);
  return out;
}

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> head) { rows_.push_back(std::move(head)); }
  void add(std::vector<std::string> row) {
    for (std::string& cell : row) cell = printable(cell);
    rows_.push_back(std::move(row));
  }
  bool empty() const { return rows_.size() < 2; }
  void print(std::string& out, size_t text_columns) const {
    std::vector<size_t> widths(rows_[0].size());
    for (const auto& row : rows_)
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    for (const auto& row : rows_) {
      std::string line = " ";
      for (size_t i = 0; i < row.size(); ++i)
        line +=
            i < text_columns ? fmt::format(" {:<{}}", row[i], widths[i]) : fmt::format("  {:>{}}", row[i], widths[i]);
      while (line.ends_with(' ')) line.pop_back();
      out += line + "\n";
    }
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace ph::admin
