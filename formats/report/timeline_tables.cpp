// The tables that are made of timelines: what devices did, how work got to them, the critical path.
#include <algorithm>
#include <string>
#include <utility>

#include "formats/report/columns.h"
#include "formats/report/tables.h"

namespace torchprof::formats {
namespace {

Cell cell_of_average(int64_t ns, uint64_t calls) { return calls == 0 ? Cell{} : Cell(average_of(ns, calls)); }

// Shows process ids where there are several.
ReportTable with_pids(ReportTable table) {
  const size_t pid = table.column("pid");
  for (const std::vector<Cell>& row : table.rows)
    if (row[pid] != table.rows[0][pid]) table.show("pid", true);
  return table;
}

struct DeviceTimeRow {
  const ReportPart& part;
  uint32_t gpu;
  const DeviceTime& d;
};

// While what these bits say ran, and nothing else.
template <size_t bits>
constexpr RowColumn<DeviceTimeRow> exactly_column(std::string_view key, std::string_view title) {
  return {{key, title, Unit::kTime, kHidden}, [](auto& r) { return r.d.exactly[bits]; }};
}

constexpr RowColumn<DeviceTimeRow> kDeviceTimeColumns[] = {
    kPidColumn<DeviceTimeRow>,
    {{"gpu", "GPU", Unit::kCount}, [](auto& r) { return count(r.gpu); }},
    {{"ns", "time", Unit::kTime}, [](auto& r) { return r.d.ns; }},
    {{"idle_ns", "idle", Unit::kTime}, [](auto& r) { return r.d.idle_ns(); }},
    {{"idle_percent", "idle %", Unit::kPercent}, [](auto& r) { return percent(r.d.idle_ns(), r.d.ns); }},
    {{"compute_ns", "compute", Unit::kTime}, [](auto& r) { return r.d.compute_ns(); }},
    {{"compute_percent", "compute %", Unit::kPercent}, [](auto& r) { return percent(r.d.compute_ns(), r.d.ns); }},
    {{"other_ns", "other work", Unit::kTime}, [](auto& r) { return r.d.other_ns(); }},
    {{"communication_ns", "communication", Unit::kTime}, [](auto& r) { return r.d.communication_ns(); }},
    {{"hidden_percent", "hidden %", Unit::kPercent},
     [](auto& r) { return percent(r.d.hidden_ns(), r.d.communication_ns()); }},
    {{"memory_ns", "copies, sets", Unit::kTime}, [](auto& r) { return r.d.any(kRanMemory); }},
    exactly_column<kRanCompute>("only_compute_ns", "only compute"),
    exactly_column<kRanCommunication>("only_communication_ns", "only communication"),
    exactly_column<kRanMemory>("only_memory_ns", "only copies, sets"),
    exactly_column<kRanCompute | kRanCommunication>("compute_communication_ns", "compute and communication"),
    exactly_column<kRanCompute | kRanMemory>("compute_memory_ns", "compute and copies"),
    exactly_column<kRanCommunication | kRanMemory>("communication_memory_ns", "communication and copies"),
    exactly_column<kRanCompute | kRanCommunication | kRanMemory>("all_three_ns", "all three"),
};
constexpr RowTable<DeviceTimeRow> kDeviceTimes{"gpu", kDeviceTimeColumns};

struct StreamRow {
  const ReportPart& part;
  const StreamTime& s;
};

constexpr RowColumn<StreamRow> kStreamColumns[] = {
    kPidColumn<StreamRow>,
    {{"gpu", "GPU", Unit::kCount}, [](auto& r) { return count(r.s.device); }},
    {{"stream", "stream", Unit::kCount}, [](auto& r) { return count(r.s.stream); }},
    {{"works", "kernels, copies", Unit::kCount}, [](auto& r) { return count(r.s.works); }},
    {{"ns", "time", Unit::kTime}, [](auto& r) { return r.s.ns; }},
    {{"busy_ns", "busy", Unit::kTime}, [](auto& r) { return r.s.busy_ns; }},
    {{"host_wait_ns", "host wait", Unit::kTime}, [](auto& r) { return r.s.host_wait_ns; }},
    {{"kernel_wait_ns", "kernel wait", Unit::kTime}, [](auto& r) { return r.s.kernel_wait_ns; }},
    {{"other_wait_ns", "other wait", Unit::kTime}, [](auto& r) { return r.s.other_wait_ns; }},
};
constexpr RowTable<StreamRow> kStreams{"streams", kStreamColumns};

struct LaunchRow {
  const ReportPart& part;
  const StreamLaunches& s;
};

constexpr RowColumn<LaunchRow> kLaunchColumns[] = {
    kPidColumn<LaunchRow>,
    {{"gpu", "GPU", Unit::kCount}, [](auto& r) { return count(r.s.device); }},
    {{"stream", "stream", Unit::kCount}, [](auto& r) { return count(r.s.stream); }},
    {{"works", "launched", Unit::kCount}, [](auto& r) { return count(r.s.works); }},
    {{"call_avg_ns", "call", Unit::kTime}, [](auto& r) { return cell_of_average(r.s.call_ns, r.s.works); }},
    {{"work_avg_ns", "kernel", Unit::kTime}, [](auto& r) { return cell_of_average(r.s.work_ns, r.s.works); }},
    {{"delay_avg_ns", "delay", Unit::kTime}, [](auto& r) { return cell_of_average(r.s.delay_ns, r.s.works); }},
    {{"delay_median_ns", "median", Unit::kTime}, [](auto& r) { return r.s.delay_median_ns; }},
    {{"delay_max_ns", "max", Unit::kTime}, [](auto& r) { return r.s.delay_max_ns; }},
    {{"short_works", "shorter than call", Unit::kCount}, [](auto& r) { return count(r.s.short_works); }},
    {{"slow_calls", "slow calls", Unit::kCount, kHidden}, [](auto& r) { return count(r.s.slow_calls); }},
    {{"late_works", "late", Unit::kCount, kHidden}, [](auto& r) { return count(r.s.late_works); }},
    {{"queue_avg", "queue", Unit::kNumber}, [](auto& r) { return r.s.queue_mean; }},
    {{"queue_median", "median queue", Unit::kCount, kHidden}, [](auto& r) { return r.s.queue_median; }},
    {{"queue_min", "min queue", Unit::kCount, kHidden}, [](auto& r) { return r.s.queue_min; }},
    {{"queue_max", "max queue", Unit::kCount}, [](auto& r) { return r.s.queue_max; }},
};
constexpr RowTable<LaunchRow> kLaunches{"launches", kLaunchColumns};

struct CopyRow {
  const ReportPart& part;
  const std::string& kind;
  const CopyRates& c;

