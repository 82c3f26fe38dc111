#include "formats/memory/memory.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>
#include <utility>

namespace torchprof::formats {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 62;  // limit of totals: a damaged record may have any number

int64_t add_clamped(int64_t total, int64_t bytes) {
  int64_t sum = 0;
  return __builtin_add_overflow(total, bytes, &sum) ? total : std::clamp(sum, -kMostBytes, kMostBytes);
}

}  // namespace

// c10/core/DeviceType.h, 1.13 to 2.14.
std::string device_text(int8_t type, int8_t index) {
  constexpr std::array<const char*, 21> kNames = {"CPU",  "CUDA", "MKLDNN", "OpenGL", "OpenCL", "IDEEP", "HIP",
                                                  "FPGA", "MAIA", "XLA",    "Vulkan", "Metal",  "XPU",   "MPS",
                                                  "Meta", "HPU",  "VE",     "Lazy",   "IPU",    "MTIA",  "PrivateUse1"};
  if (type == kPythonMemory) return "Python allocator";
  const size_t i = static_cast<uint8_t>(type);  // a negative one becomes a number past the end
  std::string text = i < kNames.size() ? kNames[i] : "device type " + std::to_string(type);
  return index >= 0 ? text.append(" ").append(std::to_string(index)) : text;
}

std::string module_text(std::string_view name, std::string_view path) {
  std::string text(name);
  return path.empty() ? text : text.append(" (").append(path).append(")");
}

size_t MemoryCollector::OwnerHash::operator()(const MemoryOwner& owner) const {
  uint64_t hash = 0;
  for (const uint32_t part : {owner.module, owner.op, owner.outer_op, owner.place})
    hash = (hash ^ part) * 0x9e3779b97f4a7c15u;
  return static_cast<size_t>(hash ^ hash >> 32);
}

uint32_t MemoryCollector::intern(const MemoryOwner& owner) {
  const auto [it, is_new] = by_owner_.try_emplace(owner, static_cast<uint32_t>(owners_.size()));
  if (is_new) owners_.push_back(owner);
  return it->second;
}

MemoryCollector::Device& MemoryCollector::device(int8_t type, int8_t index) {
  for (Device& device : devices_)
    if (device.result.type == type && device.result.index == index) return device;
  Device& device = devices_.emplace_back();
  device.result.type = type;
  device.result.index = index;
  return device;
}

void MemoryCollector::Device::hold(uint32_t owner, int64_t bytes, int sign) {
  if (owner >= accounts.size()) accounts.resize(std::max<size_t>(owner + 1, accounts.size() * 2));
  Account& account = accounts[owner];
  account.now.bytes = add_clamped(account.now.bytes, sign * bytes);
  account.now.blocks += static_cast<uint64_t>(sign);
  if (std::exchange(account.changed, true)) return;
  changed.push_back(owner);
}

OwnerText text_of(const MemoryOwner& owner, const std::function<std::string(uint32_t)>& text) {
  const auto or_nothing = [&text](uint32_t id) { return id != 0 ? text(id) : std::string(); };
  return {or_nothing(owner.module), or_nothing(owner.op), or_nothing(owner.outer_op), or_nothing(owner.place)};
}

void MemoryCollector::hold(Device& device, uint32_t owner, int64_t bytes, int sign) {
  device.hold(owner, bytes, sign);
  if (on_change && owners_[owner].module != 0) on_change(owners_[owner].module, device.result.type == 0, sign * bytes);
}

void MemoryCollector::enter_window(Device& device, uint32_t window) {
  device.result.has_windows = device.result.has_windows || device.window != 0;
  device.window = window;
  for (const auto& [address, block] : device.live) hold(device, block.owner, block.bytes, -1);
  device.live.clear();
  device.mapped = 0;
  if (counts_by_window(device.result.type)) device.counted = 0;
}

