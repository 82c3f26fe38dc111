#include "tracer/config/config.h"

#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tracer/config/run_directory.h"
#include "tracer/config/window_spec.h"

namespace torchprof {
namespace {

constexpr Setting kSettings[] = {
    {"TORCHPROF_OUTPUT", "--output", 'o', false, "DIR",
     "the run directory; %h host, %j job, %p pid, %t time, %u uid, %q{NAME} variable\n[torchprof-%t-%p]"},
    {"TORCHPROF_WINDOW", "--window", 'w', false, "SPEC",
     "what part of the run is captured: auto, all, steps=10..14, after=30s, ... [auto]"},
    {"TORCHPROF_BUDGET_EVENTS", "--budget-events", 0, false, "N",
     "with -w auto: a process of so many events is whole, e.g. 500K or 2M [1M]"},
    {"TORCHPROF_BUDGET_OVERHEAD", "--budget-overhead", 0, false, "PERCENT",
     "with -w auto: what windows may add to the run's time [2]"},
    {"TORCHPROF_PYTHON", "--python", 0, false, "off|modules|functions|calls",
     "nothing; nn.Module and optimizer calls; + Python functions; + C calls [functions]"},
    {"TORCHPROF_IMPORTS", "--imports", 0, false, "brief|full",
     "what imports and torch.compile run: one span each, or every function [brief]"},
    {"TORCHPROF_OPS", "--ops", 0, false, "on|off", "ATen operators and user annotations [on]"},
    {"TORCHPROF_SHAPES", "--shapes", 0, false, "on|off", "shapes, strides, dtypes and concrete inputs [on]"},
    {"TORCHPROF_MEMORY", "--memory", 0, false, "off|on|python",
     "torch's allocators; python: and samples of what Python itself allocates [on]"},
    {"TORCHPROF_GPU", "--gpu", 0, false, "off|kernels|on|full",
     "nothing; kernels, copies; + calls that start them or wait; + all calls, events [on]"},
    {"TORCHPROF_NVTX", "--nvtx", 0, false, "on|off|emit",
     "the program's NVTX ranges; emit: operators as NVTX ranges too [on]"},
    {"TORCHPROF_NATIVE", "--native", 0, false, "on|off",
     "C++ and C frames of each operator and large allocation [off]"},
    {"TORCHPROF_NATIVE_THRESHOLD", "--native-threshold", 0, false, "SIZE",
     "with --native: allocations from this size on have their frames [1M]"},
    {"TORCHPROF_NATIVE_FRAMES", "--native-frames", 0, false, "folded|all",
     "with --native: without the interpreter's and the dispatcher's own, or all [folded]"},
    {"TORCHPROF_SAMPLE", "--sample", 0, false, "HZ|off|auto",
     "looks at all threads a second; auto: 50 with -w auto and all, else off [auto]"},
    {"TORCHPROF_FLOPS", "--flops", 0, false, "on|off", "estimated FLOPs of operators, from shapes [on]"},
    {"TORCHPROF_MAX_SIZE", "--max-size", 0, false, "SIZE",
     "bytes of spool per process, with K, M, G or T; then capture stops [4G]"},
    {"TORCHPROF_MAX_RUN_SIZE", "--max-run-size", 0, false, "SIZE|none|auto",
     "the same of all processes together; auto: 1G with -w auto, else none [auto]"},
    {"TORCHPROF_KEEP", "--keep", 0, false, "first|last",
     "at the size limit: stop, or recycle the oldest events [first]"},
    {"TORCHPROF_FORMAT", "--format", 0, false, "F[,F]",
     "what is written at the end (`torchprof help export`), or none [kineto,table]"},
    {"TORCHPROF_QUIET", "--quiet", 'q', true, "", "no lines of our own but errors"},
    {"TORCHPROF_DISCARD", "--discard", 0, true, "", "remove the raw records when everything has been written"},
    {"TORCHPROF_KEEP_SPOOL", "--keep-spool", 0, true, "", "keep them: the default, and wins over --discard"},
};

enum Index {
  kOutput,
  kWindow,
  kBudgetEvents,
  kBudgetOverhead,
  kPython,
  kImports,
  kOps,
  kShapes,
  kMemory,
  kGpu,
  kNvtx,
  kNative,
  kNativeThreshold,
  kNativeFrames,
  kSample,
  kFlops,
  kMaxSize,
  kMaxRunSize,
  kKeep,
  kFormat,
  kQuiet,
  kDiscard,
  kKeepSpool
};
static_assert(sizeof(kSettings) / sizeof(kSettings[0]) == kKeepSpool + 1);

constexpr const char* kPythonLevels[] = {"off", "modules", "functions", "calls"};
constexpr const char* kImportsShown[] = {"brief", "full"};
constexpr const char* kGpuModes[] = {"off", "kernels", "on", "full"};
constexpr const char* kNvtxModes[] = {"off", "on", "emit"};
constexpr const char* kMemoryModes[] = {"off", "on", "python"};
constexpr const char* kKeeps[] = {"first", "last"};
constexpr const char* kNativeFramesShown[] = {"folded", "all"};
constexpr const char* kOnOff[] = {"off", "on"};
constexpr const char* kFormats[] = {"kineto",
                                    "kineto-ranks",
                                    "perfetto",
                                    "perfetto-ranks",
                                    "chrome-legacy",
                                    "json-stream",
                                    "stacks",
                                    "stacks-cuda",
                                    "speedscope",
                                    "pprof",
                                    "memory-timeline",
                                    "memory-timeline-raw",
                                    "memory-timeline-html",
                                    "memory-snapshot",
                                    "sqlite",
                                    "table",
                                    "none"};

template <size_t N>
int index_of(const char* const (&names)[N], const char* value, size_t length) noexcept {
  for (size_t i = 0; i < N; ++i)
    if (strlen(names[i]) == length && strncmp(names[i], value, length) == 0) return static_cast<int>(i);
  return -1;
}

// "a, b or c"
using Alternatives = char[256];
template <size_t N>
const char* alternatives(const char* const (&names)[N], Alternatives& out) noexcept {
  out[0] = 0;
  for (size_t k = 0; k < N; ++k) {
    if (k) strcat(out, k + 1 == N ? " or " : ", ");
    strcat(out, names[k]);
  }
  return out;
}

template <size_t N, class T>
bool choose(const char* const (&names)[N], const char* value, const char* shown_as, T& out, ErrorText& error) noexcept {
  const int i = index_of(names, value, strlen(value));
  if (i >= 0) {
    out = static_cast<T>(i);
    return true;
  }
  Alternatives allowed;
  return refuse(error, "%s: '%s' is not allowed: %s", shown_as, value, alternatives(names, allowed));
}

bool parse_size(const char* value, uint64_t least, uint64_t& out) noexcept {
  if (*value < '0' || *value > '9') return false;
  char* end = nullptr;
  const uint64_t number = strtoull(value, &end, 10);
  int shift = 0;
  switch (*end) {
    case 'K':
    case 'k':
      shift = 10;
      break;
    case 'M':
    case 'm':
      shift = 20;
      break;
    case 'G':
    case 'g':
      shift = 30;
      break;
    case 'T':
    case 't':
      shift = 40;
      break;
    default:
      break;
  }
  if (shift) ++end;
  if (*end == 'i' && shift) ++end;
  if (*end == 'B' && shift) ++end;
  if (*end || number > (uint64_t{1} << 50) >> shift) return false;
  out = number << shift;
  return out >= least;
}

// A number with K or M (thousands, millions).
bool parse_count(const char* value, uint64_t& out) noexcept {
  if (*value < '0' || *value > '9') return false;
  char* end = nullptr;
  const uint64_t number = strtoull(value, &end, 10);
  uint64_t unit = 1;
  if (*end == 'K' || *end == 'k') unit = 1000;
  if (*end == 'M' || *end == 'm') unit = 1'000'000;
  if (unit != 1) ++end;
  constexpr uint64_t kLeast = 1000, kMost = 1'000'000'000'000;
  if (*end || number > kMost / unit || number * unit < kLeast) return false;
  out = number * unit;
  return true;
}

bool parse_percent(const char* value, double& out) noexcept {
  if (*value < '0' || *value > '9') return false;
  char* end = nullptr;
  const double number = strtod(value, &end);
  if (*end == '%') ++end;
  if (*end || !(number >= 0.01 && number <= 100)) return false;
  out = number;
  return true;
}

bool check_formats(const char* value, const char* shown_as, ErrorText& error) noexcept {
  Alternatives allowed;
  for (const char* p = value;;) {
    const size_t n = strcspn(p, ",");
    if (index_of(kFormats, p, n) < 0)
      return refuse(error, "%s: '%.*s' is not a format of this version: %s", shown_as, static_cast<int>(n), p,
                    alternatives(kFormats, allowed));
    if (!p[n]) return true;
    p += n + 1;
  }
}

template <size_t N>
bool copy(char (&out)[N], const char* value, const char* shown_as, ErrorText& error) noexcept {
  if (strlen(value) >= N) return refuse(error, "%s: longer than %zu bytes", shown_as, N - 1);
  strcpy(out, value);
  return true;
}

size_t index_of(const Setting& setting) noexcept { return static_cast<size_t>(&setting - kSettings); }

bool* switch_of(Config& config, size_t index) noexcept {
  switch (index) {
    case kOps:
      return &config.ops;
    case kShapes:
      return &config.shapes;
    case kNative:
      return &config.native;
    case kFlops:
      return &config.flops;
    case kQuiet:
      return &config.quiet;
    case kDiscard:
      return &config.discard;
    case kKeepSpool:
      return &config.keep_spool;
    default:
      return nullptr;
  }
}

// "NAME=VALUE"; one that is not ours says nothing.
bool assign_variable(Config& config, const char* entry, ErrorText& error) noexcept {
  if (strncmp(entry, "TORCHPROF_", 10) != 0) return true;
  const char* equals = strchr(entry, '=');
  if (!equals) return true;
  const auto length = static_cast<size_t>(equals - entry);
  const Setting* found = nullptr;
  for (const Setting& setting : kSettings)
    if (strlen(setting.variable) == length && strncmp(setting.variable, entry, length) == 0) found = &setting;
  const auto is_named = [&](const char* name) { return length == strlen(name) && strncmp(entry, name, length) == 0; };
  if (!found && !is_named("TORCHPROF_DISABLE") && !is_named(kLaunched) && !is_named(kAttached))
    return refuse(error, "%.*s: no such variable; `torchprof help run` lists them", static_cast<int>(length), entry);
  if (!found || !equals[1] || assign(config, *found, equals + 1, found->variable, error)) return true;
  if (found == &kSettings[kWindow]) strcpy(config.window, "manual");  // for who goes on
  return false;
}

}  // namespace

bool refuse(ErrorText& error, const char* format, ...) noexcept {
  va_list args;
  va_start(args, format);
  vsnprintf(error.text, sizeof(error.text), format, args);
  va_end(args);
  return false;
}

uint64_t run_size_limit(const Config& config) noexcept {
  if (config.max_run_size != kRunSizeOfWindow) return config.max_run_size;
  return strcmp(config.window, "auto") == 0 && config.keep == Keep::kFirst ? kAutoRunSize : 0;
}

uint32_t sample_rate(const Config& config) noexcept {
  if (config.sample != kSampleOfWindow) return config.sample;
  return strcmp(config.window, "auto") == 0 || strcmp(config.window, "all") == 0 ? kUsualSampleHz : 0;
}

std::span<const Setting> settings() noexcept { return kSettings; }

bool assign(Config& config, const Setting& setting, const char* value, const char* shown_as,
            ErrorText& error) noexcept {
  const size_t index = index_of(setting);
  switch (index) {
    case kOutput:
      if (!*value) return refuse(error, "%s: the run directory needs a name", shown_as);
      return copy(config.output, value, shown_as, error);
    case kWindow: {
      WindowSpec spec;
      char allowed[256];
      if (!parse_window(value, spec, allowed, sizeof(allowed)))
        return refuse(error, "%s: '%s' is not a window: %s", shown_as, value, allowed);
      return copy(config.window, value, shown_as, error);
    }
    case kPython:
      return choose(kPythonLevels, value, shown_as, config.python, error);
    case kImports:
      return choose(kImportsShown, value, shown_as, config.imports, error);
    case kGpu:
      return choose(kGpuModes, value, shown_as, config.gpu, error);
    case kNvtx:
      return choose(kNvtxModes, value, shown_as, config.nvtx, error);
    case kMemory:
      return choose(kMemoryModes, value, shown_as, config.memory, error);
    case kKeep:
      return choose(kKeeps, value, shown_as, config.keep, error);
    case kNativeFrames:
      return choose(kNativeFramesShown, value, shown_as, config.all_native_frames, error);
    case kMaxSize:
    case kMaxRunSize: {
      const bool of_run = index == kMaxRunSize;
      uint64_t size = 0;
      if (of_run && strcmp(value, "auto") == 0)
        size = kRunSizeOfWindow;
      else if (!(of_run && strcmp(value, "none") == 0) && !parse_size(value, kMinMaxSize, size))
        return refuse(error, "%s: '%s' is not a size: a whole number with K, M, G or T, from 1M%s", shown_as, value,
                      of_run ? ", none or auto" : "");
      (of_run ? config.max_run_size : config.max_size) = size;
      return true;
    }
    case kBudgetEvents:
      if (!parse_count(value, config.budget_events))
        return refuse(error, "%s: '%s' is not a number of events: 1000 or more, also with K or M", shown_as, value);
      return true;
    case kBudgetOverhead:
      if (!parse_percent(value, config.budget_overhead))
        return refuse(error, "%s: '%s' is not a percentage from 0.01 to 100", shown_as, value);
      return true;
    case kSample: {
      uint64_t hz = 0;
      if (strcmp(value, "auto") == 0)
        hz = kSampleOfWindow;
      else if (strcmp(value, "off") != 0 && (!parse_size(value, 0, hz) || hz > kMostSampleHz))
        return refuse(error, "%s: '%s' is not a number of looks in a second: 1 to %u, off or auto", shown_as, value,
                      kMostSampleHz);
      config.sample = static_cast<uint32_t>(hz);
      return true;
    }
    case kNativeThreshold:
      if (!parse_size(value, 0, config.native_threshold))
        return refuse(error, "%s: '%s' is not a size: a whole number, also with K, M, G or T", shown_as, value);
      return true;
    case kFormat:
      return check_formats(value, shown_as, error) && copy(config.format, value, shown_as, error);
    default:
      break;
  }
  bool& target = *switch_of(config, index);
  if (setting.is_flag) {
    if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0)
      return refuse(error, "%s: '%s' is not allowed: 0 or 1", shown_as, value);
    target = *value == '1';
    return true;
  }
  return choose(kOnOff, value, shown_as, target, error);
}

