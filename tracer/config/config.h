// What is captured and where it goes: TORCHPROF_* <-> Config, both ways, from one list.
//
// This room is the only place that reads the environment. Used by the library in somebody else's process (so: no
// exceptions, no allocation, no static constructors) and by the launcher, whose options are made from the same list.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <span>

namespace torchprof {

enum class PythonLevel : uint8_t { kOff, kModules, kFunctions, kCalls };
enum class Imports : uint8_t { kBrief, kFull };
enum class GpuMode : uint8_t { kOff, kKernels, kOn, kFull };
enum class NvtxMode : uint8_t { kOff, kOn, kEmit };
enum class Keep : uint8_t { kFirst, kLast };
enum class MemoryMode : uint8_t { kOff, kOn, kPython };

// max_run_size: kAutoRunSize with -w auto, otherwise no limit.
inline constexpr uint64_t kRunSizeOfWindow = ~uint64_t{0};
inline constexpr uint64_t kAutoRunSize = uint64_t{1} << 30;
// sample: kUsualSampleHz with -w auto and -w all, otherwise none.
inline constexpr uint32_t kSampleOfWindow = ~uint32_t{0}, kUsualSampleHz = 50;

struct Config {
  char output[PATH_MAX] = "torchprof-%t-%p";  // the run directory, placeholders not expanded
  char window[256] = "auto";
  char format[256] = "kineto,table";
  PythonLevel python = PythonLevel::kFunctions;
  Imports imports = Imports::kBrief;
  NvtxMode nvtx = NvtxMode::kOn;
  Keep keep = Keep::kFirst;
  bool ops = true;
  bool shapes = true;
  MemoryMode memory = MemoryMode::kOn;
  GpuMode gpu = GpuMode::kOn;
  bool native = false;
  bool all_native_frames = false;  // in what the launcher writes; false: folded
  bool flops = true;
  bool quiet = false;
  bool discard = false;                           // the raw records, when everything has been written
  bool keep_spool = false;                        // said explicitly, it overrides `discard`
  uint64_t max_size = uint64_t{4} << 30;          // bytes of spool per process, at least kMinMaxSize
  uint64_t native_threshold = uint64_t{1} << 20;  // bytes from which an allocation has a native stack
  uint64_t max_run_size = kRunSizeOfWindow;       // bytes of spool of all processes together; 0: no limit
  uint64_t budget_events = 1'000'000;             // -w auto: per process
  double budget_overhead = 2;                     // -w auto: percent of the run after its beginning
  uint32_t sample = kSampleOfWindow;              // looks at the other threads' stacks in a second; 0: none
};
// In bytes; 0: none.
uint64_t run_size_limit(const Config& config) noexcept;
// Looks in a second; 0: none.
uint32_t sample_rate(const Config& config) noexcept;
inline constexpr uint64_t kMinMaxSize = uint64_t{1} << 20;
inline constexpr uint32_t kMostSampleHz = 10'000;

// One line for people; empty: no error.
struct ErrorText {
  char text[512] = "";
};
// Writes the line, cut where it is too long. Always false, for who returns it.
__attribute__((format(printf, 2, 3))) bool refuse(ErrorText& error, const char* format, ...) noexcept;

// One row of the list: an option of `run` and its variable.
struct Setting {
  const char* variable;  // "TORCHPROF_PYTHON"
  const char* option;    // "--python"
  char short_option;     // 'o', or 0
  bool is_flag;          // the option takes no value; the variable is 1 or 0
  const char* value;     // what the option takes, for help: "off|modules|functions|calls"
  const char* meaning;
};

std::span<const Setting> settings() noexcept;

// Sets one value. False leaves the config as it was and fills `error` with a line that names `shown_as` (the option or
// the variable), the value and what is allowed.
bool assign(Config& config, const Setting& setting, const char* value, const char* shown_as, ErrorText& error) noexcept;

// The value as `assign` takes it, NUL-terminated, cut to `size`.
void value_of(const Config& config, const Setting& setting, char* out, size_t size) noexcept;

// Fills the config from TORCHPROF_*; a variable that is unset or empty leaves the default. False at the first bad
// value. A variable TORCHPROF_xyz that is not in the list counts as a bad value, so that a typing error is noticed.
//
// `unknown`, where it is given: what this version does not know is passed over, and the last of it named there. For
// images of different ages, in which one environment arms libraries of different versions. A window that is not known
// is `manual`: nothing is recorded that nobody asks for.
bool from_environment(Config& config, ErrorText& error, ErrorText* unknown = nullptr) noexcept;

// The same from lines "TORCHPROF_xyz=VALUE\n", for a process whose environment says nothing of us.
bool from_text(Config& config, const char* text, ErrorText& error) noexcept;

// TORCHPROF_DISABLE=1 (anything but empty and 0): the preloaded library does nothing at all.
bool disabled_by_environment() noexcept;
// TORCHPROF_OUTPUT is set: this process is to be traced. Microseconds; called in every process.
bool wanted_by_environment() noexcept;
// Its value, as it is; empty where it is unset. Another one, for this process and those that it starts.
const char* environment_output() noexcept;
void set_environment_output(const char* pattern) noexcept;

// Makes the CUDA driver load `library` and call its InitializeInjection() when CUDA is initialised. False: the
// environment names another library already.
bool ask_cuda_to_call(const char* library) noexcept;
// The library that NVTX loads as its tool; nullptr: none.
inline constexpr const char* kNvtxInjection = "NVTX_INJECTION64_PATH";
const char* nvtx_injection() noexcept;
// Makes NVTX load `library` in a program that runs, whose threads may be reading its environment: what they read stays
// where it is. It goes again, unless the program has set another value since. With the GIL held. False: one is set.
bool offer_nvtx(const char* library) noexcept;
void withdraw_nvtx() noexcept;

// The value of a variable; nullptr: it is unset, or not a number of at most nine digits.
const char* number_variable(const char* name) noexcept;

}  // namespace torchprof
