#include "tracer/python/opcodes.h"

namespace torchprof::python {
namespace {

constexpr int kFirstMinor = 13;  // before 3.13, opcode events are switched on for all code at once, with the others

// For `frame` (a reference, which is released here) and its callers.
void restate(Frame* frame) noexcept {
  const KeepError keep;
  const Ref off(api().call(api().bool_type, nullptr));
  for (Ref at(frame); at; at.reset(reinterpret_cast<Object*>(api().frame_back(reinterpret_cast<Frame*>(at.get()))))) {
    const Ref wants(api().get_attr(at.get(), "f_trace_opcodes"));
    if (!wants || !off || wants.get() == off.get()) continue;
    const Ref function(api().get_attr(at.get(), "f_trace"));
    if (!function || function.get() == api().none) continue;
    api().set_attr(at.get(), "f_trace_opcodes", off.get());
    api().set_attr(at.get(), "f_trace_opcodes", wants.get());
  }
  api().error_clear();
}

}  // namespace

void restate_opcodes_of_this_thread() noexcept {
  Frame* frame = api().minor >= kFirstMinor ? api().current_frame() : nullptr;  // borrowed
  if (!frame) return;
  api().incref(reinterpret_cast<Object*>(frame));
  restate(frame);
}

void restate_opcodes() noexcept {
  if (api().minor < kFirstMinor) return;
  for (ThreadState* t = api().first_thread(api().current_interpreter()); t; t = api().next_thread(t))
    if (Frame* frame = api().thread_frame(t)) restate(frame);
}

}  // namespace torchprof::python
