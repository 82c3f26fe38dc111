// The findings of formats/advice as a table.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "formats/io/cells.h"
#include "formats/io/text.h"
#include "formats/report/columns.h"
#include "formats/report/tables.h"

namespace torchprof::formats {
namespace {

// ", 1,234 samples a second"; empty: not known.
std::string rate_text(const Advice& advice) {
  const auto& [samples, tokens] = advice.input;
  if (samples == 0 && tokens == 0) return {};
  const double rate = static_cast<double>(std::max(samples, tokens)) * 1e9 / static_cast<double>(advice.step_ns);
  return ", " + (rate < 10 ? print("%.1f", rate) : count_text(static_cast<uint64_t>(std::llround(rate)))) +
         (samples != 0 ? " samples" : " tokens") + " a second" + (advice.ranks > 1 ? " on each rank" : "");
}

// What few steps have is a part of the mean step: ", on average 101 ms".
std::string mean_text(const Advice& advice) {
  const bool has_rare = std::ranges::any_of(advice.findings, &Finding::is_rare);
  return has_rare && advice.mean_step_ns / 21 > advice.step_ns / 20 ? ", on average " + ns_text(advice.mean_step_ns)
                                                                    : std::string();
}

struct FindingRow {
  const Finding& f;
  int64_t step_ns;

  Cell if_it_costs(Cell cell) const { return f.cost_ns > 0 ? std::move(cell) : Cell{}; }
  std::string text() const {
    std::string text = f.what;
    for (const std::string* more : {&f.evidence, &f.todo})
      if (!more->empty()) text.append(" ").append(*more);
    if (!f.source.empty()) text.append(" It says: ").append(f.source);
    return text;
  }
};

constexpr RowColumn<FindingRow> kFindingColumns[] = {
    {{"cost_ns", "costs", Unit::kTime}, [](auto& r) { return r.if_it_costs(r.f.cost_ns); }},
    {{"share_percent", "of a step", Unit::kPercent},
     [](auto& r) { return r.if_it_costs(percent(r.f.cost_ns, r.step_ns)); }},
    {{"without_ns", "without", Unit::kTime},
     [](auto& r) { return r.if_it_costs(std::max<int64_t>(0, r.step_ns - r.f.cost_ns)); }},
    {{"rule", "rule", Unit::kText, kHidden}, [](auto& r) { return std::string(r.f.rule); }},
    {{"finding", "what", Unit::kText, kHidden}, [](auto& r) { return r.f.what; }},
    {{"evidence", "evidence", Unit::kText, kHidden}, [](auto& r) { return text_or_missing(r.f.evidence); }},
    {{"todo", "to do", Unit::kText, kHidden}, [](auto& r) { return r.f.todo; }},
    {{"text", "finding"}, [](auto& r) { return r.text(); }},
    {{"where", "where", Unit::kText, true, kAppended}, [](auto& r) { return text_or_missing(r.f.where); }},
};
constexpr RowTable<FindingRow> kFindings{"advice", kFindingColumns};

}  // namespace

std::vector<ReportTable> empty_advice_tables() { return {kFindings.make()}; }

ReportTable advice_table(const Advice& advice) {
  std::string title = "Advice";
  if (advice.step_ns != 0)
    title += ": " +
             (!advice.unit.empty() ? advice.unit
              : advice.has_steps   ? "a step"
                                   : "the run") +
             " takes " + ns_text(advice.step_ns) + mean_text(advice) + rate_text(advice);
  if (const std::string parts = parts_text(advice.parts); !parts.empty()) title += ": " + parts;
  ReportTable table = kFindings.make(std::move(title));
  table.last_column = LastColumn::kBroken;
  if (!advice.unit.empty() || !advice.has_steps)
    table.columns[table.column("share_percent")].title = advice.unit.empty() ? "of the run" : "of it";
  for (const Finding& f : advice.findings) kFindings.add(table, {f, f.is_rare ? advice.mean_step_ns : advice.step_ns});
  if (advice.parts.sum() > 0) {
    table.totals.emplace_back("step_ns", advice.step_ns);
    if (advice.input.samples != 0) table.totals.emplace_back("samples", advice.input.samples);
    if (advice.input.tokens != 0) table.totals.emplace_back("tokens", advice.input.tokens);
    for (size_t i = 0; i < kStepParts; ++i) table.totals.emplace_back(kStepPartTexts[i].key, advice.parts.all()[i]);
  }
  const bool has_looked = advice.step_ns != 0;
  if (has_looked && advice.unit.empty() && !advice.has_steps && advice.imports_ns > advice.step_ns / 2)
    table.remarks.push_back("imports took " + ns_text(advice.imports_ns) + " before that, most of it " +
                            printable(advice.imports_most));
  if (!advice.machine.empty()) table.remarks.push_back(advice.machine);
  if (table.rows.empty() && has_looked)
    table.remarks.push_back("no findings" + (advice.most.empty() ? "" : "; " + printable(advice.most)));
  if (table.rows.empty() && !has_looked) table.remarks.push_back("no findings: nothing was recorded that takes long");
  return table;
}

}  // namespace torchprof::formats
