#include "formats/report/columns.h"

#include <algorithm>
#include <iterator>

namespace torchprof::formats {
namespace {

std::vector<ReportTable> all_empty_tables() {
  std::vector<ReportTable> all;
  for (const auto of_file : {empty_tables, empty_run_tables, empty_step_tables, empty_memory_tables,
                             empty_module_tables, empty_timeline_tables, empty_advice_tables})
    std::ranges::move(of_file(), std::back_inserter(all));
  return all;
}

}  // namespace

const std::vector<Column>& columns_of(std::string_view table) {
  static const std::vector<ReportTable> all = all_empty_tables();
  static const std::vector<Column> none;
  const auto it = std::ranges::find(all, table, &ReportTable::name);
  return it == all.end() ? none : it->columns;
}

}  // namespace torchprof::formats
