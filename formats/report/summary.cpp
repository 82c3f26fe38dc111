#include "formats/report/summary.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <unordered_map>
#include <utility>

#include "formats/analysis/module_name.h"
#include "formats/io/cells.h"
#include "formats/io/error.h"
#include "formats/io/nearest.h"
#include "formats/io/text.h"
#include "formats/report/columns.h"
#include "formats/report/first_use.h"
#include "formats/report/flops_remark.h"
#include "formats/report/part_groups.h"
#include "formats/report/report.h"
#include "formats/report/tables.h"

namespace torchprof::formats {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kOrders{{{"self", "self time"},
                                                                                {"total", "total time"},
                                                                                {"calls", "calls"},
                                                                                {"average", "average time"},
                                                                                {"open_ns", "time in calls"}}};

constexpr std::string_view kNoLines =
    "lines come from the raw records of runs with --python functions (the default) or --native on";

constexpr size_t kNarrowestTerminal = 40;  // columns; the lines of tables are no shorter

// Whether no row has a value there.
bool is_without(const ReportTable& table, std::string_view key) {
  const size_t i = table.column(key);
  return std::ranges::all_of(table.rows,
                             [i](const auto& row) { return std::holds_alternative<std::monostate>(row[i]); });
}

constexpr size_t kRows = 15, kRowsOfMany = 5;

class DocumentAssembly {
 public:
  DocumentAssembly(const Report& report, const TableOptions& options)
      : report_(report),
        options_(options),
        groups_(groups_of(report.parts, !options.has_all_processes)),
        rows_(options.rows.value_or(leaves_out_each_process() ? kRowsOfMany : kRows)) {
    document_.headline = report.headline;
    document_.notes = report.notes;
    if (options.terminal == 0) return;
    document_.width = std::max(options.terminal, kNarrowestTerminal);
    document_.leaves_out_columns = options.columns.empty();
  }

  ReportDocument run() {
    if (is_wanted("advice")) add_advice();
    if (is_wanted("ops")) add_operators();
    if (is_wanted("kernels")) {
      ReportTable gpus = gpus_table(report_.parts);
      gpus.remarks = report_.gpu_remarks;
      add_in_order(std::move(gpus), "more GPU");
      add_kernels();
    }
    if (is_asked_for("calls")) add_sorted(calls_table(all_.calls), "total");
    if (is_wanted("modules")) add_modules();
    if (is_wanted("python")) add_python();
    if (options_.has_own_functions || (options_.tables.empty() && is_text())) add_own_functions();
    if (is_wanted("memory") && !leaves_out_each_process()) add_memory();
    if (is_wanted("steps")) {
      ReportTable table = steps_table(report_.parts, is_text());
      if (leaves_out_each_process()) begin_with_slowest(table, report_.parts);
      add_in_order(std::move(table), "more process");
      if (is_detailed()) add_step_times();
    }
    if (is_asked_for("comms")) add_sorted(comms_table(report_.parts), "total");
    if (is_asked_for("threads")) add_sorted(threads_table(groups_), "open_ns");
    add_timelines();
    if (is_asked_for("profiler")) {
      ReportTable table = profiler_table(groups_);
      if (!options_.writing.empty()) table.remarks.push_back(options_.writing);
      add_in_order(std::move(table), "more process");
    }
    if (is_wanted("processes")) add_processes();
    return std::move(document_);
  }

 private:
  bool is_wanted(const char* name) const {
    return options_.tables.empty() || std::ranges::find(options_.tables, name) != options_.tables.end();
  }
  // For tables that are not part of a summary.
  bool is_asked_for(const char* name) const { return !options_.tables.empty() && is_wanted(name); }
  bool is_detailed() const { return options_.has_totals || !is_text(); }
  bool is_text() const { return options_.style == ReportStyle::kText; }
  // A summary of many processes has no tables of each of them.
  bool leaves_out_each_process() const {
    return is_text() && options_.tables.empty() && groups_.size() > kShownProcesses;
  }

