// Puts CUPTI's records in their place while a replay runs: calls between the slices of their thread, and with each call
// the work that it started on devices.
//
//   * A call is a leaf: while a thread is in it, none of our slices begins or ends there. Where a call and a slice
//     overlap in part, the clocks disagree by that much: the call is cut to the side on which most of it lies, and
//     counted.
//   * A driver call inside a runtime call with the same correlation is the same call again and is left out.
//   * Work is handed out right after its call. Work without a call (made before the window, or lost) comes at the end.
//   * A kernel of inductor's belongs to a range with its name around its launch, as torch makes one while
//     torch.profiler is on. Where it did not, the range is made here.
//   * Work of calls in a window is shown even if it ran after the window. Work without a call is shown if it began in
//     a window.
//
// Memory: a bit for each activity, besides the index (formats/trace/gpu_index.h).
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/gpu/activity.h"
#include "formats/gpu/inductor.h"
#include "formats/replay/thread_stack.h"
#include "formats/trace/gpu_index.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

inline constexpr int64_t kNoCall = std::numeric_limits<int64_t>::max();

struct GpuCallQueue {  // the calls with one thread number of CUPTI's
  const std::vector<GpuIndex::Call>* calls = nullptr;
  size_t at = 0;
  int64_t next = kNoCall;                             // begin of calls[at], Unix time
  size_t owner = std::numeric_limits<size_t>::max();  // index of the replay's thread that has it now
  uint32_t last_correlation = 0;                      // of the previous call
};

// Makes an operator around a call: what it began is on the stack that until() was given, until it ends.
class CallRanges {
 public:
  virtual void begin_range(NameId name, const InductorKernel* kernel, int64_t begin) = 0;
  virtual void end_range(int64_t end) = 0;
  virtual void add_call(int64_t ns) = 0;  // a call was made on top of the stack

 protected:
  ~CallRanges() = default;
};

struct GpuReplayStats {
  uint64_t cut_calls = 0;  // calls that overlapped a slice in part
  int64_t most_cut_ns = 0;
};

class GpuReplay {
 public:
  // `process.gpu` must not be null.
  GpuReplay(const Process& process, Names& names);

  // Null: this thread made no calls. Threads share a queue if the kernel or libc gave them the same number, one after
  // the other.
  GpuCallQueue* queue_of(TrackId track, uint32_t tid);
  // Numbers of threads that made calls and have no track in the process. Their queue is queue_of({}, number).
  std::vector<uint32_t> strangers() const;

  // A window begins: calls that begin before this time are in none.
  void window_begins(int64_t t) { floor_ = t; }
  // Hands out the calls that begin up to `t`, at which `stack` changes. `is_last`: nothing more comes on this thread,
  // or not before the next window.
  void until(GpuCallQueue& queue, int64_t t, bool is_last, uint32_t row, const ThreadStack& stack, Sink& sink,
             CallRanges& ranges);
  // Hands out the work that has no call.
  void finish(Sink& sink);

  const GpuReplayStats& stats() const { return stats_; }

 private:
  void advance(GpuCallQueue& queue);
  void hand_out(const GpuApi& api, int64_t begin, int64_t end, uint32_t row, const ThreadStack& stack, Sink& sink,
                CallRanges& ranges);
  NameId missing_range(const GpuApi& api, const GpuIndex::Range& work, const ThreadStack& stack);
  const InductorKernel* inductor_kernel(std::string_view name, const ThreadStack& stack);
  void hand_out(size_t activity, const GpuCall* call, Sink& sink);
  NameId name_of(const GpuApi& api);
  NameId name_of(const GpuIndex::Activity& activity);
  template <class Make>
  NameId name_once(uint64_t key, Make make);
  bool is_in_window(int64_t t) const;
  int64_t to_ns(uint64_t cupti) const;

  const Process& process_;
  const GpuIndex& index_;
  Names& names_;
  bool by_handle_;                                   // CUPTI's thread numbers are pthread_self()
  std::map<uint32_t, GpuCallQueue> queues_;          // by GpuApi::thread
  std::unordered_map<TrackId, uint32_t> handle_of_;  // CUPTI's number of a track
  std::vector<bool> handed_out_;                     // by activity
  std::unordered_map<uint64_t, NameId> names_by_key_;
  InductorModules inductor_;
  int64_t floor_ = std::numeric_limits<int64_t>::min();
  GpuReplayStats stats_;
};

}  // namespace torchprof::formats
