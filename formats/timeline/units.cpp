#include "formats/timeline/units.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "formats/analysis/step_parts.h"
#include "formats/io/pair_key.h"
#include "formats/io/sum.h"
#include "formats/trace/names.h"
#include "formats/trace/waiting.h"

namespace torchprof::formats {

std::string_view without_last_number(std::string_view name) {
  const size_t last = name.find_last_not_of("0123456789");
  if (last == name.npos || last + 1 == name.size()) return name;
  const size_t end = name.find_last_not_of(" #:=_-/", last);
  return end == name.npos ? name : name.substr(0, end + 1);
}

std::string_view without_locals(std::string_view qualname) {
  constexpr std::string_view kLocals = "<locals>.";
  const size_t at = qualname.rfind(kLocals);
  return at == qualname.npos ? qualname : qualname.substr(at + kLocals.size());
}

namespace {

constexpr size_t kMostNodes = 100'000;
constexpr uint32_t kNoKey = 0;  // and the root's
constexpr size_t kMostLevels = 8, kMostCandidates = 8;

bool is_import(const TimelineSpan& s, std::string_view name) {
  if (s.kind != SpanKind::kPython) return false;
  return name.starts_with("import ") || (name.find("importlib") != name.npos && name.ends_with("): _find_and_load"));
}

// torch/_tensor.py and torch/autograd/__init__.py, 1.13 to 2.15.
bool is_backward(std::string_view name) {
  return name.ends_with("): backward") &&
         (name.find("torch/_tensor.py(") != name.npos || name.find("torch/autograd/__init__.py(") != name.npos);
}

// Ranges that torch makes itself, 1.13 to 2.15.
bool is_torchs_range(std::string_view name) {
  constexpr std::array<std::string_view, 16> kBegins = {kProfilerStep,
                                                        kOptimizerStep,
                                                        "Optimizer.zero_grad#",
                                                        kLoaderPrefix,
                                                        "autograd::",
                                                        "DistributedDataParallel",
                                                        "FullyShardedDataParallel",
                                                        "FSDP",
                                                        "TorchDynamo ",
                                                        "Torch-Compiled ",
                                                        "## Call CompiledFx",
                                                        "CompiledFunction",
                                                        "record_param_comms",
                                                        "PyTorch Profiler",
                                                        "Pregraph ",
                                                        "Window #"};
  return is_communication(name) || std::ranges::any_of(kBegins, [name](auto begin) { return name.starts_with(begin); });
}

struct FunctionText {       // of "path(line): name"
  std::string_view file{};  // without directories
  std::string_view name{};
};
FunctionText split(std::string_view text) {
  const size_t at = text.find("): ");
  if (at == text.npos) return {{}, text};
  const size_t open = text.rfind('(', at);
  std::string_view path = text.substr(0, open == text.npos ? at : open);
  if (const size_t slash = path.rfind('/'); slash != path.npos) path.remove_prefix(slash + 1);
  return {path, text.substr(at + 3)};
}

// The class of "nn.Module: GPT_0".
std::string_view class_of(std::string_view name) {
  name.remove_prefix(std::min(kModulePrefix.size(), name.size()));
  return name.substr(0, name.rfind('_'));
}

enum class KeyKind : uint8_t { kFunction, kModule, kRange, kBackward };

struct Key {
  KeyKind kind = KeyKind::kFunction;
  uint32_t name = 0;  // of a range and a module of many objects: of the first of them
  bool is_installed = false;
  uint64_t calls = 0;
};

struct Node {
  uint32_t parent = 0;
  uint32_t key = kNoKey;
  uint64_t calls = 0;
  int64_t worked = 0;  // itself; after settle() with all below it
  int64_t in_operators = 0;
};

struct At {
  uint32_t row;
  uint32_t span;
};

class UnitFinder {
 public:
  UnitFinder(const Timeline& timeline, const UnitRequest& request) : t_(timeline), request_(request) {
    nodes_.emplace_back();
    keys_.emplace_back();
    start_ = imports_of(timeline).until;
    for (auto& keys : key_of_) keys.resize(t_.names(), kUnseen);
    waits_.resize(t_.names());
  }

