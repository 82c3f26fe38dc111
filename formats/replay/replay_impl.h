// The implementation of Replay, for formats/replay/*.cpp alone: replay.cpp reads the records, hand_out.cpp hands out
// slices and events, python.cpp follows Python's frames, operators.cpp follows operators and annotations.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/replay/cpu_memory.h"
#include "formats/replay/forward_backward.h"
#include "formats/replay/forward_modules.h"
#include "formats/replay/gpu.h"
#include "formats/replay/range_helpers.h"
#include "formats/replay/replay.h"
#include "formats/replay/step_tracker.h"
#include "formats/replay/thread_stack.h"
#include "formats/trace/nvtx.h"
#include "formats/trace/python_stacks.h"
#include "formats/trace/track_cursor.h"

namespace torchprof::formats {

constexpr uint32_t kFirstSyntheticTid = 1u << 30;  // above every thread id of Linux (at most 2^22)

struct OverflowRow {
  uint32_t number;
  std::vector<std::pair<int64_t, int64_t>> taken;  // begins and ends of what no other slice on it is around
  // Puts a slice on the row if it nests there.
  bool takes(int64_t begin, int64_t end);
};

struct ReplayThread {
  ReplayThread(const SpoolReader& spool, const Track& t, uint32_t r) : track(&t), row(r), cursor(spool, t) {}
  const Track* track;
  uint32_t row;
  TrackCursor cursor;
  ThreadStack stack;
  std::vector<Span> detached;  // asynchronous operators that were open when the thread ended
  std::vector<OverflowRow> overflow;
  uint64_t last_op_key = 0;  // key of the last OpBegin
  int64_t last = 0;          // time of the last record
  AllocationSite site{};     // for the memory event at `site_time`
  int64_t site_time = -1;
  NativeFrameId native{};    // for the next memory event
  FunctionId at_function{};  // of the last PythonLine
  NameId at_line{};          // and its line; none: not known
  bool begun = false;
  bool restating = false;  // between a PythonSync and the first record that is no PythonFrame
  size_t restated = 0;     // how many of `open_frames` were found again
  int64_t restated_at = 0;
  struct OpenFrame {
    uint64_t id;  // the span's
    FunctionId function;
    ObjectId object;
  };
  std::vector<OpenFrame> open_frames;  // those at the PythonSync, outermost first
  // So many of the next records state open spans again (Restate); these are the ticks at which the spans began.
  std::span<const uint64_t> stated_begins;
  GpuCallQueue* calls = nullptr;  // null: it made no calls of CUDA
};

class Replay::Impl {
 public:
  explicit Impl(const Process& process);
  ReplayStats run(Sink& sink);

  Names& names() { return names_; }
  const std::vector<Row>& rows() const { return rows_; }
  const Selection& selection() const { return process_.selection; }

 private:
  // Takes a record with its time: settles what must come before it, then applies it.
  void handle(ReplayThread& thread, const RecordView& record, int64_t recorded);
  // `is_stated`: the record states an open span again (Restate).
  void apply(ReplayThread& thread, const RecordView& record, bool is_stated, int64_t t);
  void take_line(ReplayThread& thread, const PythonLine& line);
  // What a span that begins now has as its line. `is_told`: the recorder said where it begins (spool/record.h).
  NameId line_here(const ReplayThread& thread, bool is_told) const;
  void begin_thread(ReplayThread& thread, int64_t t);
  void mark_window(const ReplayThread& thread);
  void begin_python(ReplayThread& thread, FunctionId function, ObjectId object, bool preexisting, int64_t t);
  void end_python(ReplayThread& thread, FunctionId function, int64_t t);
  void begin_c_call(ReplayThread& thread, StringId name, CallSiteId site, int64_t t);
  void end_c_call(ReplayThread& thread, int64_t t);
  void begin_stated(int64_t t);
  void sync_python(ReplayThread& thread, int64_t t);
  bool is_still_open(ReplayThread& thread, const PythonFrame& frame);
  bool begins_forked_worker(FunctionId function) const;
  void leave_what_was_forked(ReplayThread& thread, int64_t t);
  void end_restating(ReplayThread& thread);
  void begin_gc(ReplayThread& thread, uint32_t generation, int64_t t);
  void end_gc(ReplayThread& thread, const GcEnd& end, int64_t t);
  void begin_blind(const BlindBegin& begin, int64_t t);
  void end_blind(const BlindEnd& end, int64_t t);
  bool close_innermost(ReplayThread& thread, SliceKind kind, int64_t t);
  ReplayThread* thread_of(TrackId track, int64_t t);
  void begin_op(ReplayThread& thread, const OpBegin& begin, int64_t t);
  void end_op(ReplayThread& thread, uint64_t key, int64_t t);
  void end_op_here(ReplayThread& thread, uint32_t low_key, int64_t t);
  void memory(ReplayThread& thread, const Memory& memory, bool is_out_of_memory, int64_t t);
  bool end_op_elsewhere(ReplayThread& ended_on, uint64_t key, int64_t t);
  void restate(ReplayThread& thread, std::span<const uint64_t> begins);
  void end_thread(ReplayThread& thread, int64_t t);
  void calls_until(ReplayThread& thread, int64_t t, bool is_last);
  struct CallRange final : CallRanges {
    CallRange(Impl& i, ReplayThread& t) : impl(i), thread(t) {}
    void begin_range(NameId name, const InductorKernel* kernel, int64_t begin) override;
    void end_range(int64_t end) override;
    void add_call(int64_t ns) override { thread.stack.add_call(ns); }
    Impl& impl;
    ReplayThread& thread;
    int64_t end_of_last = 0;
  };
  bool is_in_window(int64_t t);
  void finish_all(int64_t t, bool by_window);
  void finish(ReplayThread& thread, int64_t t, bool by_window);