  Cell if_rated(double rate) const { return c.rated == 0 ? Cell{} : Cell(rate); }
};

constexpr RowColumn<CopyRow> kCopyColumns[] = {
    kPidColumn<CopyRow>,
    {{"calls", "calls", Unit::kCount}, [](auto& r) { return count(r.c.works); }},
    {{"total_ns", "total", Unit::kTime}, [](auto& r) { return r.c.ns; }},
    {{"bytes", "bytes", Unit::kBytes}, [](auto& r) { return count(r.c.bytes); }},
    {{"gb_per_s", "GB/s", Unit::kNumber, true, false, "-", 3},
     [](auto& r) {
       return r.if_rated(static_cast<double>(r.c.bytes) / static_cast<double>(std::max<int64_t>(1, r.c.ns)));
     }},
    {{"gb_per_s_avg", "average", Unit::kNumber, true, false, "-", 3},
     [](auto& r) { return r.if_rated(r.c.rate_sum / static_cast<double>(std::max<uint64_t>(1, r.c.rated))); }},
    {{"gb_per_s_min", "min", Unit::kNumber, true, false, "-", 3}, [](auto& r) { return r.if_rated(r.c.rate_min); }},
    {{"gb_per_s_max", "max", Unit::kNumber, true, false, "-", 3}, [](auto& r) { return r.if_rated(r.c.rate_max); }},
    {{"name", "name"}, [](auto& r) { return r.kind; }},
};
constexpr RowTable<CopyRow> kCopies{"copies", kCopyColumns};

struct CriticalRow {
  const ReportPart& part;
  const PathSums& path;
  size_t kind;  // PathClass