  RecurringUnit run() {
    if (!request_.chosen.empty()) return unit_of(chosen_calls(), true, 0).value_or(RecurringUnit{});
    for (uint32_t row = 0; row < t_.rows.size(); ++row) has_operators_ |= runs_operators(row);
    of_span_.resize(t_.rows.size());
    for (uint32_t row = 0; row < t_.rows.size(); ++row)
      if (!t_.rows[row].is_overflow && (!has_operators_ || runs_operators(row))) look_at(row);
    settle();
    for (const bool is_any_function : {false, true})
      if (std::optional<RecurringUnit> unit = search(is_any_function)) return std::move(*unit);
    return {};
  }

 private:
  static constexpr uint32_t kUnseen = UINT32_MAX;

  // ---- what may be a unit --------------------------------------------------------------------------------

  uint32_t key_of(const TimelineSpan& s) {
    const size_t group = s.kind == SpanKind::kPython ? 0 : s.kind == SpanKind::kModule ? 1 : 2;
    if (s.kind != SpanKind::kPython && s.kind != SpanKind::kModule && s.kind != SpanKind::kAnnotation) return kNoKey;
    uint32_t& known = key_of_[group][s.name];
    if (known == kUnseen) known = make_key(s.kind, s.name);
    return known;
  }

  uint32_t make_key(SpanKind kind, uint32_t name) {
    const std::string_view text = t_.text(name);
    Key key{.name = name};
    std::string same{};  // what other names are the same key
    if (kind == SpanKind::kModule) {
      if (!text.starts_with(kModulePrefix)) return kNoKey;
      key.kind = KeyKind::kModule;
      // Objects that are made anew for each call, and those that are many: one by one they do not recur.
      if (!recurring_objects().contains(name)) same = std::string("class ").append(class_of(text));
    } else if (kind == SpanKind::kAnnotation) {
      if (is_torchs_range(text)) return kNoKey;
      key.kind = KeyKind::kRange;
      same = std::string("range ").append(without_last_number(text));
    } else if (is_backward(text)) {
      key.kind = KeyKind::kBackward;
      same = "backward";
    } else {
      const std::string_view function = split(text).name;
      // What is written in another function is called by it alone.
      constexpr std::array<std::string_view, 5> kParts = {"<module>", "<listcomp>", "<setcomp>", "<dictcomp>",
                                                          "<genexpr>"};
      if (!t_.is_program(name) || std::ranges::find(kParts, function) != kParts.end()) return kNoKey;
      key.is_installed = t_.is_installed(name);
    }
    const auto number = static_cast<uint32_t>(keys_.size());
    if (!same.empty())
      if (const auto [known, is_new] = by_text_.try_emplace(same, number); !is_new) return known->second;
    keys_.push_back(key);
    return number;
  }

  const std::set<uint32_t>& recurring_objects() {
    if (has_counted_objects_) return recurring_objects_;
    has_counted_objects_ = true;
    std::unordered_map<uint32_t, uint64_t> calls;
    for (const TimelineRow& row : t_.rows)
      for (const TimelineSpan& s : row.spans)
        if (s.kind == SpanKind::kModule && ++calls[s.name] == kFewestCalls) recurring_objects_.insert(s.name);
    return recurring_objects_;
  }

  bool waits(const TimelineSpan& s) {
    if (s.kind != SpanKind::kPython && s.kind != SpanKind::kCCall) return false;
    int8_t& known = waits_[s.name];
    if (known == 0) known = is_waiting(t_.text(s.name)) ? 1 : -1;
    return known > 0;
  }

  // ---- the calls as a tree -------------------------------------------------------------------------------

  bool runs_operators(uint32_t row) const {
    return std::ranges::any_of(t_.rows[row].spans, [this](const TimelineSpan& s) {
      return s.kind == SpanKind::kOperator && s.begin >= start_;
    });
  }

  bool is_whole(const TimelineSpan& s) const {
    if ((s.end >= t_.end && !request_.may_end_whole) || s.begin < start_) return false;
    const StepSpan* window = window_at(s.begin);
    return request_.windows.empty() || (window != nullptr && window->begin < s.begin && s.end < window->end);
  }

  const StepSpan* window_at(int64_t time) const {
    const auto after = std::ranges::upper_bound(request_.windows, time, {}, &StepSpan::begin);
    return after == request_.windows.begin() ? nullptr : &*std::prev(after);
  }

  bool is_recorded(int64_t begin, int64_t end) const {
    if (request_.windows.empty()) return true;
    const StepSpan* window = window_at(begin);
    return window != nullptr && end <= window->end;
  }

