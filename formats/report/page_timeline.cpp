#include "formats/report/page_timeline.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <span>
#include <tuple>
#include <utility>

#include "formats/io/sum.h"
#include "formats/io/text.h"
#include "formats/timeline/timeline.h"

namespace torchprof::formats {

void WidestSlices::add(const TimelineSlice& slice) {
  ++added_;
  if (slice.ns < least_ns_) return;
  slices_.push_back(slice);
  if (slices_.size() >= 2 * most_) trim();
}

void WidestSlices::trim() {
  if (slices_.size() <= most_) return;
  const auto last = slices_.begin() + static_cast<ptrdiff_t>(most_) - 1;
  std::ranges::nth_element(slices_, last, std::greater<>{}, &TimelineSlice::ns);
  least_ns_ = last->ns;
  slices_.resize(most_);
}

std::vector<TimelineSlice> WidestSlices::take(uint64_t& left_out) {
  trim();
  left_out += added_ - slices_.size();
  added_ = 0;
  least_ns_ = 0;
  return std::exchange(slices_, {});
}

std::vector<TimelineView> timeline_views(const std::vector<std::vector<StepSpan>>& steps, int64_t begin, int64_t end) {
  const auto ns = [](const StepSpan& span) { return difference(span.end, span.begin); };
  std::vector<TimelineView> views;
  TimelineView slowest{.kind = "slowest"};
  for (size_t process = 0; process < steps.size(); ++process) {
    std::vector<StepSpan> spans = steps[process];
    if (spans.size() > 1) spans.erase(spans.begin());
    std::erase_if(spans, [&](const StepSpan& span) { return ns(span) <= 0; });
    if (spans.empty()) continue;
    if (views.empty()) {
      const auto middle = spans.begin() + static_cast<ptrdiff_t>((spans.size() - 1) / 2);
      std::ranges::nth_element(spans, middle, {}, ns);
      views.push_back({"typical", process, middle->number, spans.size(), middle->begin, middle->end});
    }
    const auto longest = std::ranges::max_element(spans, {}, ns);
    const size_t of_steps = slowest.of_steps + spans.size();
    if (slowest.of_steps == 0 || ns(*longest) > difference(slowest.end, slowest.begin))
      slowest = {"slowest", process, longest->number, of_steps, longest->begin, longest->end};
    slowest.of_steps = of_steps;
  }
  if (views.empty()) return {{"all", 0, 0, 0, begin, end}};
  if (slowest.begin != views[0].begin || slowest.process != views[0].process) views.push_back(slowest);
  return views;
}

PageTimeline::PageTimeline(std::vector<TimelineView> views) : views_(std::move(views)), kept_(views_.size()) {
  name("");
}

uint32_t PageTimeline::name(std::string_view text) { return names_(std::string(text)); }

uint32_t PageTimeline::row(const std::string& process, const std::string& label, bool is_gpu) {
  rows_.push_back({process, label, is_gpu});
  return static_cast<uint32_t>(rows_.size() - 1);
}

bool PageTimeline::add(const TimelineSlice& slice) {
  bool is_shown = false;
  const int64_t slice_end = sum(slice.begin, slice.ns);
  for (size_t i = 0; i < views_.size(); ++i) {
    const TimelineView& view = views_[i];
    const int64_t begin = std::max(slice.begin, view.begin), end = std::min(slice_end, view.end);
    if (end <= begin) continue;
    const bool is_function = slice.kind == TimelineKind::kPython || slice.kind == TimelineKind::kCCall;
    if (is_function && begin == view.begin && end == view.end) continue;
    TimelineSlice cut = slice;
    cut.begin = begin;
    cut.ns = difference(end, begin);
    (slice.kind >= TimelineKind::kKernel ? kept_[i].gpu : kept_[i].host).add(cut);
    is_shown = true;
  }
  return is_shown;
}

void PageTimeline::settle(const Number& row, const Number& name, const Number& detail, const Number& by) {
  for (Kept& kept : kept_)
    for (const auto& [from, into] : {std::pair(&kept.host, &kept.all_host), std::pair(&kept.gpu, &kept.all_gpu)})
      for (TimelineSlice& slice : from->take(kept.left_out)) {
        slice.row = row(slice.row);
        slice.name = name(slice.name);
        slice.detail = slice.detail == 0 ? 0 : detail(slice.detail);
        slice.by = slice.by == 0 ? 0 : by(slice.by);
        into->add(slice);
      }
}

std::string PageTimeline::rows_json(const std::vector<TimelineSlice>& slices, int64_t begin,
                                    std::map<uint32_t, uint32_t>& used, std::vector<uint32_t>& names) const {
  const auto number = [&](uint32_t name) {
    const auto [it, is_new] = used.try_emplace(name, static_cast<uint32_t>(names.size()));
    if (is_new) names.push_back(name);
    return it->second;
  };
  std::string out;
  const TimelineSlice* before = nullptr;
  for (const TimelineSlice& s : slices) {
    if (before == nullptr || before->row != s.row) {
      const Row& row = rows_[s.row];
      out.append(before == nullptr ? "" : "]},").append("{\"process\":").append(json_string(row.process));
      out.append(",\"label\":").append(json_string(row.label)).append(",\"gpu\":");
      out.append(row.is_gpu ? "true" : "false").append(",\"slices\":[");
    } else {
      out += ',';
    }
    before = &s;
    const int64_t values[] = {difference(s.begin, begin), s.ns,        number(s.name), static_cast<int64_t>(s.kind),
                              number(s.detail),           number(s.by)};
    for (const int64_t& value : values) out.append(&value == values ? "" : ",").append(std::to_string(value));
  }
  return before == nullptr ? out : out + "]}";
}

std::string PageTimeline::json(int64_t start, const std::function<std::string(size_t process)>& who) {
  std::map<uint32_t, uint32_t> used{{0, 0}};
  std::vector<uint32_t> names{0};
  std::string views;
  for (size_t i = 0; i < views_.size(); ++i) {
    const TimelineView& view = views_[i];
    Kept& kept = kept_[i];
    std::vector<TimelineSlice> slices = kept.all_host.take(kept.left_out);
    std::ranges::move(kept.all_gpu.take(kept.left_out), std::back_inserter(slices));
    // Of two that begin together the wider one is around the other.
    std::ranges::stable_sort(slices, {}, [](const TimelineSlice& s) { return std::tuple(s.row, s.begin, -s.ns); });
    views.append(i == 0 ? "" : ",").append("{\"kind\":\"").append(view.kind).append("\",\"process\":");
    views.append(json_string(view.of_steps == 0 ? "" : who(view.process)));
    for (const auto& [key, value] : {std::pair<const char*, int64_t>("step", static_cast<int64_t>(view.step)),
                                     {"steps", static_cast<int64_t>(view.of_steps)},
                                     {"begin", difference(view.begin, start)},
                                     {"ns", difference(view.end, view.begin)},
                                     {"left_out", static_cast<int64_t>(kept.left_out)},
                                     {"left_out_processes", static_cast<int64_t>(left_out_processes_)}})
      views.append(",\"").append(key).append("\":").append(std::to_string(value));
    views.append(",\"rows\":[").append(rows_json(slices, view.begin, used, names)).append("]}");
  }
  std::string out = "{\"names\":[";
  for (const uint32_t& name : names)
    out.append(&name == names.data() ? "" : ",").append(json_string(*names_.texts[name]));
  return out.append("],\"views\":[").append(views).append("]}");
}

}  // namespace torchprof::formats
