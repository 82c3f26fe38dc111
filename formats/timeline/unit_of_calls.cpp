#include "formats/timeline/unit_of_calls.h"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "formats/io/median.h"
#include "formats/io/pair_key.h"
#include "formats/io/sum.h"
#include "formats/timeline/unit_names.h"

namespace torchprof::formats {
namespace {

class UnitOfCalls {
 public:
  UnitOfCalls(const Timeline& timeline, const UnitRequest& request) : t_(timeline), request_(request) {}

  std::optional<RecurringUnit> unit_of(std::vector<CallAt> calls, bool covers, int64_t enough) const {
    const bool is_chosen = !request_.chosen.empty();
    if (calls.empty() || (!is_chosen && (calls.size() < kFewestCalls || !recurs(calls)))) return {};
    RecurringUnit unit;
    unit.count = calls.size();
    const std::vector<Link> links = links_of(calls);
    int64_t passes = 0, in_calls = 0;
    if (!links.empty() && is_regular(links)) {
      for (const Link& link : links) {
        const TimelineSpan& s = t_.span(link.row, link.first);
        unit.spans.push_back({s.begin, t_.span(link.row, link.second).begin});
        add_to(passes, unit.spans.back().end - s.begin);
        add_to(in_calls, s.ns());
      }
      unit.is_pass = is_chosen || covers || passes >= enough;
    }
    if (!unit.is_pass) {
      if (!covers) return {};
      unit.spans.clear();
      if (!is_chosen) {
        drop_stretches_without_operators(calls);
        drop_empty(calls);
      }
      unit.count = calls.size();
      for (const CallAt& at : calls)
        unit.spans.push_back({t_.span(at.row, at.span).begin, t_.span(at.row, at.span).end});
    }
    std::ranges::stable_sort(unit.spans, {}, &StepSpan::begin);
    for (size_t i = 0; i < unit.spans.size(); ++i) unit.spans[i].number = i;
    unit.is_part = !unit.is_pass && !is_chosen && is_of_coroutine(calls);
    const bool is_call = !unit.is_pass || is_chosen || in_calls >= passes / 5 * 4;
    unit.name = unit.is_part ? "a stretch of " + function_text(t_.span(calls.front().row, calls.front().span))
                : is_call    ? call_text(calls.front(), !unit.is_pass)
                          : "a pass of the loop in " + function_text(t_.span(links.front().row, links.front().frame));
    return unit;
  }

 private:
  bool is_recorded(int64_t begin, int64_t end) const {
    if (request_.windows.empty()) return true;
    const StepSpan* window = window_before(request_, begin);
    return window != nullptr && end <= window->end;
  }

  // The innermost frame around both, of which the second begins later; kNoSpan: none. What is no call of Python or of a
  // module is passed over.
  uint32_t around(uint32_t row, uint32_t first, uint32_t second) const {
    const auto& spans = t_.rows[row].spans;
    uint32_t i = spans[second].parent;
    while (i != kNoSpan && (i > first || spans[i].end < spans[first].end ||
                            (spans[i].kind != SpanKind::kPython && spans[i].kind != SpanKind::kModule)))
      i = spans[i].parent;
    return i;
  }

  struct Link {
    uint32_t row;
    uint32_t first;
    uint32_t second;
    uint32_t frame;  // its span
  };

  // Modules of a class are alike: some are made anew for each call.
  uint64_t likeness_of(const TimelineSpan& s) const {
    if (s.kind == SpanKind::kModule) return std::hash<std::string_view>()(module_class(t_.text(s.name)));
    if (s.kind == SpanKind::kAnnotation) return std::hash<std::string_view>()(without_last_number(t_.text(s.name)));
    return pair_key(static_cast<uint32_t>(s.kind), s.name);
  }

  // What the names of the spans directly in `frame`, from `first` on and up to `end`, are together: in whatever order,
  // however often. 0: there are none.
  uint64_t doing(uint32_t row, uint32_t frame, uint32_t first, int64_t end) const {
    const auto& spans = t_.rows[row].spans;
    std::set<uint64_t> names;
    for (uint32_t i = first; i < spans.size() && spans[i].begin < end; ++i)
      if (spans[i].parent == frame && spans[i].kind != SpanKind::kGc) names.insert(likeness_of(spans[i]));
    if (names.empty()) return 0;
    uint64_t hash = 1469598103934665603u;
    for (const uint64_t name : names) hash = (hash ^ name) * 1099511628211u;
    return hash;
  }