  // For a run that was captured in part: what the whole of it spent in each name.
  void add_estimates(ReportTable& table) const {
    static constexpr std::pair<std::string_view, Sampled> kTables[] = {{"ops", Sampled::kOperator},
                                                                       {"python", Sampled::kPython},
                                                                       {"kernels", Sampled::kKernel},
                                                                       {"calls", Sampled::kCall},
                                                                       {"modules", Sampled::kModule}};
    const auto which = std::ranges::find(kTables, table.name, [](const auto& entry) { return entry.first; });
    if (which == std::end(kTables) || table.rows.empty()) return;
    const auto& estimates = report_.in_run[static_cast<size_t>(which->second)];
    if (estimates.empty() || !options_.grouping.is_plain()) return;
    const std::vector<std::string> names = sampled_names(table);
    const auto at = static_cast<ptrdiff_t>(table.column("name"));
    table.columns.insert(table.columns.begin() + at,
                         {{"run_ns", "self in run", Unit::kTime}, {"run_error_percent", "+/-", Unit::kPercent}});
    std::unordered_map<std::string_view, int> uses;  // modules of two models may share a name
    for (const std::string& name : names) ++uses[name];
    for (size_t i = 0; i < table.rows.size(); ++i) {
      std::vector<Cell>& row = table.rows[i];
      const auto found = uses[names[i]] > 1 ? estimates.end() : estimates.find(names[i]);
      Cell ns, error;
      if (found != estimates.end() && found->second.ns > 0) {
        ns = found->second.ns;
        if (found->second.has_error) error = 100 * found->second.error_ns / found->second.ns;
      }
      row.insert(row.begin() + at, {std::move(ns), std::move(error)});
    }
    table.remarks.push_back("self in run: what all steps take, by " + count_text(report_.typical_steps) +
                            " typical ones; the other columns are of what was captured");
  }

  // Of each row: what StepSamples::by_name calls it.
  static std::vector<std::string> sampled_names(const ReportTable& table) {
    const auto text = [](const std::vector<Cell>& row, size_t column) {
      const auto* text = std::get_if<std::string>(&row[column]);
      return text == nullptr ? std::string() : *text;
    };
    const size_t name = table.column("name");
    std::vector<std::string> names;
    for (const std::vector<Cell>& row : table.rows)
      names.push_back(table.name != "modules" ? text(row, name)
                                              : stable_module_name(text(row, name), text(row, table.column("path"))));
    return names;
  }

  void add(ReportTable table) {
    add_estimates(table);
    put(std::move(table));
  }
  void put(ReportTable table) {
    filter_rows(table, options_.filter);
    if (table.rows.empty() && !options_.filter.empty() && !options_.tables.empty())
      table.remarks = {"no row has '" + printable(options_.filter) + "' (--filter)"};
    if (table.rows.empty() && table.remarks.empty() && !options_.tables.empty() && !options_.leaves_out_empty)
      if (std::string why = why_empty(table.name, report_); !why.empty()) table.remarks.push_back(std::move(why));
    name_processes(table, report_.parts);
    if (!options_.columns.empty()) keep_columns(table, options_.columns);
    if (table.columns.empty()) return;
    document_.tables.push_back(std::move(table));
  }

  // The order that was asked for, or `otherwise` if the table has no such column.
  std::string_view order_of(const ReportTable& table, std::string_view otherwise) const {
    return !options_.sort.empty() && find_column(table.columns, options_.sort) ? std::string_view(options_.sort)
                                                                               : otherwise;
  }

  void keep_first_rows(ReportTable& table, size_t column) const {
    filter_rows(table, options_.filter);
    sort_rows(table, column);
    if (table.rows.size() > rows_) table.rows.resize(rows_);
  }

  // Removes the rows that first_rows() would remove, many at a time, while the table is made.
  TrimRows trim_to_first_rows(std::string_view otherwise) const {
    return [this, otherwise](ReportTable& table) {
      if (table.rows.size() / 2 >= std::max<size_t>(rows_, 2048))
        keep_first_rows(table, *find_column(table.columns, order_of(table, otherwise)));
    };
  }

  // Sorts the table and keeps its first rows.
  ReportTable first_rows(ReportTable table, std::string_view otherwise) const {
    const std::string_view order = order_of(table, otherwise);
    const size_t column = *find_column(table.columns, order);
    keep_first_rows(table, column);
    const auto known = std::ranges::find(kOrders, order, &std::pair<std::string_view, std::string_view>::first);
    table.title.append(" by ").append(known == kOrders.end() ? table.columns[column].title : known->second);
    return table;
  }

  void add_sorted(ReportTable table, std::string_view otherwise) { add(first_rows(std::move(table), otherwise)); }

  // Adds a remark how many rows were left out; `more` says what a row is.
  void add_trimmed(ReportTable table, const std::string& more) {
    filter_rows(table, options_.filter);
    const size_t rows = std::min(table.rows.size(), rows_);
    table.left_out += table.rows.size() - rows;
    table.rows.resize(rows);
    if (table.left_out != 0) table.remarks.push_back(plural(table.left_out, more));
    add(std::move(table));
  }

