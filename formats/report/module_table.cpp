// The table of modules, as rows and as a tree.
#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "formats/report/columns.h"
#include "formats/report/tables.h"

namespace torchprof::formats {
namespace {

struct ModuleRow {
  const std::string& name;
  const ModuleTally& m;
};

// Of what is counted only if asked for.
template <auto cost>
constexpr RowColumn<ModuleRow> cost_column(std::string_view key, std::string_view title, Unit unit = Unit::kTime) {
  return {{key, title, unit, kHidden},
          [](auto& r) { return r.m.costs ? Cell(static_cast<int64_t>(*r.m.costs.*cost)) : Cell{}; }};
}

constexpr RowColumn<ModuleRow> kModuleColumns[] = {
    {{"forward_self_ns", "fwd self", Unit::kTime}, [](auto& r) { return r.m.forward_self_ns; }},
    {{"forward_total_ns", "fwd total", Unit::kTime}, [](auto& r) { return r.m.forward_total_ns; }},
    {{"backward_self_ns", "bwd self", Unit::kTime, kHidden}, [](auto& r) { return r.m.backward_self_ns; }},
    {{"backward_total_ns", "bwd total", Unit::kTime, kHidden}, [](auto& r) { return r.m.backward_total_ns; }},
    {{"recompute_self_ns", "recompute self", Unit::kTime, kHidden}, [](auto& r) { return r.m.recompute_self_ns; }},
    {{"recompute_total_ns", "recompute", Unit::kTime, kHidden}, [](auto& r) { return r.m.recompute_total_ns; }},
    cost_column<&ModuleCosts::optimizer_ns>("optimizer_ns", "optimizer"),
    cost_column<&ModuleCosts::gpu_forward_self_ns>("gpu_forward_self_ns", "GPU fwd self"),
    cost_column<&ModuleCosts::gpu_forward_total_ns>("gpu_forward_total_ns", "GPU fwd"),
    cost_column<&ModuleCosts::gpu_backward_self_ns>("gpu_backward_self_ns", "GPU bwd self"),
    cost_column<&ModuleCosts::gpu_backward_total_ns>("gpu_backward_total_ns", "GPU bwd"),
    cost_column<&ModuleCosts::gpu_recompute_self_ns>("gpu_recompute_self_ns", "GPU recompute self"),
    cost_column<&ModuleCosts::gpu_recompute_total_ns>("gpu_recompute_total_ns", "GPU recompute"),
    cost_column<&ModuleCosts::optimizer_gpu_ns>("gpu_optimizer_ns", "GPU optimizer"),
    {{"self_ns", "self", Unit::kTime, kHidden}, [](auto& r) { return r.m.self_ns(); }},
    {{"total_ns", "total", Unit::kTime, kHidden}, [](auto& r) { return r.m.total_ns(); }},
    {{"calls", "calls", Unit::kCount}, [](auto& r) { return count(r.m.calls); }},
    {{"avg_ns", "average", Unit::kTime}, [](auto& r) { return average_of(r.m.total_ns(), r.m.calls); }},
    cost_column<&ModuleCosts::parameters>("parameters", "params", Unit::kCount),
    cost_column<&ModuleCosts::own_parameters>("own_parameters", "own params", Unit::kCount),
    cost_column<&ModuleCosts::parameter_bytes>("parameter_bytes", "params size", Unit::kBytes),
    cost_column<&ModuleCosts::cpu_peak_bytes>("cpu_peak_bytes", "peak CPU mem", Unit::kBytes),
    cost_column<&ModuleCosts::gpu_peak_bytes>("gpu_peak_bytes", "peak GPU mem", Unit::kBytes),
    {{"parent", "in", Unit::kText, kHidden}, [](auto& r) { return text_or_missing(r.m.parent); }},
    {{"name", "name"}, [](auto& r) { return r.name; }},
    {{"path", "path", Unit::kText, true, kAppended}, [](auto& r) { return text_or_missing(r.m.path); }},
};
constexpr RowTable<ModuleRow> kModules{"modules", kModuleColumns};

void show(ReportTable& table, bool is_shown, std::initializer_list<std::string_view> columns) {
  for (const std::string_view column : columns) table.show(column, is_shown);
}

bool has_any(const ModuleTallies& modules, int64_t ModuleCosts::*cost) {
  return std::ranges::any_of(modules, [cost](const auto& m) { return m.second.costs && *m.second.costs.*cost != 0; });
}

// A line has room for seven numbers besides the name. With a GPU its times and memory are the ones of interest.
void choose_columns(ReportTable& table, const ModuleTallies& modules) {
  const bool has_backward = std::ranges::any_of(modules, [](const auto& m) { return m.second.backward_self_ns != 0; });
  show(table, has_backward, {"backward_self_ns", "backward_total_ns"});
  show(table, std::ranges::any_of(modules, [](const auto& m) { return m.second.recompute_self_ns != 0; }),
       {"recompute_total_ns"});
  if (!std::ranges::any_of(modules, [](const auto& m) { return m.second.costs.has_value(); })) return;
  const bool has_gpu =
      has_any(modules, &ModuleCosts::gpu_forward_total_ns) || has_any(modules, &ModuleCosts::gpu_backward_total_ns);
  show(table, false, {"backward_self_ns", "avg_ns"});
  show(table, !has_gpu, {"forward_self_ns", "parameters"});
  show(table, has_any(modules, &ModuleCosts::optimizer_ns), {"optimizer_ns"});
  show(table, has_gpu, {"gpu_forward_total_ns"});
  show(table, has_any(modules, &ModuleCosts::gpu_backward_total_ns), {"gpu_backward_total_ns"});
  show(table, has_any(modules, &ModuleCosts::gpu_recompute_total_ns), {"gpu_recompute_total_ns"});
  show(table, true, {has_any(modules, &ModuleCosts::gpu_peak_bytes) ? "gpu_peak_bytes" : "cpu_peak_bytes"});
}

}  // namespace

std::vector<ReportTable> empty_module_tables() { return {kModules.make()}; }

ReportTable modules_table(const ModuleTallies& modules) {
  ReportTable table = kModules.make("Modules");
  for (const auto& [name, m] : modules) kModules.add(table, {name, m});
  choose_columns(table, modules);
  return table;
}

void arrange_as_tree(ReportTable& table) {
  const size_t name = table.column("name"), parent = table.column("parent"), path = table.column("path");
  const auto text = [&table](size_t row, size_t column) {
    const auto* text = std::get_if<std::string>(&table.rows[row][column]);
    return text == nullptr ? std::string() : *text;
  };
  std::unordered_map<std::string, size_t> rows;
  for (size_t i = 0; i < table.rows.size(); ++i) rows.emplace(text(i, name), i);
  std::vector<std::vector<size_t>> inside(table.rows.size());
  std::vector<size_t> open;  // a stack, the next one on top
  for (size_t i = table.rows.size(); i-- > 0;) {
    const auto holder = rows.find(text(i, parent));
    if (holder == rows.end())
      open.push_back(i);
    else
      inside[holder->second].push_back(i);
  }
  std::vector<std::vector<Cell>> ordered;
  std::vector<bool> is_placed(table.rows.size(), false);
  std::vector<uint32_t> indents;
  struct Next {
    size_t row;
    uint32_t depth;
    std::string within;
  };
  const auto place = [&](size_t root) {
    std::vector<Next> next{{root, 0, ""}};
    while (!next.empty()) {
      const auto [row, depth, within] = next.back();
      next.pop_back();
      if (is_placed[row]) continue;
      is_placed[row] = true;
      const std::string full = text(row, path);
      std::vector<Cell>& cells = ordered.emplace_back(table.rows[row]);
      if (!within.empty() && full.starts_with(within + ".")) cells[path] = full.substr(within.size() + 1);
      indents.push_back(depth);
      for (const size_t child : inside[row]) next.push_back({child, depth + 1, full});
    }
  };
  for (; !open.empty(); open.pop_back()) place(open.back());
  // First callers may form a cycle, in which no module is a root.
  for (size_t i = 0; i < table.rows.size(); ++i) place(i);
  table.rows = std::move(ordered);
  table.indents = std::move(indents);
}

}  // namespace torchprof::formats
