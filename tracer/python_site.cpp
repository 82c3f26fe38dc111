#include "tracer/python_site.h"

#include <atomic>
#include <iterator>

#include "tracer/python_abi.h"
#include "tracer/python_code.h"

namespace torchprof::python {
namespace {

// value, version range, source; test: check_frames() at start-up, tests/e2e/test_memory.py for every version found.
struct FrameLayout {
  size_t current;      // PyThreadState: frame (3.10), cframe (3.11, 3.12), current_frame (3.13 on)
  bool by_cframe;      // it is a CFrame, which holds the frame
  size_t of_cframe;    // CFrame.current_frame
  size_t code;         // of the frame: f_code, f_executable (3.13 on; 3.14 tags the lowest bits)
  size_t instruction;  // prev_instr, instr_ptr (3.13 on), both the one that runs; f_lasti (3.10), an int
  size_t first;        // PyCodeObject.co_code_adaptive; 0: `instruction` is a number of code units
};
// 3.10: Include/cpython/{pystate,frameobject}.h. 3.11 to 3.14: Include/cpython/{pystate,code}.h,
// Include/internal/pycore_{frame,interpframe_structs}.h. Measured on 3.10.13, 3.11.2, 3.11.7, 3.12.1, 3.13.0, 3.13.5
// and 3.14.10.
constexpr FrameLayout kFrames[] = {
    {24, false, 0, 32, 96, 0},   // 3.10
    {56, true, 8, 32, 56, 184},  // 3.11
    {56, true, 0, 0, 56, 192},   // 3.12
    {72, false, 0, 0, 56, 200},  // 3.13
    {72, false, 0, 0, 56, 208},  // 3.14
};
constexpr uintptr_t kTags = 3;
constexpr intptr_t kCodeUnit = 2;  // bytes, sizeof(_Py_CODEUNIT)

std::atomic<const FrameLayout*> g_frames{nullptr};

struct Position {
  Object* code = nullptr;  // borrowed
  int offset = -1;         // of the instruction, in bytes
};

Position position_of(const FrameLayout& at, ThreadState* thread) noexcept {
  const void* frame = read_pointer(thread, at.current);
  if (frame && at.by_cframe) frame = read_pointer(frame, at.of_cframe);
  if (!frame) return {};
  const auto tagged = reinterpret_cast<uintptr_t>(read_pointer(frame, at.code));
  auto* code = reinterpret_cast<Object*>(tagged & ~kTags);
  // The frame that the interpreter puts below its own has no code.
  if (!code || type_of(code) != api().code_type) return {};
  const auto* instruction = static_cast<const char*>(frame) + at.instruction;
  if (at.first == 0) return {code, static_cast<int>(*reinterpret_cast<const int*>(instruction) * kCodeUnit)};
  const auto* first = reinterpret_cast<const char*>(code) + at.first;
  return {code, static_cast<int>(static_cast<const char*>(read_pointer(frame, at.instruction)) - first)};
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
  const Position here = position_of(at, self);
  if (here.code != code.get() || here.offset < 0) return;
  if (a.frame_last ? here.offset != a.frame_last(frame) : a.minor > 10) return;
  const int line = a.frame_line(frame);
  if (line <= 0 || a.code_line(here.code, here.offset) != line) return;
  g_frames.store(&at, std::memory_order_release);  // pairs with the load below
}

Site current_site(ThreadBuffer& buffer) noexcept {
  const FrameLayout* at = g_frames.load(std::memory_order_acquire);  // pairs with the store above
  // An interpreter that comes to its end frees the states of threads that are still in C code.
  if (!at || !api().is_finalizing || api().is_finalizing()) return {};
  ThreadState* self = api().this_thread();
  if (!self) return {};
  const Position here = position_of(*at, self);
  if (!here.code || here.offset < 0) return {};
  const Function function = known_function(here.code);
  if (!function.bits) return {};
  const uint64_t key = uint64_t{function.id().value} << 32 | static_cast<uint32_t>(here.offset);
  ThreadBuffer::Line& known = buffer.lines[(key ^ key >> 32) / kCodeUnit % std::size(buffer.lines)];
  if (known.key != key) [[unlikely]] {
    const int line = api().code_line(here.code, here.offset);
    if (line <= 0) return {};
    known = {key, static_cast<uint32_t>(line)};
  }
  return {function.id(), known.line};
}

}  // namespace torchprof::python
