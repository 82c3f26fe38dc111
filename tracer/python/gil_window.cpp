#include "tracer/python/gil_window.h"

#include <atomic>

#include "tracer/python/calls.h"
#include "tracer/python/code.h"
#include "tracer/python/events.h"
#include "tracer/python/interpreters.h"
#include "tracer/python/modules.h"
#include "tracer/python/monitoring.h"
#include "tracer/python/profile.h"

namespace torchprof::python {
namespace {

bool can_run() noexcept {
  const Api& a = api();
  return a.none && a.is_initialized() && (!a.is_finalizing || !a.is_finalizing());
}

void switch_calls(bool on) noexcept {
  if (g_level == PythonLevel::kOff) return;
  const WithGil gil;
  if (!gil) return;
  if (on) ++g_epoch;
  switch_monitoring(on);
  switch_profile(on);
}

}  // namespace

WithGil::WithGil() noexcept {
  if (!can_run()) return;
  if (!holds_gil()) {
    state_ = api().gil_ensure();
    took_ = true;
  }
  has_ = true;
  api().error_fetch(&error_[0], &error_[1], &error_[2]);
}

WithGil::~WithGil() {
  if (!has_) return;
  api().error_restore(error_[0], error_[1], error_[2]);
  if (took_) api().gil_release(state_);
}

bool is_starting() noexcept {
  static std::atomic<bool> has_started{false};
  if (g_level == PythonLevel::kOff || !api().none || has_started.load(std::memory_order_relaxed)) return false;
  if (!api().is_initialized()) return true;
  has_started.store(true, std::memory_order_relaxed);
  return false;
}

void window_opened() noexcept { switch_calls(true); }
void window_closed() noexcept { switch_calls(false); }

Object* current_optimizer() noexcept {
  if (g_level == PythonLevel::kOff) return nullptr;
  const WithGil gil;
  if (!gil) return nullptr;
  // Optimizer.step is at most a few frames out: those of the context manager that annotates it.
  constexpr int kMaxFramesBack = 8;
  Object* frame = reinterpret_cast<Object*>(api().current_frame());
  if (frame) api().incref(frame);
  Ref at(frame);
  for (int i = 0; at && i < kMaxFramesBack; ++i) {
    auto* here = reinterpret_cast<Frame*>(at.get());
    const Ref code(api().frame_code(here));
    if (function_of(code.get()).kind() == FunctionKind::kOptimizerStep) return optimizer_in(here);
    at.reset(reinterpret_cast<Object*>(api().frame_back(here)));
  }
  api().error_clear();
  return nullptr;
}

}  // namespace torchprof::python