void value_of(const Config& config, const Setting& setting, char* out, size_t size) noexcept {
  const size_t index = index_of(setting);
  switch (index) {
    case kOutput:
      snprintf(out, size, "%s", config.output);
      return;
    case kWindow:
      snprintf(out, size, "%s", config.window);
      return;
    case kFormat:
      snprintf(out, size, "%s", config.format);
      return;
    case kPython:
      snprintf(out, size, "%s", kPythonLevels[static_cast<int>(config.python)]);
      return;
    case kImports:
      snprintf(out, size, "%s", kImportsShown[static_cast<int>(config.imports)]);
      return;
    case kGpu:
      snprintf(out, size, "%s", kGpuModes[static_cast<int>(config.gpu)]);
      return;
    case kNvtx:
      snprintf(out, size, "%s", kNvtxModes[static_cast<int>(config.nvtx)]);
      return;
    case kMemory:
      snprintf(out, size, "%s", kMemoryModes[static_cast<int>(config.memory)]);
      return;
    case kKeep:
      snprintf(out, size, "%s", kKeeps[static_cast<int>(config.keep)]);
      return;
    case kNativeFrames:
      snprintf(out, size, "%s", kNativeFramesShown[config.all_native_frames ? 1 : 0]);
      return;
    case kMaxSize:
      snprintf(out, size, "%llu", static_cast<unsigned long long>(config.max_size));
      return;
    case kBudgetEvents:
      snprintf(out, size, "%llu", static_cast<unsigned long long>(config.budget_events));
      return;
    case kBudgetOverhead:
      snprintf(out, size, "%g", config.budget_overhead);
      return;
    case kSample:
      if (config.sample == kSampleOfWindow || config.sample == 0)
        snprintf(out, size, "%s", config.sample == 0 ? "off" : "auto");
      else
        snprintf(out, size, "%u", config.sample);
      return;
    case kNativeThreshold:
      snprintf(out, size, "%llu", static_cast<unsigned long long>(config.native_threshold));
      return;
    case kMaxRunSize:
      if (config.max_run_size == 0 || config.max_run_size == kRunSizeOfWindow)
        snprintf(out, size, config.max_run_size == 0 ? "none" : "auto");
      else
        snprintf(out, size, "%llu", static_cast<unsigned long long>(config.max_run_size));
      return;
    default:
      break;
  }
  const bool on = *switch_of(const_cast<Config&>(config), index);
  snprintf(out, size, "%s", setting.is_flag ? (on ? "1" : "0") : (on ? "on" : "off"));
}

