#include "launcher/run_dir/hang_info.h"

#include <nlohmann/json.hpp>

#include "formats/analysis/arrivals.h"
#include "formats/analysis/stuck_work.h"
#include "formats/io/text.h"
#include "formats/trace/gpu_index.h"
#include "launcher/run_dir/wall_clock.h"

namespace torchprof::launcher {

void add_stuck_gpu(Info& process_info, const formats::Process& process, bool is_running) {
  if (!process.gpu || process.gpu->stuck().empty()) return;
  Info& all = process_info["stuck_gpu"] = Info::array();
  // All events are needed; `process` may have come with definitions alone.
  const formats::Trace trace = formats::load({process.file}, formats::Contents::kAll);
  for (const formats::Process& same : trace.processes) {
    const UnixNs until = is_running ? wall_clock_now() : same.end;
    for (const formats::StuckWork& work : formats::stuck_work(same)) {
      Info& out = all.emplace_back(Info{{"device", work.device}, {"stream", work.stream}, {"kernel", work.name}});
      out["seconds"] = seconds_between(work.since, until);
      out["behind"] = std::max(work.launched, 1u) - 1;
      if (!work.collective.empty()) out["collective"] = work.collective;
      if (work.tid != 0) out["tid"] = work.tid;
      out["spans"] = work.spans;
    }
  }
}

void add_arrivals(Info& info, const formats::Trace& trace, bool is_running) {
  constexpr double kJustNow = 1;  // seconds; in a job that goes on, ranks are never quite together
  for (const formats::GroupArrivals& group : formats::arrivals(trace)) {
    if (group.have_all_arrived()) continue;
    UnixNs first{INT64_MAX};
    for (const formats::Arrival& rank : group.ranks)
      if (rank.number == group.latest()) first = std::min(first, rank.time);
    const double since = seconds_between(first, is_running ? wall_clock_now() : trace.run_end);
    if (is_running && since < kJustNow) continue;
    info["collectives"].push_back(formats::arrivals_text(group));
  }
}

}  // namespace torchprof::launcher
