// The tables of a report; summary.h defines their values. They have all rows that `trim` leaves, in any order.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formats/report/part_groups.h"
#include "formats/report/report.h"
#include "formats/report/table.h"

namespace torchprof::formats {

ReportTable ops_table(const Tallies& operators, int64_t operator_ns, std::string title, const TrimRows& trim = {});
ReportTable ops_table(const OpGroups& operators, const OpGrouping& grouping, int64_t operator_ns, std::string title,
                      const TrimRows& trim = {});
// `has_waits`: with the rows of those that only wait; if not, a remark says how much time they have.
ReportTable python_table(const CallTallies& functions, int64_t python_ns, bool has_waits, const TrimRows& trim = {});
ReportTable python_lines_table(const LineTallies& tallies, bool has_waits);
ReportTable modules_table(const ModuleTallies& modules);
// Arranges the rows as a tree: each after its parent, if the table has that, with its path inside the parent. The order
// of siblings stays.
void arrange_as_tree(ReportTable& modules);
ReportTable gpus_table(const std::vector<ReportPart>& parts);
ReportTable kernels_table(const GpuTallies& work);
ReportTable calls_table(const CallTallies& calls);  // of CUDA
// Of many processes: the slowest first, and how they are spread, over hosts, too, as remarks.
void begin_with_slowest(ReportTable& steps, const std::vector<ReportPart>& parts);
// Of many: those first that ended in another way than most, and how many ended in which way.
ReportTable processes_of_many_table(const std::vector<PartGroup>& groups);
// `is_text`: for a terminal.
ReportTable steps_table(const std::vector<ReportPart>& parts, bool is_text);
// It has the first `most` rows of those that `trim` leaves, and says how many it leaves out.
ReportTable step_times_table(const std::vector<ReportPart>& parts, size_t most, const TrimRows& trim = {});
ReportTable comms_table(const std::vector<ReportPart>& parts);
// Of timelines.
ReportTable gpu_time_table(const std::vector<ReportPart>& parts);
ReportTable streams_table(const std::vector<ReportPart>& parts);
ReportTable launches_table(const std::vector<ReportPart>& parts);
ReportTable copies_table(const std::vector<ReportPart>& parts);
ReportTable critical_table(const std::vector<ReportPart>& parts);
ReportTable critical_names_table(const std::vector<ReportPart>& parts);
ReportTable threads_table(const std::vector<PartGroup>& groups);
ReportTable profiler_table(const std::vector<PartGroup>& groups);
ReportTable advice_table(const Advice& advice);
ReportTable processes_table(const std::vector<PartGroup>& groups);
// One table for each device of each process, the fullest device first; of a group, for the process in which the device
// was fullest. It has the first `most` owners, and the others as one row. In detail there are also tables by category,
// by line and by module, and at the end one of memory that stays.
std::vector<ReportTable> memory_tables(const std::vector<ReportPart>& parts, const std::vector<PartGroup>& groups,
                                       UnixNs start, size_t most, bool is_detailed);

// Shows these columns if any row has a value other than 0 in `key`.
void show_if_any(ReportTable& table, std::string_view key, const std::vector<std::string_view>& columns);

// Why a table that was asked for has no rows, for people and without a point at its end: what is missing, and what
// would make it. `table`: its name. Empty: it needs none, as it says so itself.
std::string why_empty(std::string_view table, const Report& report);

// In the column `pid` puts process ids in place of keys; where there are several ranks or hosts, adds columns `rank`
// and `host` behind it. A table without processes stays as it is.
void name_processes(ReportTable& table, const std::vector<ReportPart>& parts);

}  // namespace torchprof::formats
