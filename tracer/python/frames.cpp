#include "tracer/python/frames.h"

#include <atomic>

#include "tracer/python/abi.h"
#include "tracer/python/code.h"
#include "tracer/python/offsets.h"

namespace torchprof::python {

namespace {

constexpr uintptr_t kTags = 3;

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

const char* check_frames() noexcept {
  const Api& a = api();
  ThreadState* self = a.this_thread();
  Frame* frame = a.current_frame();
  const FrameLayout* at = frame_layout();
  if (!at) return why_no_frames();
  if (!self || !frame || !a.code_line || !a.frame_line || !a.code_type) return "it lacks functions to try";
  const Ref code(a.frame_code(frame));
  const Position here = position_of(*at, innermost_frame(*at, self));
  if (here.code != code.get() || here.offset < 0) return "the current frame is not where it should be";
  if (a.frame_last ? here.offset != a.frame_last(frame) : a.minor > 10)
    return "the instruction that runs is not where it should be";
  const int line = a.frame_line(frame);
  if (line <= 0 || a.code_line(here.code, here.offset) != line) return "the line that runs is not what it should be";
  // The first pairs with the load in current_position(), the second with that in FrameWalk(): api() is filled.
  g_frames.store(at, std::memory_order_release);
  if (!check_runs(*at, self, frame)) return "frames further out are not where they should be";
  g_runs.store(at, std::memory_order_release);
  return nullptr;
}

InterpreterDef describe_stacks() noexcept {
  const FrameLayout* at = frame_layout();
  const Api& a = api();
  if (!at || at->threads == 0) return {};
  const auto offset = [](size_t value) { return static_cast<uint16_t>(value); };
  InterpreterDef out{};
  out.interpreter = reinterpret_cast<uintptr_t>(a.main_interpreter());
  out.code_type = reinterpret_cast<uintptr_t>(a.code_type);
  out.threads = offset(at->threads), out.next = offset(at->next_thread), out.of_thread = offset(at->of_thread);
  out.tid = offset(at->tid);
  out.current = offset(at->current), out.of_cframe = offset(at->of_cframe), out.has_cframe = at->by_cframe;
  out.code = offset(at->code), out.instruction = offset(at->instruction), out.previous = offset(at->previous);
  out.owner = offset(at->owner);
  out.loop = at->cframe ? UINT8_MAX : kOwnedByLoop;
  out.instructions = offset(at->first), out.code_units = offset(at->code_units), out.line = offset(at->line);
  out.file = offset(at->file), out.name = offset(at->qualname), out.lines = offset(at->lines);
  out.text_length = offset(at->text_length), out.text_state = offset(at->text_state);
  out.text_of_ascii = offset(at->ascii_text), out.text_of_others = offset(at->other_text);
  out.bytes_length = offset(at->bytes_length), out.bytes_data = offset(at->bytes_data);
  return out;
}

Position current_position() noexcept {
  const FrameLayout* at = g_frames.load(std::memory_order_acquire);  // pairs with the store in check_frames()
  // An interpreter that is ending frees the states of threads that are still in C code.
  if (!at || !api().is_finalizing || api().is_finalizing()) return {};
  ThreadState* self = api().this_thread();
  return self ? position_of(*at, innermost_frame(*at, self)) : Position{};
}

Position caller_position(Object* code, const Frame* frame) noexcept {
  const FrameLayout* at = g_frames.load(std::memory_order_acquire);  // pairs with the store in check_frames()
  if (!at) return {};
  const void* here = frame;
  if (!frame) {
    ThreadState* self = api().current_thread();
    here = self ? innermost_frame(*at, self) : nullptr;
  } else if (const Layout* of_profile = layout(); of_profile && of_profile->frame_data) {
    here = read_pointer(frame, of_profile->frame_data);
  }
  if (!here) return {};
  // Where it is another one, an extension says that a function of its own begins, which has no frame.
  const auto runs = reinterpret_cast<uintptr_t>(read_pointer(here, at->code)) & ~kTags;
  if (runs != reinterpret_cast<uintptr_t>(code)) [[unlikely]]
    return position_of(*at, here);
  // Between the two there may be the loop's own frame, and one without a function, which stands for a call of a class.
  constexpr int kMost = 4;
  for (int i = 0; i < kMost; ++i) {
    here = read_pointer(here, at->previous);
    if (!here) return {};
    if (at->cframe == 0 && at->owner != 0 && byte_at(here, at->owner) >= kOwnedByLoop) continue;
    if (const Position found = position_of(*at, here); found.code && detail::mark_of(found.code)) [[likely]]
      return found;
  }
  return {};
}

Position position_in(Frame* frame, Object* code) noexcept {
  const FrameLayout* at = g_frames.load(std::memory_order_acquire);  // pairs with the store in check_frames()
  if (!at) return {};
  return api().frame_last ? Position{code, api().frame_last(frame)} : position_of(*at, frame);
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
