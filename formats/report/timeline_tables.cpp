// The tables that are made of timelines: what devices did, how work got to them, the critical path.
#include <string>
#include <utility>

#include "formats/report/columns.h"
#include "formats/report/tables.h"

namespace torchprof::formats {
namespace {

Cell cell_of_average(int64_t ns, uint64_t calls) {
  return calls == 0 ? Cell{} : Cell(static_cast<double>(ns) / static_cast<double>(calls));
}

// Shows process ids where there are several.
ReportTable with_pids(ReportTable table) {
  for (const std::vector<Cell>& row : table.rows)
    if (row[0] != table.rows[0][0]) table.show("pid", true);
  return table;
}

}  // namespace

ReportTable gpu_time_table(const std::vector<ReportPart>& parts) {
  ReportTable table = make_table("gpu", "What GPUs did");
  for (const ReportPart& part : parts) {
    if (!part.timeline.gpu) continue;
    for (const auto& [number, d] : part.timeline.gpu->devices) {
      const auto only = [&d = d](size_t bits) { return d.exactly[bits]; };
      table.rows.push_back({part.key(), count(number), d.ns, d.idle_ns(), percent(d.idle_ns(), d.ns), d.compute_ns(),
                            percent(d.compute_ns(), d.ns), d.other_ns(), d.communication_ns(),
                            percent(d.hidden_ns(), d.communication_ns()), d.any(kRanMemory), only(kRanCompute),
                            only(kRanCommunication), only(kRanMemory), only(kRanCompute | kRanCommunication),
                            only(kRanCompute | kRanMemory), only(kRanCommunication | kRanMemory), only(7)});
    }
  }
  return with_pids(std::move(table));
}

ReportTable streams_table(const std::vector<ReportPart>& parts) {
  ReportTable table = make_table("streams", "What streams waited for");
  for (const ReportPart& part : parts) {
    if (!part.timeline.gpu) continue;
    for (const StreamTime& s : part.timeline.gpu->streams)
      table.rows.push_back({part.key(), count(s.device), count(s.stream), count(s.works), s.ns, s.busy_ns,
                            s.host_wait_ns, s.kernel_wait_ns, s.other_wait_ns});
  }
  return with_pids(std::move(table));
}

ReportTable launches_table(const std::vector<ReportPart>& parts) {
  ReportTable table = make_table("launches", "How work gets to GPUs");
  for (const ReportPart& part : parts) {
    if (!part.timeline.launches) continue;
    for (const StreamLaunches& s : part.timeline.launches->streams)
      table.rows.push_back({part.key(), count(s.device), count(s.stream), count(s.works),
                            cell_of_average(s.call_ns, s.works), cell_of_average(s.work_ns, s.works),
                            cell_of_average(s.delay_ns, s.works), s.delay_median_ns, s.delay_max_ns,
                            count(s.short_works), count(s.slow_calls), count(s.late_works), s.queue_mean,
                            s.queue_median, s.queue_min, s.queue_max});
  }
  return with_pids(std::move(table));
}

ReportTable copies_table(const std::vector<ReportPart>& parts) {
  ReportTable table = make_table("copies", "Copies and sets");
  for (const ReportPart& part : parts) {
    if (!part.timeline.launches) continue;
    for (const auto& [kind, c] : part.timeline.launches->copies) {
      const auto if_rated = [&c = c](double rate) { return c.rated == 0 ? Cell{} : Cell(rate); };
      table.rows.push_back({part.key(), count(c.works), c.ns, count(c.bytes),
                            if_rated(static_cast<double>(c.bytes) / static_cast<double>(std::max<int64_t>(1, c.ns))),
                            if_rated(c.rate_sum / static_cast<double>(std::max<uint64_t>(1, c.rated))),
                            if_rated(c.rate_min), if_rated(c.rate_max), kind});
    }
  }
  return with_pids(std::move(table));
}

ReportTable critical_table(const std::vector<ReportPart>& parts) {
  ReportTable table = make_table("critical", "Critical path of steps");
  for (const ReportPart& part : parts) {
    if (!part.timeline.path) continue;
    const PathSums& path = *part.timeline.path;
    for (size_t i = 0; i < kPathClasses; ++i) {
      if (path.by_class[i] == 0 && path.without[i] == path.ns) continue;
      table.rows.push_back({part.key(), cell_of_average(path.by_class[i], path.steps),
                            percent(path.by_class[i], path.ns), cell_of_average(path.without[i], path.steps),
                            percent(path.ns - path.without[i], path.ns), path.by_class[i],
                            std::string(text_of(static_cast<PathClass>(i)))});
    }
  }
  return with_pids(std::move(table));
}

ReportTable critical_names_table(const std::vector<ReportPart>& parts) {
  ReportTable table = make_table("critical_names", "Critical path by name");
  for (const ReportPart& part : parts) {
    if (!part.timeline.path) continue;
    const PathSums& path = *part.timeline.path;
    for (const auto& [key, tally] : path.names) {
      const std::string owner = parts[key.process].key();
      if (owner != part.key()) table.show("in_pid", true);
      table.rows.push_back({part.key(), cell_of_average(tally.ns, path.steps), percent(tally.ns, path.ns), tally.ns,
                            count(tally.count), std::string(text_of(key.kind)), owner, text_or_missing(key.name),
                            text_or_missing(key.place == key.name ? std::string() : key.place)});
    }
  }
  sort_rows(table, table.column("total_ns"));
  return with_pids(std::move(table));
}

}  // namespace torchprof::formats