  // The table keeps its own order unless another one was asked for.
  void add_in_order(ReportTable table, const std::string& more) {
    if (const auto column = options_.sort.empty() ? std::nullopt : find_column(table.columns, options_.sort))
      sort_rows(table, *column);
    add_trimmed(std::move(table), more);
  }

  void add_timelines() {
    if (is_asked_for("critical")) {
      add_in_order(critical_table(report_.parts), "more class");
      add_in_order(critical_names_table(report_.parts), "more name");
    }
    if (is_asked_for("gpu")) {
      add_in_order(gpu_time_table(report_.parts), "more GPU");
      add_in_order(streams_table(report_.parts), "more stream");
    }
    if (is_asked_for("launches")) {
      add_in_order(launches_table(report_.parts), "more stream");
      add_in_order(copies_table(report_.parts), "more kind");
    }
  }

  // A run of days has millions of steps: without another order only the rows that are shown are made.
  void add_step_times() {
    const auto columns = columns_of("step_times");
    const auto column = options_.sort.empty() ? std::nullopt : find_column(columns, options_.sort);
    // Which rows are the first is known once they have been made.
    const bool needs_all = column || !options_.filter.empty();
    const TrimRows trim = [this, column](ReportTable& table) {
      filter_rows(table, options_.filter);
      if (!column) return;
      const size_t before = table.rows.size();
      if (before / 2 < std::max<size_t>(rows_, 2048)) return;
      keep_first_rows(table, *column);
      table.left_out += before - table.rows.size();
    };
    add_in_order(step_times_table(report_.parts, needs_all ? SIZE_MAX : rows_, needs_all ? trim : TrimRows{}),
                 "more step");
  }

  // Beside other tables the first few.
  void add_advice() {
    constexpr size_t kLeading = 3;
    ReportTable table = advice_table(report_.advice);
    if (std::string rate = flops_remark(report_); !rate.empty()) table.remarks.push_back(std::move(rate));
    if (options_.tables.size() == 1 || !is_text()) return add_in_order(std::move(table), "more finding");
    // Where the table of GPUs is not shown.
    if (!is_wanted("kernels")) std::ranges::copy(report_.gpu_remarks, std::back_inserter(table.remarks));
    if (table.rows.empty() && report_.advice.step_ns == 0) {
      if (report_.gpu_remarks.empty() || is_wanted("kernels")) return;
      table.remarks = report_.gpu_remarks;
    }
    if (table.rows.size() > kLeading) {
      table.remarks.push_back(plural(table.rows.size() - kLeading, "more finding") +
                              ": torchprof report RUN -t advice");
      table.rows.resize(kLeading);
    }
    add(std::move(table));
  }

  void add_kernels() {
    ReportTable table = kernels_table(all_.gpu.work);
    table.show("name", options_.has_full_names);
    table.show("short_name", !options_.has_full_names);
    if (options_.has_full_names) table.last_column = LastColumn::kWhole;
    add_sorted(std::move(table), "total");
  }

  void add_modules() {
    ReportTable table = modules_table(all_.modules);
    add_estimates(table);  // of all rows, and before the tree shortens paths
    table = first_rows(std::move(table), "total");
    if (options_.sort.empty() && is_text()) arrange_as_tree(table);
    put(std::move(table));
  }

  void add_python() {
    add_sorted(python_table(all_.python, all_.python_ns, options_.has_waits, trim_to_first_rows("self")), "self");
    if (!is_detailed()) return;
    ReportTable lines = python_lines_table(all_.lines, options_.has_waits);
    if (lines.rows.empty() && is_asked_for("python")) lines.remarks.emplace_back(kNoLines);
    if (!lines.rows.empty() && all_.lines.unknown_ns != 0)
      lines.remarks.push_back("operators without a known line: " +
                              duration_text(static_cast<double>(all_.lines.unknown_ns)));
    add_sorted(std::move(lines), "self");
  }

  // Where the program's own code leads to, without what runs once and holds all of it.
  void add_own_functions() {
    ReportTable table = python_table(all_.python, all_.python_ns, options_.has_waits, {});
    table.title = "Functions of the program";
    table.remarks.clear();  // of all functions
    std::erase_if(table.rows, [this, name = table.column("name")](const std::vector<Cell>& row) {
      const std::string& text = std::get<std::string>(row[name]);
      return !all_.own_functions.contains(text) || text.ends_with(": <module>");
    });
    if (!table.rows.empty()) add_sorted(std::move(table), "total");
  }

