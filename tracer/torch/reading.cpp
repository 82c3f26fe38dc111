#include "tracer/torch/reading.h"

#include <bit>
#include <cstdio>

#include "tracer/objects/check.h"
#include "tracer/objects/search.h"
#include "tracer/process/diag.h"
#include "tracer/session.h"
#include "tracer/torch/known_inputs.h"

namespace torchprof::torch {

constinit Api g_api;
constinit Reading g_reading;

namespace {

std::atomic<bool> g_is_stopped{false};  // inputs, for good
std::atomic<uint64_t> g_held_back{0};   // operators that went without inputs

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

void stop_part(std::atomic<bool>& part, const char* source, const char* found) noexcept {
  if (!part.exchange(false, std::memory_order_relaxed)) return;
  session::note_source(source, SourceState::kFailed, found);
  tell_once_a_run(Cause::kTorch, About::kLoss, "%s are not recorded: %s", source, found);
}

void stop_fields(const char* found) noexcept {
  if (!g_reading.row.exchange(nullptr, std::memory_order_relaxed)) return;
  // Pairs with the store and the load in look_for_values(): one of the two threads sees the other.
  g_is_stopped.store(true, std::memory_order_seq_cst);
  g_reading.values.store(nullptr, std::memory_order_seq_cst);
  g_reading.searches.store(false, std::memory_order_relaxed);
  g_reading.function.store(false, std::memory_order_relaxed);
  g_reading.keywords.store(false, std::memory_order_relaxed);
  char why[session::kNoteSize];
  snprintf(why, sizeof(why), "names and times only: %s", found);
  session::note_source("operators", SourceState::kOn, why);
  session::note_source("inputs", SourceState::kFailed, found);
  tell_once_a_run(Cause::kTorch, About::kLoss, "of operators %s", why);
}

}  // namespace

void start_inputs() noexcept {
  SourceMemory::map_before_seal<KnownInputs>();
  if (g_reading.values.load(std::memory_order_relaxed)) return note_search(SourceState::kOn);  // since an earlier turn
  g_reading.searches.store(true, std::memory_order_relaxed);
}

void start_reading() noexcept {
  g_reading.row.store(g_api.row, std::memory_order_relaxed);
  g_reading.function.store(g_api.row != nullptr, std::memory_order_relaxed);
  g_reading.keywords.store(g_api.row && g_api.row->keywords, std::memory_order_relaxed);
  g_reading.checks_left.store(kChecks, std::memory_order_relaxed);
}

void stop_inputs(const char* found) noexcept {
  // Pairs with the store and the load in look_for_values(): one of the two threads sees the other.
  if (g_is_stopped.exchange(true, std::memory_order_seq_cst)) return;
  g_reading.values.store(nullptr, std::memory_order_seq_cst);
  g_reading.searches.store(false, std::memory_order_relaxed);
  char layout[140], why[session::kNoteSize];
  search().describe(layout, sizeof(layout));
  snprintf(why, sizeof(why), "%s than the layout says: %s", found, layout);
  session::note_source("inputs", SourceState::kFailed, why);
  tell_once_a_run(Cause::kInputs, About::kLoss, "inputs of operators are no longer recorded: %s", why);
}

void check_reading(const RecordFunction& function) noexcept {
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

const ValueRow* look_for_values(const RecordFunction& function, const Row& row, bool is_counted) noexcept {
  const KeepErrno keep;
  const Inputs inputs = inputs_in(function, row);
  if (inputs.count == 0 && !inputs.keywords) return nullptr;
  const ValueRow* values = search().see_operator(inputs.values, inputs.count, inputs.keywords != nullptr);
  if (!g_reading.searches.load(std::memory_order_relaxed))  // another thread has ended it
    return g_reading.values.load(std::memory_order_relaxed);
  const bool is_held_back = !values && is_counted;
  const uint64_t held_back = g_held_back.fetch_add(is_held_back, std::memory_order_relaxed) + is_held_back;
  if (search().is_hopeless()) {
    if (g_is_stopped.exchange(true, std::memory_order_relaxed)) return nullptr;  // once; no row was found
    g_reading.searches.store(false, std::memory_order_relaxed);
    note_search(SourceState::kFailed);
    char why[140];
    search().describe(why, sizeof(why));
    tell_once_a_run(Cause::kInputs, About::kLoss, "shapes and inputs of operators are not recorded: %s", why);
    return nullptr;
  }
  if (const ValueRow* found = search().found()) {
    // Pairs with stop_inputs() and stop_fields(), which store in the other order: one of the two threads sees the
    // other.
    g_reading.values.store(found, std::memory_order_seq_cst);
    if (g_is_stopped.load(std::memory_order_seq_cst)) g_reading.values.store(nullptr, std::memory_order_relaxed);
    if (g_reading.searches.exchange(false, std::memory_order_relaxed)) note_search(SourceState::kOn);
  } else if (static std::atomic<bool> is_first{true};
             is_first.exchange(false, std::memory_order_relaxed) || (is_held_back && std::has_single_bit(held_back))) {
    note_search(SourceState::kOn);
  }
  return values;
}

}  // namespace torchprof::torch
