#include "formats/timeline/units.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "formats/io/pair_key.h"
#include "formats/io/sum.h"
#include "formats/timeline/unit_names.h"
#include "formats/timeline/unit_of_calls.h"
#include "formats/trace/name_role.h"
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
    if (!request_.chosen.empty()) return unit_of_calls(t_, request_, chosen_calls(), true, 0).value_or(RecurringUnit{});
    for (uint32_t row = 0; row < t_.rows.size(); ++row) has_operators_ |= runs_operators(row);
    of_span_.resize(t_.rows.size());
    works_.resize(t_.rows.size());
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
      if (t_.role(name) != NameRole::kModule) return kNoKey;
      key.kind = KeyKind::kModule;
      // Objects that are made anew for each call, and those that are many: one by one they do not recur.
      if (!recurring_objects().contains(name)) same = std::string("class ").append(module_class(text));
    } else if (kind == SpanKind::kAnnotation) {
      if (is_torchs_range(text)) return kNoKey;
      key.kind = KeyKind::kRange;
      same = std::string("range ").append(without_last_number(text));
    } else if (is_backward_call(text)) {
      key.kind = KeyKind::kBackward;
      same = "backward";
    } else {
      const std::string_view function = split_function(text).name;
      // What is written in another function is called by it alone.
      constexpr std::array<std::string_view, 5> kParts = {"<module>", "<listcomp>", "<setcomp>", "<dictcomp>",
                                                          "<genexpr>"};
      if ((!t_.is_program(name) && !t_.is_installed(name)) || std::ranges::find(kParts, function) != kParts.end())
        return kNoKey;
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
    const StepSpan* window = window_before(request_, s.begin);
    return request_.windows.empty() || (window != nullptr && window->begin < s.begin && s.end < window->end);
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

  // What each span of a row takes itself, from `start` on.
  std::vector<int64_t> own_since(uint32_t row, int64_t start) const {
    const std::vector<TimelineSpan>& spans = t_.rows[row].spans;
    std::vector<int64_t> own(spans.size());
    const int64_t end = row_works_until(t_, t_.rows[row]);
    for (uint32_t i = 0; i < spans.size(); ++i) {
      const TimelineSpan& s = spans[i];
      own[i] = std::max<int64_t>(0, std::min(end, s.end) - std::max(start, s.begin));
      if (s.parent != kNoSpan) own[s.parent] -= own[i];
    }
    return own;
  }

  // What the program did from then on.
  int64_t worked_since(int64_t start) const {
    int64_t worked = 0;
    for (uint32_t row = 0; row < works_.size(); ++row) {
      if (works_[row].empty()) continue;
      const std::vector<int64_t> own = own_since(row, start);
      for (uint32_t i = 0; i < own.size(); ++i)
        if (works_[row][i] && own[i] > 0) add_to(worked, own[i]);
    }
    return worked;
  }

  void look_at(uint32_t row) {
    const std::vector<TimelineSpan>& spans = t_.rows[row].spans;
    std::vector<uint32_t>& node = of_span_[row];
    node.resize(spans.size());
    works_[row].resize(spans.size());
    enum : uint8_t { kImport = 1, kOperator = 2, kModule = 4, kWaits = 8 };
    std::vector<uint8_t> in(spans.size());
    const std::vector<int64_t> own = own_since(row, start_);
    for (uint32_t i = 0; i < spans.size(); ++i) {
      const TimelineSpan& s = spans[i];
      const bool has_parent = s.parent != kNoSpan;
      const uint32_t around = has_parent ? node[s.parent] : 0;
      // What waits calls others that work, as a thread of a pool does.
      uint8_t is = has_parent ? in[s.parent] & ~kWaits : 0;
      node[i] = around;
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
      works_[row][i] = (is & (kImport | kWaits)) == 0;
    }
    for (uint32_t i = 0; i < spans.size(); ++i) {
      if (!works_[row][i] || own[i] <= 0) continue;
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
        std::vector<CallAt> calls = calls_of(c.key);
        if (calls.empty()) continue;
        int64_t first = INT64_MAX;
        for (const CallAt& at : calls) first = std::min(first, t_.span(at.row, at.span).begin);
        const int64_t enough = std::max(all / 4, worked_since(first) / 2);
        const bool covers = c.worked >= enough || (c.in_operators >= operators / 2 && c.worked >= all / 4);
        if (std::optional<RecurringUnit> unit = unit_of_calls(t_, request_, std::move(calls), covers, enough))
          return unit;
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

  std::vector<CallAt> calls_of(uint32_t key) const {
    std::vector<CallAt> calls;
    for (uint32_t row = 0; row < of_span_.size(); ++row)
      for (uint32_t i = 0; i < of_span_[row].size(); ++i) {
        const uint32_t node = of_span_[row][i];
        if (!is_outermost_[node] || nodes_[node].key != key) continue;
        const TimelineSpan& s = t_.span(row, i);
        if ((s.parent == kNoSpan || of_span_[row][s.parent] != node) && is_whole(s)) calls.push_back({row, i});
      }
    return calls;
  }

  std::vector<CallAt> chosen_calls() {
    std::vector<CallAt> calls;
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
      return t_.role(s.name) == NameRole::kModule &&
             (without_role(text, NameRole::kModule) == chosen || module_class(text) == chosen);
    if (s.kind != SpanKind::kPython) return false;
    const FunctionText function = split_function(text);
    const std::string_view qualname = t_.qualname(s.name);
    const auto is_named = [&](std::string_view wanted) {
      return wanted == function.name ||
             (!qualname.empty() && (wanted == qualname || wanted == without_locals(qualname)));
    };
    const size_t colon = chosen.find(".py:");
    if (colon != chosen.npos && function.file == chosen.substr(0, colon + 3)) return is_named(chosen.substr(colon + 4));
    return text == chosen || is_named(chosen);
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
  std::vector<std::vector<bool>> works_;             // whether its own time counts; empty: of a row not looked at
  std::vector<bool> is_outermost_;                   // by node
};

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
        names.insert(std::string(module_class(text)));
      else if (timeline.is_program(s.name) || timeline.is_installed(s.name))
        names.insert(std::string(split_function(text).name));
      if (s.kind == SpanKind::kPython && !timeline.qualname(s.name).empty())
        names.insert(std::string(without_locals(timeline.qualname(s.name))));
    }
}

}  // namespace torchprof::formats
