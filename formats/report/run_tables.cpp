// Tables of how a run went: its steps, its collectives, its threads, and what recording it cost.
#include <algorithm>
#include <map>
#include <set>

#include "formats/io/cells.h"
#include "formats/io/sum.h"
#include "formats/io/text.h"
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
    if (t.slowest_calls != 0) slowest = parts[t.slowest].role.empty() ? parts[t.slowest].pid : parts[t.slowest].role;
    std::string group = kind.group;
    if (alike[kind.group].size() > 1 && !kind.ranks.empty()) group.append(" (").append(kind.ranks).append(")");
    table.rows.push_back({count(t.calls), t.total_ns, static_cast<double>(t.total_ns) / static_cast<double>(t.calls),
                          count(t.bytes), bytes > 0 && ns > 0 ? Cell(bytes / ns) : Cell{}, if_compared(t.waiting_ns),
                          if_compared(percent(static_cast<int64_t>(t.slowest_calls), static_cast<int64_t>(t.compared))),
                          text_or_missing(slowest), kind.name, text_or_missing(group)});
  }
  uint64_t uncertain = 0;
  std::string names;
  for (const auto& [kind, t] : tallies) {
    if (t.uncertain == 0) continue;
    uncertain += t.uncertain;
    names.append(names.empty() ? "" : ", ").append(count_text(t.uncertain)).append(" ").append(printable(kind.name));
  }
  if (uncertain != 0)
    table.remarks.push_back("not compared, as nobody can be sure which of them are the same: " + names);
  return table;
}

namespace {

void add(ThreadTally& sum, const ThreadTally& t) {
  add_to(sum.open_ns, t.open_ns);
  add_to(sum.operator_ns, t.operator_ns);
  add_to(sum.python_ns, t.python_ns);
  add_to(sum.gpu_ns, t.gpu_ns);
  sum.operators += t.operators;
  sum.python_calls += t.python_calls;
}

// Those of one process, or of a group's processes by their names.
std::vector<ThreadTally> threads_of(const PartGroup& group) {
  if (group.is_one()) return group.first().statistics.threads;
  std::map<std::string_view, std::pair<uint64_t, ThreadTally>> by_name;
  for (const ReportPart* part : group.parts)
    for (const ThreadTally& t : part->statistics.threads) {
      auto& [times, sum] = by_name[without_number(t.name)];
      ++times;
      add(sum, t);
    }
  std::vector<ThreadTally> threads;
  for (auto& [name, counted] : by_name) {
    counted.second.name = std::to_string(counted.first).append(" ").append(name);
    threads.push_back(std::move(counted.second));
  }
  return threads;
}

}  // namespace

ReportTable threads_table(const std::vector<PartGroup>& groups) {
  ReportTable table = make_table("threads", "Threads");
  for (const PartGroup& group : groups)
    for (const ThreadTally& t : threads_of(group))
      table.rows.push_back({group.is_one() ? group.pid() : group.role(), t.open_ns, t.operator_ns, t.python_ns,
                            t.gpu_ns, count(t.operators), count(t.python_calls), t.name});
  show_if_any(table, "gpu_ns", {"gpu_ns"});
  return table;
}

ReportTable profiler_table(const std::vector<PartGroup>& groups) {
  ReportTable table = make_table("profiler", "What recording took");
  for (const PartGroup& group : groups) {
    ReportPart::Recorder sum;
    bool is_any = false;
    for (const ReportPart* part : group.parts) {
      if (!part->recorder) continue;
      const ReportPart::Recorder& r = *part->recorder;
      is_any = true;
      sum.counts += r.counts;
      sum.spool_bytes += r.spool_bytes;
      sum.lost += r.lost;
      sum.recycled_bytes += r.recycled_bytes;
      sum.damaged_bytes += r.damaged_bytes;
      sum.read_ns += r.read_ns;
    }
    if (!is_any) continue;
    const auto each =
        static_cast<double>(sum.spool_bytes) / static_cast<double>(std::max<uint64_t>(1, sum.counts.records));
    table.rows.push_back({group.pid(), count(sum.counts.records), count(sum.counts.operators), count(sum.counts.python),
                          count(sum.counts.c_calls), count(sum.spool_bytes), each, count(sum.lost),
                          count(sum.recycled_bytes), count(sum.damaged_bytes), sum.read_ns,
                          group.is_one() ? group.first().command : group.role()});
  }
  return table;
}

}  // namespace torchprof::formats
