// The columns of each table of a report (formats/report/summary.h): what --sort and --columns take. The file that makes
// a table has one list of its columns. Each line of the list is a column and how the column's cell is got from a row:
//
//     struct CallRow {  // what a row is made of
//       const std::string& name;
//       const CallTally& t;
//     };
//     constexpr RowColumn<CallRow> kCallColumns[] = {
//         {{"total_ns", "total", Unit::kTime}, [](auto& r) { return r.t.total_ns; }},
//         {{"name", "name"}, [](auto& r) { return r.name; }},
//     };
//     constexpr RowTable<CallRow> kCalls{"calls", kCallColumns};
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/report/table.h"

namespace torchprof::formats {

// Of a Column: is_shown, and is_appended.
inline constexpr bool kHidden = false, kAppended = true;

template <class Row>
struct RowColumn {
  // `Get`: a lambda without captures that takes a row and returns a cell.
  template <class Get>
  constexpr RowColumn(const Column& of, Get) : column(of), get([](const Row& row) -> Cell { return Get{}(row); }) {}

  Column column;
  Cell (*get)(const Row&);
};

// The process of a row's `part`. Tables that hide the column show it where there are several.
template <class Row, bool is_shown = kHidden>
inline constexpr RowColumn<Row> kPidColumn{{"pid", "pid", Unit::kText, is_shown}, [](auto& r) { return r.part.key(); }};

template <class Row>
struct RowTable {
  std::string_view name;
  std::span<const RowColumn<Row>> columns;

  // Without rows.
  ReportTable make(std::string title = {}) const {
    ReportTable table{.name = std::string(name), .title = std::move(title), .columns = {}, .rows = {}};
    for (const RowColumn<Row>& one : columns) table.columns.push_back(one.column);
    return table;
  }
  // `table`: what make() gave.
  void add(ReportTable& table, const Row& row) const {
    std::vector<Cell>& cells = table.rows.emplace_back();
    cells.reserve(columns.size());
    for (const RowColumn<Row>& one : columns) cells.push_back(one.get(row));
  }
};

// All tables that a file makes, without titles and rows: what columns_of() knows them from.
std::vector<ReportTable> empty_tables();           // tables.cpp
std::vector<ReportTable> empty_run_tables();       // run_tables.cpp
std::vector<ReportTable> empty_step_tables();      // step_tables.cpp
std::vector<ReportTable> empty_memory_tables();    // memory_table.cpp
std::vector<ReportTable> empty_module_tables();    // module_table.cpp
std::vector<ReportTable> empty_timeline_tables();  // timeline_tables.cpp
std::vector<ReportTable> empty_advice_tables();    // advice_table.cpp

// Empty if there is no such table.
const std::vector<Column>& columns_of(std::string_view table);

}  // namespace torchprof::formats
