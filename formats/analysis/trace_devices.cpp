#include "formats/analysis/trace_devices.h"

#include <cstdlib>

#include "formats/io/sum.h"

namespace torchprof::formats {

void TraceDevices::add(const DeviceWork& work) {
  work_.push_back(work);
  if (work.external != 0) add_to(launched_[work.external], work.duration);
}

std::string TraceDevices::label_of(uint32_t pid) const {
  const auto label = labels_.find(pid);
  return label == labels_.end() ? std::string() : label->second;
}

int64_t TraceDevices::launched_by(uint32_t external) const {
  if (external == 0 || launched_.empty()) return 0;
  const auto it = launched_.find(external);
  return it == launched_.end() ? 0 : it->second;
}

std::unordered_map<uint32_t, uint32_t> TraceDevices::owner_wanted() const {
  std::unordered_map<uint32_t, uint32_t> asked, by_external;
  for (const DeviceWork& w : work_)
    if (w.external != 0 && asked.try_emplace(w.pid, w.external).second) by_external.emplace(w.external, w.pid);
  return by_external;
}

void TraceDevices::each(const std::unordered_map<uint32_t, uint32_t>& owner, uint32_t otherwise,
                        const std::function<void(uint32_t process, const DeviceWork& work)>& visit) const {
  for (const DeviceWork& w : work_) {
    const auto known = owner.find(w.pid);
    visit(known == owner.end() ? otherwise : known->second, w);
  }
}

std::map<uint32_t, GpuStatistics> TraceDevices::finish(const std::unordered_map<uint32_t, uint32_t>& owner,
                                                       uint32_t otherwise, int64_t captured_ns,
                                                       const std::vector<const std::string*>& pids,
                                                       const std::function<std::string_view(uint32_t)>& text) const {
  const auto device_of = [&](uint32_t pid) {
    const auto label = labels_.find(pid);
    const bool is_labelled = label != labels_.end() && label->second.starts_with("GPU ");
    return static_cast<uint32_t>(
        std::strtoul((is_labelled ? label->second.substr(4) : *pids[pid]).c_str(), nullptr, 10));
  };
  std::map<uint32_t, GpuCollector> collectors;
  std::unordered_map<uint32_t, std::pair<uint32_t, uint32_t>> rows;  // process and device number, by the row's pid
  for (const DeviceWork& w : work_) {
    const auto [row, is_new] = rows.try_emplace(w.pid);
    if (is_new) {
      const auto known = owner.find(w.pid);
      row->second = {known == owner.end() ? otherwise : known->second, device_of(w.pid)};
    }
    collectors[row->second.first].add({.name = w.name,
                                       .device = row->second.second,
                                       .is_kernel = w.is_kernel,
                                       .begin = w.begin,
                                       .end = sum(w.begin, w.duration),
                                       .blocks_per_sm = w.blocks_per_sm,
                                       .occupancy = w.occupancy});
  }
  std::map<uint32_t, GpuStatistics> result;
  for (auto& [process, collector] : collectors) {
    GpuStatistics& statistics = result[process] = collector.finish(captured_ns, text);
    for (GpuDeviceUse& use : statistics.devices)
      if (const auto name = names_.find(use.device); name != names_.end()) use.name = name->second;
  }
  return result;
}

}  // namespace torchprof::formats
