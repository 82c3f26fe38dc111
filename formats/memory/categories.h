// What each block of memory was for, as torch.profiler's memory timeline tells it (torch/profiler/_memory_profiler.py),
// from when and in what it was allocated and freed. torch follows every tensor; here it is decided by this rule, for a
// block once and for its whole life:
//
//   parameter        its address is that of a parameter or buffer of a module (the last block there that is large
//                    enough, as modules were last seen)
//   optimizer state  likewise of an optimizer's state; or allocated in an optimizer's step and not freed in it
//   gradient         likewise of a gradient; or allocated in the backward and freed outside of it, or never
//   activation       allocated in the forward (in a module's call, or by an operator when no module has been called
//                    since) and alive when a backward begins
//   input            allocated by an operator outside of modules, and alive when a module is called
//   temporary        any other that an operator allocated
//   unknown          allocated by no operator, or before the recording began
//
// Forward, backward and the step of an optimizer are told by the operators and calls that are open on the thread: an
// operator of the backward, a call or annotation of an optimizer's step. `autograd detail` is never told.
//
// Memory: a byte for each allocation, a number for each backward, the live blocks, and those of the peaks.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/memory/memory.h"
#include "formats/replay/replay.h"

namespace torchprof::formats {

// torch's order, in which its files have them.
enum class MemoryCategory : uint8_t {
  kParameter,
  kOptimizerState,
  kInput,
  kTemporary,
  kActivation,
  kGradient,
  kAutogradDetail,
  kUnknown,
};
inline constexpr size_t kMemoryCategories = 8;
inline constexpr std::array<const char*, kMemoryCategories> kCategoryNames = {
    "parameter", "optimizer state", "input", "temporary", "activation", "gradient", "autograd detail", "unknown"};

using MemoryDevice = std::pair<int8_t, int8_t>;  // type and index
using CategorySizes = std::array<int64_t, kMemoryCategories>;

struct MemoryCategories {
  std::vector<MemoryCategory> of_allocation;    // in the order of time
  std::map<MemoryDevice, int64_t> preexisting;  // bytes that were freed and whose allocation was not recorded
  std::map<MemoryDevice, int64_t> peak;         // of what follows from the events
};

// A damaged record may say any number: sums stay within what their sum over categories can hold.
inline constexpr int64_t kMostMemory = int64_t{1} << 59;
inline void add_memory(int64_t& sum, int64_t bytes) { sum = std::clamp(sum + bytes, -kMostMemory, kMostMemory); }
inline bool is_counted(const MemoryEvent& m) {
  return !m.is_out_of_memory && !m.is_mapped && m.bytes != 0 && m.bytes >= -kMostMemory && m.bytes <= kMostMemory;
}

MemoryCategories categories_of(const Process& process);

// At the peaks of these devices; what of one is in no event, there before or mapped, is unknown. A replay.
using PeakCategories = std::map<MemoryDevice, CategorySizes>;
PeakCategories categories_at_peaks(const Process& process, std::span<const DeviceMemory> devices);

// Allocations and frees with what they were for: a replay in which they come as they came to categories_of().
struct CategorizedEvent {
  enum class Action : uint8_t { kPreexisting = 1, kCreate = 2, kDestroy = 4 };  // torch's numbers
  Action action;
  MemoryCategory category;
  MemoryDevice device;
  UnixNs time;  // of what was there before: the begin of the recording
  int64_t bytes;
  int64_t change() const { return action == Action::kDestroy ? -bytes : bytes; }
};

template <class Take>
class CategorizedReplay final : public Sink {
 public:
  CategorizedReplay(const Process& process, const MemoryCategories& categories, Take take)
      : process_(process), categories_(categories), take_(take) {}

  void run() {
    for (const auto& [device, bytes] : categories_.preexisting)
      take_({CategorizedEvent::Action::kPreexisting, MemoryCategory::kUnknown, device, process_.start, bytes});
    Replay(process_).run(*this);
  }
  void slice(const Slice&) override {}
  void memory(const MemoryEvent& m) override {
    if (!is_counted(m)) return;
    const MemoryDevice device{m.device_type, m.device_index};
    if (m.bytes > 0) {
      const MemoryCategory category = categories_.of_allocation[next_++];
      live_[device].insert_or_assign(m.address, category);
      return take_({CategorizedEvent::Action::kCreate, category, device, m.time, m.bytes});
    }
    MemoryCategory category = MemoryCategory::kUnknown;
    if (auto& blocks = live_[device]; auto node = blocks.extract(m.address)) category = node.mapped();
    take_({CategorizedEvent::Action::kDestroy, category, device, m.time, -m.bytes});
  }

 private:
  const Process& process_;
  const MemoryCategories& categories_;
  Take take_;
  size_t next_ = 0;
  std::map<MemoryDevice, std::unordered_map<uint64_t, MemoryCategory>> live_;
};

}  // namespace torchprof::formats
