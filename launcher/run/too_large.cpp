#include "launcher/run/too_large.h"

#include <algorithm>

#include "formats/io/text.h"
#include "formats/write/size_estimate.h"

namespace torchprof::launcher {
namespace {

// A browser reads JSON into one string, and a string of V8 holds 2^29 - 24 characters (v8 src/objects/string.h,
// kMaxLength on 64 bits). Perfetto reads JSON piece by piece into the memory of WebAssembly, of some GB, in many times
// the size of its own format.
constexpr uint64_t kMostEstimated = 500'000'000;  // the estimate may be wrong by more than what is left to 512 MiB

bool is_json_trace(const formats::Format* format) {
  return format->name == "kineto" || format->name == "json-stream" || format->name == "kineto-ranks";
}

// The size of the format's largest file.
uint64_t largest(const formats::Trace& trace, const formats::Format& format) {
  uint64_t most = 0;
  for (const formats::PlannedFile& file : formats::files_of(format, trace.processes)) {
    const formats::Processes in_it = formats::Processes(trace.processes).subspan(file.first, file.count);
    most = std::max(most, formats::json_size_estimate(in_it));
  }
  return most;
}

}  // namespace

std::string too_large_line(const formats::Trace& trace, const std::vector<const formats::Format*>& formats,
                           const std::filesystem::path& run) {
  uint64_t bytes = 0;
  for (const formats::Format* format : formats)
    if (is_json_trace(format)) bytes = std::max(bytes, largest(trace, *format));
  if (bytes <= kMostEstimated) return {};
  return "the trace will be about " + formats::bytes_text(bytes) +
         " unpacked; chrome://tracing opens at most 512 MiB. For a part: `torchprof export " + run.string() +
         " --steps A..B -f kineto -o part.json.gz` (or --time 1s..2s); for all, a fifth of the size: -f perfetto -o "
         "all.perfetto-trace";
}

}  // namespace torchprof::launcher
