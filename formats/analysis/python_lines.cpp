#include "formats/analysis/python_lines.h"

#include <algorithm>
#include <utility>

#include "formats/io/sum.h"

namespace torchprof::formats {

bool PythonLines::are_in(const Process& process) {
  return process.native || !process.lines.empty() ||
         std::ranges::any_of(process.call_sites, [](const CallSiteDef& site) { return site.line != 0; });
}

std::span<const NameId> PythonLines::of(NativeFrameId innermost) {
  if (!process_.native || !innermost) return {};
  const auto [it, is_new] = by_frame_.try_emplace(innermost.value);
  std::vector<NameId>& lines = it->second;
  if (is_new)
    process_.native->each_python_line(innermost, [&](FunctionId function, uint32_t line) {
      const NameId place = names_.place(function, line);
      if (std::ranges::find(lines, place) == lines.end()) lines.push_back(place);
    });
  return lines;
}

NameId PythonLines::of(CallSiteId site) {
  if (!site || site.value >= process_.call_sites.size()) return {};
  const CallSiteDef& def = process_.call_sites[site.value];
  return def.line == 0 ? NameId{} : names_.place(def.function, def.line);
}

NameId PythonLines::line_of(NativeFrameId native, std::span<const Span> around) {
  if (const auto own = of(native); !own.empty()) return own.front();
  for (size_t i = around.size(); i-- > 0 && around[i].kind != SliceKind::kPython;) {
    if (const NameId site = of(around[i].site)) return site;
    if (!around[i].is_real_op()) continue;
    if (const auto lines = of(around[i].native); !lines.empty()) return lines.front();
  }
  return {};
}

LineTally& LineTally::operator+=(const LineTally& other) {
  add_to(self_ns, other.self_ns);
  add_to(total_ns, other.total_ns);
  add_to(gpu_ns, other.gpu_ns);
  calls += other.calls;
  return *this;
}

LineTallies& LineTallies::operator+=(const LineTallies& other) {
  for (const auto& [name, tally] : other.lines) lines[name] += tally;
  add_to(unknown_ns, other.unknown_ns);
  return *this;
}

LineTally& LineCollector::tally(NameId line) {
  if (line.value >= tallies_.size()) tallies_.resize(std::max<size_t>(line.value + 1, tallies_.size() * 2));
  return tallies_[line.value];
}

std::span<const NameId> LineCollector::lines_of(const Slice& s) {
  line_ = {};
  if (s.kind == SliceKind::kOperator) {
    if (is_annotation(s.scope)) return {};
    if (const auto lines = lines_.of(s.native); !lines.empty()) return lines;
  }
  if (s.kind == SliceKind::kCCall && !has_lines_) line_ = lines_.of(s.site);
  if (has_lines_ && s.kind != SliceKind::kGc && s.kind != SliceKind::kBlind) line_ = s.line;
  return {&line_, line_ ? size_t{1} : size_t{0}};
}

// Whether another call by the same function of Python is around it; of the program, if lines tell which one that is.
bool LineCollector::is_inside_of_call(std::span<const Span> around) const {
  for (size_t i = around.size(); i-- > 0;) {
    const Span& span = around[i];
    const bool has_line = has_lines_ && span.line;
    if (span.kind == SliceKind::kPython) return has_line && !span.is_function_of_program;
    if (span.is_real_op() || (span.kind == SliceKind::kCCall && (span.site || has_line))) return true;
  }
  return false;
}

// The native stack of the nearest operator includes the lines of the operators around that.
void LineCollector::mark_around(const Slice& s) {
  ++round_;
  const auto mark = [this](NameId line) {
    if (line.value >= marked_.size()) marked_.resize(std::max<size_t>(line.value + 1, marked_.size() * 2));
    marked_[line.value] = round_;
  };
  bool has_operator = false;
  if (has_lines_) {
    for (const Span& span : std::span(s.around, s.depth))
      if (span.line && !(span.is_op() && !span.is_real_op())) mark(span.line);
    return;
  }
  for (uint32_t i = s.depth; i-- > 0;) {
    const Span& span = s.around[i];
    if (const NameId site = lines_.of(span.site)) mark(site);
    if (has_operator || !span.is_real_op()) continue;
    for (const NameId line : lines_.of(span.native)) {
      mark(line);
      has_operator = true;
    }
  }
}

// Takes the time of calls with a line and of Python functions inside the slice, also of those that ended inside a slice
// that has moved since.
int64_t LineCollector::take_inside(const Slice& s) {
  if (s.row >= inside_.size()) inside_.resize(replay_.rows().size());
  std::vector<int64_t>& inside = inside_[s.row];
  if (inside.size() < s.depth + 2) inside.resize(s.depth + 2);
  int64_t sum = 0;
  for (size_t i = s.depth + 1; i < inside.size(); ++i) add_to(sum, std::exchange(inside[i], 0));
  return std::min(sum, s.end - s.begin);
}

void LineCollector::slice(const Slice& s) {
  if (replay_.rows()[s.row].is_overflow) return;
  const int64_t ns = s.end - s.begin, inside_ns = take_inside(s);
  const std::span<const NameId> lines = lines_of(s);
  int64_t& inside = inside_[s.row][s.depth];
  if (lines.empty()) {
    add_to(inside, s.kind == SliceKind::kPython ? ns : inside_ns);
    const std::span<const Span> around{s.around, s.depth};
    if (s.kind == SliceKind::kOperator && !is_annotation(s.scope) && s.self_ns > 0 && !lines_.line_of({}, around))
      add_to(unknown_ns_, s.self_ns);
    return;
  }
  add_to(inside, ns);
  LineTally& own = tally(lines.front());
  if (!s.is_program) add_to(own.self_ns, ns - inside_ns);
  if (!is_inside_of_call({s.around, s.depth})) ++own.calls;
  mark_around(s);
  for (const NameId line : lines)
    if (line.value >= marked_.size() || marked_[line.value] != round_) add_to(tally(line).total_ns, ns);
}

void LineCollector::gpu(const GpuActivity& a) {
  if (a.call == nullptr) return;
  NameId line = has_lines_ ? a.call->stack->line() : NameId{};
  if (!line) line = lines_.line_of({}, a.call->stack->spans());
  if (line) add_to(tally(line).gpu_ns, a.end - a.begin);
}

LineTallies LineCollector::finish() const {
  LineTallies result{.lines = {}, .unknown_ns = unknown_ns_};
  for (uint32_t i = 1; i < tallies_.size(); ++i) {
    const LineTally& t = tallies_[i];
    if (t.total_ns != 0 || t.calls != 0 || t.gpu_ns != 0) result.lines[std::string(replay_.names().text({i}))] += t;
  }
  return result;
}

}  // namespace torchprof::formats
