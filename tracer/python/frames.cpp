#include "tracer/python/frames.h"

#include <atomic>
#include <iterator>

#include "tracer/python/abi.h"
#include "tracer/python/code.h"

namespace torchprof::python {

// Checked by check_frames() in every process; test: tests/e2e/memory/test_memory.py, on every version that is found.
struct FrameLayout {
  size_t current;      // PyThreadState: frame (3.10), cframe (3.11, 3.12), current_frame (3.13 on)
  bool by_cframe;      // `current` is a CFrame, which has the frame
  size_t of_cframe;    // CFrame.current_frame
  size_t code;         // of the frame: f_code, f_executable (3.13 on; 3.14 tags the lowest bits)
  size_t instruction;  // of the frame, the one that runs: f_lasti (3.10, an int), prev_instr, instr_ptr (3.13 on)
  size_t first;        // PyCodeObject.co_code_adaptive; 0: `instruction` is a number of code units
  size_t previous;     // of the frame: f_back (3.10), previous
  // A run of the loop has a CFrame on the native stack (up to 3.11), or a frame of its own among the Python frames.
  size_t cframe;    // PyThreadState.cframe; 0: 3.12 on
  size_t outer;     // CFrame.previous
  size_t is_entry;  // of the frame: a bool (3.11), true for a run's outermost; 0: every run has one frame (3.10)
  size_t owner;     // of the frame: a char (3.11 on), see kOwnedByLoop
  // What a thread needs that looks at the others (describe_stacks). Checked by prepare_stacks() in every process.
  size_t threads;     // PyInterpreterState: the first thread; 0: the rest is not known
  size_t tid;         // PyThreadState.native_thread_id
  size_t line;        // PyCodeObject.co_firstlineno
  size_t ascii_text;  // sizeof(PyASCIIObject), where the characters of a str of ASCII begin
  size_t other_text;  // sizeof(PyCompactUnicodeObject), likewise of any other
};

namespace {

// 3.10: Include/cpython/{pystate,frameobject}.h. 3.11 to 3.14: Include/cpython/{pystate,code}.h,
// Include/internal/pycore_{frame,interpframe_structs}.h. Measured on 3.10.13, 3.11.2, 3.11.7, 3.12.1, 3.13.0, 3.13.5
// and 3.14.10.
constexpr FrameLayout kFrames[] = {
    {24, false, 0, 32, 96, 0, 24, 48, 8, 0, 0, 0, 0, 0, 0, 0},            // 3.10
    {56, true, 8, 32, 56, 184, 48, 56, 16, 68, 69, 16, 160, 72, 48, 72},  // 3.11
    {56, true, 0, 0, 56, 192, 8, 0, 0, 0, 70, 72, 144, 68, 40, 56},       // 3.12
    {72, false, 0, 0, 56, 200, 8, 0, 0, 0, 70, 7344, 160, 68, 40, 56},    // 3.13
    {72, false, 0, 0, 56, 208, 8, 0, 0, 0, 74, 7344, 160, 68, 40, 56},    // 3.14
};
// The same in all of them, from 3.11 on: PyThreadState.next and interp; PyCodeObject.ob_size, co_filename, co_qualname
// and co_linetable; PyASCIIObject.length and state; PyBytesObject.ob_size and ob_sval.
constexpr uint16_t kNextThread = 8, kOfThread = 16, kCodeUnits = 16, kFile = 112, kQualname = 128, kLineTable = 136;
constexpr uint16_t kTextLength = 16, kTextState = 32, kBytesLength = 16, kBytesData = 32;
constexpr uintptr_t kTags = 3;
// The loop's own frame: FRAME_OWNED_BY_CSTACK (3.12, 3.13), FRAME_OWNED_BY_INTERPRETER (3.14). In 3.14 a higher value
// is FRAME_OWNED_BY_CSTACK, which is no function's frame either.
constexpr uint8_t kOwnedByLoop = 3;

std::atomic<const FrameLayout*> g_frames{nullptr};
std::atomic<const FrameLayout*> g_runs{nullptr};  // the same, once frames further out have been compared, too

const void* innermost_frame(const FrameLayout& at, ThreadState* thread) noexcept {
  const void* frame = read_pointer(thread, at.current);
  return frame && at.by_cframe ? read_pointer(frame, at.of_cframe) : frame;
}

uint8_t byte_at(const void* frame, size_t offset) noexcept { return static_cast<const uint8_t*>(frame)[offset]; }

Position position_of(const FrameLayout& at, const void* frame) noexcept {
  if (!frame) return {};
  const auto tagged = reinterpret_cast<uintptr_t>(read_pointer(frame, at.code));
  auto* code = reinterpret_cast<Object*>(tagged & ~kTags);
  // The loop's own frame has no code object.
  if (!code || type_of(code) != api().code_type) return {};
  const auto* instruction = static_cast<const char*>(frame) + at.instruction;
  if (at.first == 0) return {code, static_cast<int>(*reinterpret_cast<const int*>(instruction) * kCodeUnit)};
  const auto* first = reinterpret_cast<const char*>(code) + at.first;
  return {code, static_cast<int>(static_cast<const char*>(read_pointer(frame, at.instruction)) - first)};
}

// Whether the walk finds the frames that the API finds, from `frame` outwards as far as it is asked, and whether what
// the loop keeps is on the native stack. Also true where there is nothing further out.
bool check_runs(const FrameLayout& at, ThreadState* self, Frame* frame) noexcept {
  constexpr int kAsked = 16;
  constexpr uintptr_t kLargest = uintptr_t{1} << 30;
  FrameWalk walk(&at, self);
  Ref holder;
  for (int asked = 0; frame && asked < kAsked;) {
    const uintptr_t here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
    if (walk.loop() < here || walk.loop() - here > kLargest) return false;
    for (Position found; frame && walk.next(found);) {
      if (!found.code || api().code_line(found.code, found.offset) <= 0) continue;
      const Ref code(api().frame_code(frame));
      if (found.code != code.get()) return false;
      frame = api().frame_back(frame);
      holder.reset(reinterpret_cast<Object*>(frame));
      ++asked;
    }
  }
  return true;
}

}  // namespace

void check_frames() noexcept {
  const Api& a = api();
  ThreadState* self = a.this_thread();
  Frame* frame = a.current_frame();
  if (!self || !frame || !a.code_line || !a.frame_line || !a.code_type ||
      a.minor - 10 >= static_cast<int>(std::size(kFrames)))
    return;
  const FrameLayout& at = kFrames[a.minor - 10];
  const Ref code(a.frame_code(frame));
  const Position here = position_of(at, innermost_frame(at, self));
  if (here.code != code.get() || here.offset < 0) return;
  if (a.frame_last ? here.offset != a.frame_last(frame) : a.minor > 10) return;
  const int line = a.frame_line(frame);
  if (line <= 0 || a.code_line(here.code, here.offset) != line) return;
  // The first pairs with the load in current_position(), the second with that in FrameWalk(): api() is filled.
  g_frames.store(&at, std::memory_order_release);
  if (check_runs(at, self, frame)) g_runs.store(&at, std::memory_order_release);
}

InterpreterDef describe_stacks() noexcept {
  const FrameLayout* at = g_frames.load(std::memory_order_relaxed);
  const Api& a = api();
  if (!at || at->threads == 0) return {};
  const auto offset = [](size_t value) { return static_cast<uint16_t>(value); };
  InterpreterDef out{};
  out.interpreter = reinterpret_cast<uintptr_t>(a.main_interpreter());
  out.code_type = reinterpret_cast<uintptr_t>(a.code_type);
  out.threads = offset(at->threads), out.next = kNextThread, out.of_thread = kOfThread, out.tid = offset(at->tid);
  out.current = offset(at->current), out.of_cframe = offset(at->of_cframe), out.has_cframe = at->by_cframe;
  out.code = offset(at->code), out.instruction = offset(at->instruction), out.previous = offset(at->previous);
  out.owner = offset(at->owner);
  out.loop = at->cframe ? UINT8_MAX : kOwnedByLoop;
  out.instructions = offset(at->first), out.code_units = kCodeUnits, out.line = offset(at->line);
  out.file = kFile, out.name = kQualname, out.lines = kLineTable;
  out.text_length = kTextLength, out.text_state = kTextState;
  out.text_of_ascii = offset(at->ascii_text), out.text_of_others = offset(at->other_text);
  out.bytes_length = kBytesLength, out.bytes_data = kBytesData;
  return out;
}

Position current_position() noexcept {
  const FrameLayout* at = g_frames.load(std::memory_order_acquire);  // pairs with the store in check_frames()
  // An interpreter that is ending frees the states of threads that are still in C code.
  if (!at || !api().is_finalizing || api().is_finalizing()) return {};
  ThreadState* self = api().this_thread();
  return self ? position_of(*at, innermost_frame(*at, self)) : Position{};
}

FrameWalk::FrameWalk() noexcept {
  const FrameLayout* at = g_runs.load(std::memory_order_acquire);  // pairs with the store in check_frames()
  // An interpreter that is ending frees the states of threads that are still in C code.
  if (!at || !api().is_finalizing || api().is_finalizing()) return;
  if (ThreadState* self = api().this_thread()) *this = FrameWalk(at, self);
}

FrameWalk::FrameWalk(const FrameLayout* at, ThreadState* self) noexcept : at_(at), frame_(innermost_frame(*at, self)) {
  if (at_->cframe)
    loop_ = read_pointer(self, at_->cframe);
  else
    find_loop();
  has_ended_ = !frame_;
}

// For 3.12 and later.
void FrameWalk::find_loop() noexcept {
  loop_ = frame_;
  while (loop_ && byte_at(loop_, at_->owner) < kOwnedByLoop) loop_ = read_pointer(loop_, at_->previous);
}

bool FrameWalk::next(Position& position) noexcept {
  if (!loop_) return false;
  const bool is_last = at_->cframe ? has_ended_ : frame_ == loop_;
  if (is_last) {
    if (at_->cframe) {
      loop_ = frame_ ? read_pointer(loop_, at_->outer) : nullptr;
      has_ended_ = !frame_;
    } else {
      frame_ = read_pointer(frame_, at_->previous);
      find_loop();
    }
    return false;
  }
  position = position_of(*at_, frame_);
  has_ended_ = !at_->is_entry || byte_at(frame_, at_->is_entry) != 0;
  frame_ = read_pointer(frame_, at_->previous);
  return true;
}

}  // namespace torchprof::python
