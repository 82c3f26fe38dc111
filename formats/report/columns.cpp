#include "formats/report/columns.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace torchprof::formats {
namespace {

std::vector<ReportTable> all_empty_tables() {
  std::vector<ReportTable> all;
  for (const auto of_file :
       {empty_step_tables, empty_memory_tables, empty_module_tables, empty_timeline_tables, empty_advice_tables})
    std::ranges::move(of_file(), std::back_inserter(all));
  return all;
}

const std::map<std::string_view, std::vector<Column>>& catalogue() {
  static const std::map<std::string_view, std::vector<Column>> all{
      {"ops",
       {{"self_cpu_ns", "self", Unit::kTime},
        {"self_cpu_percent", "self %", Unit::kPercent},
        {"cpu_total_ns", "total", Unit::kTime},
        {"cpu_total_percent", "total %", Unit::kPercent, kHidden},
        {"calls", "calls", Unit::kCount},
        {"cpu_avg_ns", "average", Unit::kTime},
        {"self_cuda_ns", "self CUDA", Unit::kTime, kHidden},
        {"self_cuda_percent", "self CUDA %", Unit::kPercent, kHidden},
        {"cuda_total_ns", "total CUDA", Unit::kTime, kHidden},
        {"cuda_avg_ns", "average CUDA", Unit::kTime, kHidden},
        {"self_cpu_mem_bytes", "self CPU mem", Unit::kBytes, kHidden},
        {"cpu_mem_bytes", "CPU mem", Unit::kBytes, kHidden},
        {"self_cuda_mem_bytes", "self GPU mem", Unit::kBytes, kHidden},
        {"cuda_mem_bytes", "GPU mem", Unit::kBytes, kHidden},
        {"flops", "GFLOPs", Unit::kFlops, kHidden, false, ""},
        {"name", "name"},
        {"input_shapes", "shapes", Unit::kText, kHidden, kAppended, ""},
        {"module", "module", Unit::kText, kHidden, kAppended, ""},
        {"thread", "thread", Unit::kText, kHidden, kAppended, ""},
        {"overload", "overload", Unit::kText, kHidden, kAppended, ""},
        {"stack", "stack", Unit::kText, kHidden, kAppended, ""},
        {"line", "line", Unit::kText, kHidden, kAppended, ""},
        {"source", "source", Unit::kText, kHidden, kAppended, ""}}},
      {"gpus",
       {{"pid", "pid", Unit::kText, kHidden},
        {"gpu", "GPU", Unit::kCount},
        {"busy_percent", "busy %", Unit::kPercent},
        {"busy_ns", "busy", Unit::kTime},
        {"captured_ns", "captured", Unit::kTime, kHidden},
        {"kernels", "kernels", Unit::kCount},
        {"kernel_ns", "in kernels", Unit::kTime},
        {"copies", "copies, sets", Unit::kCount},
        {"copy_ns", "in them", Unit::kTime},
        {"name", "name"}}},
      {"kernels",
       {{"total_ns", "total", Unit::kTime},
        {"share_percent", "share", Unit::kPercent},
        {"calls", "calls", Unit::kCount},
        {"avg_ns", "average", Unit::kTime},
        {"min_ns", "min", Unit::kTime},
        {"max_ns", "max", Unit::kTime},
        {"blocks_per_sm", "blocks/SM", Unit::kNumber, true, false, "-", 2},
        {"occupancy_percent", "occupancy", Unit::kPercent, true, false, "-", 0},
        {"name", "full name", Unit::kText, kHidden},
        {"short_name", "name"}}},
      {"calls",
       {{"total_ns", "total", Unit::kTime},
        {"share_percent", "share", Unit::kPercent},
        {"calls", "calls", Unit::kCount},
        {"avg_ns", "average", Unit::kTime},
        {"kind", "does", Unit::kText},
        {"name", "name"}}},
      {"python",
       {{"self_ns", "self", Unit::kTime},
        {"self_percent", "self %", Unit::kPercent},
        {"total_ns", "total", Unit::kTime},
        {"calls", "calls", Unit::kCount},
        {"avg_ns", "average", Unit::kTime},
        {"waits", "waits", Unit::kText, kHidden, false, ""},
        {"name", "name"}}},
      {"python_lines",
       {{"self_ns", "self", Unit::kTime},
        {"self_percent", "self %", Unit::kPercent},
        {"total_ns", "total", Unit::kTime},
        {"calls", "calls", Unit::kCount},
        {"self_cuda_ns", "self CUDA", Unit::kTime, kHidden},
        {"waits", "waits", Unit::kText, kHidden, false, ""},
        {"name", "name"}}},
      {"comms",
       {{"calls", "calls", Unit::kCount},
        {"total_ns", "total", Unit::kTime},
        {"avg_ns", "average", Unit::kTime},
        {"bytes", "bytes", Unit::kBytes},
        {"gb_per_s", "GB/s", Unit::kNumber, true, false, "-", 3},
        {"waiting_ns", "waiting", Unit::kTime, true, false, "-", 1, 1},
        {"slowest_percent", "slowest", Unit::kPercent, true, false, "-", 0},
        {"slowest", "process"},
        {"name", "name"},
        {"group", "group", Unit::kText, true, kAppended, ""}}},
      {"threads",
       {{"pid", "pid"},
        {"open_ns", "in calls", Unit::kTime},
        {"operator_ns", "operators", Unit::kTime},
        {"python_ns", "Python", Unit::kTime},
        {"gpu_ns", "launched", Unit::kTime, kHidden},
        {"operators", "operators", Unit::kCount},
        {"python_calls", "Python calls", Unit::kCount},
        {"name", "name"}}},
      {"profiler",
       {{"pid", "pid"},
        {"events", "records", Unit::kCount},
        {"operators", "operators", Unit::kCount},
        {"python_calls", "Python calls", Unit::kCount},
        {"c_calls", "C calls", Unit::kCount},
        {"spool_bytes", "spool", Unit::kBytes},
        {"bytes_per_event", "bytes each", Unit::kNumber},
        {"lost", "lost", Unit::kCount},
        {"recycled_bytes", "dropped", Unit::kBytes},
        {"damaged_bytes", "damaged", Unit::kBytes},
        {"read_ns", "read in", Unit::kTime},
        {"command", "command"}}},
      {"processes",
       {{"pid", "pid"},
        {"role", "role", Unit::kText, kHidden, false, ""},
        {"events", "events", Unit::kCount},
        {"operator_ns", "operators", Unit::kTime},
        {"steps", "steps", Unit::kCount},
        {"ended", "ended"},
        {"command", "command"},
        {"group", "one of", Unit::kText, kHidden}}},
  };
  return all;
}

}  // namespace

const std::vector<Column>& columns_of(std::string_view table) {
  static const std::vector<Column> none;
  static const std::vector<ReportTable> all = all_empty_tables();
  if (const auto found = std::ranges::find(all, table, &ReportTable::name); found != all.end()) return found->columns;
  const auto it = catalogue().find(table);
  return it == catalogue().end() ? none : it->second;
}

ReportTable make_table(std::string_view name, std::string title) {
  return {.name = std::string(name), .title = std::move(title), .columns = columns_of(name), .rows = {}};
}

}  // namespace torchprof::formats