  void push(ReplayThread& thread, const Span& span);
  void close_frame(ReplayThread& thread, int32_t i, int64_t t, bool finished);
  static void end_module_call(ThreadStack& stack, int32_t i, int64_t t);
  void find_module(Span& span) const;
  void close_op(ReplayThread& thread, int32_t i, int64_t t);
  void cross_above(ReplayThread& thread, int32_t i, int64_t t);
  int64_t cut_before(ReplayThread& thread, int32_t i, int64_t t);
  bool helps_to_begin(ReplayThread& thread, int32_t i, int32_t range);
  void set_apart(ReplayThread& thread, int32_t i);
  // `finished`: for the slice; `has_ended`: for the steps.
  void close(ReplayThread& thread, int32_t i, int64_t t, int64_t drawn_end, bool finished, bool has_ended);
  void detach(ReplayThread& thread, int32_t i);
  void end_detached(ReplayThread& thread, size_t i, int64_t t, bool finished);
  uint32_t overflow_row(ReplayThread& thread, int64_t begin, int64_t end);
  void emit(const ReplayThread& thread, uint32_t row, const Span& span, int64_t end, int64_t drawn_end, bool finished);
  void took(const ReplayThread& thread, int32_t i, const Span& span, int64_t end, bool finished);
  void emit_step(const StepTracker::Mark& mark);
  void link(const ReplayThread& thread, uint32_t row, const Span& span);
  bool is_backward_function(FunctionId function);
  int64_t to_ns(Ticks t) const {
    return std::clamp(process_.clock.to_unix(t).value, process_.start.value, process_.end.value);
  }

  // Cuts times at the edges of the selection; slice_filter.h leaves out what lies beyond them.
  int64_t shown(int64_t t) const { return std::clamp(t, process_.selection.begin, process_.selection.end); }

  const Process& process_;
  Names names_;
  std::vector<Row> rows_;
  std::vector<ReplayThread> threads_;
  StepTracker steps_;
  RangeHelpers ranges_;
  ForwardBackward forward_backward_;
  ForwardModules forward_modules_;
  NvtxRanges nvtx_;
  size_t window_ = 0;  // index of the current or next window (`is_begun_`)
  bool is_begun_ = false;
  bool is_marked_ = false;
  std::unordered_map<uint32_t, uint32_t> last_of_tid_;  // index of the thread that has the row
  std::vector<int8_t> is_backward_;                     // likewise, by function
  NameId backward_line_{};                              // that called the backward which began last
  std::unordered_map<TrackId, size_t> index_of_track_;
  uint32_t next_tid_ = kFirstSyntheticTid;
  CpuMemory cpu_memory_;
  int64_t python_memory_ = 0;     // what the samples of the window say that Python has allocated in it and not freed
  std::optional<GpuReplay> gpu_;  // none: no GPU records
  std::vector<StatedFrames> stated_;
  std::vector<Track> strangers_;  // threads that only CUPTI knows, or that have a stack and no event
  ReplayStats stats_;
  Sink* sink_ = nullptr;
};

}  // namespace torchprof::formats