  // Shows memory, GPUs and FLOPs only if there are any.
  static ReportTable with_what_is_there(ReportTable table) {
    show_if_any(table, "cuda_total_ns", {"self_cuda_ns", "cuda_total_ns"});
    show_if_any(table, "self_cpu_mem_bytes", {"self_cpu_mem_bytes"});
    show_if_any(table, "self_cuda_mem_bytes", {"self_cuda_mem_bytes"});
    show_if_any(table, "flops", {"flops"});
    return table;
  }

  ReportTable operators(const TrimRows& trim) const {
    std::string title = options_.grouping.top_level ? "Top-level operators" : "Operators";
    if (options_.grouping.is_plain()) return ops_table(all_.operators, all_.operator_ns, title, trim);
    return ops_table(all_.op_groups, options_.grouping, all_.operator_ns, title, trim);
  }

  void add_operators() {
    const auto by = [this](std::string_view order) {
      return with_what_is_there(first_rows(operators(trim_to_first_rows(order)), order));
    };
    ReportTable table = by("self");
    const bool is_by_line = options_.grouping.by == OpGrouping::By::kLine;
    if (is_by_line && !table.rows.empty() && is_without(table, "line")) table.remarks.emplace_back(kNoLines);
    if (options_.has_totals && !table.rows.empty()) {
      std::string sums =
          "all: self CPU " + duration_text(static_cast<double>(std::get<int64_t>(table.totals[0].second)));
      const int64_t gpu_ns = std::get<int64_t>(table.totals[1].second);
      if (gpu_ns != 0) sums += ", self CUDA " + duration_text(static_cast<double>(gpu_ns));
      table.remarks.push_back(sums + ", " +
                              plural(static_cast<uint64_t>(std::get<int64_t>(table.totals[2].second)), "call"));
    }
    if (is_text() && options_.grouping.is_plain())
      std::ranges::move(first_use_remarks(all_.operators, all_.operator_ns), std::back_inserter(table.remarks));
    const bool has_rows = !table.rows.empty();
    add(std::move(table));
    if (options_.sort.empty() && is_text() && has_rows && !leaves_out_each_process()) add(by("total"));
  }

  // In its own order it has the largest owners and the others as one row, so that its rows add up to the peak.
  void add_memory() {
    const bool needs_all = !options_.sort.empty() || !options_.filter.empty();
    std::vector<ReportTable> tables =
        memory_tables(report_.parts, groups_, report_.start, needs_all ? SIZE_MAX : rows_, is_detailed());
    if (is_asked_for("memory") && std::ranges::find(tables, "memory", &ReportTable::name) == tables.end())
      tables.insert(tables.begin(), {.name = "memory", .title = "Memory", .columns = columns_of("memory"), .rows = {}});
    for (ReportTable& table : tables)
      if (needs_all)
        add_in_order(std::move(table), "more row");
      else
        add(std::move(table));
  }

  void add_processes() {
    const bool is_one = report_.parts.size() < 2;
    if (is_text() && is_one && !is_asked_for("processes")) return;
    if (leaves_out_each_process()) return add_in_order(processes_of_many_table(groups_), "more process");
    add_in_order(processes_table(groups_), "more process");
    if (!is_text() || is_one) return;
    constexpr size_t kRowsOfEach = 5;
    for (size_t i = 0; i < std::min(groups_.size(), kShownProcesses); ++i) {
      const PartGroup& group = groups_[i];
      const auto sum = report_.group_operators.find(group.first().group);
      const bool has_sum = !group.is_one() && sum != report_.group_operators.end();
      ReportTable table =
          ops_table(has_sum ? sum->second : group.first().statistics.operators, group.operator_ns(), "");
      filter_rows(table, options_.filter);
      sort_rows(table, *find_column(table.columns, "self"));
      if (const size_t rows = std::min(kRowsOfEach, rows_); table.rows.size() > rows) table.rows.resize(rows);
      table.title = "Operators by self time in " + group.who() + ": ";
      table.title += shorten(printable(group.first().command),
                             std::max(document_.width, columns(table.title) + kNarrowest) - columns(table.title));
      add(with_what_is_there(std::move(table)));
    }
  }

  const Report& report_;
  const TableOptions& options_;
  const std::vector<PartGroup> groups_;
  const size_t rows_;  // at most, of each table
  const Statistics& all_ = report_.all;
  ReportDocument document_;
};

// The steps' table names the rank for which the others wait.
bool has_ranks(const Trace& trace) {
  return std::ranges::count_if(trace.processes, [](const Process& p) { return p.role.starts_with("rank "); }) > 1;
}

// `is_detailed`: with all columns.
SecondPassRequest second_pass_for(const std::vector<std::string>& tables, bool is_detailed) {
  const auto names = [&tables](const char* table) { return std::ranges::find(tables, table) != tables.end(); };
  return {.has_gpu = names("gpu"),
          .has_launches = names("launches"),
          .has_path = names("critical"),
          .has_advice = tables.empty() || names("advice"),
          .has_units = tables.empty() || names("steps"),
          .has_memory_growth = tables.empty() || names("advice") || (is_detailed && names("memory")),
          .has_memory_categories = is_detailed && (tables.empty() || names("memory"))};
}

}  // namespace

