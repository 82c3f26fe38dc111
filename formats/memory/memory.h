// Memory events -> for each device the moment at which most was allocated, and who owned what lived then.
//
// One pass: each owner keeps its bytes as they are now and as they were at the peak, and those that changed since the
// peak are in a list. A new peak brings the list up to date: constant cost for an event. Memory is bounded by live
// blocks and owners.
//
//   peak    of the device's total: what its allocator counts and, on the CPU, mapped files and shared memory
//   owner   of a block is what ran on its thread when it was allocated: module (in the backward that of the forward),
//           operators, Python function and line
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tracer/spool/clock.h"

namespace torchprof::formats {

struct MemoryOwner {      // the caller's numbers of texts; 0: none, or not known
  uint32_t module = 0;    // "nn.Module: Linear_0"
  uint32_t op = 0;        // innermost operator or annotation: "aten::addmm"
  uint32_t outer_op = 0;  // outermost operator: "aten::linear"
  uint32_t place = 0;     // "model.py(31): forward": the line that ran, or else the function's first
  bool operator==(const MemoryOwner&) const = default;
};

struct MemoryChange {
  bool is_out_of_memory = false;
  bool is_mapped = false;
  int8_t device_type = 0;  // c10::DeviceType
  int8_t device_index = -1;
  UnixNs time{};
  uint64_t address = 0;
  int64_t bytes = 0;       // negative: freed
  uint64_t allocated = 0;  // of the device, after it; without what is_mapped
  MemoryOwner owner{};
};

// "nn.Module: Linear_0 (decoder.out)"; the root has no path.
std::string module_text(std::string_view name, std::string_view path);

struct OwnerText {
  std::string module, op, outer_op, place;
};

// `text`: of a number that is not 0.
OwnerText text_of(const MemoryOwner& owner, const std::function<std::string(uint32_t)>& text);

struct PeakShare {
  OwnerText owner;
  int64_t bytes = 0;
  uint64_t blocks = 0;
};

struct MemorySum {        // of what has one line or one module
  std::string name;       // empty: it has none
  int64_t bytes = 0;      // at the peak
  uint64_t blocks = 0;    // likewise
  int64_t allocated = 0;  // all that it asked for
  uint64_t allocations = 0;
};

struct DeviceMemory {
  int8_t type = 0;  // c10::DeviceType
  int8_t index = -1;
  int64_t peak_bytes = 0;
  UnixNs peak{};
  std::optional<uint64_t> step;   // that was going on then; the collector does not know it
  std::vector<PeakShare> shares;  // at the peak, largest first, at most kMaxShares
  PeakShare rest;                 // the sum of the other owners; its owner is empty
  std::vector<MemorySum> lines;   // all owners by place, those with the most at the peak first
  std::vector<MemorySum> modules;
  int64_t unknown_bytes = 0;  // of the peak, allocated before capture began or not recorded
  int64_t end_bytes = 0;      // the total after the last event
  uint64_t allocations = 0;
  uint64_t frees = 0;
  uint64_t failures = 0;        // out of memory
  int64_t largest_failure = 0;  // bytes asked for
  OwnerText failed_in;          // that one
};

inline constexpr size_t kMaxShares = 50;

// "CPU", "CUDA 0"; a number for a type that this build does not know.
std::string device_text(int8_t type, int8_t index);

class MemoryCollector {
 public:
  // In the order of time. True: its device has never had that much.
  bool add(const MemoryChange& change);
  // Told of every block that comes or (negative) goes, by the module that allocated it, if one did.
  std::function<void(uint32_t module, bool is_cpu, int64_t bytes)> on_change;
  // Devices in the order of type and index.
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
    bool changed = false;  // since the peak
  };
  struct Block {
    uint32_t owner;
    int64_t bytes;
  };
  struct Device {
    DeviceMemory result;
    int64_t counted = 0;  // by the allocator
    int64_t mapped = 0;
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

  std::vector<MemoryOwner> owners_;
  std::unordered_map<MemoryOwner, uint32_t, OwnerHash> by_owner_;
  std::vector<Device> devices_;
};

}  // namespace torchprof::formats
