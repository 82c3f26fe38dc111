// A table of a report as data: columns with their units, and rows of raw values. render.h makes text, JSON, CSV and
// Markdown of it.
//
// The keys of columns are the interface of --json, --csv, --sort and --columns: times in ns end in _ns, sizes in
// _bytes, shares in _percent (0 to 100). A missing value is null in JSON and empty in CSV.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "formats/io/cells.h"

namespace torchprof::formats {

enum class Unit : uint8_t { kText, kTime, kBytes, kCount, kPercent, kNumber, kFlops };

struct Column {
  std::string_view key;
  std::string_view title;  // for people
  Unit unit = Unit::kText;
  // Whether text and Markdown show the column if nobody chose columns.
  bool is_shown = true;
  // For columns of text: shown behind the column before it, not in a column of its own.
  bool is_appended = false;
  std::string_view missing = "-";  // in text
  int digits = 1;                  // behind the point, for kPercent and kNumber
  int importance = 0;              // in a narrow terminal columns of less are left out first, numbers before texts
};

using Cell = std::variant<std::monostate, int64_t, double, std::string>;  // monostate: missing

struct ReportTable {
  std::string name;   // "ops"
  std::string title;  // for people
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;
  std::vector<std::pair<std::string_view, Cell>> totals{};  // of the whole table; by column or part of a step
  std::vector<std::string> remarks{};                       // lines for people below the table
  LastColumn last_column = LastColumn::kShortened;          // in text
  std::vector<uint32_t> indents{};                          // for a tree: each row's depth; text indents "name"
  size_t left_out = 0;                                      // rows that it would have, too

  size_t column(std::string_view key) const;  // the table must have it
  void show(std::string_view key, bool is_shown) { columns[column(key)].is_shown = is_shown; }
};

struct ReportDocument {
  std::string headline;
  std::vector<ReportTable> tables;
  std::vector<std::string> notes;   // what was not captured, lost or damaged
  size_t width = kWidth;            // of a line of text
  bool leaves_out_columns = false;  // of text: those for which a line has no room
};

// The column that `order` means: a key, a key without _ns or _bytes, or self, total, average. None: no such column.
std::optional<size_t> find_column(std::span<const Column> columns, std::string_view order);

// Largest numbers first, text from A to Z, missing values last; equal ones by the rows' texts.
void sort_rows(ReportTable& table, size_t column);

// Keeps the rows that have `text` in one of their texts, in either case of letters; all where it is empty.
void filter_rows(ReportTable& table, std::string_view text);

// Called after each row while a table is made. It may remove rows that will not be shown, so that they do not fill the
// memory.
using TrimRows = std::function<void(ReportTable&)>;

// Keeps only these columns, in this order; unknown ones are ignored. "all": keeps and shows all.
void keep_columns(ReportTable& table, const std::vector<std::string>& keys);

Cell percent(int64_t part, int64_t whole);   // missing if `whole` is 0
double average_of(int64_t sum, uint64_t n);  // `sum` if there are none
Cell count(uint64_t n);
Cell text_or_missing(std::string_view text);

}  // namespace torchprof::formats
