#include "tracer/torch/operators.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>

#include "tracer/native/script.h"
#include "tracer/native/stack.h"
#include "tracer/objects/abi.h"
#include "tracer/objects/check.h"
#include "tracer/objects/search.h"
#include "tracer/objects/values.h"
#include "tracer/process/diag.h"
#include "tracer/python/arguments.h"
#include "tracer/python/calls.h"
#include "tracer/session.h"
#include "tracer/spool/rank_facts.h"
#include "tracer/torch/comms.h"
#include "tracer/torch/memory.h"
#include "tracer/window.h"

namespace torchprof::torch {
namespace {

using session::current_buffer;
using session::now;

Api g_api;

// What is read of an operator. Parts go off when they turn out not to hold, never on again. One cache line.
struct alignas(64) Reading {
  std::atomic<const Row*> row{nullptr};          // nullptr: names, scopes and threads alone
  std::atomic<const ValueRow*> values{nullptr};  // nullptr: no inputs
  std::atomic<bool> function{false};             // fn_ is read, not asked for; gives overload names
  std::atomic<bool> keywords{false};
  std::atomic<bool> searches{false};  // while values is nullptr: their rows are being looked for
  std::atomic<int> checks_left{0};
};
Reading g_reading;

// Unique while the operator is open: torch's handle, or where its layout is unknown the object's address.
uint64_t key_of(const RecordFunction& function, const Row* row) noexcept {
  return row ? field_at<uint64_t>(&function, row->handle) : reinterpret_cast<uintptr_t>(&function);
}

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

// ---- what turned out not to hold -----------------------------------------------------------------------

std::atomic<bool> g_is_stopped{false};  // inputs, for good

[[gnu::noinline, gnu::cold]] void stop_inputs(const char* found) noexcept {
  if (g_is_stopped.exchange(true)) return;
  g_reading.searches.store(false, std::memory_order_relaxed);
  g_reading.values.store(nullptr);
  char layout[140], why[session::kNoteSize];
  search().describe(layout, sizeof(layout));
  snprintf(why, sizeof(why), "%s than the layout says: %s", found, layout);
  session::note_source("inputs", SourceState::kFailed, why);
  warn_once(Cause::kInputs, "inputs of operators are no longer recorded: %s", why);
}

void stop_part(std::atomic<bool>& part, const char* source, const char* found) noexcept {
  if (!part.exchange(false, std::memory_order_relaxed)) return;
  session::note_source(source, SourceState::kFailed, found);
  warn_once(Cause::kTorch, "%s are not recorded: %s", source, found);
}

void stop_fields(const char* found) noexcept {
  if (!g_reading.row.exchange(nullptr, std::memory_order_relaxed)) return;
  g_is_stopped.store(true);
  g_reading.searches.store(false, std::memory_order_relaxed);
  g_reading.values.store(nullptr);
  g_reading.function.store(false, std::memory_order_relaxed);
  g_reading.keywords.store(false, std::memory_order_relaxed);
  char why[session::kNoteSize];
  snprintf(why, sizeof(why), "names and times only: %s", found);
  session::note_source("operators", SourceState::kOn, why);
  session::note_source("inputs", SourceState::kFailed, found);
  warn_once(Cause::kTorch, "of operators %s", why);
}

[[gnu::noinline, gnu::cold]] void check_reading(const RecordFunction& function) noexcept {
  const KeepErrno keep;
  const Row* row = g_reading.row.load(std::memory_order_relaxed);
  const int left = g_reading.checks_left.fetch_sub(1, std::memory_order_relaxed);
  if (!row || left <= 0) return;
  const Findings found = check(g_api, *row, g_reading.values.load(std::memory_order_relaxed), function);
  if (found.fields) return stop_fields(found.fields);
  if (found.function) stop_part(g_reading.function, "overload names", found.function);
  if (found.keywords) stop_part(g_reading.keywords, "keyword inputs", found.keywords);
  if (found.inputs) stop_inputs(found.inputs);
  if (left > 1) return;
  char text[session::kNoteSize];
  snprintf(text, sizeof(text), "%d operators read as torch's own functions say%s", kChecks,
           g_api.tensor_sizes ? "" : " (this torch has none for sizes of tensors: each is checked by itself)");
  session::note_fact("torch.check", text);
}

// ---- the search for the layout of tensors -----------------------------------------------------------------

std::atomic<uint64_t> g_held_back{0};  // operators that went without inputs

void note_search(SourceState state) noexcept {
  char how[140], text[session::kNoteSize], version[16];
  search().describe(how, sizeof(how));
  snprintf(version, sizeof(version), "%u.%u", g_api.version / 100, g_api.version % 100);
  snprintf(text, sizeof(text), "%s; the version says %s; %llu operators before went without inputs", how,
           g_api.version ? version : "nothing",
           static_cast<unsigned long long>(g_held_back.load(std::memory_order_relaxed)));
  session::note_source("inputs", state, text);
  session::note_fact("torch.IValue", text);
}

struct Inputs {  // of an operator
  const char* values;
  size_t count;
  const void* keywords;  // nullptr: there are none, or they are not read
};
Inputs inputs_in(const RecordFunction& function, const Row& row) noexcept {
  const auto* inputs = field_at<const char*>(&function, row.inputs);
  const auto length = field_at<size_t>(&function, row.inputs + 8);
  const void* keywords = row.keywords ? reinterpret_cast<const char*>(&function) + row.keywords : nullptr;
  if (keywords && (!has_keywords(keywords) || !g_reading.keywords.load(std::memory_order_relaxed))) keywords = nullptr;
  // A boxed call passes the interpreter's whole stack: its own inputs are the last ones.
  const size_t count = length ? std::min(length, g_api.num_inputs(&function)) : 0;
  return {inputs + (length - count) * kValueSize, count, keywords};
}

// By which layout this operator may be read; nullptr: by none yet. In its start callback alone: what its inputs point
// to is gone when it ends.
[[gnu::noinline, gnu::cold]] const ValueRow* look_for_values(const RecordFunction& function, const Row& row,
                                                             bool is_counted) noexcept {
  const KeepErrno keep;
  const Inputs inputs = inputs_in(function, row);
  if (inputs.count == 0 && !inputs.keywords) return nullptr;
  const ValueRow* values = search().see_operator(inputs.values, inputs.count, inputs.keywords != nullptr);
  if (!g_reading.searches.load(std::memory_order_relaxed))  // another thread has ended it
    return g_reading.values.load(std::memory_order_relaxed);
  const bool is_held_back = !values && is_counted;
  const uint64_t held_back = g_held_back.fetch_add(is_held_back, std::memory_order_relaxed) + is_held_back;
  if (search().is_hopeless()) {
    if (g_is_stopped.exchange(true)) return nullptr;
    g_reading.searches.store(false, std::memory_order_relaxed);
    note_search(SourceState::kFailed);
    char why[140];
    search().describe(why, sizeof(why));
    warn_once(Cause::kInputs, "shapes and inputs of operators are not recorded: %s", why);
    return nullptr;
  }
  if (const ValueRow* found = search().found()) {
    g_reading.values.store(found);
    if (g_is_stopped.load())
      g_reading.values.store(nullptr);  // pairs with stop_inputs(): one of the two sees the other
    if (g_reading.searches.exchange(false, std::memory_order_relaxed)) note_search(SourceState::kOn);
  } else if (static std::atomic<bool> is_first{true};
             is_first.exchange(false, std::memory_order_relaxed) || (is_held_back && std::has_single_bit(held_back))) {
    note_search(SourceState::kOn);
  }
  return values;
}

const ValueRow* values_of(const RecordFunction& function, const Row* row, bool is_counted) noexcept {
  if (!row) return nullptr;
  const ValueRow* values = g_reading.values.load(std::memory_order_relaxed);
  if (values) [[likely]]
    return values;
  return g_reading.searches.load(std::memory_order_relaxed) ? look_for_values(function, *row, is_counted) : nullptr;
}

// ---- callbacks -------------------------------------------------------------------------------------------
// Both run in the program's operators: nothing is thrown, torch would swallow it with a warning.

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
StringId inputs_of(ThreadBuffer& buffer, const RecordFunction& function, const Row& row,
                   const ValueRow& values) noexcept {
  const Inputs inputs = inputs_in(function, row);
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
  const StringId inputs = values ? inputs_of(*buffer, function, *row, *values) : StringId{};
  const bool wants_stack = native::wanted();
  const NativeFrameId stack = wants_stack ? native::take_stack(*buffer) : NativeFrameId{};
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

// Annotations where a window has to see them.
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

Callback g_callback;    // what is recorded while a window is open, annotations apart where they are seen always
uint64_t g_handle = 0;  // of it while it is added

void note(SourceState state, const char* text) noexcept { session::note_source("operators", state, text); }

Observer g_observer{};
Callback g_observing;             // its callbacks; without a start: there are none
uint64_t g_observing_handle = 0;  // while they are added

bool add_callback() noexcept {
  if (g_handle == 0) g_handle = g_api.add_callback(g_callback);
  if (g_observing.start && g_observing_handle == 0) g_observing_handle = g_api.add_callback(g_observing);
  return g_handle != 0;
}

void window_opened() noexcept {
  switch_memory(true);
  if (g_callback.start) add_callback();
}

void window_closed() noexcept {
  switch_memory(false);
  // Without at::removeCallback it stays, and does nothing.
  if (!g_api.remove_callback || g_handle == 0) return;
  g_api.remove_callback(g_handle);
  g_handle = 0;
  if (g_observing_handle != 0) g_api.remove_callback(g_observing_handle);
  g_observing_handle = 0;
}

void prepare_observer() noexcept {
  if (!g_observer.prepare || !g_observer.prepare()) return;
  g_observing = g_callback;
  memset(g_observing.scopes, 1, sizeof(g_observing.scopes));
  g_observing.start = g_observer.start;
  g_observing.end = g_observer.end;
}

bool choose_inputs() noexcept {
  // They are made from the inputs when the trace is read.
  if (!session::config().flops) session::note_source("flops", SourceState::kOff, "switched off (--flops off)");
  if (!session::config().shapes) {
    session::note_source("inputs", SourceState::kOff, "switched off (--shapes off)");
    return false;
  }
  const char* why = nullptr;
  if (!g_api.row) why = "this torch's RecordFunction is not known";
  if (g_api.row && !g_api.num_inputs) why = "this torch does not export RecordFunction::num_inputs";
  session::note_source("inputs", why ? SourceState::kFailed : SourceState::kOn,
                       why ? why : "no operator has shown the layout of tensors yet");
  // Without its RecordFunction there is one line already, which says that names and times are all.
  if (why && g_api.row) warn_once(Cause::kInputs, "shapes and inputs of operators are not recorded: %s", why);
  g_reading.searches.store(!why, std::memory_order_relaxed);
  return !why;
}

// What `torchprof doctor` shows of the choice.
void note_choice() noexcept {
  char text[session::kNoteSize];
  session::note_fact("torch.library", g_api.library);
  snprintf(text, sizeof(text), "%u.%u, %s", g_api.version / 100, g_api.version % 100, g_api.version_source);
  session::note_fact("torch.version", g_api.version ? text : g_api.version_source);
  if (g_api.row)
    snprintf(text, sizeof(text), "row %s, because _setAsync() stores byte %ld", g_api.row->name, g_api.async_at);
  else if (g_api.async_at >= 0)
    snprintf(text, sizeof(text), "no row: _setAsync() stores byte %ld, which is in none", g_api.async_at);
  else
    snprintf(text, sizeof(text), "no row: _setAsync() is missing, or does not store one byte");
  session::note_fact("torch.RecordFunction", text);
  session::note_fact("torch.strings", !g_api.row               ? "unknown"
                                      : g_api.row->string == 8 ? "old ABI, 8 bytes"
                                                               : "C++11 ABI, 32 bytes");
  session::note_fact("torch.symbols missing", *g_api.missing ? g_api.missing : "none");
}

// For programs whose process groups are not seen: with --python off, or without Python.
void note_environment() noexcept {
  for (const RankFacts& names : kRankFacts) {
    for (const char* const fact : {names.rank, names.world_size, names.local_rank})
      if (const char* value = rank_variable(fact + kEnvironmentFact.size())) session::note_fact(fact, value);
  }
}

}  // namespace

void set_observer(const Observer& observer) noexcept { g_observer = observer; }

const Row* known_row() noexcept { return g_reading.row.load(std::memory_order_relaxed); }

Look look_at(const RecordFunction& function) noexcept {
  const Row* row = g_reading.row.load(std::memory_order_relaxed);
  const ValueRow* values = values_of(function, row, false);
  const char* name = g_api.name(&function);
  return {name ? name : "", row, values, values ? g_api.num_inputs(&function) : 0};
}

unsigned version() noexcept { return g_api.version; }

void follow_window() noexcept { window::add_source({window_opened, window_closed}); }

void attach_if_loaded() noexcept {
  if (g_api.add_callback) return;
  const KeepErrno keep;
  const char* why = nullptr;
  if (!find(g_api, &why)) return;
  search().use(object_rows(), tag_rows());
  search().set_undefined(g_api.undefined, g_api.undefined_size);
  note_choice();
  note_environment();
  if (why) {
    note(SourceState::kFailed, why);
    warn_once(Cause::kTorch, "operators are not recorded: %s", why);
    return;
  }
  if (!session::config().ops) {
    note(SourceState::kOff, "switched off (--ops off)");
    return;
  }
  native::start();
  if (native::wanted()) find_script(g_api);
  Callback& callback = g_callback;
  callback = {};
  callback.start = on_start;
  callback.end = on_end;
  callback.sampling = 1.0;
  memset(callback.scopes, 1, sizeof(callback.scopes));
  callback.needs_ids = true;
  callback.needs_inputs = choose_inputs();
  know_wrappers({g_api.batched, g_api.legacy_batched, g_api.functional});
  prepare_observer();
  find_comms(g_api);
  g_reading.row.store(g_api.row, std::memory_order_relaxed);
  g_reading.function.store(g_api.row != nullptr, std::memory_order_relaxed);
  g_reading.keywords.store(g_api.row && g_api.row->keywords, std::memory_order_relaxed);
  g_reading.checks_left.store(kChecks, std::memory_order_relaxed);
  window::announce();
  if (window::sees_annotations()) {
    Callback annotations = callback;
    annotations.start = on_annotation_start;
    annotations.end = on_annotation_end;
    memset(annotations.scopes, 0, sizeof(annotations.scopes));
    annotations.scopes[static_cast<size_t>(OpScope::kUserScope)] = true;
    callback.scopes[static_cast<size_t>(OpScope::kUserScope)] = false;
    if (g_api.add_callback(annotations) == 0) return note(SourceState::kFailed, "at::addGlobalCallback refused");
  }
  if (window::is_open() && !add_callback()) return note(SourceState::kFailed, "at::addGlobalCallback refused");
  char how[session::kNoteSize];
  snprintf(how, sizeof(how), "at::RecordFunction, layout of torch %s",
           g_api.row ? g_api.row->name : "unknown: no sequence numbers, no handles, no links from forward to backward");
  note(SourceState::kOn, how);
  if (!g_api.row)
    warn_once(Cause::kTorch, "this torch's RecordFunction is not one that this version knows: names and times only");
}

}  // namespace torchprof::torch
