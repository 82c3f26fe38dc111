#include "tracer/torch/callbacks.h"

#include <utility>

#include "tracer/native/stack.h"
#include "tracer/process/diag.h"
#include "tracer/python/arguments.h"
#include "tracer/python/calls.h"
#include "tracer/python/site.h"
#include "tracer/session.h"
#include "tracer/torch/comms.h"
#include "tracer/torch/known_inputs.h"
#include "tracer/torch/reading.h"
#include "tracer/window.h"

namespace torchprof::torch {
namespace {

using session::current_buffer;
using session::now;

struct OnThread {
  static constexpr Part kPart = Part::kTorch;
  uint64_t number;  // torch's of the thread; 0: it is not defined yet
};
uint64_t& number_of(ThreadBuffer& buffer) noexcept { return buffer.sources.part<OnThread>().number; }

[[gnu::noinline, gnu::cold]] void define_thread(ThreadBuffer& buffer, const RecordFunction& function) noexcept {
  const auto number = field_at<uint64_t>(&function, kThreadOffset);
  if (!g_api.current_thread || number != g_api.current_thread()) return;
  number_of(buffer) = number;
  session::define_torch_thread(buffer.track, number);
}

[[gnu::noinline]] void begin_long(ThreadBuffer& buffer, const RecordFunction& function, const Row* row, StringId name,
                                  uint64_t key, Ticks time) noexcept {
  OpBegin event{};
  event.name = name;
  event.scope = static_cast<OpScope>(field_at<uint8_t>(&function, kScopeOffset));
  event.sequence = -1;
  event.key = key;
  if (row) {
    event.is_async = field_at<uint8_t>(&function, row->is_async) != 0;
    event.sequence = field_at<int64_t>(&function, row->sequence);
    event.handle = key;
    event.fwd_thread = field_at<uint64_t>(&function, row->fwd_thread);
  }
  if (auto* record = buffer.append<OpBegin>(time)) {
    event.header = record->header;
    *record = event;
    buffer.commit();
    buffer.last_op = {event.handle, event.sequence};
  }
}

// What nearly all operators are: not asynchronous, not part of a backward.
bool begin_short(ThreadBuffer& buffer, const RecordFunction& function, const Row* row, StringId name, uint64_t key,
                 Ticks time) noexcept {
  if (!row || key > ShortRecord::kMaxKey || field_at<uint64_t>(&function, row->fwd_thread) != 0 ||
      field_at<uint8_t>(&function, row->is_async) != 0)
    return false;
  const auto sequence = field_at<int64_t>(&function, row->sequence);
  const auto scope = field_at<uint8_t>(&function, kScopeOffset);
  const LastOp last = buffer.last_op;
  if (last.handle + 1 == key && last.handle != 0 && scope == static_cast<uint8_t>(OpScope::kFunction)) {
    const auto step = static_cast<uint64_t>(sequence - last.sequence);
    if (step <= 1) {
      buffer.last_op = {key, sequence};
      const auto kind = static_cast<uint8_t>(kShortNextOp + step);
      if (buffer.put_short(kind, name.value, time)) [[likely]]
        return true;
      buffer.last_op = last;
    }
  }
  const uint64_t key_and_scope = key << 8 | scope;
  const bool done = sequence < 0 ? buffer.put_short(kShortOp, name.value, time, key_and_scope)
                                 : buffer.put_short(kShortOpWithSequence, name.value, time, key_and_scope,
                                                    static_cast<uint64_t>(sequence));
  if (done) buffer.last_op = {key, sequence};
  return done;
}

// By content: a name may belong to the operator's schema or to a string that dies with this call.
StringId name_of_operator(ThreadBuffer& buffer, const RecordFunction& function, const Row* row) noexcept {
  if (row && g_reading.function.load(std::memory_order_relaxed)) [[likely]] {
    const FunctionName read = read_name(function, *row);
    return read.overload ? session::intern_overload(buffer, read.name, read.overload)
                         : session::intern_from(buffer, read.name);
  }
  const char* name = g_api.name(&function);
  return session::intern_from(buffer, name ? name : "");
}

// The inputs of an autograd Function written in Python: 0 where they are what any operator's are.
[[gnu::noinline]] size_t encode_applied(ThreadBuffer& buffer, const RecordFunction& function, const ValueRow& values,
                                        const void* inputs, size_t count, unsigned char* out) noexcept {
  const python::Applied applied = std::exchange(python::applied_on(buffer), {});
  const char* name = g_api.name(&function);
  PlainValue plain[python::kMostPlainValues];
  const size_t size = name ? python::plain_arguments(applied, name, count, plain) : 0;
  return size ? encode_arguments(values, plain, size, inputs, out) : 0;
}

// None: there are none, or they cannot be read.
[[gnu::noinline]] StringId encode_anew(ThreadBuffer& buffer, const RecordFunction& function, const Row& row,
                                       const ValueRow& values, const Inputs& inputs) noexcept {
  unsigned char encoded[kMaxInputs];
  if (python::applied_on(buffer).arguments) [[unlikely]]
    if (const size_t size = encode_applied(buffer, function, values, inputs.values, inputs.count, encoded))
      return session::intern({reinterpret_cast<const char*>(encoded), size});
  if (inputs.count == 0 && !inputs.keywords) return {};
  const size_t size = encode_inputs(values, inputs.values, inputs.count, inputs.keywords, row.string, encoded);
  if (size == 0) {
    stop_inputs("a tensor looks otherwise");
    return {};
  }
  return session::intern({reinterpret_cast<const char*>(encoded), size});
}

StringId inputs_of(ThreadBuffer& buffer, const RecordFunction& function, StringId name, const Row& row,
                   const ValueRow& values) noexcept {
  const Inputs inputs = inputs_in(function, row);
  KnownInputs* const known = buffer.sources.map<KnownInputs>();
  InputsKey key(values);
  const bool is_plain = known && !inputs.keywords && !python::applied_on(buffer).arguments;
  const size_t words = is_plain ? key.write(inputs.values, inputs.count) : 0;
  if (words == 0) return encode_anew(buffer, function, row, values, inputs);
  if (const StringId id = known->find(name, key.words(), words)) [[likely]]
    return id;
  const StringId id = encode_anew(buffer, function, row, values, inputs);
  if (id) known->keep(name, key.words(), words, id);
  return id;
}

[[gnu::noinline]] void put_inputs_long(ThreadBuffer& buffer, StringId inputs, Ticks time) noexcept {
  if (auto* record = buffer.append<OpInputs>(time)) {
    record->inputs = inputs;
    record->pad = 0;
    buffer.commit();
  }
}

[[gnu::noinline]] void put_stack(ThreadBuffer& buffer, NativeFrameId stack, Ticks time) noexcept {
  if (!stack || buffer.put_short(kShortKindOf<NativeStack>, stack.value, time)) return;
  if (auto* record = buffer.append<NativeStack>(time)) {
    record->innermost = stack;
    record->pad = 0;
    buffer.commit();
  }
}

}  // namespace

Context on_start(const RecordFunction& function) {
  ThreadBuffer* buffer = current_buffer();
  if (!buffer) return {};
  if (!number_of(*buffer)) [[unlikely]]
    define_thread(*buffer, function);
  if (g_reading.checks_left.load(std::memory_order_relaxed) > 0) [[unlikely]]
    check_reading(function);
  python::cover_this_thread();
  const Row* row = g_reading.row.load(std::memory_order_relaxed);
  const StringId name = name_of_operator(*buffer, function, row);
  const uint64_t key = key_of(function, row);
  const ValueRow* values = values_of(function, row, true);
  const StringId inputs = values ? inputs_of(*buffer, function, name, *row, *values) : StringId{};
  const bool wants_stack = native::wanted();
  const NativeFrameId stack = wants_stack ? native::take_stack(*buffer) : NativeFrameId{};
  python::put_line(*buffer);
  // The clock is read last, so that our own work is not part of the operator.
  const Ticks time = now();
  if (!begin_short(*buffer, function, row, name, key, time)) [[unlikely]]
    begin_long(*buffer, function, row, name, key, time);
  if (inputs && !buffer->put_short(kShortKindOf<OpInputs>, inputs.value, time)) [[unlikely]]
    put_inputs_long(*buffer, inputs, time);
  if (wants_stack) [[unlikely]]
    put_stack(*buffer, stack, time);
  if (row && is_collective(function, *row)) [[unlikely]]
    record_collective(*buffer, time);
  return {};
}

void on_end(const RecordFunction& function, void*) {
  const Ticks time = now();
  ThreadBuffer* buffer = current_buffer();
  if (!buffer) return;
  const uint64_t key = key_of(function, g_reading.row.load(std::memory_order_relaxed));
  // It may end on another thread than it began on: then it has to be found by its whole key.
  const uint64_t here = number_of(*buffer);
  const bool is_here = here && field_at<uint64_t>(&function, kThreadOffset) == here;
  if (is_here && buffer->put_short(kShortKindOf<OpEndHere>, key & ShortRecord::kMaxValue, time)) [[likely]]
    return;
  if (auto* record = buffer->append<OpEnd>(time)) {
    record->key = key;
    buffer->commit();
  }
}

Context on_annotation_start(const RecordFunction& function) {
  const Row* row = g_reading.row.load(std::memory_order_relaxed);
  const char* name = g_api.name(&function);
  window::annotation_begins(name ? name : "", key_of(function, row));
  return on_start(function);
}

void on_annotation_end(const RecordFunction& function, void* context) {
  on_end(function, context);
  const char* name = g_api.name(&function);
  window::annotation_ended(name ? name : "", key_of(function, g_reading.row.load(std::memory_order_relaxed)));
}

}  // namespace torchprof::torch