  // The node of a call of `key` in `parent`; that of the same function further out, if it calls itself.
  uint32_t child(uint32_t parent, uint32_t key) {
    const auto [known, is_new] = children_.try_emplace(pair_key(parent, key), 0);
    if (!is_new) return known->second;
    for (uint32_t n = parent; n != 0; n = nodes_[n].parent)
      if (nodes_[n].key == key) return known->second = n;
    if (nodes_.size() >= kMostNodes) return known->second = parent;
    nodes_.push_back({.parent = parent, .key = key});
    return known->second = static_cast<uint32_t>(nodes_.size() - 1);
  }

  void look_at(uint32_t row) {
    const std::vector<TimelineSpan>& spans = t_.rows[row].spans;
    std::vector<uint32_t>& node = of_span_[row];
    node.resize(spans.size());
    enum : uint8_t { kImport = 1, kOperator = 2, kModule = 4, kWaits = 8 };
    std::vector<uint8_t> in(spans.size());
    std::vector<int64_t> own(spans.size());
    const auto length = [this](const TimelineSpan& s) {
      return std::max<int64_t>(0, s.end - std::max(start_, s.begin));
    };
    for (uint32_t i = 0; i < spans.size(); ++i) {
      const TimelineSpan& s = spans[i];
      const bool has_parent = s.parent != kNoSpan;
      const uint32_t around = has_parent ? node[s.parent] : 0;
      // What waits calls others that work, as a thread of a pool does.
      uint8_t is = has_parent ? in[s.parent] & ~kWaits : 0;
      node[i] = around;
      own[i] = length(s);
      if (has_parent) own[s.parent] -= own[i];
      if (is_import(s, t_.text(s.name))) is |= kImport;
      if (s.kind == SpanKind::kOperator && !s.is_async) is |= kOperator;
      if (waits(s) || s.kind == SpanKind::kGc) is |= kWaits;
      const uint32_t key = (is & kImport) != 0 || s.is_async ? kNoKey : key_of(s);
      const bool is_inner_module = key != kNoKey && keys_[key].kind == KeyKind::kModule && (is & kModule) != 0;
      if (key != kNoKey && !is_inner_module) node[i] = child(around, key);
      if (s.kind == SpanKind::kModule) is |= kModule;
      if (node[i] != around && is_whole(s)) {
        ++nodes_[node[i]].calls;
        ++keys_[key].calls;
      }
      in[i] = is;
    }
    for (uint32_t i = 0; i < spans.size(); ++i) {
      if ((in[i] & (kImport | kWaits)) != 0 || own[i] <= 0) continue;
      add_to(nodes_[node[i]].worked, own[i]);
      if ((in[i] & kOperator) != 0) add_to(nodes_[node[i]].in_operators, own[i]);
    }
  }

  // A parent comes before its children.
  void settle() {
    for (size_t i = nodes_.size(); i-- > 1;) {
      add_to(nodes_[nodes_[i].parent].worked, nodes_[i].worked);
      add_to(nodes_[nodes_[i].parent].in_operators, nodes_[i].in_operators);
    }
  }

  // ---- the search ----------------------------------------------------------------------------------------

  struct Candidate {
    uint32_t key = kNoKey;
    uint64_t calls = 0;
    int64_t worked = 0, in_operators = 0;
  };

  std::optional<RecurringUnit> search(bool is_any_function) {
    const int64_t all = nodes_[0].worked, operators = nodes_[0].in_operators;
    if (all <= 0) return {};
    std::vector<bool> is_passed(keys_.size());
    for (size_t level = 0; level < kMostLevels; ++level) {
      std::vector<Candidate> outermost = outermost_of(is_any_function, is_passed);
      if (outermost.empty()) return {};
      size_t tried = 0;
      for (const Candidate& c : outermost) {
        is_passed[c.key] = true;
        if (c.calls < kFewestCalls || ++tried > kMostCandidates) continue;
        const bool covers = c.worked >= all / 2 || (c.in_operators >= operators / 2 && c.worked >= all / 4);
        if (std::optional<RecurringUnit> unit = unit_of(calls_of(c.key), covers, all)) return unit;
      }
    }
    return {};
  }