const std::vector<std::string>& table_names() {
  static const std::vector<std::string> names{"ops",      "kernels",  "calls",     "modules",  "memory",
                                              "python",   "steps",    "comms",     "threads",  "gpu",
                                              "launches", "critical", "processes", "profiler", "advice"};
  return names;
}

bool wants_records(std::string_view table) { return table == "profiler"; }

std::vector<std::string> column_names(const std::string& table) {
  std::vector<std::string> names;
  for (const Column& column : columns_of(table)) {
    names.emplace_back(column.key);
    if (column.key == "pid") names.insert(names.end(), {"rank", "host"});
  }
  return names;
}

void check(const TableOptions& options) {
  for (const std::string& table : options.tables) {
    if (std::ranges::find(table_names(), table) != table_names().end()) continue;
    std::string known;
    for (const std::string& each : table_names()) known.append(known.empty() ? "" : ", ").append(each);
    throw Error("--tables: '" + table + "' is not a table: " + known + did_you_mean(table, table_names()));
  }
  const auto& tables = options.tables.empty() ? table_names() : options.tables;
  const auto has_order = [&options](const std::string& table) {
    return find_column(columns_of(table), options.sort).has_value();
  };
  const std::string or_column = " a column of `torchprof help report`";
  if (!options.sort.empty() && std::ranges::none_of(tables, has_order)) {
    std::vector<std::string> known;
    for (const auto& [order, title] : kOrders) known.emplace_back(order);
    for (const std::string& table : tables) std::ranges::move(column_names(table), std::back_inserter(known));
    throw Error("--sort: '" + options.sort + "' is not self, total, calls, average or" + or_column +
                did_you_mean(options.sort, known));
  }
  if (options.columns.empty() || options.columns == std::vector<std::string>{"all"}) return;
  if (options.tables.size() != 1) throw Error("--columns needs one table: --tables ops --columns ...");
  for (const std::string& column : options.columns)
    if (!find_column(columns_of(tables.front()), column) && column != "rank" && column != "host")
      throw Error("--columns: '" + column + "' is not" + or_column + " for " + tables.front() +
                  did_you_mean(column, column_names(tables.front())));
}

std::string summary_text(const Report& report, const TableOptions& options) {
  check(options);
  return render(DocumentAssembly(report, options).run(), options.style);
}

Report report_for(const Trace& trace, const TableOptions& options) {
  const auto names = [&options](const char* table) {
    return std::ranges::find(options.tables, table) != options.tables.end();
  };
  const auto is_shown = [&](const char* table) { return options.tables.empty() || names(table); };
  const bool is_detailed = options.has_totals || options.style != ReportStyle::kText;
  return report_of(trace,
                   {.grouping = options.grouping,
                    .has_step_parts = (is_detailed && is_shown("steps")) || is_shown("advice"),
                    .has_comms = names("comms") || is_shown("advice") || (is_shown("steps") && has_ranks(trace)),
                    .has_threads = names("threads"),
                    .has_module_costs = is_detailed && is_shown("modules"),
                    .has_lines = is_detailed && is_shown("python")},
                   second_pass_for(options.tables, is_detailed));
}

Report report_for(TraceFile& file, const std::string& name, const TableOptions& options) {
  return report_of(file, name, second_pass_for(options.tables, false));
}

std::string summary_text(const Trace& trace, const TableOptions& options) {
  return summary_text(report_for(trace, options), options);
}

std::string summary_text(const std::filesystem::path& trace_file, const TableOptions& options) {
  OpGrouping by_name;
  by_name.has_source = options.grouping.has_source;  // a file does not have it: the column is empty
  if (options.grouping.by != by_name.by || options.grouping.top_level)
    throw Error(trace_file.string() +
                ": --group-by and --top-level need the raw records of a run, which run --discard removes");
  for (const std::string& table : options.tables)
    if (wants_records(table))
      throw Error(trace_file.string() + ": --tables " + table +
                  " needs the raw records of a run, which run --discard removes");
  TableOptions of_file = options;
  of_file.grouping = {};
  return summary_text(report_of(trace_file, second_pass_for(options.tables, false), options.step), of_file);
}

}  // namespace torchprof::formats
