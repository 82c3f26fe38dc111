#include "formats/report/table.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <numeric>

namespace torchprof::formats {
namespace {

// A missing value is below all others.
double number_in(const Cell& cell) {
  if (const auto* whole = std::get_if<int64_t>(&cell)) return static_cast<double>(*whole);
  if (const auto* real = std::get_if<double>(&cell)) return *real;
  return -std::numeric_limits<double>::infinity();
}

std::string_view text_in(const Cell& cell) {
  const auto* text = std::get_if<std::string>(&cell);
  return text == nullptr ? std::string_view{} : *text;
}

bool texts_come_first(const std::vector<Cell>& a, const std::vector<Cell>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (const int order = text_in(a[i]).compare(text_in(b[i])); order != 0) return order < 0;
  return false;
}

}  // namespace

size_t ReportTable::column(std::string_view key) const {
  return static_cast<size_t>(std::ranges::find(columns, key, &Column::key) - columns.begin());
}

std::optional<size_t> find_column(std::span<const Column> columns, std::string_view order) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kAliases{{{"self", "self_cpu_ns"},
                                                                                   {"self", "self_ns"},
                                                                                   {"self", "total_ns"},
                                                                                   {"total", "cpu_total_ns"},
                                                                                   {"total", "total_ns"},
                                                                                   {"average", "cpu_avg_ns"},
                                                                                   {"average", "avg_ns"}}};
  const auto find = [columns](std::string_view key) -> std::optional<size_t> {
    for (size_t i = 0; i < columns.size(); ++i)
      if (columns[i].key == key) return i;
    return std::nullopt;
  };
  for (const std::string_view unit : {"", "_ns", "_bytes"})
    if (const auto found = find(std::string(order).append(unit))) return found;
  for (const auto& [alias, key] : kAliases)
    if (alias == order)
      if (const auto found = find(key)) return found;
  return std::nullopt;
}

void sort_rows(ReportTable& table, size_t column) {
  const bool is_text = table.columns[column].unit == Unit::kText;
  std::ranges::sort(table.rows, [column, is_text](const std::vector<Cell>& a, const std::vector<Cell>& b) {
    if (is_text) {
      const std::string_view x = text_in(a[column]), y = text_in(b[column]);
      if (x != y) return y.empty() || (!x.empty() && x < y);
    } else if (const double x = number_in(a[column]), y = number_in(b[column]); x != y) {
      return x > y;
    }
    return texts_come_first(a, b);
  });
}

void filter_rows(ReportTable& table, std::string_view text) {
  if (text.empty()) return;
  const auto is_same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  std::erase_if(table.rows, [&](const std::vector<Cell>& row) {
    return std::ranges::none_of(row, [&](const Cell& cell) {
      // Behind a process id may be what name_processes() takes away.
      const std::string_view shown = text_in(cell).substr(0, text_in(cell).find('\x1f'));
      return std::search(shown.begin(), shown.end(), text.begin(), text.end(), is_same) != shown.end();
    });
  });
}

void keep_columns(ReportTable& table, const std::vector<std::string>& keys) {
  if (keys == std::vector<std::string>{"all"}) {
    for (Column& column : table.columns) column.is_shown = true;
    return;
  }
  std::vector<size_t> kept;
  for (const std::string& key : keys)
    if (const auto i = find_column(table.columns, key)) kept.push_back(*i);
  std::vector<Column> columns;
  for (const size_t i : kept) {
    columns.push_back(table.columns[i]);
    columns.back().is_shown = true;
    columns.back().is_appended = false;
  }
  table.columns = std::move(columns);
  for (std::vector<Cell>& row : table.rows) {
    std::vector<Cell> cells;
    cells.reserve(kept.size());
    for (const size_t i : kept) cells.push_back(row[i]);
    row = std::move(cells);
  }
}

Cell percent(int64_t part, int64_t whole) {
  if (whole <= 0) return {};
  return 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

double average_of(int64_t sum, uint64_t n) {
  return static_cast<double>(sum) / static_cast<double>(std::max<uint64_t>(1, n));
}

Cell count(uint64_t n) {
  return static_cast<int64_t>(std::min(n, static_cast<uint64_t>(std::numeric_limits<int64_t>::max())));
}

Cell text_or_missing(std::string_view text) {
  if (text.empty()) return {};
  return std::string(text);
}

}  // namespace torchprof::formats
