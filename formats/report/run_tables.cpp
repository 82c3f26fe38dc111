// Tables of how a run went: its steps, its collectives, its threads, and what recording it cost.
#include <algorithm>
#include <map>
#include <set>

#include "formats/io/cells.h"
#include "formats/io/sum.h"
#include "formats/report/columns.h"
#include "formats/report/tables.h"

namespace torchprof::formats {

ReportTable comms_table(const std::vector<ReportPart>& parts) {
  ReportTable table = make_table("comms", "Collectives");
  std::vector<const CommsCalls*> processes;
  for (const ReportPart& part : parts) processes.push_back(&part.statistics.comms);
  const auto tallies = compare(processes);
  // Groups with the same description are told apart by their ranks.
  std::map<std::string, std::set<std::string>> alike;
  for (const auto& [kind, t] : tallies) alike[kind.group].insert(kind.id);
  for (const auto& [kind, t] : tallies) {
    const auto bytes = static_cast<double>(t.bytes), ns = static_cast<double>(t.total_ns - t.waiting_ns);
    const bool is_compared = t.compared != 0;
    const auto if_compared = [is_compared](Cell cell) { return is_compared ? std::move(cell) : Cell{}; };
    std::string slowest;
    if (is_compared) slowest = parts[t.slowest].role.empty() ? parts[t.slowest].pid : parts[t.slowest].role;
    std::string group = kind.group;
    if (alike[kind.group].size() > 1 && !kind.ranks.empty()) group.append(" (").append(kind.ranks).append(")");
    table.rows.push_back({count(t.calls), t.total_ns, static_cast<double>(t.total_ns) / static_cast<double>(t.calls),
                          count(t.bytes), bytes > 0 && ns > 0 ? Cell(bytes / ns) : Cell{}, if_compared(t.waiting_ns),
                          if_compared(percent(static_cast<int64_t>(t.slowest_calls), static_cast<int64_t>(t.compared))),
                          text_or_missing(slowest), kind.name, text_or_missing(group)});
  }
  return table;
}

ReportTable threads_table(const std::vector<ReportPart>& parts) {
  ReportTable table = make_table("threads", "Threads");
  for (const ReportPart& part : parts)
    for (const ThreadTally& t : part.statistics.threads)
      table.rows.push_back({part.pid, t.open_ns, t.operator_ns, t.python_ns, t.gpu_ns, count(t.operators),
                            count(t.python_calls), t.name});
  show_if_any(table, "gpu_ns", {"gpu_ns"});
  return table;
}

ReportTable profiler_table(const std::vector<ReportPart>& parts) {
  ReportTable table = make_table("profiler", "What recording took");
  for (const ReportPart& part : parts) {
    if (!part.recorder) continue;
    const ReportPart::Recorder& r = *part.recorder;
    const auto each = static_cast<double>(r.spool_bytes) / static_cast<double>(std::max<uint64_t>(1, r.counts.records));
    table.rows.push_back({part.pid, count(r.counts.records), count(r.counts.operators), count(r.counts.python),
                          count(r.counts.c_calls), count(r.spool_bytes), each, count(r.lost), count(r.recycled_bytes),
                          count(r.damaged_bytes), r.read_ns, part.command});
  }
  return table;
}

}  // namespace torchprof::formats