  // Those that recur and are in no other one that does; what takes most first. Marks their nodes.
  std::vector<Candidate> outermost_of(bool is_any_function, const std::vector<bool>& is_passed) {
    is_outermost_.assign(nodes_.size(), false);
    std::vector<bool> is_inside(nodes_.size());
    std::map<uint32_t, Candidate> by_key;
    for (uint32_t i = 1; i < nodes_.size(); ++i) {
      const Node& n = nodes_[i];
      is_inside[i] = is_inside[n.parent] || is_outermost_[n.parent];
      const Key& key = keys_[n.key];
      const bool may_be = !is_passed[n.key] && key.calls >= kFewestCalls && (is_any_function || !key.is_installed);
      if (is_inside[i] || !may_be) continue;
      is_outermost_[i] = true;
      Candidate& c = by_key[n.key];
      c.key = n.key;
      c.calls += n.calls;
      add_to(c.worked, n.worked);
      add_to(c.in_operators, n.in_operators);
    }
    std::vector<Candidate> found;
    for (const auto& [key, c] : by_key) found.push_back(c);
    std::ranges::stable_sort(found, std::greater<>(), &Candidate::worked);
    return found;
  }

  std::vector<At> calls_of(uint32_t key) const {
    std::vector<At> calls;
    for (uint32_t row = 0; row < of_span_.size(); ++row)
      for (uint32_t i = 0; i < of_span_[row].size(); ++i) {
        const uint32_t node = of_span_[row][i];
        if (!is_outermost_[node] || nodes_[node].key != key) continue;
        const TimelineSpan& s = t_.span(row, i);
        if ((s.parent == kNoSpan || of_span_[row][s.parent] != node) && is_whole(s)) calls.push_back({row, i});
      }
    return calls;
  }

  std::vector<At> chosen_calls() {
    std::vector<At> calls;
    std::unordered_map<uint64_t, bool> is_chosen;
    start_ = t_.begin;
    for (uint32_t row = 0; row < t_.rows.size(); ++row) {
      const auto& spans = t_.rows[row].spans;
      std::vector<bool> is_inside(spans.size());
      for (uint32_t i = 0; i < spans.size() && !t_.rows[row].is_overflow; ++i) {
        const TimelineSpan& s = spans[i];
        const bool is_around = s.parent != kNoSpan && is_inside[s.parent];
        const auto [known, is_new] = is_chosen.try_emplace(pair_key(static_cast<uint32_t>(s.kind), s.name), false);
        if (is_new) known->second = matches(s);
        if (known->second && !is_around && is_whole(s)) calls.push_back({row, i});
        is_inside[i] = is_around || known->second;
      }
    }
    return calls;
  }

  bool matches(const TimelineSpan& s) const {
    constexpr std::string_view kRange = "range=";
    const std::string_view text = t_.text(s.name), chosen = request_.chosen;
    if (chosen.starts_with(kRange)) {
      const std::string_view range = chosen.substr(kRange.size());
      return s.kind == SpanKind::kAnnotation && (text == range || without_last_number(text) == range);
    }
    if (s.kind == SpanKind::kModule)
      return text.starts_with(kModulePrefix) &&
             (text.substr(kModulePrefix.size()) == chosen || class_of(text) == chosen);
    if (s.kind != SpanKind::kPython) return false;
    const auto [file, name] = split(text);
    const std::string_view qualname = t_.qualname(s.name);
    const auto is_named = [&](std::string_view wanted) {
      return wanted == name || (!qualname.empty() && (wanted == qualname || wanted == without_locals(qualname)));
    };
    const size_t colon = chosen.find(".py:");
    if (colon != chosen.npos && file == chosen.substr(0, colon + 3)) return is_named(chosen.substr(colon + 4));
    return text == chosen || is_named(chosen);
  }

  // ---- what a call is to the next one --------------------------------------------------------------------

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
    if (s.kind == SpanKind::kModule) return std::hash<std::string_view>()(class_of(t_.text(s.name)));
    if (s.kind == SpanKind::kAnnotation) return std::hash<std::string_view>()(without_last_number(t_.text(s.name)));
    return pair_key(static_cast<uint32_t>(s.kind), s.name);
  }