  // Of one value or more; and how often it occurs.
  static std::pair<uint64_t, size_t> most_frequent(const std::vector<uint64_t>& values) {
    std::unordered_map<uint64_t, size_t> times;
    for (const uint64_t value : values) ++times[value];
    return *std::ranges::max_element(times, {}, [](const auto& each) { return each.second; });
  }

  // Whether from call to call the program mostly does the same: the names directly in the frame of the loop are.
  bool is_regular(const std::vector<Link>& links) const {
    std::vector<uint64_t> done;
    for (const Link& link : links)
      done.push_back(doing(link.row, link.frame, link.first, t_.span(link.row, link.second).begin));
    return most_frequent(done).second >= (links.size() + 1) / 2;
  }

  // Whether an event loop makes the call: asyncio/events.py, Handle._run (CPython 3.10 to 3.15).
  bool is_in_event_loop(const CallAt& at) const {
    const TimelineSpan& s = t_.span(at.row, at.span);
    if (s.parent == kNoSpan || s.kind != SpanKind::kPython) return false;
    const std::string_view around = t_.text(t_.span(at.row, s.parent).name);
    return around.find("asyncio/events.py(") != around.npos && around.ends_with("): _run");
  }

  bool has_operator(const CallAt& at) const {
    const auto& spans = t_.rows[at.row].spans;
    for (uint32_t i = at.span + 1; i < spans.size() && spans[i].begin < spans[at.span].end; ++i)
      if (spans[i].kind == SpanKind::kOperator) return true;
    return false;
  }

  // Whether the calls are what coroutines do between two awaits, now this and now that, so that none is a request:
  // nothing is in nearly all of them.
  bool is_of_coroutine(const std::vector<CallAt>& calls) const {
    std::unordered_map<uint64_t, size_t> having;
    for (const CallAt& at : calls) {
      const auto& spans = t_.rows[at.row].spans;
      const TimelineSpan& s = spans[at.span];
      if (!is_in_event_loop(at)) return false;
      std::set<uint64_t> names;
      for (uint32_t i = at.span + 1; i < spans.size() && spans[i].begin < s.end; ++i)
        if (spans[i].parent == at.span) names.insert(likeness_of(spans[i]));
      for (const uint64_t name : names) ++having[name];
    }
    return std::ranges::none_of(having, [&](const auto& each) { return each.second * 5 >= calls.size() * 4; });
  }

  // What all links of a loop have in common: the function that has it.
  std::vector<Link> links_of(const std::vector<CallAt>& calls) const {
    std::vector<Link> links;
    std::vector<uint64_t> functions;
    for (size_t i = 1; i < calls.size(); ++i) {
      if (calls[i].row != calls[i - 1].row) continue;
      const uint32_t frame = around(calls[i].row, calls[i - 1].span, calls[i].span);
      if (frame == kNoSpan) continue;
      const TimelineSpan& s = t_.span(calls[i].row, frame);
      if (s.kind == SpanKind::kPython && !t_.is_program(s.name) && !t_.is_installed(s.name)) continue;
      links.push_back({calls[i].row, calls[i - 1].span, calls[i].span, frame});
      functions.push_back(s.name);
    }
    if (links.size() * 2 < calls.size()) return {};
    const uint64_t function = most_frequent(functions).first;
    std::erase_if(links, [&](const Link& link) {
      const auto& spans = t_.rows[link.row].spans;
      return spans[link.frame].name != function || !is_recorded(spans[link.first].begin, spans[link.second].begin);
    });
    return links.size() * 3 < calls.size() ? std::vector<Link>{} : links;
  }

