// A table of a report as data: columns that say their unit, rows of raw values. formats/report/render.h makes text, JSON, CSV
// and Markdown of it.
//
// Keys of columns are the contract of --json, --csv, --sort and --columns: times in ns end in _ns, sizes in _bytes,
// shares in _percent (0 to 100). A missing value is null in JSON, nothing in CSV.
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

namespace torchprof::formats {

enum class Unit : uint8_t { kText, kTime, kBytes, kCount, kPercent, kNumber, kFlops };

struct Column {
  std::string_view key;
  std::string_view title;  // for people
  Unit unit = Unit::kText;
  // What text and Markdown show where nobody chose columns.
  bool is_shown = true;
  // Of text: shown behind the column before it rather than in one of its own.
  bool is_appended = false;
  std::string_view missing = "-";  // in text
  int digits = 1;                  // behind the point: kPercent, kNumber
};

using Cell = std::variant<std::monostate, int64_t, double, std::string>;  // monostate: missing

struct ReportTable {
  std::string name;   // "ops"
  std::string title;  // for people
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;
  std::vector<std::pair<std::string_view, Cell>> totals{};  // of the whole table, or of what it is about; by key
  std::vector<std::string> remarks{};                       // lines for people below it
  bool is_wrapped = false;                                  // of text: the last column is broken, not shortened
  std::vector<uint32_t> indents{};  // of a tree: how deep each row stands; text shows it in the column "name"

  size_t column(std::string_view key) const;  // it is there
  void show(std::string_view key, bool is_shown) { columns[column(key)].is_shown = is_shown; }
};

struct ReportDocument {
  std::string headline;
  std::vector<ReportTable> tables;
  std::vector<std::string> notes;  // what was not captured, lost or damaged
};

// The column that `order` means: its key, the key without _ns or _bytes, or self, total, average. None: there is none.
std::optional<size_t> find_column(std::span<const Column> columns, std::string_view order);

// Numbers the largest first, text from A to Z, missing values last; ties by the texts of the rows.
void sort_rows(ReportTable& table, size_t column);

// Called after each row while a table is made: may remove rows that will not be shown, so that they do not fill the
// memory.
using TrimRows = std::function<void(ReportTable&)>;

// These columns alone, in this order; what the table has not is left out. "all": all of them, shown.
void keep_columns(ReportTable& table, const std::vector<std::string>& keys);

Cell percent(int64_t part, int64_t whole);  // missing where there is no whole
Cell count(uint64_t n);
Cell text_or_missing(std::string_view text);

}  // namespace torchprof::formats