bool from_environment(Config& config, ErrorText& error, ErrorText* unknown) noexcept {
  for (char** entry = environ; entry && *entry; ++entry)
    if (!assign_variable(config, *entry, unknown ? *unknown : error) && !unknown) return false;
  return true;
}

bool from_text(Config& config, const char* text, ErrorText& error) noexcept {
  char line[PATH_MAX + 64];
  for (size_t length = 0; *text; text += length + (text[length] == '\n')) {
    length = strcspn(text, "\n");
    if (length >= sizeof(line)) return refuse(error, "a setting is longer than %zu bytes", sizeof(line));
    memcpy(line, text, length);
    line[length] = 0;
    if (!assign_variable(config, line, error)) return false;
  }
  return true;
}

bool disabled_by_environment() noexcept {
  const char* value = getenv("TORCHPROF_DISABLE");
  return value && *value && strcmp(value, "0") != 0;
}

bool wanted_by_environment() noexcept {
  const char* value = getenv(kSettings[kOutput].variable);
  return value && *value && !disabled_by_environment();
}

const char* environment_output() noexcept {
  const char* value = getenv(kSettings[kOutput].variable);
  return value ? value : "";
}

void set_environment_output(const char* pattern) noexcept { setenv(kSettings[kOutput].variable, pattern, 1); }

bool ask_cuda_to_call(const char* library) noexcept {
  constexpr char kVariable[] = "CUDA_INJECTION64_PATH";
  const char* value = getenv(kVariable);
  if (value && *value) return strcmp(value, library) == 0;
  return setenv(kVariable, library, 1) == 0;
}

const char* nvtx_injection() noexcept {
  const char* value = getenv(kNvtxInjection);
  return value && *value ? value : nullptr;
}

const char* number_variable(const char* name) noexcept {
  const char* value = getenv(name);
  if (!value) return nullptr;
  const size_t digits = strspn(value, "0123456789");
  return digits > 0 && digits < 10 && value[digits] == 0 ? value : nullptr;
}

}  // namespace torchprof
