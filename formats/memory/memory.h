// From memory events to the peak of each device (when most was allocated), and the owners of what was alive then.
//
//   peak    of the device's total: what its allocator counts and, on the CPU, mapped files and shared memory
//   owner   of a block: what ran on the thread when it was allocated: module (in the backward that of the forward),
//           operators, Python function and line
//
// Frees between windows are not recorded, so which blocks of earlier windows are still alive is not known: the owners
// at a peak are those of its own window, and the rest of the device's total belongs to nobody.
//
// One pass. Each owner keeps its bytes now and those at the peak. Owners that changed since the peak are in a list, so
// that a new peak updates only those. So an event has constant cost, and memory is bounded by live blocks and owners.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tracer/spool/clock.h"
#include "tracer/spool/record.h"

namespace torchprof::formats {

struct MemoryOwner {      // ids of texts, which the caller gives; 0: none, or not known
  uint32_t module = 0;    // "nn.Module: Linear_0"
  uint32_t op = 0;        // innermost operator or annotation: "aten::addmm"
  uint32_t outer_op = 0;  // outermost operator: "aten::linear"
  uint32_t place = 0;     // "model.py(31): forward": the line that ran, or the function's first line
  bool operator==(const MemoryOwner&) const = default;
};

struct MemoryChange {
  uint32_t window = 0;  // its number; 0: the whole run is recorded
  bool is_out_of_memory = false;
  bool is_mapped = false;
  int8_t device_type = 0;  // c10::DeviceType
  int8_t device_index = -1;
  UnixNs time{};
  uint64_t address = 0;
  int64_t bytes = 0;       // negative for a free
  uint64_t allocated = 0;  // total of the device after it, without mapped memory and what a fork inherited
  MemoryOwner owner{};
};

// "nn.Module: Linear_0 (decoder.out)"; the root has no path.
std::string module_text(std::string_view name, std::string_view path);

struct OwnerText {
  std::string module, op, outer_op, place;
};

// `text` gives the text of an id that is not 0.
OwnerText text_of(const MemoryOwner& owner, const std::function<std::string(uint32_t)>& text);

struct PeakShare {
  OwnerText owner;
  int64_t bytes = 0;
  uint64_t blocks = 0;
};

struct MemorySum {        // sum over owners with the same line or module
  std::string name;       // empty: those without one
  int64_t bytes = 0;      // at the peak
  uint64_t blocks = 0;    // at the peak
  int64_t allocated = 0;  // bytes that they asked for in the whole run
  uint64_t allocations = 0;
};

struct DeviceMemory {
  int8_t type = 0;  // c10::DeviceType
  int8_t index = -1;
  int64_t peak_bytes = 0;
  int64_t peak_mapped_bytes = 0;  // of these: mapped files and shared memory, which no allocator counts
  UnixNs peak{};
  std::optional<uint64_t> step;   // at that time; the collector does not set it
  std::vector<PeakShare> shares;  // at the peak, largest first, at most kMaxShares
  PeakShare rest;                 // sum of the other owners; its own owner is empty
  std::vector<MemorySum> lines;   // all owners by place, largest at the peak first
  std::vector<MemorySum> modules;
  int64_t unknown_bytes = 0;  // part of the peak without an owner: allocated before the capture, or not recorded
  int64_t end_bytes = 0;      // total after the last event
  bool has_windows = false;   // it has events of several windows
  uint64_t allocations = 0;
  uint64_t frees = 0;
  uint64_t failures = 0;        // allocations that failed
  int64_t largest_failure = 0;  // bytes that it asked for
  OwnerText failed_in;          // owner of the largest failure
};

inline constexpr size_t kMaxShares = 50;

// Whether a device's total is that of the window, which begins at 0 (formats/replay/cpu_memory.h).
inline bool counts_by_window(int8_t type) { return type == 0 || type == kPythonMemory; }

// "CPU", "CUDA 0", "Python allocator"; with a number if this build does not know the type.
std::string device_text(int8_t type, int8_t index);

class MemoryCollector {
 public:
  // Events come in the order of time. True: it is a new peak of its device.
  bool add(const MemoryChange& change);
  // What the device has after the last event, as the peak counts it.
  int64_t total(int8_t type, int8_t index) { return device(type, index).result.end_bytes; }
  // Called for every block that is allocated or (negative `bytes`) freed, if a module had allocated it.
  std::function<void(uint32_t module, bool is_cpu, int64_t bytes)> on_change;
  // Devices are sorted by type and index.
  std::vector<DeviceMemory> finish(const std::function<std::string(uint32_t)>& text) const;

 private:
  struct OwnerHash {
    size_t operator()(const MemoryOwner& owner) const;
  };
  struct Held {
    int64_t bytes = 0;
    uint64_t blocks = 0;
  };
  struct Account {
    Held now, at_peak;
    int64_t allocated = 0;
    uint64_t allocations = 0;
    bool changed = false;  // since the peak: in Device::changed
  };
  struct Block {
    uint32_t owner;
    int64_t bytes;
  };
  struct Device {
    DeviceMemory result;
    int64_t counted = 0;  // what the allocator counts
    int64_t mapped = 0;
    uint32_t window = 0;  // of the latest event
    std::unordered_map<uint64_t, Block> live;
    std::vector<Account> accounts;  // by owner
    std::vector<uint32_t> changed;
    MemoryOwner failed_in;
    void hold(uint32_t owner, int64_t bytes, int sign);
  };

  uint32_t intern(const MemoryOwner& owner);
  using Part = uint32_t MemoryOwner::*;
  std::vector<MemorySum> sums(const Device& device, Part part, const std::function<std::string(uint32_t)>& text) const;
  Device& device(int8_t type, int8_t index);
  void hold(Device& device, uint32_t owner, int64_t bytes, int sign);
  void enter_window(Device& device, uint32_t window);

  std::vector<MemoryOwner> owners_;
  std::unordered_map<MemoryOwner, uint32_t, OwnerHash> by_owner_;
  std::vector<Device> devices_;
};

}  // namespace torchprof::formats
