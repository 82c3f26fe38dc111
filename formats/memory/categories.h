// What each block of memory was for, in the categories of torch.profiler's memory timeline
// (torch/profiler/_memory_profiler.py). torch follows every tensor. Here a block gets one category for its whole life,
// from when and where it was allocated and freed:
//
//   parameter        it has the address of a module's parameter or buffer, as modules were last seen (the last block
//                    there that is large enough)
//   optimizer state  likewise with an optimizer's state; or allocated in an optimizer's step and not freed in it
//   gradient         likewise with a gradient; or allocated in the backward and freed outside of it, or never
//   activation       allocated in the forward (in a module's call, or by an operator when no module has been called
//                    since) and alive when a backward begins
//   input            allocated by an operator outside of modules, and alive when a module is called
//   temporary        allocated by an operator otherwise
//   unknown          allocated by no operator, or before the recording began
//
// Forward, backward and optimizer step are recognised by what is open on the thread: an operator of the backward, a
// call or annotation of an optimizer's step. `autograd detail` is never used.
//
// At the end of a window the life of its blocks ends, because frees between windows are not recorded.
//
// Memory: a byte for each allocation, a number for each backward, the live blocks, and those of the peaks.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/memory/memory.h"
#include "formats/replay/replay.h"

namespace torchprof::formats {

// In torch's order, which its files use.
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
  std::vector<MemoryCategory> of_allocation;  // in the order of time
  // Bytes that were freed without a recorded allocation, by window (0: the whole run is recorded).
  std::map<std::pair<uint32_t, MemoryDevice>, int64_t> preexisting;
  std::map<MemoryDevice, int64_t> peak;  // the largest sum of the recorded events
};

// A damaged record may have any number: sums are clamped so that their sum over categories does not overflow.
inline constexpr int64_t kMostMemory = int64_t{1} << 59;
inline void add_memory(int64_t& sum, int64_t bytes) { sum = std::clamp(sum + bytes, -kMostMemory, kMostMemory); }
inline bool is_counted(const MemoryEvent& m) {
  return !m.is_out_of_memory && !m.is_mapped && m.bytes != 0 && m.bytes >= -kMostMemory && m.bytes <= kMostMemory;
}

// By a replay of its own.
MemoryCategories categories_of(const Process& process);

// Takes part in a replay of the process. The result: sizes at the peaks of these devices. Bytes of a peak that are in
// no event (allocated before, or mapped) are unknown.
using PeakCategories = std::map<MemoryDevice, CategorySizes>;
std::unique_ptr<Analysis<PeakCategories>> find_peak_categories(const Process& process, Replay& replay,
                                                               std::vector<DeviceMemory> devices);

// Allocations and frees with their categories, from a second replay, in the order in which categories_of() saw them.
struct CategorizedEvent {
  enum class Action : uint8_t { kPreexisting = 1, kCreate = 2, kDestroy = 4 };  // torch's numbers
  Action action;
  MemoryCategory category;
  MemoryDevice device;
  UnixNs time;  // kPreexisting: the begin of the recording, or of the window
  int64_t bytes;
  int64_t change() const { return action == Action::kDestroy ? -bytes : bytes; }
};

template <class Take>
class CategorizedReplay final : public Sink {
 public:
  CategorizedReplay(const Process& process, const MemoryCategories& categories, Take take)
      : process_(process), categories_(categories), take_(take) {}

  void run() {
    if (process_.windows.empty()) begin_window(0, process_.start);
    Replay(process_).run(*this);
  }
  void slice(const Slice&) override {}
  void memory(const MemoryEvent& m) override {
    if (!is_counted(m)) return;
    const MemoryDevice device{m.device_type, m.device_index};
    if (m.window != window_) {
      if (window_ != nullptr) end_window(window_->end);
      window_ = m.window;
      begin_window(window_->number, window_->begin);
    }
    if (m.bytes > 0) {
      const MemoryCategory category = categories_.of_allocation[next_++];
      live_[device].insert_or_assign(m.address, Live{category, m.bytes});
      return take_({CategorizedEvent::Action::kCreate, category, device, m.time, m.bytes});
    }
    MemoryCategory category = MemoryCategory::kUnknown;
    if (auto& blocks = live_[device]; auto node = blocks.extract(m.address)) category = node.mapped().category;
    take_({CategorizedEvent::Action::kDestroy, category, device, m.time, -m.bytes});
  }

 private:
  struct Live {
    MemoryCategory category;
    int64_t bytes;
  };
  void begin_window(uint32_t window, UnixNs time) {
    for (const auto& [key, bytes] : categories_.preexisting)
      if (key.first == window)
        take_({CategorizedEvent::Action::kPreexisting, MemoryCategory::kUnknown, key.second, time, bytes});
  }
  void end_window(UnixNs time) {
    for (const auto& [device, blocks] : live_)
      for (const auto& [address, live] : blocks)
        take_({CategorizedEvent::Action::kDestroy, live.category, device, time, live.bytes});
    live_.clear();
  }

  const Process& process_;
  const MemoryCategories& categories_;
  Take take_;
  size_t next_ = 0;
  std::map<MemoryDevice, std::unordered_map<uint64_t, Live>> live_;
  const Window* window_ = nullptr;
};

}  // namespace torchprof::formats
