// Tables of a report (formats/report/summary.h has their definitions), with all rows that `trim` leaves, in no order that
// matters.
#pragma once

#include <string>
#include <vector>

#include "formats/report/report.h"
#include "formats/report/table.h"

namespace torchprof::formats {

ReportTable ops_table(const Tallies& operators, int64_t operator_ns, std::string title, const TrimRows& trim = {});
ReportTable ops_table(const OpGroups& operators, const OpGrouping& grouping, int64_t operator_ns, std::string title,
                      const TrimRows& trim = {});
ReportTable python_table(const CallTallies& functions, int64_t python_ns, const TrimRows& trim = {});
ReportTable python_lines_table(const LineTallies& tallies);
ReportTable modules_table(const ModuleTallies& modules);
// Rows of it as a tree: each behind the one that holds it, if that is there, with its path in that one; otherwise in
// the order that they have.
void arrange_as_tree(ReportTable& modules);
ReportTable gpus_table(const std::vector<ReportPart>& parts);
ReportTable kernels_table(const GpuTallies& work);
ReportTable steps_table(const std::vector<ReportPart>& parts);
ReportTable step_times_table(const std::vector<ReportPart>& parts);
ReportTable comms_table(const std::vector<ReportPart>& parts);
ReportTable threads_table(const std::vector<ReportPart>& parts);
ReportTable profiler_table(const std::vector<ReportPart>& parts);
ReportTable advice_table(const std::vector<ReportPart>& parts);
ReportTable processes_table(const std::vector<ReportPart>& parts);
// One for each device of each process, the fullest first; of its owners the first `most`, the others as one row. In
// detail also by category, by line and by module, and at the end what stays from step to step.
std::vector<ReportTable> memory_tables(const std::vector<ReportPart>& parts, UnixNs start, size_t most,
                                       bool is_detailed);

// Shows these columns if any of its rows has something in `key`.
void show_if_any(ReportTable& table, std::string_view key, const std::vector<std::string_view>& columns);

}  // namespace torchprof::formats
