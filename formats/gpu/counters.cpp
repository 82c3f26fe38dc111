#include "formats/gpu/counters.h"

#include <algorithm>
#include <limits>
#include <map>

#include "formats/trace/gpu_index.h"

namespace torchprof::formats {
namespace {

constexpr uint32_t kSpeed = 1, kTemperature = 2, kPower = 3, kCooling = 4;  // GpuEnvironment::kind
constexpr uint32_t kPowerCap = 4, kHardwareSlowdown = 8;
constexpr uint8_t kAllocates = 1, kFrees = 2;  // GpuMemory::operation
constexpr uint8_t kDevice = 3;                 // GpuMemory::kind; smaller ones are memory of the host
constexpr uint8_t kDestroys = 2;               // GpuMemoryPool::operation

int64_t as_value(uint64_t n) {
  return static_cast<int64_t>(std::min<uint64_t>(n, std::numeric_limits<int64_t>::max()));
}

class Counters {
 public:
  explicit Counters(const GpuIndex& index) : index_(index) {}

  void add(uint32_t device, std::string_view name, bool is_bytes, uint64_t time, int64_t value) {
    if (time == 0) return;
    GpuCounter& c = counters_.try_emplace({device, name}, GpuCounter{device, name, is_bytes, {}}).first->second;
    c.values.emplace_back(UnixNs{index_.time().to_unix(time)}, value);
  }
  std::vector<GpuCounter> take() {
    std::vector<GpuCounter> all;
    for (auto& [key, counter] : counters_) all.push_back(std::move(counter));
    return all;
  }

 private:
  const GpuIndex& index_;
  std::map<std::pair<uint32_t, std::string_view>, GpuCounter> counters_;
};

void add_sample(Counters& to, const GpuEnvironment& e) {
  const auto add = [&](std::string_view name, uint32_t value) { to.add(e.device, name, false, e.time, value); };
  if (e.kind == kSpeed) {
    add("SM clock (MHz)", e.values[0]);
    add("memory clock (MHz)", e.values[1]);
  }
  if (e.kind == kTemperature) add("temperature (C)", e.values[0]);
  if (e.kind == kPower) add("power (mW)", e.values[0]);
  if (e.kind == kCooling) add("fan (%)", e.values[0]);
}

// The total size of all blocks in a map from address to bytes.
class Sum {
 public:
  int64_t set(uint64_t address, uint64_t bytes) {
    uint64_t& here = bytes_[address];
    sum_ += bytes - here;  // modulo 2^64: never below zero at the end
    here = bytes;
    if (bytes == 0) bytes_.erase(address);
    return as_value(sum_);
  }

 private:
  std::map<uint64_t, uint64_t> bytes_;
  uint64_t sum_ = 0;
};

}  // namespace

std::vector<GpuCounter> gpu_counters(const GpuIndex& index) {
  Counters counters(index);
  RecordRoom room;
  for (const GpuIndex::Call& at : index.environment()) add_sample(counters, index.record<GpuEnvironment>(at, room));
  std::map<uint32_t, Sum> memory, pools;
  for (const GpuIndex::Call& at : index.memory()) {
    const auto& m = index.record<GpuMemory>(at, room);
    if (m.kind < kDevice || (m.operation != kAllocates && m.operation != kFrees)) continue;
    const int64_t sum = memory[m.device].set(m.address, m.operation == kAllocates ? m.bytes : 0);
    counters.add(m.device, "driver memory (bytes)", true, m.time, sum);
  }
  for (const GpuIndex::Call& at : index.pools()) {
    const auto& p = index.record<GpuMemoryPool>(at, room);
    const int64_t sum = pools[p.device].set(p.address, p.operation == kDestroys ? 0 : p.bytes);
    counters.add(p.device, "memory pools (bytes)", true, p.time, sum);
  }
  return counters.take();
}

std::vector<std::pair<uint32_t, GpuThrottling>> gpu_throttling(const GpuIndex& index) {
  std::map<uint32_t, GpuThrottling> found;
  RecordRoom room;
  for (const GpuIndex::Call& at : index.environment()) {
    const auto& e = index.record<GpuEnvironment>(at, room);
    if (e.kind != kSpeed) continue;
    GpuThrottling& t = found[e.device];
    ++t.samples;
    // CUPTI's "unknown" and "unsupported" are other, higher bits.
    t.power += (e.values[4] & kPowerCap) != 0;
    t.hardware += (e.values[4] & kHardwareSlowdown) != 0;
  }
  return {found.begin(), found.end()};
}

}  // namespace torchprof::formats
