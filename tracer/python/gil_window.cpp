#include <atomic>

#include "tracer/python/abi.h"
#include "tracer/python/calls.h"
#include "tracer/python/code.h"
#include "tracer/python/events.h"
#include "tracer/python/interpreters.h"
#include "tracer/python/modules.h"
#include "tracer/python/monitoring.h"
#include "tracer/python/profile.h"
#include "tracer/python/threads.h"
#include "tracer/window.h"

namespace torchprof::python {
namespace {

bool can_run() noexcept {
  const Api& a = api();
  return a.none && a.is_initialized() && (!a.is_finalizing || !a.is_finalizing());
}

// Holds the GIL for as long as it lives, on any thread, and keeps a pending exception; nothing where there is no
// interpreter that can be had any more.
class WithGil {
 public:
  WithGil() noexcept {
    if (!can_run()) return;
    if (!holds_gil()) {
      state_ = api().gil_ensure();
      took_ = true;
    }
    has_ = true;
    api().error_fetch(&error_[0], &error_[1], &error_[2]);
  }
  ~WithGil() {
    if (!has_) return;
    api().error_restore(error_[0], error_[1], error_[2]);
    if (took_) api().gil_release(state_);
  }
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;
  explicit operator bool() const noexcept { return has_; }

 private:
  bool has_ = false;
  bool took_ = false;
  int state_ = 0;
  Object* error_[3] = {};
};

void switch_calls(bool on) noexcept {
  if (g_level == PythonLevel::kOff) return;
  const WithGil gil;
  if (!gil) return;
  if (on) ++g_epoch;
  switch_monitoring(on);
  switch_profile(on);
}
void window_opened() noexcept { switch_calls(true); }
void window_closed() noexcept { switch_calls(false); }

bool is_starting() noexcept {
  static std::atomic<bool> has_started{false};
  if (g_level == PythonLevel::kOff || !api().none || has_started.load(std::memory_order_relaxed)) return false;
  if (!api().is_initialized()) return true;
  has_started.store(true, std::memory_order_relaxed);
  return false;
}

// Looks at the innermost frames of the calling thread, from the inside out, until `is_found(frame, code)`. Takes the
// GIL.
template <class IsFound>
void look_at_frames(IsFound is_found) noexcept {
  if (g_level == PythonLevel::kOff) return;
  const WithGil gil;
  if (!gil) return;
  // What ends an annotation is a few frames in at most, because of the context manager that makes it.
  constexpr int kMaxFramesBack = 8;
  Object* frame = reinterpret_cast<Object*>(api().current_frame());
  if (frame) api().incref(frame);
  Ref at(frame);
  for (int i = 0; at && i < kMaxFramesBack; ++i) {
    auto* here = reinterpret_cast<Frame*>(at.get());
    const Ref code(api().frame_code(here));
    if (is_found(here, code.get())) return;
    at.reset(reinterpret_cast<Object*>(api().frame_back(here)));
  }
  api().error_clear();
}

window::Stepper current_stepper() noexcept {
  window::Stepper stepper;
  look_at_frames([&stepper](Frame* frame, Object* code) {
    if (function_of(code).kind() != FunctionKind::kOptimizerStep) return false;
    stepper = stepper_in(frame);
    return true;
  });
  return stepper;
}

bool ends_whole_step() noexcept {
  bool is_whole = false;
  look_at_frames([&is_whole](Frame*, Object* code) {
    is_whole = true;
    if (seen_function(code).kind() == FunctionKind::kProfilerStep) return true;
    is_whole = !is_of_profiler(code);
    return !is_whole;
  });
  return is_whole;
}

}  // namespace

bool with_gil(void (*body)() noexcept) noexcept {
  const WithGil gil;
  if (gil) body();
  return static_cast<bool>(gil);
}

void follow_window() noexcept {
  window::set_interpreter(
      {{window_opened, window_closed}, is_starting, current_stepper, ends_whole_step, state_all_stacks});
}

}  // namespace torchprof::python
