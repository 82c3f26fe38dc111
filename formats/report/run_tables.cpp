// Tables of how a run went: its processes, its collectives, its threads, and what recording it cost.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "formats/io/cells.h"
#include "formats/io/sum.h"
#include "formats/io/text.h"
#include "formats/report/columns.h"
#include "formats/report/tables.h"

namespace torchprof::formats {
namespace {

struct CommsRow {
  const CommsKind& kind;
  const CommsTally& t;
  const std::string& slowest;  // empty: nobody is known
  const std::string& group;

  Cell if_compared(Cell cell) const { return t.compared != 0 ? std::move(cell) : Cell{}; }
  Cell bytes_per_ns() const {
    const auto bytes = static_cast<double>(t.bytes), ns = static_cast<double>(t.total_ns - t.waiting_ns);
    return bytes > 0 && ns > 0 ? Cell(bytes / ns) : Cell{};
  }
};

constexpr RowColumn<CommsRow> kCommsColumns[] = {
    {{"calls", "calls", Unit::kCount}, [](auto& r) { return count(r.t.calls); }},
    {{"total_ns", "total", Unit::kTime}, [](auto& r) { return r.t.total_ns; }},
    {{"avg_ns", "average", Unit::kTime}, [](auto& r) { return average_of(r.t.total_ns, r.t.calls); }},
    {{"bytes", "bytes", Unit::kBytes}, [](auto& r) { return count(r.t.bytes); }},
    {{"gb_per_s", "GB/s", Unit::kNumber, true, false, "-", 3}, [](auto& r) { return r.bytes_per_ns(); }},
    {{"waiting_ns", "waiting", Unit::kTime, true, false, "-", 1, 1},
     [](auto& r) { return r.if_compared(r.t.waiting_ns); }},
    {{"slowest_percent", "slowest", Unit::kPercent, true, false, "-", 0},
     [](auto& r) {
       return r.if_compared(percent(static_cast<int64_t>(r.t.slowest_calls), static_cast<int64_t>(r.t.compared)));
     }},
    {{"slowest", "process"}, [](auto& r) { return text_or_missing(r.slowest); }},
    {{"name", "name"}, [](auto& r) { return r.kind.name; }},
    {{"group", "group", Unit::kText, true, kAppended, ""}, [](auto& r) { return text_or_missing(r.group); }},
};
constexpr RowTable<CommsRow> kComms{"comms", kCommsColumns};

struct ThreadRow {
  const PartGroup& group;
  const ThreadTally& t;
};

constexpr RowColumn<ThreadRow> kThreadColumns[] = {
    {{"pid", "pid"}, [](auto& r) { return r.group.is_one() ? r.group.pid() : r.group.role(); }},
    {{"open_ns", "in calls", Unit::kTime}, [](auto& r) { return r.t.open_ns; }},
    {{"operator_ns", "operators", Unit::kTime}, [](auto& r) { return r.t.operator_ns; }},
    {{"python_ns", "Python", Unit::kTime}, [](auto& r) { return r.t.python_ns; }},
    {{"gpu_ns", "launched", Unit::kTime, kHidden}, [](auto& r) { return r.t.gpu_ns; }},
    {{"operators", "operators", Unit::kCount}, [](auto& r) { return count(r.t.operators); }},
    {{"python_calls", "Python calls", Unit::kCount}, [](auto& r) { return count(r.t.python_calls); }},
    {{"name", "name"}, [](auto& r) { return r.t.name; }},
};
constexpr RowTable<ThreadRow> kThreads{"threads", kThreadColumns};

struct RecorderRow {
  const PartGroup& group;
  const ReportPart::Recorder& sum;
};

constexpr RowColumn<RecorderRow> kRecorderColumns[] = {
    {{"pid", "pid"}, [](auto& r) { return r.group.pid(); }},
    {{"events", "records", Unit::kCount}, [](auto& r) { return count(r.sum.counts.records); }},
    {{"operators", "operators", Unit::kCount}, [](auto& r) { return count(r.sum.counts.operators); }},
    {{"python_calls", "Python calls", Unit::kCount}, [](auto& r) { return count(r.sum.counts.python); }},
    {{"c_calls", "C calls", Unit::kCount}, [](auto& r) { return count(r.sum.counts.c_calls); }},
    {{"spool_bytes", "spool", Unit::kBytes}, [](auto& r) { return count(r.sum.spool_bytes); }},
    {{"bytes_per_event", "bytes each", Unit::kNumber},
     [](auto& r) { return average_of(static_cast<int64_t>(r.sum.spool_bytes), r.sum.counts.records); }},
    {{"lost", "lost", Unit::kCount}, [](auto& r) { return count(r.sum.lost); }},
    {{"recycled_bytes", "dropped", Unit::kBytes}, [](auto& r) { return count(r.sum.recycled_bytes); }},
    {{"damaged_bytes", "damaged", Unit::kBytes}, [](auto& r) { return count(r.sum.damaged_bytes); }},
    {{"read_ns", "read in", Unit::kTime}, [](auto& r) { return r.sum.read_ns; }},
    {{"command", "command"}, [](auto& r) { return r.group.is_one() ? r.group.first().command : r.group.role(); }},
};
constexpr RowTable<RecorderRow> kRecorders{"profiler", kRecorderColumns};

struct ProcessRow {
  const PartGroup& group;
  uint64_t events;
  uint64_t steps;
};

constexpr RowColumn<ProcessRow> kProcessColumns[] = {
    {{"pid", "pid"}, [](auto& r) { return r.group.pid(); }},
    {{"role", "role", Unit::kText, kHidden, false, ""}, [](auto& r) { return text_or_missing(r.group.role()); }},
    {{"events", "events", Unit::kCount}, [](auto& r) { return count(r.events); }},
    {{"operator_ns", "operators", Unit::kTime}, [](auto& r) { return r.group.operator_ns(); }},
    {{"steps", "steps", Unit::kCount}, [](auto& r) { return count(r.steps); }},
    {{"ended", "ended"}, [](auto& r) { return text_or_missing(r.group.ended()); }},
    {{"command", "command"}, [](auto& r) { return r.group.first().command; }},
    {{"group", "one of", Unit::kText, kHidden},
     [](auto& r) { return text_or_missing(r.group.is_one() ? r.group.first().group_name : ""); }},
};
constexpr RowTable<ProcessRow> kProcesses{"processes", kProcessColumns};

}  // namespace

std::vector<ReportTable> empty_run_tables() {
  return {kComms.make(), kThreads.make(), kRecorders.make(), kProcesses.make()};
}

ReportTable comms_table(const std::vector<ReportPart>& parts) {
  ReportTable table = kComms.make("Collectives");
  std::vector<const CommsCalls*> processes;
  for (const ReportPart& part : parts) processes.push_back(&part.statistics.comms);
  const auto tallies = compare(processes);
  // Groups with the same description are told apart by their ranks.
  std::map<std::string, std::set<std::string>> alike;
  for (const auto& [kind, t] : tallies) alike[kind.group].insert(kind.id);
  for (const auto& [kind, t] : tallies) {
    std::string slowest;
    if (t.slowest_calls != 0) slowest = parts[t.slowest].role.empty() ? parts[t.slowest].pid : parts[t.slowest].role;
    std::string group = kind.group;
    if (alike[kind.group].size() > 1 && !kind.ranks.empty()) group.append(" (").append(kind.ranks).append(")");
    kComms.add(table, {kind, t, slowest, group});
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
  ReportTable table = kThreads.make("Threads");
  for (const PartGroup& group : groups)
    for (const ThreadTally& t : threads_of(group)) kThreads.add(table, {group, t});
  show_if_any(table, "gpu_ns", {"gpu_ns"});
  return table;
}

ReportTable profiler_table(const std::vector<PartGroup>& groups) {
  ReportTable table = kRecorders.make("What recording took");
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
    if (is_any) kRecorders.add(table, {group, sum});
  }
  return table;
}

ReportTable processes_table(const std::vector<PartGroup>& groups) {
  ReportTable table = kProcesses.make("Processes");
  for (const PartGroup& group : groups) {
    uint64_t events = 0, steps = 0;
    for (const ReportPart* part : group.parts) {
      events += part->events.value_or(part->statistics.slices);
      steps += part->run ? part->run->count : part->statistics.steps.count;
    }
    kProcesses.add(table, {group, events, steps});
  }
  show_if_any(table, "role", {"role"});
  return table;
}

ReportTable processes_of_many_table(const std::vector<PartGroup>& groups) {
  ReportTable table = processes_table(groups);
  const size_t column = table.column("ended");
  std::map<Cell, size_t> ends;
  for (const std::vector<Cell>& row : table.rows) ++ends[row[column]];
  if (ends.size() < 2) return table;
  const Cell most = std::ranges::max_element(ends, {}, &std::pair<const Cell, size_t>::second)->first;
  std::stable_partition(table.rows.begin(), table.rows.end(),
                        [&](const std::vector<Cell>& row) { return row[column] != most; });
  std::string text;
  for (const auto& [how, times] : ends) {
    const std::string* ended = std::get_if<std::string>(&how);
    text.append(text.empty() ? "" : ", ").append(count_text(times)).append(" ").append(ended ? *ended : "not known");
  }
  table.remarks.push_back("they ended: " + text);
  return table;
}

}  // namespace torchprof::formats