  // Whether from call to call the program mostly does the same: the names directly in the frame of the loop are.
  bool is_regular(const std::vector<Link>& links) const {
    std::unordered_map<uint64_t, size_t> alike;
    for (const Link& link : links) {
      const auto& spans = t_.rows[link.row].spans;
      std::set<uint64_t> names;
      for (uint32_t i = link.first; i < spans.size() && spans[i].begin < spans[link.second].begin; ++i)
        if (spans[i].parent == link.frame && spans[i].kind != SpanKind::kGc) names.insert(likeness_of(spans[i]));
      uint64_t hash = 1469598103934665603u;
      for (const uint64_t name : names) hash = (hash ^ name) * 1099511628211u;
      ++alike[hash];
    }
    const auto most = std::ranges::max_element(alike, {}, [](const auto& each) { return each.second; });
    return most != alike.end() && most->second >= (links.size() + 1) / 2;
  }

  // What all links of a loop have in common: the function that has it.
  std::vector<Link> links_of(const std::vector<At>& calls) const {
    std::vector<Link> links;
    std::unordered_map<uint32_t, size_t> by_frame;
    for (size_t i = 1; i < calls.size(); ++i) {
      if (calls[i].row != calls[i - 1].row) continue;
      const uint32_t frame = around(calls[i].row, calls[i - 1].span, calls[i].span);
      if (frame == kNoSpan) continue;
      const TimelineSpan& s = t_.span(calls[i].row, frame);
      if (s.kind == SpanKind::kPython && !t_.is_program(s.name)) continue;
      links.push_back({calls[i].row, calls[i - 1].span, calls[i].span, frame});
      ++by_frame[s.name];
    }
    if (links.size() * 2 < calls.size()) return {};
    const auto most = std::ranges::max_element(by_frame, {}, [](const auto& each) { return each.second; });
    std::erase_if(links, [&](const Link& link) {
      const auto& spans = t_.rows[link.row].spans;
      return spans[link.frame].name != most->first || !is_recorded(spans[link.first].begin, spans[link.second].begin);
    });
    return links.size() * 3 < calls.size() ? std::vector<Link>{} : links;
  }

  // Whether the time of the calls but the first is that of many.
  bool recurs(const std::vector<At>& calls) const {
    std::vector<int64_t> ns;
    int64_t all = 0;
    for (size_t i = 1; i < calls.size(); ++i) {
      ns.push_back(t_.span(calls[i].row, calls[i].span).ns());
      add_to(all, ns.back());
    }
    std::ranges::sort(ns, std::greater<>());
    int64_t largest = 0;
    for (size_t i = 0; i < 1 + ns.size() / 20; ++i) add_to(largest, ns[i]);
    return largest <= all / 4 * 3;
  }

  // A coroutine that has only begun to wait for its first request has served none.
  void drop_empty(std::vector<At>& calls) const {
    std::vector<int64_t> ns;
    for (const At& at : calls) ns.push_back(t_.span(at.row, at.span).ns());
    std::ranges::nth_element(ns, ns.begin() + static_cast<ptrdiff_t>(ns.size() / 2));
    const int64_t least = ns[ns.size() / 2] / 100;
    std::erase_if(calls, [&](const At& at) { return t_.span(at.row, at.span).ns() < least; });
  }

  // `covers`: the calls have most of the time; else the passes of their loop must, `all` of it being what the program
  // did.
  std::optional<RecurringUnit> unit_of(std::vector<At> calls, bool covers, int64_t all) const {
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
      unit.is_pass = is_chosen || covers || passes >= all / 2;
    }
    if (!unit.is_pass) {
      if (!covers) return {};
      unit.spans.clear();
      if (!is_chosen) drop_empty(calls);
      unit.count = calls.size();
      for (const At& at : calls) unit.spans.push_back({t_.span(at.row, at.span).begin, t_.span(at.row, at.span).end});
    }
    std::ranges::stable_sort(unit.spans, {}, &StepSpan::begin);
    for (size_t i = 0; i < unit.spans.size(); ++i) unit.spans[i].number = i;
    const bool is_call = !unit.is_pass || is_chosen || in_calls >= passes / 5 * 4;
    unit.name = is_call ? call_text(calls.front(), !unit.is_pass)
                        : "a pass of the loop in " + function_text(t_.span(links.front().row, links.front().frame));
    return unit;
  }

  // ---- its name ------------------------------------------------------------------------------------------

  std::string function_text(const TimelineSpan& s) const {
    if (s.kind == SpanKind::kModule) return std::string(class_of(t_.text(s.name)));
    const auto [file, name] = split(t_.text(s.name));
    if (name == "<module>") return std::string(file);
    const std::string_view qualname = t_.qualname(s.name);
    std::string text(qualname.empty() ? name : without_locals(qualname));
    return file.empty() ? text : text.append(" (").append(file).append(")");
  }

