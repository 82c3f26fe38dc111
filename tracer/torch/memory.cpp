#include "tracer/torch/memory.h"

#include "tracer/native/stack.h"
#include "tracer/process/diag.h"
#include "tracer/python/site.h"
#include "tracer/session.h"
#include "tracer/window.h"

namespace torchprof::torch {
constinit std::atomic<bool> detail::g_wants_memory{false};

namespace {

constinit std::atomic<bool> g_is_over{false};

// Blocks from this size on are recorded with the Python line that allocates them. The others still have their Python
// function; a line would double their cost.
constexpr int64_t kSiteBytes = int64_t{64} << 10;

[[gnu::noinline, gnu::cold]] void put_allocation_stack(ThreadBuffer& buffer, NativeFrameId stack, Ticks now) noexcept {
  auto* record = stack ? buffer.append<AllocationStack>(now) : nullptr;
  if (!record) return;
  record->innermost = stack;
  record->pad = 0;
  buffer.commit();
}

// A block of the CPU, whose totals the reader adds up.
bool put_short(ThreadBuffer& buffer, uint64_t place, int64_t bytes, Ticks now) noexcept {
  const uint64_t size = bytes < 0 ? -static_cast<uint64_t>(bytes) : static_cast<uint64_t>(bytes);
  if (size % kShortMemoryUnit == 0 && size / kShortMemoryUnit <= ShortRecord::kMaxValue) [[likely]]
    return buffer.put_short(bytes < 0 ? kShortFree : kShortAllocation, size / kShortMemoryUnit, now, place);
  return buffer.put_short(kShortMemory, 0, now, place, static_cast<uint64_t>(bytes));
}

void put(Kind kind, void* address, int64_t bytes, uint64_t allocated, uint64_t reserved, Device device) noexcept {
  ThreadBuffer* buffer = session::current_buffer();
  if (!buffer) return;
  const auto is_large = [bytes] {
    return bytes > 0 && static_cast<uint64_t>(bytes) >= session::config().native_threshold;
  };
  const bool wants_stack = native::wanted() && (kind == Kind::OutOfMemory || is_large());
  const NativeFrameId stack = wants_stack ? native::take_stack(*buffer) : NativeFrameId{};
  const Ticks now = session::now();
  const auto place = reinterpret_cast<uint64_t>(address);
  if (bytes >= kSiteBytes || kind == Kind::OutOfMemory) [[unlikely]]
    python::put_allocation_site(*buffer, now);
  if (wants_stack) [[unlikely]]
    put_allocation_stack(*buffer, stack, now);
  // The reader adds up the CPU's totals itself, beginning with the first total that it finds. A block of
  // at::MapAllocator is recognised by its total of 0 when it is freed, so it is recorded in the long form.
  if (kind == Kind::Memory && device.type == 0 && reserved == 0 && buffer->has_total && allocated != 0 &&
      put_short(*buffer, place, bytes, now)) [[likely]]
    return;
  auto* record = buffer->append<Memory>(now);
  if (!record) return;
  // append() has written the header for Memory; OutOfMemory has the same fields.
  record->header.bits = (record->header.bits & ~uint64_t{0xff}) | static_cast<uint64_t>(kind);
  record->address = place;
  record->bytes = bytes;
  record->allocated = allocated;
  record->reserved = reserved;
  record->device_type = device.type;
  record->device_index = device.index;
  buffer->commit();
  if (device.type == 0 && allocated != 0) buffer->has_total = true;
}

}  // namespace

void start_memory() noexcept {
  const bool memory = session::config().memory != MemoryMode::kOff;
  switch_memory(window::is_open());
  session::note_source("memory", memory ? SourceState::kOn : SourceState::kOff,
                       memory ? "torch's allocator reports" : "switched off (--memory off)");
}

void switch_memory(bool on) noexcept {
  const bool is_over = g_is_over.load(std::memory_order_relaxed);
  detail::g_wants_memory.store(on && !is_over && session::config().memory != MemoryMode::kOff,
                               std::memory_order_relaxed);
}

void end_memory() noexcept {
  g_is_over.store(true, std::memory_order_relaxed);
  switch_memory(false);
}

void record_memory(void* address, int64_t bytes, uint64_t allocated, uint64_t reserved, Device device) noexcept {
  if (wants_memory()) put(Kind::Memory, address, bytes, allocated, reserved, device);
}

void record_block(void* address, int64_t bytes, uint64_t (*total)() noexcept) noexcept {
  ThreadBuffer* const buffer = session::current_buffer();
  const bool is_plain = buffer && buffer->has_total && bytes < kSiteBytes && !native::wanted();
  if (is_plain && put_short(*buffer, reinterpret_cast<uint64_t>(address), bytes, session::now())) [[likely]]
    return;
  put(Kind::Memory, address, bytes, total(), 0, kCpu);
}

void record_out_of_memory(int64_t bytes, uint64_t allocated, uint64_t reserved, Device device) noexcept {
  if (wants_memory()) put(Kind::OutOfMemory, nullptr, bytes, allocated, reserved, device);
}

}  // namespace torchprof::torch
