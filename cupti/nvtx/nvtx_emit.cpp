#include "cupti/nvtx/nvtx_emit.h"

#include <dlfcn.h>

#include <cstdio>
#include <iterator>

#include "cupti/nvtx/nvtx_abi.h"
#include "cupti/nvtx/nvtx_text.h"
#include "tracer/config/config.h"
#include "tracer/process/diag.h"
#include "tracer/session.h"
#include "tracer/torch/operators.h"

namespace torchprof::nvtx {
namespace {

constexpr size_t kMaxText = 2048;

// ---- a client of NVTX -----------------------------------------------------------------------------------------------

// A tool may ask for modules that we never call.
constexpr unsigned kSizes[] = {0, kCoreSize, 9, 15, 7, kCore2Size, 7};
constexpr size_t kMostFunctions = 16;
Function g_functions[std::size(kSizes)][kMostFunctions];
Function* g_slots[std::size(kSizes)][kMostFunctions];

int module_table(int module, FunctionTable* table, unsigned* count) {
  if (module < 1 || module >= static_cast<int>(std::size(kSizes))) return 0;
  for (unsigned i = 1; i < kSizes[module]; ++i) g_slots[module][i] = &g_functions[module][i];
  if (table) *table = g_slots[module];
  if (count) *count = kSizes[module];
  return 1;
}

void set_injection_version(uint32_t) {}

const void* get_export_table(uint32_t table) {
  static constexpr Callbacks kTables = {sizeof(Callbacks), module_table};
  static constexpr VersionInfo kVersion = {sizeof(VersionInfo), 3, 0, set_injection_version};
  if (table == kCallbacks) return &kTables;
  return table == kVersionInfo ? &kVersion : nullptr;
}

bool is_ours(const void* function) noexcept {
  Dl_info theirs, ours;
  return dladdr(function, &theirs) && dladdr(reinterpret_cast<const void*>(&get_export_table), &ours) &&
         theirs.dli_fbase == ours.dli_fbase;
}

int (*g_push)(const char*) = nullptr;
int (*g_pop)() = nullptr;

// nullptr: a tool listens. Otherwise why none does.
const char* connect(const char* path) noexcept {
  if (!path) return "NVTX_INJECTION64_PATH names no tool";
  void* library = dlopen(path, RTLD_LAZY);
  if (!library) return "what NVTX_INJECTION64_PATH names cannot be loaded";
  const auto initialize = reinterpret_cast<InitializeInjection>(dlsym(library, kInitialize));
  if (!initialize) return "what NVTX_INJECTION64_PATH names is no tool for NVTX";
  if (is_ours(reinterpret_cast<const void*>(initialize))) return "no other tool is named in NVTX_INJECTION64_PATH";
  if (initialize(get_export_table) == 0) return "the tool in NVTX_INJECTION64_PATH declines";
  g_push = reinterpret_cast<int (*)(const char*)>(g_functions[kCore][kRangePushA]);
  g_pop = reinterpret_cast<int (*)()>(g_functions[kCore][kRangePop]);
  return g_push && g_pop ? nullptr : "the tool in NVTX_INJECTION64_PATH takes no ranges";
}

// ---- operators ------------------------------------------------------------------------------------------------------

bool is_async(const torch::RecordFunction& function, const torch::Row* row) noexcept {
  return row && torch::field_at<uint8_t>(&function, row->is_async) != 0;
}

torch::Context on_operator_start(const torch::RecordFunction& function) {
  const KeepErrno keep;
  const torch::Look look = torch::look_at(function);
  if (is_async(function, look.row)) return {};
  Operator op{look.name, -1, 0, nullptr, nullptr, 0};
  if (look.row) {
    op.sequence = torch::field_at<int64_t>(&function, look.row->sequence);
    op.id = torch::field_at<uint64_t>(&function, look.row->handle);
  }
  if (look.values) {
    const auto* inputs = torch::field_at<const char*>(&function, look.row->inputs);
    const auto length = torch::field_at<size_t>(&function, look.row->inputs + 8);
    op.values = look.values;
    op.count = look.num_inputs < length ? look.num_inputs : length;
    op.inputs = inputs + (length - op.count) * torch::kValueSize;
  }
  char text[kMaxText];
  write_text(op, text, sizeof(text));
  g_push(text);
  return {};
}

void on_operator_end(const torch::RecordFunction& function, void*) {
  const KeepErrno keep;
  if (!is_async(function, torch::known_row())) g_pop();
}

bool listen() noexcept {
  const char* why = connect(nvtx_injection());
  session::note_source("nvtx emit", why ? SourceState::kOff : SourceState::kOn, why ? why : "operators as NVTX ranges");
  if (why) tell_once_a_run(Cause::kConfig, About::kLoss, "--nvtx emit: nobody listens: %s", why);
  return !why;
}

}  // namespace

void emit_operators() noexcept { torch::set_observer({listen, on_operator_start, on_operator_end}); }

}  // namespace torchprof::nvtx
