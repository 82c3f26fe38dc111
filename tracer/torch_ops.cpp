#include "tracer/torch_ops.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "tracer/diag.h"
#include "tracer/python_calls.h"
#include "tracer/session.h"
#include "tracer/torch_abi.h"
#include "tracer/torch_values.h"

namespace torchprof::torch {
namespace {

using session::current_buffer;
using session::now;

Api g_api;
std::atomic<const ValueRow*> g_values{nullptr};  // nullptr: inputs are not read

template <class T>
T field(const RecordFunction& function, size_t offset) noexcept {
  T value;
  memcpy(&value, reinterpret_cast<const char*>(&function) + offset, sizeof(T));
  return value;
}

// Unique while the operator is open: torch's handle, or where its layout is unknown the object's address.
uint64_t key_of(const RecordFunction& function) noexcept {
  return g_api.row ? field<uint64_t>(function, g_api.row->handle) : reinterpret_cast<uintptr_t>(&function);
}

[[gnu::noinline, gnu::cold]] void define_thread(ThreadBuffer& buffer, const RecordFunction& function) noexcept {
  const auto number = field<uint64_t>(function, kThreadOffset);
  if (!g_api.current_thread || number != g_api.current_thread()) return;
  buffer.torch_thread = number;
  session::define_torch_thread(buffer.track, number);
}

[[gnu::noinline]] void begin_long(ThreadBuffer& buffer, const RecordFunction& function, StringId name,
                                  uint64_t key) noexcept {
  OpBegin event{};
  event.name = name;
  event.scope = static_cast<OpScope>(field<uint8_t>(function, kScopeOffset));
  event.sequence = -1;
  event.key = key;
  if (const Row* row = g_api.row) {
    event.is_async = field<uint8_t>(function, row->is_async) != 0;
    event.sequence = field<int64_t>(function, row->sequence);
    event.handle = key;
    event.fwd_thread = field<uint64_t>(function, row->fwd_thread);
  }
  if (auto* record = buffer.append<OpBegin>(now())) {
    event.header = record->header;
    *record = event;
    buffer.commit();
    buffer.last_op = {event.handle, event.sequence};
  }
}

// What nearly all operators are: not asynchronous, not part of a backward.
bool begin_short(ThreadBuffer& buffer, const RecordFunction& function, StringId name, uint64_t key) noexcept {
  const Row* row = g_api.row;
  if (!row || key > ShortRecord::kMaxKey || field<uint64_t>(function, row->fwd_thread) != 0 ||
      field<uint8_t>(function, row->is_async) != 0)
    return false;
  const auto sequence = field<int64_t>(function, row->sequence);
  const auto scope = field<uint8_t>(function, kScopeOffset);
  const LastOp last = buffer.last_op;
  // The clock is read last, so that our own work is not part of the operator.
  if (last.handle + 1 == key && last.handle != 0 && scope == static_cast<uint8_t>(OpScope::kFunction)) {
    const auto step = static_cast<uint64_t>(sequence - last.sequence);
    if (step <= 1) {
      buffer.last_op = {key, sequence};
      const auto kind = static_cast<uint8_t>(kShortNextOp + step);
      if (buffer.put_short(kind, name.value, now())) [[likely]]
        return true;
      buffer.last_op = last;
    }
  }
  const uint64_t key_and_scope = key << 8 | scope;
  const bool done = sequence < 0 ? buffer.put_short(kShortOp, name.value, now(), key_and_scope)
                                 : buffer.put_short(kShortOpWithSequence, name.value, now(), key_and_scope,
                                                    static_cast<uint64_t>(sequence));
  if (done) buffer.last_op = {key, sequence};
  return done;
}

// The row did not hold for a tensor: whatever it has given so far was checked, tensor by tensor; nothing more is read.
[[gnu::noinline, gnu::cold]] void stop_inputs(const ValueRow& row) noexcept {
  g_values.store(nullptr, std::memory_order_relaxed);
  char why[session::kNoteSize];
  snprintf(why, sizeof(why), "a tensor did not look as the layout of torch %s says", name_of(row));
  session::note_source("inputs", SourceState::kFailed, why);
  warn_once(Cause::kInputs, "inputs of operators are no longer recorded: %s", why);
}

void record_inputs(ThreadBuffer& buffer, const RecordFunction& function, const ValueRow& values) noexcept {
  const auto* inputs = field<const char*>(function, g_api.row->inputs);
  const auto length = field<size_t>(function, g_api.row->inputs + 8);
  // A boxed call passes the interpreter's whole stack: its own inputs are the last ones.
  const size_t count = std::min(length, g_api.num_inputs(&function));
  if (count == 0) return;
  unsigned char encoded[kMaxInputs];
  const size_t size = encode_inputs(values, inputs + (length - count) * 16, count, encoded);
  if (size == 0) return stop_inputs(values);
  const StringId id = session::intern({reinterpret_cast<const char*>(encoded), size});
  const Ticks time = now();
  if (buffer.put_short(kShortKindOf<OpInputs>, id.value, time)) [[likely]]
    return;
  if (auto* record = buffer.append<OpInputs>(time)) {
    record->inputs = id;
    record->pad = 0;
    buffer.commit();
  }
}

// Both run in the program's operators: nothing is thrown, torch would swallow it with a warning.
Context on_start(const RecordFunction& function) {
  ThreadBuffer* buffer = current_buffer();
  if (!buffer) return {};
  if (!buffer->torch_thread) [[unlikely]]
    define_thread(*buffer, function);
  python::cover_this_thread();
  const char* name = g_api.name(&function);
  // By content: a name may belong to the operator's schema or to a string that dies with this call.
  const StringId id = session::intern_from(*buffer, name ? name : "");
  const uint64_t key = key_of(function);
  if (!begin_short(*buffer, function, id, key)) [[unlikely]]
    begin_long(*buffer, function, id, key);
  if (const ValueRow* values = g_values.load(std::memory_order_relaxed)) record_inputs(*buffer, function, *values);
  return {};
}

void on_end(const RecordFunction& function, void*) {
  const Ticks time = now();
  ThreadBuffer* buffer = current_buffer();
  if (!buffer) return;
  const uint64_t key = key_of(function);
  // It may end on another thread than it began on: then it has to be found by its whole key.
  const bool is_here = buffer->torch_thread && field<uint64_t>(function, kThreadOffset) == buffer->torch_thread;
  if (is_here && buffer->put_short(kShortKindOf<OpEndHere>, key & ShortRecord::kMaxValue, time)) [[likely]]
    return;
  if (auto* record = buffer->append<OpEnd>(time)) {
    record->key = key;
    buffer->commit();
  }
}

void note(SourceState state, const char* text) noexcept { session::note_source("operators", state, text); }

bool choose_inputs() noexcept {
  if (!session::config().shapes) {
    session::note_source("inputs", SourceState::kOff, "switched off (--shapes off)");
    return false;
  }
  const ValueRow* values = g_api.row && g_api.num_inputs ? find_values(g_api.version) : nullptr;
  char how[session::kNoteSize];
  if (values)
    snprintf(how, sizeof(how), "layout of torch %s", name_of(*values));
  else
    snprintf(how, sizeof(how), "no layout for this torch (%u.%u) is known", g_api.version / 100, g_api.version % 100);
  session::note_source("inputs", values ? SourceState::kOn : SourceState::kFailed, how);
  g_values.store(values, std::memory_order_relaxed);
  return values != nullptr;
}

}  // namespace

unsigned version() noexcept { return g_api.version; }

void attach_if_loaded() noexcept {
  if (g_api.add_callback) return;
  const KeepErrno keep;
  const char* why = nullptr;
  if (!find(g_api, &why)) return;
  session::note_fact("torch.library", g_api.library);
  if (why) {
    note(SourceState::kFailed, why);
    warn_once(Cause::kTorch, "operators are not recorded: %s", why);
    return;
  }
  if (!session::config().ops) {
    note(SourceState::kOff, "switched off (--ops off)");
    return;
  }
  Callback callback{};
  callback.start = on_start;
  callback.end = on_end;
  callback.sampling = 1.0;
  memset(callback.scopes, 1, sizeof(callback.scopes));
  callback.needs_ids = true;
  callback.needs_inputs = choose_inputs();
  if (g_api.add_callback(callback) == 0) {
    note(SourceState::kFailed, "at::addGlobalCallback refused");
    return;
  }
  char how[session::kNoteSize];
  snprintf(how, sizeof(how), "at::RecordFunction, layout of torch %s",
           g_api.row ? g_api.row->name : "unknown: no sequence numbers, no handles, no links from forward to backward");
  note(SourceState::kOn, how);
  if (!g_api.row)
    warn_once(Cause::kTorch, "this torch's RecordFunction is not one that this version knows: names and times only");
}

}  // namespace torchprof::torch
