#include "tracer/torch/operators.h"

#include <dlfcn.h>
#include <sched.h>
#include <time.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tracer/control_reader.h"
#include "tracer/native/script.h"
#include "tracer/native/stack.h"
#include "tracer/objects/search.h"
#include "tracer/process/diag.h"
#include "tracer/process/seal.h"
#include "tracer/processor_time.h"
#include "tracer/session.h"
#include "tracer/spool/rank_facts.h"
#include "tracer/torch/callbacks.h"
#include "tracer/torch/comms.h"
#include "tracer/torch/memory.h"
#include "tracer/torch/reading.h"
#include "tracer/window.h"

namespace torchprof::torch {
namespace {

Callback g_callback;    // while a window is open; without annotations if they have a callback of their own
uint64_t g_handle = 0;  // torch's handle of it; 0: it is not added

void note(SourceState state, const char* text) noexcept { session::note_source("operators", state, text); }

bool g_is_attached = false;         // in this turn of the session
uint64_t g_annotations_handle = 0;  // torch's handle of the callbacks that annotations have of their own; 0: none

Observer g_observer{};
Callback g_observing;             // the observer's callbacks; without `start` there are none
uint64_t g_observing_handle = 0;  // torch's handle of them; 0: they are not added

// torch's list of callbacks is a static variable, which exit() destroys while a thread of ours may still open and close
// windows. So the list is left alone from a handler of exit() on that runs before: it is registered when the list is
// made.
constinit std::atomic<bool> g_exits{false};
constinit std::atomic<int> g_switching{0};  // threads that add or remove callbacks just now

// While it lives the list is there, if that is allowed.
class Switching {
 public:
  // Pairs with end_switching(): either that sees the thread, or the thread sees the end.
  Switching() noexcept { g_switching.fetch_add(1, std::memory_order_seq_cst); }
  // Release: pairs with the load in end_switching(), after which the list is destroyed.
  ~Switching() { g_switching.fetch_sub(1, std::memory_order_release); }
  Switching(const Switching&) = delete;
  Switching& operator=(const Switching&) = delete;
  // Pairs with the store in end_switching(), see the constructor.
  bool is_allowed() const noexcept { return !g_exits.load(std::memory_order_seq_cst); }
};

void end_switching() noexcept {
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 50'000};
  constexpr int kMostPauses = 2000;  // a child that was forked in the midst of it would wait for nobody
  // Both pair with the constructor and the destructor of Switching.
  g_exits.store(true, std::memory_order_seq_cst);
  for (int i = 0; i < kMostPauses && g_switching.load(std::memory_order_seq_cst) != 0; ++i) nanosleep(&kPause, nullptr);
}

void switch_until_exit() noexcept {
  static std::atomic<bool> is_registered{false};
  // Relaxed: the flag only decides which thread registers it.
  if (is_registered.exchange(true, std::memory_order_relaxed)) return;
  const KeepErrno keep;
  atexit([] { end_switching(); });
}

// If it is not added yet.
void add_to_torch(const Callback& callback, uint64_t& handle) noexcept {
  const Switching switching;
  if (handle != 0 || !switching.is_allowed()) return;
  handle = g_api.add_callback(callback);
  switch_until_exit();
}

// If torch does not export at::removeCallback, the callback stays, and does nothing.
void remove_from_torch(uint64_t& handle) noexcept {
  const Switching switching;
  if (!g_api.remove_callback || handle == 0 || !switching.is_allowed()) return;
  g_api.remove_callback(handle);
  handle = 0;
}

bool add_callback() noexcept {
  add_to_torch(g_callback, g_handle);
  if (g_observing.start) add_to_torch(g_observing, g_observing_handle);
  return g_handle != 0;
}

void window_opened() noexcept {
  switch_memory(true);
  if (g_callback.start) add_callback();
}

void window_closed() noexcept {
  switch_memory(false);
  remove_from_torch(g_handle);
  remove_from_torch(g_observing_handle);
}

void prepare_observer() noexcept {
  if (!g_observer.prepare || !g_observer.prepare()) return;
  g_observing = g_callback;
  memset(g_observing.scopes, 1, sizeof(g_observing.scopes));
  g_observing.start = g_observer.start;
  g_observing.end = g_observer.end;
}

bool choose_inputs() noexcept {
  // FLOPs are calculated from the inputs when the trace is read.
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
  // If RecordFunction is not known, there is a line already, which says that only names and times are recorded.
  if (why && g_api.row)
    tell_once_a_run(Cause::kInputs, About::kLoss, "shapes and inputs of operators are not recorded: %s", why);
  if (!why) start_inputs();
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

// For programs whose process groups are not seen, because of --python off or without Python: the rank that the
// environment says.
void note_environment() noexcept {
  for (const RankFacts& names : kRankFacts) {
    for (const char* const fact : {names.rank, names.world_size, names.local_rank})
      if (const char* value = number_variable(fact + kEnvironmentFact.size())) {
        session::note_fact(fact, value);
        if (fact == names.rank) window::control_reader::know_rank(strtoull(value, nullptr, 10));
      }
  }
}

// By how many threads an operator may be divided, and among how many processors. torch reads the variable, and without
// it takes one thread for each processor (aten/src/ATen/ParallelOpenMP.cpp, 1.13 to 2.14).
void note_threads() noexcept {
  const seal::Calls calls;  // none where a filter may kill the process for one
  cpu_set_t processors;
  char text[16];
  if (calls && sched_getaffinity(0, sizeof(processors), &processors) == 0) {
    snprintf(text, sizeof(text), "%d", CPU_COUNT(&processors));
    session::note_fact("processors", text);
  }
  for (const char* const name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS"})
    if (const char* value = number_variable(name)) return session::note_fact("torch.threads", value);
}

// torch keeps the number in OpenMP (at::get_num_threads() in aten/src/ATen/ParallelOpenMP.cpp, 1.13 to 2.15). Of GNU's
// alone: its function reads a number, where Intel's may take in the thread that asks.
void find_operator_threads() noexcept {
  if (!g_api.symbols) return;
  void* const function = dlsym(g_api.symbols, "omp_get_max_threads");
  Dl_info where{};
  if (function && dladdr(function, &where) && where.dli_fname && strstr(where.dli_fname, "libgomp"))
    processor_time::ask(reinterpret_cast<processor_time::OperatorThreads>(function));
}

// What is known of this torch stays known.
bool find_torch(const char** why) noexcept {
  static const char* found_why = nullptr;
  if (!g_api.add_callback) {
    if (!find(g_api, &found_why)) return false;
    search().use(object_rows(), tag_rows());
    search().set_undefined(g_api.undefined, g_api.undefined_size);
  }
  *why = found_why;
  return true;
}

}  // namespace

void leave() noexcept {
  g_is_attached = false;
  native::stop();
  // One that cannot be removed stays, and is used again.
  if (!g_api.remove_callback) return;
  g_callback = {};
  remove_from_torch(g_annotations_handle);
}

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
  if (g_is_attached) return;
  const KeepErrno keep;
  const char* why = nullptr;
  if (!find_torch(&why)) return;
  g_is_attached = true;
  window::announce(window::Found::kTorch);
  note_choice();
  note_environment();
  note_threads();
  find_operator_threads();
  if (why) {
    note(SourceState::kFailed, why);
    tell_once_a_run(Cause::kTorch, About::kLoss, "operators are not recorded: %s", why);
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
  start_reading();
  if (window::sees_annotations()) {
    Callback annotations = callback;
    annotations.start = on_annotation_start;
    annotations.end = on_annotation_end;
    memset(annotations.scopes, 0, sizeof(annotations.scopes));
    annotations.scopes[static_cast<size_t>(OpScope::kUserScope)] = true;
    callback.scopes[static_cast<size_t>(OpScope::kUserScope)] = false;
    add_to_torch(annotations, g_annotations_handle);
    if (g_annotations_handle == 0) return note(SourceState::kFailed, "at::addGlobalCallback refused");
  }
  if (window::is_open() && !add_callback()) return note(SourceState::kFailed, "at::addGlobalCallback refused");
  char how[session::kNoteSize];
  snprintf(how, sizeof(how), "at::RecordFunction, layout of torch %s",
           g_api.row ? g_api.row->name : "unknown: no sequence numbers, no handles, no links from forward to backward");
  note(SourceState::kOn, how);
  if (!g_api.row)
    tell_once_a_run(Cause::kTorch, About::kLoss,
                    "this torch's RecordFunction is not one that this version knows: names and times only");
}

}  // namespace torchprof::torch
