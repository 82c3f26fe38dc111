#include "formats/analysis/op_groups.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <functional>
#include <utility>

#include "formats/io/pair_key.h"
#include "formats/io/sum.h"
#include "formats/memory/memory.h"
#include "formats/replay/process_label.h"
#include "formats/replay/thread_stack.h"
#include "formats/values/inputs.h"

namespace torchprof::formats {
namespace {

using By = OpGrouping::By;

struct Grouping {
  std::string_view name, column;
  By by;
};
constexpr Grouping kGroupings[] = {{"shape", "input_shapes", By::kShape},   {"stack", "stack", By::kStack},
                                   {"module", "module", By::kModule},       {"thread", "thread", By::kThread},
                                   {"overload", "overload", By::kOverload}, {"line", "line", By::kLine}};

constexpr uint32_t kNativeText = uint32_t{1} << 31;  // bit of a frame: it is a NativeStacks text, not a name

}  // namespace

std::string_view OpGrouping::column() const {
  for (const Grouping& grouping : kGroupings)
    if (grouping.by == by) return grouping.column;
  return {};
}

bool parse_grouping(std::string_view text, OpGrouping& out) {
  const size_t colon = std::min(text.find(':'), text.size());
  for (const Grouping& grouping : kGroupings) {
    if (grouping.name != text.substr(0, colon)) continue;
    out.by = grouping.by;
    if (out.by != By::kStack) return colon == text.size();
    const std::string_view depth = text.substr(std::min(colon + 1, text.size()));
    const auto [end, error] = std::from_chars(depth.data(), depth.data() + depth.size(), out.depth);
    return error == std::errc{} && end == depth.data() + depth.size() && out.depth > 0;
  }
  return false;
}

void merge(OpGroups& into, const OpGroups& from) {
  for (const auto& [key, group] : from) {
    const auto [it, is_new] = into.try_emplace(key, group);
    if (is_new) continue;
    it->second.tally += group.tally;
    if (group.source_calls <= it->second.source_calls) continue;
    it->second.source = group.source;
    it->second.source_calls = group.source_calls;
  }
}

OpGroupCollector::OpGroupCollector(const Process& process, Replay& replay, const OpGrouping& grouping)
    : process_(process),
      replay_(replay),
      grouping_(grouping),
      native_(process.native.get()),
      lines_(process, replay.names()),
      texts_(kOthers + 1) {}

OpGroupCollector::Call OpGroupCollector::call_of(const ThreadStack& stack, uint32_t row, int32_t i) {
  const Span& span = stack[i];
  return {span.name,   span.scope, span.inputs, span.recorded, span.module, row, &stack[0], static_cast<uint32_t>(i),
          span.native, span.line};
}

// Most programs have few shapes and few callers. This limit is for those that do not.
uint32_t OpGroupCollector::intern(const std::string& text) {
  constexpr size_t kMostTexts = 50'000;
  const auto known = texts_ids_.find(text);
  if (known != texts_ids_.end()) return known->second;
  if (texts_.size() > kMostTexts) return kOthers;
  texts_.push_back(text);
  return texts_ids_.emplace(text, static_cast<uint32_t>(texts_.size() - 1)).first->second;
}

uint32_t OpGroupCollector::shape_of(StringId inputs) {
  if (inputs.value >= shapes_.size()) shapes_.resize(std::max<size_t>(inputs.value + 1, shapes_.size() * 2));
  uint32_t& known = shapes_[inputs.value];
  if (known == 0) known = intern(inputs ? dims_json(process_.string(inputs)) : std::string());
  return known;
}

// The name ids of the functions and the numbers of the native frames' texts, innermost first.
uint32_t OpGroupCollector::stack_of(const Call& call) {
  scratch_.clear();
  uint32_t left = grouping_.depth;
  const auto add = [&](uint32_t number) {
    if (left == 0) return;
    --left;
    scratch_.append(reinterpret_cast<const char*>(&number), sizeof(number));
  };
  const auto add_native = [&](uint32_t depth, OpScope scope, NativeFrameId innermost) {
    const std::span<const uint32_t> places = native_.places({call.around, depth}, scope, innermost);
    for (auto place = places.rbegin(); place != places.rend() && left > 0; ++place)
      for (const uint32_t text : process_.native->where(*place).texts) add(kNativeText | text);
  };
  add_native(call.depth, call.scope, call.native);
  for (uint32_t i = call.depth; i-- > 0 && left > 0;) {
    const Span& span = call.around[i];
    if (span.kind == SliceKind::kPython) add(span.name.value);
    if (span.is_op()) add_native(i, span.scope, span.native);
  }
  return intern(scratch_);
}

std::string OpGroupCollector::stack_text(std::string_view numbers) {
  std::string text;
  for (; numbers.size() >= sizeof(uint32_t); numbers.remove_prefix(sizeof(uint32_t))) {
    uint32_t number;
    std::memcpy(&number, numbers.data(), sizeof(uint32_t));
    text.append(text.empty() ? "" : "; ");
    if ((number & kNativeText) != 0)
      text.append(process_.native->texts()[number & ~kNativeText]);
    else
      text.append(replay_.names().text({number}));
  }
  return text;
}

// The id by which groups of one name differ: one of the process, or of intern().
uint32_t OpGroupCollector::detail_of(const Call& call) {
  switch (grouping_.by) {
    case By::kShape:
      return shape_of(call.inputs);
    case By::kStack:
      return stack_of(call);
    case By::kModule:
      return call.module.value;
    case By::kThread:
      return call.row;
    case By::kOverload:
      return call.recorded.value;
    case By::kLine:
      if (!call.native && call.line) return call.line.value;
      return lines_.line_of(call.native, {call.around, call.depth}).value;
    case By::kName:
      break;
  }
  return 0;
}

std::string OpGroupCollector::detail_text(uint32_t detail) {
  switch (grouping_.by) {
    case By::kShape:
      return detail == kOthers ? "(others)" : texts_[detail];
    case By::kStack:
      return detail == kOthers ? "(others)" : stack_text(texts_[detail]);
    case By::kModule:
      return module_of({detail});
    case By::kThread:
      return thread_label(replay_.rows()[detail]);
    case By::kOverload:
      return std::string(split_operator_name(process_.string({detail})).overload);
    case By::kLine:
      return detail == 0 ? std::string() : std::string(replay_.names().text({detail}));
    case By::kName:
      break;
  }
  return {};
}

std::string OpGroupCollector::module_of(ObjectId module) {
  if (!module || replay_.names().object(module) == nullptr) return {};
  return module_text(replay_.names().text(replay_.names().function({}, module)), process_.path(module));
}

Tally* OpGroupCollector::tally_of(const Call& call) {
  if (grouping_.top_level) {
    if (is_annotation(call.scope) || std::any_of(call.around, call.around + call.depth, std::mem_fn(&Span::is_real_op)))
      return nullptr;
  }
  const uint32_t detail = detail_of(call);
  const auto [it, is_new] =
      by_key_.try_emplace(pair_key(call.name.value, detail), static_cast<uint32_t>(groups_.size()));
  if (is_new) groups_.push_back({call.name, detail, {}});
  return &groups_[it->second].tally;
}

void OpGroupCollector::slice(const Slice& s, uint64_t flops) {
  const Call call{s.name, s.scope, s.inputs, s.recorded, s.module, s.row, s.around, s.depth, s.native, s.line};
  Tally* tally = tally_of(call);
  if (tally == nullptr) return;
  tally->add_call(s.self_ns - s.calls_ns, s.outermost ? s.end - s.begin : 0);
  tally->flops += flops;
  if (grouping_.has_source) count_source(by_key_.at(pair_key(call.name.value, detail_of(call))), call);
}

void OpGroupCollector::count_source(uint32_t group, const Call& call) {
  for (uint32_t i = call.depth; i-- > 0;) {
    const Span& span = call.around[i];
    if (span.kind != SliceKind::kPython || span.object) continue;  // a module's call has no line of its own
    ++sources_[pair_key(group, span.name.value)];
    return;
  }
}

void OpGroupCollector::memory(const MemoryEvent& e) {
  if (e.is_out_of_memory) return;
  const ThreadStack& stack = *e.stack;
  const bool is_cpu = e.device_type == 0;
  for (int32_t i = stack.innermost_op(); i >= 0; i = stack.op_around(i)) {
    const bool is_innermost = i == stack.innermost_op();
    if (!is_innermost && !stack[i].outermost) continue;
    Tally* tally = tally_of(call_of(stack, e.row, i));
    if (tally == nullptr) continue;
    if (is_innermost) tally->add_self_bytes(e.bytes, is_cpu);
    if (stack[i].outermost) tally->add_total_bytes(e.bytes, is_cpu);
  }
}

void OpGroupCollector::gpu(const ThreadStack& stack, uint32_t row, int32_t op, int64_t ns) {
  if (op >= 0)
    if (Tally* tally = tally_of(call_of(stack, row, op))) add_to(tally->gpu_self_ns, ns);
  for (int32_t i = stack.innermost_op(); i >= 0; i = stack.op_around(i)) {
    if (!stack[i].outermost) continue;
    if (Tally* tally = tally_of(call_of(stack, row, i))) add_to(tally->gpu_total_ns, ns);
  }
}

OpGroups OpGroupCollector::finish() {
  std::vector<std::pair<uint64_t, uint32_t>> source(groups_.size());  // number of calls, and the function
  for (const auto& [key, calls] : sources_) {
    auto& best = source[first_of(key)];
    // Of two with as many calls the one with the smaller id, so that each replay gives the same.
    const uint32_t function = second_of(key);
    if (calls > best.first || (calls == best.first && function < best.second)) best = {calls, function};
  }
  OpGroups result;
  for (size_t i = 0; i < groups_.size(); ++i) {
    const Group& group = groups_[i];
    const std::string_view text = replay_.names().text(group.name);
    OpGroup one{
        .name = replay_.names().role(group.name) == NameRole::kProfilerStep ? "ProfilerStep*" : std::string(text),
        .detail = detail_text(group.detail),
        .source = {},
        .source_calls = source[i].first,
        .tally = group.tally};
    if (one.source_calls != 0) one.source = replay_.names().text({source[i].second});
    std::string key = one.name + '\0' + one.detail;
    merge(result, {{std::move(key), std::move(one)}});
  }
  return result;
}

}  // namespace torchprof::formats
