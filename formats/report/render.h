// A report in one of its styles. Always valid UTF-8 with a newline at the end.
//
//   text      lines of ReportDocument::width columns (longer where chosen columns or whole names need more); empty
//             tables are left out
//   JSON      {"headline": "...",
//              "tables": [{"name": "ops", "title": "...",
//                          "columns": [{"key": "self_cpu_ns", "title": "self", "unit": "ns"}, ...],
//                          "rows": [{"self_cpu_ns": 1200, ...}, ...],
//                          "totals": {...}, "remarks": [...]}, ...],
//              "notes": [...]}
//             All columns. The unit is ns, bytes, percent, flops, count, number or text
//   CSV       RFC 4180: for each table a line of keys and all columns; an empty line between tables
//   Markdown  the columns of text, for people, in GitHub's tables
#pragma once

#include <cstdint>
#include <string>

#include "formats/report/table.h"

namespace torchprof::formats {

enum class ReportStyle : uint8_t { kText, kJson, kCsv, kMarkdown };

std::string render(const ReportDocument& report, ReportStyle style);

}  // namespace torchprof::formats
