#include "formats/gpu_table.h"

#include <algorithm>

#include "formats/cells.h"
#include "formats/gpu_index.h"
#include "formats/text.h"

namespace torchprof::formats {
namespace {

double average_ns(const GpuTally& t) {
  return static_cast<double>(t.total_ns) / static_cast<double>(std::max<uint64_t>(1, t.calls));
}

std::string average_text(const GpuTally& t, double sum, const char* format, double scale) {
  return t.is_kernel && sum > 0 ? print(format, scale * sum / static_cast<double>(t.calls)) : "-";
}

}  // namespace

std::string devices_table(const std::vector<GpuLine>& devices) {
  if (devices.empty()) return {};
  const bool is_several = std::ranges::any_of(devices, [&](const GpuLine& l) { return l.pid != devices[0].pid; });
  Cells head{"GPU", "busy %", "busy", "kernels", "in kernels", "copies, sets", "in them", "name"};
  if (is_several) head.insert(head.begin(), "pid");
  std::vector<Cells> rows;
  for (const auto& [pid, use] : devices) {
    Cells& row = rows.emplace_back(Cells{std::to_string(use.device), percent_text(use.busy_ns, use.captured_ns),
                                         time_text(static_cast<double>(use.busy_ns)), count_text(use.kernels),
                                         time_text(static_cast<double>(use.kernel_ns)), count_text(use.copies),
                                         time_text(static_cast<double>(use.copy_ns)),
                                         use.name.empty() ? "-" : printable(use.name)});
    if (is_several) row.insert(row.begin(), pid);
  }
  return aligned(head, rows);
}

std::string kernels_table(const GpuTallies& work, size_t rows, std::string_view order) {
  if (work.empty()) return {};
  using Named = std::pair<std::string_view, GpuTally>;
  std::vector<Named> list(work.begin(), work.end());
  const auto key = [order](const Named& n) {
    if (order == "calls") return static_cast<double>(n.second.calls);
    return order == "average" ? average_ns(n.second) : static_cast<double>(n.second.total_ns);
  };
  std::ranges::sort(list, [&key](const Named& a, const Named& b) {
    return std::pair(-key(a), a.first) < std::pair(-key(b), b.first);
  });
  int64_t sum = 0;
  for (const auto& [name, t] : list) sum += t.total_ns;
  if (list.size() > rows) list.resize(rows);
  std::vector<Cells> lines;
  for (const auto& [name, t] : list) {
    lines.push_back({time_text(static_cast<double>(t.total_ns)), percent_text(t.total_ns, sum), count_text(t.calls),
                     time_text(average_ns(t)), time_text(static_cast<double>(t.min_ns)),
                     time_text(static_cast<double>(t.max_ns)), average_text(t, t.blocks_per_sm, "%.2f", 1),
                     average_text(t, t.occupancy, "%.0f %%", 100), printable(name)});
  }
  return aligned({"total", "share", "calls", "average", "min", "max", "blocks/SM", "occupancy", "name"}, lines);
}

std::vector<std::string> gpu_notes(const Process& process) {
  std::vector<std::string> notes;
  if (!process.gpu) return notes;
  const GpuIndex& gpu = *process.gpu;
  const auto add = [&notes](uint64_t n, const char* what, const std::string& more) {
    if (n != 0) notes.push_back(plural(n, what) + more);
  };
  add(gpu.faults().count, "GPU operation",
      " would begin before the launch, by up to " + duration_text(static_cast<double>(gpu.faults().most_ns)) +
          ": the clocks of GPU and CPU disagree");
  if (gpu.gaps().count != 0) {
    notes.push_back("GPU not recorded for " + duration_text(static_cast<double>(gpu.gaps().ns)) +
                    ": another client of CUPTI, as torch.profiler is, had it, " + plural(gpu.gaps().count, "time"));
  }
  add(gpu.lost(GpuLoss::kDropped), "GPU record", " dropped by CUPTI, which had no buffer for them");
  add(gpu.lost(GpuLoss::kMalformed), "GPU record", " of CUPTI could not be read");
  add(gpu.lost(GpuLoss::kUnknown), "GPU record", " of kinds that were not asked for");
  add(gpu.timeless(), "GPU operation", " without a time, which CUPTI did not know; not drawn");
  return notes;
}

}  // namespace torchprof::formats
