// Puts what CUPTI delivered in its place while a replay runs: calls between the slices of their thread, and with each
// call the work that it started on devices.
//
//   * A call is a leaf: while a thread is in it, nothing of ours begins or ends there. Where a call and a slice overlap
//   in
//     part, the clocks disagree by that much: the call is cut to the side on which most of it lies, and counted.
//   * A driver call inside a runtime call of the same correlation says the same again and is left out.
//   * Work is handed out right after its call. What has no call (made before the window, or lost) comes at the end.
//   * Work of calls in a window is shown also where it ran after the window; work without a call if it began in one.
//
// Memory: a bit for each activity beside the index (formats/trace/gpu_index.h).
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/gpu/activity.h"
#include "formats/replay/thread_stack.h"
#include "formats/trace/gpu_index.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

inline constexpr int64_t kNoCall = std::numeric_limits<int64_t>::max();

struct GpuCallQueue {  // the calls of what CUPTI takes for one thread
  const std::vector<GpuIndex::Call>* calls = nullptr;
  size_t at = 0;
  int64_t next = kNoCall;                             // begin of calls[at], Unix
  size_t owner = std::numeric_limits<size_t>::max();  // the thread of the replay that has it now
  uint32_t last_correlation = 0;                      // of the call before
};

struct GpuReplayStats {
  uint64_t cut_calls = 0;  // overlapped a slice in part
  int64_t most_cut_ns = 0;
};

class GpuReplay {
 public:
  // `process.gpu` is there.
  GpuReplay(const Process& process, Names& names);

  // Null: this thread made no call. Several threads share a queue where the kernel or libc gave the same number again.
  GpuCallQueue* queue_of(TrackId track, uint32_t tid);
  // Numbers of threads that made calls and are no track of the process; then queue_of(none, number).
  std::vector<uint32_t> strangers() const;

  // Calls that begin before this are in no window.
  void window_begins(int64_t t) { floor_ = t; }
  // Hands out what begins up to `t`, when `stack` changes. `is_last`: nothing of this thread comes later, or until the
  // next window.
  void until(GpuCallQueue& queue, int64_t t, bool is_last, uint32_t row, const ThreadStack& stack, Sink& sink);
  // The work that has no call.
  void finish(Sink& sink);

  const GpuReplayStats& stats() const { return stats_; }

 private:
  void advance(GpuCallQueue& queue);
  void hand_out(const GpuApi& api, int64_t begin, int64_t end, uint32_t row, const ThreadStack& stack, Sink& sink);
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
  bool by_handle_;                                   // CUPTI numbers threads by pthread_self()
  std::map<uint32_t, GpuCallQueue> queues_;          // by GpuApi::thread
  std::unordered_map<TrackId, uint32_t> handle_of_;  // of a track
  std::vector<bool> handed_out_;                     // by activity
  std::unordered_map<uint64_t, NameId> names_by_key_;
  int64_t floor_ = std::numeric_limits<int64_t>::min();
  GpuReplayStats stats_;
};

}  // namespace torchprof::formats