  // Who calls the program for what comes from outside.
  bool is_in_server(const At& at) const {
    constexpr std::array<std::string_view, 4> kServers = {"socketserver.py(", "http/server.py(", "asyncio/",
                                                          "wsgiref/"};
    for (uint32_t i = at.span; i != kNoSpan; i = t_.span(at.row, i).parent) {
      const std::string_view text = t_.text(t_.span(at.row, i).name);
      if (std::ranges::any_of(kServers, [text](auto server) { return text.find(server) != text.npos; })) return true;
    }
    return false;
  }

  std::string call_text(const At& at, bool may_be_request) const {
    const TimelineSpan& s = t_.span(at.row, at.span);
    if (s.kind == SpanKind::kAnnotation)
      return std::string("a range \"").append(without_last_number(t_.text(s.name))).append("\"");
    if (s.kind == SpanKind::kPython && is_backward(t_.text(s.name))) return "a backward pass";
    return (may_be_request && is_in_server(at) ? "a request of " : "a call of ") + function_text(s);
  }

  const Timeline& t_;
  const UnitRequest& request_;
  int64_t start_ = 0;
  bool has_operators_ = false, has_counted_objects_ = false;
  std::vector<Key> keys_;
  std::array<std::vector<uint32_t>, 3> key_of_;  // by kind and name
  std::unordered_map<std::string, uint32_t> by_text_;
  std::set<uint32_t> recurring_objects_;
  std::vector<int8_t> waits_;  // by name: 1 yes, -1 no, 0 not looked up yet
  std::vector<Node> nodes_;
  std::unordered_map<uint64_t, uint32_t> children_;  // by node and key
  std::vector<std::vector<uint32_t>> of_span_;       // the node that a span is, or is in
  std::vector<bool> is_outermost_;                   // by node
};

// One behind the last span inside of it.
uint32_t end_of(const std::vector<TimelineSpan>& spans, uint32_t span) {
  uint32_t i = span + 1;
  while (i < spans.size() && spans[i].parent != kNoSpan && spans[i].parent >= span) ++i;
  return i;
}

// Moves what the steps did on their threads to a row of their own, if these are several.
void gather(Timeline& timeline) {
  std::vector<At> steps;
  std::map<uint32_t, std::set<uint32_t>> by_row;
  for (const StepSpan& step : timeline.steps)
    for (uint32_t row = 0; row < timeline.rows.size(); ++row) {
      const auto& spans = timeline.rows[row].spans;
      auto at = std::ranges::lower_bound(spans, step.begin, {}, &TimelineSpan::begin);
      while (at != spans.end() && at->begin == step.begin && at->end != step.end) ++at;
      if (at == spans.end() || at->begin != step.begin) continue;
      steps.push_back({row, static_cast<uint32_t>(at - spans.begin())});
      by_row[row].insert(steps.back().span);
      break;
    }
  if (by_row.size() < 2 || steps.size() != timeline.steps.size()) return;
  TimelineRow gathered;
  gathered.thread = timeline.rows[by_row.begin()->first].thread + " and " + std::to_string(by_row.size() - 1) +
                    (by_row.size() == 2 ? " other thread" : " other threads");
  for (const auto& [row, span] : steps) {
    const auto& spans = timeline.rows[row].spans;
    const auto first = static_cast<uint32_t>(gathered.spans.size());
    for (uint32_t i = span, end = end_of(spans, span); i < end; ++i) {
      gathered.spans.push_back(spans[i]);
      gathered.spans.back().parent = i == span ? kNoSpan : spans[i].parent - span + first;
    }
  }
  for (const auto& [row, moved] : by_row) {
    std::vector<TimelineSpan>& spans = timeline.rows[row].spans;
    std::vector<uint32_t> now(spans.size());
    uint32_t kept = 0;
    for (uint32_t i = 0; i < spans.size(); ++i) {
      if (moved.contains(i)) {
        i = end_of(spans, i) - 1;
        continue;
      }
      now[i] = kept;
      TimelineSpan span = spans[i];
      if (span.parent != kNoSpan) span.parent = now[span.parent];
      spans[kept++] = span;
    }
    spans.resize(kept, TimelineSpan{});
  }
  timeline.rows.push_back(std::move(gathered));
  timeline.link_calls();
}

}  // namespace