  int64_t ns() const { return path.by_class[kind]; }
  int64_t without() const { return path.without[kind]; }
};

constexpr RowColumn<CriticalRow> kCriticalColumns[] = {
    kPidColumn<CriticalRow>,
    {{"step_ns", "of a step", Unit::kTime}, [](auto& r) { return cell_of_average(r.ns(), r.path.steps); }},
    {{"share_percent", "share", Unit::kPercent}, [](auto& r) { return percent(r.ns(), r.path.ns); }},
    {{"without_ns", "step without it", Unit::kTime},
     [](auto& r) { return cell_of_average(r.without(), r.path.steps); }},
    {{"gain_percent", "shorter by", Unit::kPercent},
     [](auto& r) { return percent(r.path.ns - r.without(), r.path.ns); }},
    {{"total_ns", "total", Unit::kTime, kHidden}, [](auto& r) { return r.ns(); }},
    {{"class", "what"}, [](auto& r) { return std::string(text_of(static_cast<PathClass>(r.kind))); }},
};
constexpr RowTable<CriticalRow> kCritical{"critical", kCriticalColumns};

struct CriticalNameRow {
  const ReportPart& part;
  const PathSums& path;
  const PathSums::Key& key;
  const PathSums::Tally& t;
  const std::string& owner;
};

constexpr RowColumn<CriticalNameRow> kCriticalNameColumns[] = {
    kPidColumn<CriticalNameRow>,
    {{"step_ns", "of a step", Unit::kTime}, [](auto& r) { return cell_of_average(r.t.ns, r.path.steps); }},
    {{"share_percent", "share", Unit::kPercent}, [](auto& r) { return percent(r.t.ns, r.path.ns); }},
    {{"total_ns", "total", Unit::kTime, kHidden}, [](auto& r) { return r.t.ns; }},
    {{"segments", "segments", Unit::kCount}, [](auto& r) { return count(r.t.count); }},
    {{"class", "what"}, [](auto& r) { return std::string(text_of(r.key.kind)); }},
    {{"in_pid", "in", Unit::kText, kHidden, false, ""}, [](auto& r) { return r.owner; }},
    {{"name", "name"}, [](auto& r) { return text_or_missing(r.key.name); }},
    {{"place", "where", Unit::kText, true, kAppended, ""},
     [](auto& r) { return r.key.place == r.key.name ? Cell{} : text_or_missing(r.key.place); }},
};
constexpr RowTable<CriticalNameRow> kCriticalNames{"critical_names", kCriticalNameColumns};

}  // namespace

std::vector<ReportTable> empty_timeline_tables() {
  return {kDeviceTimes.make(), kStreams.make(),  kLaunches.make(),
          kCopies.make(),      kCritical.make(), kCriticalNames.make()};
}

ReportTable gpu_time_table(const std::vector<ReportPart>& parts) {
  ReportTable table = kDeviceTimes.make("What GPUs did");
  for (const ReportPart& part : parts) {
    if (!part.timeline.gpu) continue;
    for (const auto& [number, d] : part.timeline.gpu->devices) kDeviceTimes.add(table, {part, number, d});
  }
  return with_pids(std::move(table));
}

ReportTable streams_table(const std::vector<ReportPart>& parts) {
  ReportTable table = kStreams.make("What streams waited for");
  for (const ReportPart& part : parts) {
    if (!part.timeline.gpu) continue;
    for (const StreamTime& s : part.timeline.gpu->streams) kStreams.add(table, {part, s});
  }
  return with_pids(std::move(table));
}

ReportTable launches_table(const std::vector<ReportPart>& parts) {
  ReportTable table = kLaunches.make("How work gets to GPUs");
  for (const ReportPart& part : parts) {
    if (!part.timeline.launches) continue;
    for (const StreamLaunches& s : part.timeline.launches->streams) kLaunches.add(table, {part, s});
  }
  return with_pids(std::move(table));
}

ReportTable copies_table(const std::vector<ReportPart>& parts) {
  ReportTable table = kCopies.make("Copies and sets");
  for (const ReportPart& part : parts) {
    if (!part.timeline.launches) continue;
    for (const auto& [kind, c] : part.timeline.launches->copies) kCopies.add(table, {part, kind, c});
  }
  return with_pids(std::move(table));
}

ReportTable critical_table(const std::vector<ReportPart>& parts) {
  ReportTable table = kCritical.make("Critical path of steps");
  for (const ReportPart& part : parts) {
    if (!part.timeline.path) continue;
    const PathSums& path = *part.timeline.path;
    for (size_t i = 0; i < kPathClasses; ++i)
      if (path.by_class[i] != 0 || path.without[i] != path.ns) kCritical.add(table, {part, path, i});
  }
  return with_pids(std::move(table));
}

ReportTable critical_names_table(const std::vector<ReportPart>& parts) {
  ReportTable table = kCriticalNames.make("Critical path by name");
  for (const ReportPart& part : parts) {
    if (!part.timeline.path) continue;
    const PathSums& path = *part.timeline.path;
    for (const auto& [key, t] : path.names) {
      const std::string owner = parts[key.process].key();
      if (owner != part.key()) table.show("in_pid", true);
      kCriticalNames.add(table, {part, path, key, t, owner});
    }
  }
  sort_rows(table, table.column("total_ns"));
  return with_pids(std::move(table));
}

}  // namespace torchprof::formats
