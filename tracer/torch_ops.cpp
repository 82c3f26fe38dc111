#include "tracer/torch_ops.h"

#include <cstdio>
#include <cstring>

#include "tracer/diag.h"
#include "tracer/python_calls.h"
#include "tracer/session.h"
#include "tracer/torch_abi.h"

namespace torchprof::torch {
namespace {

using session::current_buffer;
using session::now;

Api g_api;

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
  }
}

// What nearly all operators are: not asynchronous, not part of a backward.
bool begin_short(ThreadBuffer& buffer, const RecordFunction& function, StringId name, uint64_t key) noexcept {
  const Row* row = g_api.row;
  if (!row || key > ShortRecord::kMaxKey || field<uint64_t>(function, row->fwd_thread) != 0 ||
      field<uint8_t>(function, row->is_async) != 0)
    return false;
  const auto sequence = field<int64_t>(function, row->sequence);
  const uint64_t key_and_scope = key << 8 | field<uint8_t>(function, kScopeOffset);
  // The clock is read last, so that our own work is not part of the operator.
  if (sequence < 0) return buffer.put_short(kShortOp, name.value, now(), key_and_scope);
  return buffer.put_short(kShortOpWithSequence, name.value, now(), key_and_scope, static_cast<uint64_t>(sequence));
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

}  // namespace

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