RecurringUnit find_unit(const Timeline& timeline, const UnitRequest& request) {
  return UnitFinder(timeline, request).run();
}

void add_unit_names(const Timeline& timeline, std::set<std::string>& names) {
  constexpr size_t kMostNames = 100'000;
  std::set<std::pair<SpanKind, uint32_t>> seen;
  for (const TimelineRow& row : timeline.rows)
    for (const TimelineSpan& s : row.spans) {
      const bool may_be = s.kind == SpanKind::kPython || s.kind == SpanKind::kModule || s.kind == SpanKind::kAnnotation;
      if (!may_be || names.size() >= kMostNames || !seen.emplace(s.kind, s.name).second) continue;
      const std::string_view text = timeline.text(s.name);
      if (s.kind == SpanKind::kAnnotation)
        names.insert(std::string("range=").append(text));
      else if (s.kind == SpanKind::kModule)
        names.insert(std::string(class_of(text)));
      else if (timeline.is_program(s.name))
        names.insert(std::string(split(text).name));
      if (s.kind == SpanKind::kPython && !timeline.qualname(s.name).empty())
        names.insert(std::string(without_locals(timeline.qualname(s.name))));
    }
}

ImportTime imports_of(const Timeline& timeline) {
  struct Import {
    int64_t begin, end;
  };
  std::vector<Import> imports;
  std::map<uint32_t, int64_t> by_name;
  int64_t first_operator = timeline.end;
  for (const TimelineRow& row : timeline.rows) {
    int64_t end = INT64_MIN;  // of the latest import
    for (const TimelineSpan& s : row.spans) {
      if (s.begin < end) continue;
      if (s.kind == SpanKind::kOperator) first_operator = std::min(first_operator, s.begin);
      if (row.is_overflow || !is_import(s, timeline.text(s.name))) continue;
      end = s.end;
      imports.push_back({s.begin, s.end});
      add_to(by_name[s.name], s.ns());
    }
  }
  ImportTime result{.until = timeline.begin};
  if (imports.empty()) return result;
  std::ranges::sort(imports, {}, &Import::begin);
  int64_t end = timeline.begin;
  for (const Import& i : imports) {
    add_to(result.ns, std::max<int64_t>(0, i.end - std::max(end, i.begin)));
    end = std::max(end, i.end);
  }
  const auto most = std::ranges::max_element(by_name, {}, [](const auto& each) { return each.second; });
  if (timeline.text(most->first).starts_with("import ")) result.most = timeline.text(most->first);
  result.most_ns = most->second;
  // What the interpreter does before the first one is no work of the program. Those that begin after the program's work
  // has begun are its own.
  const int64_t most_between = (timeline.end - timeline.begin - result.ns) / 10;
  int64_t between = 0;
  result.until = imports.front().end;
  for (const Import& i : imports) {
    add_to(between, std::max<int64_t>(0, i.begin - result.until));
    if (between > most_between || i.begin > first_operator) break;
    result.until = std::max(result.until, i.end);
  }
  return result;
}

namespace {

// Until the interpreter begins to end, which collects garbage and runs nothing of the program's.
int64_t end_of_work(const Timeline& timeline) {
  int64_t end = timeline.begin;
  for (const TimelineRow& row : timeline.rows)
    for (const TimelineSpan& s : row.spans)
      if (s.kind != SpanKind::kGc) end = std::max(end, s.end);
  for (const TimelineWork& w : timeline.work) end = std::max(end, w.end);
  return std::min(end, timeline.end);
}

}  // namespace

Steps steps_of(const RecurringUnit& unit) {
  Steps steps{.count = unit.count, .spans = unit.spans, .ended_by = unit.name};
  for (const StepSpan& span : unit.spans) steps.ns.push_back(span.end - span.begin);
  return steps;
}

void use_unit(Timeline& timeline, const RecurringUnit& unit) {
  timeline.imports = imports_of(timeline);
  timeline.unit = unit.name;
  if (unit.name.empty()) {
    timeline.begin = std::min(timeline.imports.until, timeline.end);
    timeline.end = std::max(timeline.begin, end_of_work(timeline));
    return;
  }
  timeline.steps = chosen_steps(unit.spans, 0);
  if (!unit.is_pass) gather(timeline);
}

}  // namespace torchprof::formats