  // Whether the time of the calls but the first is that of many, or else the longest of them do what most others do:
  // then something held them up, and a busy machine does that to a call of a millisecond. (A helper that is around now
  // this and now that recurs by its name alone.)
  bool recurs(const std::vector<CallAt>& calls) const {
    std::vector<std::pair<int64_t, size_t>> longest;  // and which call
    int64_t all = 0;
    for (size_t i = 1; i < calls.size(); ++i) {
      longest.emplace_back(t_.span(calls[i].row, calls[i].span).ns(), i);
      add_to(all, longest.back().first);
    }
    std::ranges::sort(longest, std::greater<>());
    const size_t few = 1 + longest.size() / 20;
    int64_t largest = 0;
    for (size_t i = 0; i < few; ++i) add_to(largest, longest[i].first);
    if (largest <= all / 4 * 3) return true;
    std::vector<uint64_t> done;
    for (const CallAt& at : calls) done.push_back(doing(at.row, at.span, at.span + 1, t_.span(at.row, at.span).end));
    const auto [common, times] = most_frequent(done);
    if (common == 0 || times < calls.size() / 5 * 4) return false;
    for (size_t i = 0; i < few; ++i)
      if (done[longest[i].second] != common) return false;
    return true;
  }

  // What a coroutine does up to its second await is no request, where the operators, and nearly all of the time, are in
  // other stretches.
  void drop_stretches_without_operators(std::vector<CallAt>& calls) const {
    if (!std::ranges::all_of(calls, [this](const CallAt& at) { return is_in_event_loop(at); })) return;
    std::vector<CallAt> computing;
    int64_t all = 0, computed = 0;
    for (const CallAt& at : calls) {
      const int64_t ns = t_.span(at.row, at.span).ns();
      add_to(all, ns);
      if (!has_operator(at)) continue;
      add_to(computed, ns);
      computing.push_back(at);
    }
    if (computed > 0 && computed >= all / 10 * 9) calls = std::move(computing);
  }

  // A coroutine that has only begun to wait for its first request has served none. One that ran operators has, however
  // much longer the machine made the others.
  void drop_empty(std::vector<CallAt>& calls) const {
    std::vector<int64_t> ns;
    for (const CallAt& at : calls) ns.push_back(t_.span(at.row, at.span).ns());
    const int64_t least = median_of(std::move(ns)) / 100;
    std::erase_if(calls, [&](const CallAt& at) { return t_.span(at.row, at.span).ns() < least && !has_operator(at); });
  }

  std::string function_text(const TimelineSpan& s) const {
    if (s.kind == SpanKind::kModule) return std::string(module_class(t_.text(s.name)));
    const auto [file, name] = split_function(t_.text(s.name));
    if (name == "<module>") return std::string(file);
    const std::string_view qualname = t_.qualname(s.name);
    std::string text(qualname.empty() ? name : without_locals(qualname));
    return file.empty() ? text : text.append(" (").append(file).append(")");
  }

  // Who calls the program for what comes from outside.
  bool is_in_server(const CallAt& at) const {
    constexpr std::array<std::string_view, 4> kServers = {"socketserver.py(", "http/server.py(", "asyncio/",
                                                          "wsgiref/"};
    for (uint32_t i = at.span; i != kNoSpan; i = t_.span(at.row, i).parent) {
      const std::string_view text = t_.text(t_.span(at.row, i).name);
      if (std::ranges::any_of(kServers, [text](auto server) { return text.find(server) != text.npos; })) return true;
    }
    return false;
  }

  std::string call_text(const CallAt& at, bool may_be_request) const {
    const TimelineSpan& s = t_.span(at.row, at.span);
    if (s.kind == SpanKind::kAnnotation)
      return std::string("a range \"").append(without_last_number(t_.text(s.name))).append("\"");
    if (s.kind == SpanKind::kPython && is_backward_call(t_.text(s.name))) return "a backward pass";
    return (may_be_request && is_in_server(at) ? "a request of " : "a call of ") + function_text(s);
  }

  const Timeline& t_;
  const UnitRequest& request_;
};

}  // namespace

std::optional<RecurringUnit> unit_of_calls(const Timeline& timeline, const UnitRequest& request,
                                           std::vector<CallAt> calls, bool covers, int64_t enough) {
  return UnitOfCalls(timeline, request).unit_of(std::move(calls), covers, enough);
}

const StepSpan* window_before(const UnitRequest& request, int64_t time) {
  const auto after = std::ranges::upper_bound(request.windows, time, {}, &StepSpan::begin);
  return after == request.windows.begin() ? nullptr : &*std::prev(after);
}

}  // namespace torchprof::formats
