#include "formats/report/gpu_notes.h"

#include "formats/gpu/counters.h"
#include "formats/io/cells.h"
#include "formats/io/text.h"
#include "formats/trace/gpu_index.h"

namespace torchprof::formats {
namespace {

void add_count(std::vector<std::string>& lines, uint64_t n, const char* what, const std::string& more) {
  if (n != 0) lines.push_back(plural(n, what) + more);
}

}  // namespace

std::vector<std::string> gpu_notes(const Process& process) {
  std::vector<std::string> notes;
  if (!process.gpu) return notes;
  const GpuIndex& gpu = *process.gpu;
  if (gpu.gaps().count != 0) {
    notes.push_back("GPU not recorded for " + duration_text(static_cast<double>(gpu.gaps().ns)) +
                    ": another client of CUPTI was using it, " + plural(gpu.gaps().count, "time"));
  }
  add_count(notes, gpu.lost(GpuLoss::kDropped), "GPU record", " dropped by CUPTI, which had no buffer for them");
  add_count(notes, gpu.lost(GpuLoss::kMalformed), "GPU record", " of CUPTI could not be read");
  add_count(notes, gpu.lost(GpuLoss::kUnknown), "GPU record", " of kinds that were not asked for");
  if (const std::string_view late = process.meta("gpu.late"); !late.empty())
    notes.push_back("records of the GPU that CUPTI delivered after the program's end were not read: " +
                    std::string(late));
  if (const std::string_view unwritten = process.meta("gpu.unwritten"); !unwritten.empty())
    notes.push_back("the last records of the GPU were not written, as CUPTI did not come back in time: " +
                    std::string(unwritten));
  add_count(notes, gpu.timeless(), "GPU operation", " without a time from CUPTI");
  return notes;
}

std::vector<std::string> gpu_remarks(const Process& process) {
  std::vector<std::string> remarks;
  if (!process.gpu) return remarks;
  const GpuIndex& gpu = *process.gpu;
  add_count(remarks, gpu.faults().count, "GPU operation",
            " would begin before the launch, by up to " + duration_text(static_cast<double>(gpu.faults().most_ns)) +
                ": the clocks of GPU and CPU disagree");
  for (const auto& [device, t] : gpu_throttling(gpu)) {
    const auto held_down = [&, number = device, samples = t.samples](uint64_t n, const char* by) {
      add_count(remarks, n, "sample",
                " of " + std::to_string(samples) + " found the clock of GPU " + std::to_string(number) +
                    " throttled by " + by);
    };
    held_down(t.power, "its power limit");
    held_down(t.hardware, "the hardware (heat, power supply)");
  }
  return remarks;
}

}  // namespace torchprof::formats
