#include "formats/replay/range_helpers.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace torchprof::formats {
namespace {

// Source: torch 1.13 to 2.15 (torch/cuda/nvtx.py: range_push, range_start; torch/profiler/profiler.py: start, step),
// and nvtx 0.2 from PyPI (nvtx/nvtx.py: push_range, start_range).
constexpr std::array<std::string_view, 5> kHelperFiles = {"torch/profiler/profiler.py", "torch/autograd/profiler.py",
                                                          "torch/cuda/nvtx.py", "torch/profiler/itt.py",
                                                          "nvtx/nvtx.py"};
constexpr std::array<std::string_view, 4> kContextMethods = {"__enter__", "__exit__", "__aenter__", "__aexit__"};

bool is_begin(Kind kind) {
  return kind == Kind::PythonBegin || kind == Kind::PythonFrame || kind == Kind::CCallBegin ||
         kind == Kind::CCallBeginAt || kind == Kind::GcBegin;
}

bool is_gap(Kind kind) { return kind == Kind::PythonSync || kind == Kind::Restate || kind == Kind::ThreadEnd; }

}  // namespace

bool is_range_helper(std::string_view name, std::string_view file) {
  return std::ranges::find(kContextMethods, name) != kContextMethods.end() ||
         std::ranges::any_of(kHelperFiles, [file](std::string_view end) { return file.ends_with(end); });
}

bool RangeHelpers::is_helper(const Span& span) {
  if (span.kind != SliceKind::kPython || span.function.value >= process_.functions.size()) return false;
  if (functions_.size() < process_.functions.size()) functions_.resize(process_.functions.size());
  int8_t& known = functions_[span.function.value];
  if (known == 0) {
    const FunctionDef& def = process_.functions[span.function.value];
    const bool is_one = is_range_helper(process_.string(def.name), process_.string(def.file));
    known = def.kind == FunctionKind::kProfilerStep || is_one ? 1 : -1;
  }
  return known > 0;
}

uint64_t RangeHelpers::find_helper(const ThreadStack& stack, int32_t range, const TrackCursor& at) {
  std::vector<int32_t> open;  // frames and C calls, innermost last, without those below the outermost helper
  int32_t innermost = stack.top_python(), lowest = -1;
  for (int32_t i = innermost; i >= 0; i = stack[i].below_python)
    if (is_helper(stack[i])) lowest = i;
  uint64_t helper = 0;
  if (innermost >= 0 && innermost < range && stack[innermost].kind == SliceKind::kCCall) helper = stack[innermost].id;
  if (lowest < 0) return helper;
  for (int32_t i = innermost; i >= lowest; i = stack[i].below_python) open.push_back(i);
  std::ranges::reverse(open);
  const uint64_t key = stack[range].key;
  TrackCursor ahead = at;
  size_t inside = 0;  // calls that began since
  for (size_t n = 0; n < kMostRecords && !ahead.done() && !open.empty(); ++n, ahead.advance()) {
    const RecordView& record = ahead.record();
    const Kind kind = record.kind();
    if (is_gap(kind) || (kind == Kind::OpEnd && record.as<OpEnd>().key == key) ||
        (kind == Kind::OpEndHere && record.as<OpEndHere>().key == (key & ShortRecord::kMaxValue)))
      return helper;
    if (is_begin(kind)) {
      ++inside;
    } else if (kind == Kind::PythonEnd || kind == Kind::CCallEnd || kind == Kind::GcEnd) {
      if (inside > 0) {
        --inside;
        continue;
      }
      bool is_found = false;
      for (; !open.empty() && !is_found; open.pop_back()) {
        const Span& span = stack[open.back()];
        is_found = kind != Kind::PythonEnd ||
                   (span.kind == SliceKind::kPython && span.function == record.as<PythonEnd>().function);
        if (is_helper(span)) helper = span.id;
      }
    }
  }
  return helper;
}

}  // namespace torchprof::formats
