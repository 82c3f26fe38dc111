// The columns of each table of a report (formats/report/summary.h): the one list of what --sort and --columns take.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formats/report/table.h"

namespace torchprof::formats {

// Empty if there is no such table.
const std::vector<Column>& columns_of(std::string_view table);

// A table without rows, with the columns of table `name`.
ReportTable make_table(std::string_view name, std::string title);

}  // namespace torchprof::formats