bool MemoryCollector::add(const MemoryChange& change) {
  MemoryChange e = change;
  e.bytes = std::clamp(e.bytes, -kMostBytes, kMostBytes);
  Device& d = device(e.device_type, e.device_index);
  if (e.window != d.window) enter_window(d, e.window);
  if (e.is_out_of_memory) {
    ++d.result.failures;
    if (e.bytes <= d.result.largest_failure) return false;
    d.result.largest_failure = e.bytes;
    d.failed_in = e.owner;
    return false;
  }
  const bool is_strange = e.bytes < 0 && !d.live.contains(e.address);  // from before the capture, or the parent's
  if (e.is_mapped)
    d.mapped = std::max<int64_t>(0, is_strange ? d.mapped : add_clamped(d.mapped, e.bytes));
  else
    d.counted = static_cast<int64_t>(std::min<uint64_t>(e.allocated, kMostBytes));
  d.result.end_bytes = d.counted + d.mapped;

  // The block that was at this address is gone, even if its free was not seen.
  if (const auto it = d.live.find(e.address); it != d.live.end()) {
    hold(d, it->second.owner, it->second.bytes, -1);
    d.live.erase(it);
  }
  if (e.bytes <= 0) {
    ++d.result.frees;
    return false;
  }
  ++d.result.allocations;
  const uint32_t owner = intern(e.owner);
  d.live.emplace(e.address, Block{owner, e.bytes});
  hold(d, owner, e.bytes, 1);
  d.accounts[owner].allocated = add_clamped(d.accounts[owner].allocated, e.bytes);
  ++d.accounts[owner].allocations;
  if (d.result.end_bytes <= d.result.peak_bytes) return false;
  d.result.peak_bytes = d.result.end_bytes;
  d.result.peak_mapped_bytes = d.mapped;
  d.result.peak = e.time;
  for (const uint32_t i : d.changed) {
    d.accounts[i].at_peak = d.accounts[i].now;
    d.accounts[i].changed = false;
  }
  d.changed.clear();
  return true;
}

std::vector<MemorySum> MemoryCollector::sums(const Device& device, Part part,
                                             const std::function<std::string(uint32_t)>& text) const {
  std::unordered_map<uint32_t, MemorySum> by_part;
  for (uint32_t i = 0; i < device.accounts.size(); ++i) {
    const Account& account = device.accounts[i];
    if (account.allocations == 0) continue;
    MemorySum& sum = by_part[owners_[i].*part];
    sum.bytes = add_clamped(sum.bytes, account.at_peak.bytes);
    sum.blocks += account.at_peak.blocks;
    sum.allocated = add_clamped(sum.allocated, account.allocated);
    sum.allocations += account.allocations;
  }
  std::vector<MemorySum> result;
  for (auto& [id, sum] : by_part) {
    if (id != 0) sum.name = text(id);
    result.push_back(std::move(sum));
  }
  std::ranges::sort(result, [](const MemorySum& a, const MemorySum& b) {
    return std::tuple(-a.bytes, -a.allocated, std::string_view(a.name)) <
           std::tuple(-b.bytes, -b.allocated, std::string_view(b.name));
  });
  return result;
}

std::vector<DeviceMemory> MemoryCollector::finish(const std::function<std::string(uint32_t)>& text) const {
  std::vector<DeviceMemory> all;
  for (const Device& d : devices_) {
    DeviceMemory result = d.result;
    std::vector<uint32_t> order;
    int64_t known = 0;
    for (uint32_t i = 0; i < d.accounts.size(); ++i) {
      if (d.accounts[i].at_peak.blocks == 0) continue;
      order.push_back(i);
      known = add_clamped(known, d.accounts[i].at_peak.bytes);
    }
    // Stable: owners are numbered in the order in which they came.
    std::ranges::stable_sort(order, std::greater<>{}, [&d](uint32_t i) { return d.accounts[i].at_peak.bytes; });
    for (size_t k = 0; k < order.size(); ++k) {
      const Held& held = d.accounts[order[k]].at_peak;
      if (k < kMaxShares) {
        result.shares.push_back({text_of(owners_[order[k]], text), held.bytes, held.blocks});
      } else {
        result.rest.bytes = add_clamped(result.rest.bytes, held.bytes);
        result.rest.blocks += held.blocks;
      }
    }
    result.lines = sums(d, &MemoryOwner::place, text);
    result.modules = sums(d, &MemoryOwner::module, text);
    result.unknown_bytes = std::max<int64_t>(0, result.peak_bytes - known);
    if (d.result.failures != 0) result.failed_in = text_of(d.failed_in, text);
    all.push_back(std::move(result));
  }
  std::ranges::sort(all, {}, [](const DeviceMemory& d) { return std::pair(d.type, d.index); });
  return all;
}

}  // namespace torchprof::formats
