#include "formats/report_columns.h"

#include <map>
#include <utility>

namespace torchprof::formats {
namespace {

constexpr bool kHidden = false;
constexpr bool kAppended = true;

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
        {"name", "name"}}},
      {"modules",
       {{"forward_self_ns", "fwd self", Unit::kTime},
        {"forward_total_ns", "fwd total", Unit::kTime},
        {"backward_self_ns", "bwd self", Unit::kTime, kHidden},
        {"backward_total_ns", "bwd total", Unit::kTime, kHidden},
        {"self_ns", "self", Unit::kTime, kHidden},
        {"total_ns", "total", Unit::kTime, kHidden},
        {"calls", "calls", Unit::kCount},
        {"avg_ns", "average", Unit::kTime},
        {"name", "name"},
        {"path", "path", Unit::kText, true, kAppended}}},
      {"python",
       {{"self_ns", "self", Unit::kTime},
        {"self_percent", "self %", Unit::kPercent},
        {"total_ns", "total", Unit::kTime},
        {"calls", "calls", Unit::kCount},
        {"avg_ns", "average", Unit::kTime},
        {"name", "name"}}},
      {"memory",
       {{"pid", "pid", Unit::kText, kHidden},
        {"device", "device", Unit::kText, kHidden},
        {"bytes", "bytes", Unit::kBytes},
        {"peak_percent", "peak %", Unit::kPercent},
        {"blocks", "blocks", Unit::kCount},
        {"allocated_by", "allocated by"},
        {"op", "operator", Unit::kText, kHidden},
        {"outer_op", "outer operator", Unit::kText, kHidden},
        {"module", "module", Unit::kText, kHidden},
        {"place", "line", Unit::kText, kHidden}}},
      {"steps",
       {{"pid", "pid"},
        {"steps", "steps", Unit::kCount},
        {"median_ns", "median", Unit::kTime},
        {"p90_ns", "p90", Unit::kTime},
        {"min_ns", "min", Unit::kTime},
        {"max_ns", "max", Unit::kTime},
        {"jumps", "jumps", Unit::kCount, kHidden},
        {"ends_with", "a step ends with"}}},
      {"processes",
       {{"pid", "pid"},
        {"role", "role", Unit::kText, kHidden, false, ""},
        {"events", "events", Unit::kCount},
        {"operator_ns", "operators", Unit::kTime},
        {"steps", "steps", Unit::kCount},
        {"ended", "ended"},
        {"command", "command"}}},
  };
  return all;
}

}  // namespace

const std::vector<Column>& columns_of(std::string_view table) {
  static const std::vector<Column> none;
  const auto it = catalogue().find(table);
  return it == catalogue().end() ? none : it->second;
}

ReportTable make_table(std::string_view name, std::string title) {
  return {.name = std::string(name), .title = std::move(title), .columns = columns_of(name), .rows = {}};
}

}  // namespace torchprof::formats
