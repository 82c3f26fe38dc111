// What the part of a trace before the events says of GPUs.
#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "formats/gpu/counters.h"
#include "formats/trace/gpu_index.h"
#include "formats/write/kineto/gpu.h"

namespace torchprof::formats::kineto {

using nlohmann::ordered_json;

ordered_json device_properties(Processes processes) {
  ordered_json list = ordered_json::array();
  std::set<uint32_t> known;
  for (const Process& p : processes) {
    if (!p.gpu) continue;
    for (const auto& [number, d] : p.gpu->devices()) {
      if (!known.insert(number).second) continue;
      list.push_back({{"id", number},
                      {"name", std::string(p.string(d.name))},
                      {"totalGlobalMem", d.memory},
                      {"computeMajor", d.major},
                      {"computeMinor", d.minor},
                      {"maxThreadsPerBlock", d.threads_per_block},
                      {"maxThreadsPerMultiprocessor", uint64_t{d.warps_per_multiprocessor} * d.warp_size},
                      {"regsPerBlock", d.registers_per_block},
                      {"warpSize", d.warp_size},
                      {"sharedMemPerBlock", d.shared_per_block},
                      {"numSms", d.multiprocessors},
                      {"regsPerMultiprocessor", d.registers_per_multiprocessor},
                      {"sharedMemPerBlockOptin", d.shared_per_block_optin},
                      {"sharedMemPerMultiprocessor", d.shared_per_multiprocessor}});
    }
  }
  return list;
}

ordered_json gpu_versions(Processes processes) {
  ordered_json versions = ordered_json::object();
  for (const Process& p : processes) {
    const auto add = [&](const char* key, std::string_view fact) {
      const long number = std::atol(std::string(p.meta(fact)).c_str());
      if (number > 0 && !versions.contains(key)) versions[key] = number;
    };
    add("cupti_version", "cupti.version");
    add("cuda_runtime_version", "cuda.runtime");
    add("cuda_driver_version", "cuda.driver");
  }
  return versions;
}

ordered_json describe_gpu(const Process& process) {
  const GpuIndex& gpu = *process.gpu;
  ordered_json j{{"kernels", gpu.kernels()}, {"clock_samples", gpu.time().samples()}};
  j["clock_uncertainty_ns"] = gpu.time().widest_ns() / 2;
  if (gpu.faults().count != 0)
    j["clock_faults"] = {{"begin_before_launch", gpu.faults().count}, {"most_ns", gpu.faults().most_ns}};
  if (gpu.gaps().count != 0)
    j["gaps"] = {{"times", gpu.gaps().count}, {"seconds", static_cast<double>(gpu.gaps().ns) / 1e9}};
  if (gpu.timeless() != 0) j["without_time"] = gpu.timeless();
  const auto lost = [&](GpuLoss loss, const char* key) {
    if (gpu.lost(loss) != 0) j[key] = gpu.lost(loss);
  };
  lost(GpuLoss::kDropped, "dropped");
  lost(GpuLoss::kMalformed, "malformed");
  lost(GpuLoss::kUnknown, "unknown");
  if (!gpu.memory().empty()) j["driver_memory_operations"] = gpu.memory().size();
  if (!gpu.pools().empty()) j["driver_memory_pool_operations"] = gpu.pools().size();
  for (const GpuCounter& c : gpu_counters(gpu)) {
    const auto [least, most] = std::ranges::minmax_element(c.values, {}, [](const auto& v) { return v.second; });
    j["devices"][std::to_string(c.device)][std::string(c.name)] = {{"least", least->second}, {"most", most->second}};
  }
  for (const auto& [device, t] : gpu_throttling(gpu))
    j["devices"][std::to_string(device)]["clock_samples"] = {
        {"all", t.samples}, {"held_down_by_power", t.power}, {"held_down_by_hardware", t.hardware}};
  return j;
}

}  // namespace torchprof::formats::kineto
