#include "formats/timeline/timeline.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "formats/trace/names.h"

namespace torchprof::formats {
namespace {

// Returns the number of spans that it has left out.
size_t sort_row(std::vector<TimelineSpan>& spans, std::vector<uint32_t>& open) {
  // Spans of a replay come in the order of their ends: of equal ones the outer one comes later.
  std::ranges::reverse(spans);
  std::ranges::stable_sort(spans, {}, [](const TimelineSpan& s) { return std::pair(s.begin, -s.end); });
  open.clear();
  uint32_t kept = 0;
  for (const TimelineSpan& span : spans) {
    while (!open.empty() && spans[open.back()].end <= span.begin && spans[open.back()].end < span.end) open.pop_back();
    if (open.size() == kDeepestSpan) continue;
    spans[kept] = span;
    spans[kept].parent = open.empty() ? kNoSpan : open.back();
    // Those of a run nest. In files of others the clocks of what is inside are a little off.
    if (!open.empty()) spans[kept].end = std::min(span.end, std::max(span.begin, spans[open.back()].end));
    open.push_back(kept++);
  }
  const size_t left_out = spans.size() - kept;
  spans.erase(spans.begin() + kept, spans.end());
  return left_out;
}

// Equal for inputs with the same types and sizes of their tensors.
std::string shape_key(const std::vector<Input>& inputs) {
  std::string key;
  const auto add = [&key](uint64_t number) {
    key.append(reinterpret_cast<const char*>(&number), sizeof number);  // NOLINT(*-reinterpret-cast)
  };
  for (const Input& input : inputs) {
    add(static_cast<uint64_t>(input.kind));
    add(input.tensors.size());
    for (const Tensor& tensor : input.tensors) {
      add(uint64_t{tensor.is_readable} << 8 | tensor.type);
      add(tensor.sizes.size());
      for (const int64_t size : tensor.sizes) add(static_cast<uint64_t>(size));
    }
  }
  return key;
}

}  // namespace

uint32_t Timeline::name(std::string_view text) {
  const auto known = by_text_.find(text);
  if (known != by_text_.end()) return known->second;
  texts_.emplace_back(text);
  roles_.push_back(role_of_name(text));
  const auto id = static_cast<uint32_t>(texts_.size() - 1);
  by_text_.emplace(texts_.back(), id);
  return id;
}

uint32_t Timeline::add_inputs(std::vector<Input> inputs) {
  std::string shape;
  if (inputs_.size() > kMostExactInputs) {
    shape = shape_key(inputs);
    if (const auto known = by_shape_.find(shape); known != by_shape_.end()) return known->second;
    for (Input& input : inputs) input = {.kind = input.kind, .tensors = std::move(input.tensors)};
  }
  if (inputs_.size() > kMostInputs) return 0;
  for (Input& input : inputs) {
    if (input.tensors.size() > kMostListed) {
      input.left_out += input.tensors.size() - kMostListed;
      input.tensors.resize(kMostListed);
    }
    input.integers.resize(std::min(input.integers.size(), kMostListed));
    input.tensors.shrink_to_fit();
  }
  const auto number = static_cast<uint32_t>(inputs_.size());
  inputs_.push_back(std::move(inputs));
  if (!shape.empty()) by_shape_.emplace(std::move(shape), number);
  return number;
}

std::string_view Timeline::file_of(std::string_view name) const {
  const auto known = by_text_.find(name);
  const auto file = known == by_text_.end() ? files_.end() : files_.find(known->second);
  return file == files_.end() ? std::string_view{} : std::string_view(file->second);
}

std::map<std::string_view, std::string_view> Timeline::program_files() const {
  std::map<std::string_view, std::string_view> found;
  for (const auto& [name, file] : files_)
    if (is_program(name)) found.try_emplace(file, text(name));
  return found;
}

void Timeline::set_program(uint32_t name, bool is_program) {
  if (name >= is_program_.size()) is_program_.resize(names());
  is_program_[name] = is_program ? 1 : -1;
}

bool Timeline::is_program(uint32_t name) const {
  if (name >= is_program_.size()) is_program_.resize(names());
  int8_t& known = is_program_[name];
  if (known == 0) known = is_program_text(text(name)) ? 1 : -1;
  return known > 0;
}

bool Timeline::is_installed(uint32_t name) const {
  return installed_.contains(name) || text(name).find("-packages/") != std::string_view::npos;
}

std::string_view Timeline::qualname(uint32_t name) const {
  const auto known = qualnames_.find(name);
  return known == qualnames_.end() ? std::string_view{} : std::string_view(known->second);
}

std::string_view Timeline::place_of(uint32_t row, uint32_t index) const {
  uint32_t of_torch = 0, module = 0;
  const std::vector<TimelineSpan>& spans = rows[row].spans;
  for (; index != kNoSpan; index = spans[index].parent) {
    const TimelineSpan& s = spans[index];
    if (s.place != 0) return text(s.place);
    if (s.kind == SpanKind::kPython) {
      if (is_program(s.name)) return text(s.name);
      if (of_torch == 0) of_torch = s.name;
    }
    if (s.kind == SpanKind::kModule && module == 0) module = s.name;
  }
  return text(of_torch != 0 ? of_torch : module);
}

void Timeline::finish() {
  std::vector<uint32_t> open;
  for (TimelineRow& row : rows) too_deep += sort_row(row.spans, open);
  std::ranges::sort(work, {}, [](const TimelineWork& w) { return std::tuple(w.begin, w.device, w.stream); });
  std::ranges::sort(waits, {}, [](const TimelineWait& w) { return std::tuple(w.begin, w.device, w.stream); });
  std::ranges::sort(large_frees, {}, &TimelineFree::time);
  link_calls();
}

void Timeline::link_calls() {
  std::unordered_map<uint32_t, std::pair<uint32_t, uint32_t>> calls;
  for (uint32_t r = 0; r < rows.size(); ++r)
    for (uint32_t i = 0; i < rows[r].spans.size(); ++i)
      if (rows[r].spans[i].correlation != 0) calls.try_emplace(rows[r].spans[i].correlation, r, i);
  for (TimelineWork& w : work)
    if (const auto call = calls.find(w.correlation); w.correlation != 0 && call != calls.end())
      std::tie(w.row, w.call) = call->second;
}

std::vector<StepSpan> chosen_steps(std::span<const StepSpan> steps, uint64_t spans) {
  if (steps.size() > 1) steps = steps.subspan(1);
  const uint64_t stride = spans / kMostSpans + 1;
  std::vector<StepSpan> chosen;
  for (size_t i = 0; i < steps.size(); i += stride) chosen.push_back(steps[i]);
  // From a file they may come in any order and overlap.
  std::ranges::sort(chosen, {}, [](const StepSpan& s) { return std::pair(s.begin, s.end); });
  int64_t end = INT64_MIN;
  std::erase_if(chosen, [&end](const StepSpan& s) {
    if (s.begin < end || s.end <= s.begin) return true;
    end = s.end;
    return false;
  });
  return chosen;
}

}  // namespace torchprof::formats
