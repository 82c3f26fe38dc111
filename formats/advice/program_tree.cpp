#include "formats/advice/program_tree.h"

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

#include "formats/advice/operator_subject.h"
#include "formats/io/sum.h"
#include "formats/trace/names.h"

namespace torchprof::formats {
namespace {

constexpr size_t kMostNodes = 200'000;
constexpr int64_t kTinyNs = 30'000;  // an operator with the Python of torch around it
// A line that calls so many operators in a step calls them in a loop: the layers of a network are fewer. Without lines
// it is the function that calls so many with the same name.
constexpr uint64_t kLoop = 50, kLoopInFunction = 100;

bool is_operation(const TimelineSpan& s) { return s.kind == SpanKind::kOperator; }

bool is_torch(std::string_view name) {
  const size_t at = name.find("torch/");
  return at == 0 || (at != name.npos && name.substr(0, at).ends_with("-packages/"));
}

// Elements of the largest tensor that an operator computes with; 0: it only takes a part of a tensor, or has none.
int64_t largest_input(std::string_view name, const std::vector<Input>& inputs) {
  int64_t most = 0;
  if (takes_a_part(name) || name == "aten::unbind" || name == "aten::split") return most;
  for (const Input& input : inputs)
    for (const Tensor& t : input.tensors)
      if (t.is_readable) most = std::max(most, elements_of(t.sizes));
  return most;
}

}  // namespace

int64_t Region::all_ns() const {
  int64_t all = 0;
  for (const int64_t each : ns) add_to(all, each);
  return all;
}

ProgramTree::ProgramTree(const StepView& view, uint32_t row, const Claimed& claimed)
    : ProgramTree(view, row, claimed.spans, &claimed) {}

ProgramTree::ProgramTree(const StepView& view, uint32_t row, const std::vector<bool>& spans, const Claimed* claimed)
    : view_(view),
      number_(row),
      spans_(view.timeline().rows[row].spans),
      row_(view.rows()[row]),
      chosen_(spans),
      claimed_(claimed),
      looks_(view.timeline(), row) {
  nodes_.push_back({});
  notes_.resize(spans_.size());
  note_spans();
  if (claimed != nullptr) find_tiny();
  find_lines();
  add_costs();
}

uint32_t ProgramTree::node_for(uint32_t parent, const TimelineSpan& span, bool is_direct) {
  const auto [known, is_new] =
      by_key_.try_emplace({parent, span.name, span.called_from}, static_cast<uint32_t>(nodes_.size()));
  if (is_new) {
    if (nodes_.size() >= kMostNodes) {
      by_key_.erase(known);
      return parent;
    }
    bool is_recursion = false;
    for (uint32_t n = parent; n != 0 && !is_recursion; n = nodes_[n].parent)
      is_recursion = nodes_[n].function == span.name;
    nodes_.push_back({.parent = parent,
                      .function = span.name,
                      .called_from = span.called_from,
                      .is_direct = is_direct,
                      .is_recursion = is_recursion});
    nodes_[parent].children.push_back(known->second);
  }
  return known->second;
}

uint32_t ProgramTree::line_of(uint32_t span) const {
  const TimelineSpan& s = spans_[span];
  return s.called_from != 0 ? s.called_from : s.place;
}

void ProgramTree::note_spans() {
  const Timeline& timeline = view_.timeline();
  std::vector<int8_t> torch(timeline.names());  // by name: 1 yes, -1 no
  std::vector<int16_t> cause(timeline.names(), -1);
  // @torch.no_grad() and the like: torch 1.13 to 2.15. From 2.1 on such a wrapper has the decorator's own name.
  std::vector<int8_t> wrapper(timeline.names());  // by name: 1 yes, -1 no
  const auto is_wrapper = [&](uint32_t span) {
    int8_t& known = wrapper[spans_[span].name];
    if (known == 0) {
      const PlaceParts place = split_place(view_.text(spans_[span].name));
      const bool is_old = place.file.ends_with("torch/autograd/grad_mode.py") && place.name == "decorate_context";
      known = is_old || place.file.ends_with("torch/utils/_contextlib.py") ? 1 : -1;
    }
    return known > 0;
  };
  for (uint32_t i = 0; i < spans_.size(); ++i) {
    const TimelineSpan& s = spans_[i];
    const Note outer = s.parent == kNoSpan ? Note{} : notes_[s.parent];
    Note& note = notes_[i];
    const bool is_program = s.kind == SpanKind::kPython && timeline.is_program(s.name);
    if (is_program && outer.cause == 0) {
      note.node = node_for(outer.node, s, outer.entry == kNoSpan && s.parent != kNoSpan);
      Node& node = nodes_[note.node];
      if (view_.begins_in_step(s.begin)) ++node.calls;
      if (!node.is_recursion) add_to(node.wall, view_.in_steps(s.begin, s.end));  // it counts once
      note.cost = Cost::kOwn;
    } else {
      note.node = outer.node;
      note.entry = outer.entry;
      note.cause = outer.cause;
      note.is_in_module = outer.is_in_module || s.kind == SpanKind::kModule;
      const bool is_range = s.kind == SpanKind::kAnnotation;
      // What a decorator of torch wraps is what the program calls.
      const bool is_wrapped = note.entry != kNoSpan && s.parent == note.entry && is_wrapper(note.entry);
      if ((note.entry == kNoSpan || is_wrapped) && !is_range) note.entry = i;
      if (s.kind == SpanKind::kPython && note.cause == 0) {
        if (cause[s.name] < 0) cause[s.name] = cause_of(view_.text(s.name));
        note.cause = static_cast<uint8_t>(cause[s.name]);
      }
      if (torch[s.name] == 0) torch[s.name] = is_torch(view_.text(s.name)) ? 1 : -1;
      // Between the operators of a range it is the program that runs, if it runs at all.
      if (is_range)
        note.cost = outer.cost == Cost::kOwn ? Cost::kOwn : Cost::kNone;
      else if (s.kind == SpanKind::kCCall || (s.kind == SpanKind::kPython && torch[s.name] < 0))
        note.cost = Cost::kLibrary;
    }
    const Activity activity = row_.activity[i];
    if (activity == Activity::kWaiting) {
      note.cost = Cost::kWaiting;
    } else if (activity == Activity::kOperator || activity == Activity::kProgram) {
      if (note.cause != 0 && note.cost != Cost::kOwn)
        note.cost = cause_at(note.cause).effort == Effort::kWaits ? Cost::kWaiting : Cost::kLibrary;
      else if (activity == Activity::kOperator)
        note.cost = Cost::kNone;
    } else {
      note.cost = Cost::kNone;
    }
    // Libraries in a module's call are part of the network.
    if (note.cost == Cost::kLibrary && note.cause == 0 && note.is_in_module) note.cost = Cost::kNone;
    const bool is_chosen = i < chosen_.size() && chosen_[i];
    if (claimed_ == nullptr)
      note.cost = !is_chosen ? Cost::kNone : is_program ? Cost::kOwn : Cost::kLibrary;
    else if (is_chosen)
      note.cost = Cost::kNone;
  }
}

// Where most are small all count: on a busy machine some take far longer.
// In a process with GPU work operators cost what they keep the GPU waiting, which other rules tell.
void ProgramTree::find_tiny() {
  if (view_.has_gpu()) return;
  std::vector<bool> has_operator(spans_.size());
  for (uint32_t i = 0; i < spans_.size(); ++i) {
    const Note& note = notes_[i];
    if (is_operation(spans_[i]) && note.entry != kNoSpan && note.cause == 0 && row_.activity[i] == Activity::kOperator)
      has_operator[note.entry] = true;
  }
  const auto may_be = [&](uint32_t i) {
    const SpanKind kind = spans_[i].kind;
    return has_operator[i] && (kind == SpanKind::kOperator || kind == SpanKind::kPython) &&
           (i >= chosen_.size() || !chosen_[i]) && view_.begins_in_step(spans_[i].begin);
  };
  struct Count {
    uint64_t all = 0, small = 0;
  };
  std::unordered_map<Key, Count, KeyHash> counts, by_name;
  const auto key_of = [this](uint32_t i) -> Key {
    const uint32_t line = line_of(i);
    const uint32_t function = nodes_[notes_[i].node].function;
    return line != 0 ? Key{function, line, 0} : Key{function, 0, spans_[i].name};
  };
  // A line may have large ones, too.
  const auto with_name = [this](Key key, uint32_t i) -> Key { return {key.first, key.second, spans_[i].name}; };
  for (uint32_t i = 0; i < spans_.size(); ++i)
    if (notes_[i].node != 0 && may_be(i)) {
      const Key key = key_of(i);
      for (Count* const count : {&counts[key], &by_name[with_name(key, i)]}) {
        ++count->all;
        count->small += spans_[i].ns() < kTinyNs;
      }
    }
  const uint64_t steps = view_.steps().size();
  std::erase_if(counts, [steps](const auto& each) {
    return each.second.small * 2 < each.second.all ||
           each.second.all < steps * (each.first.second != 0 ? kLoop : kLoopInFunction);
  });
  if (counts.empty()) return;
  for (uint32_t i = 0; i < spans_.size(); ++i) {
    Note& note = notes_[i];
    if (note.node == 0 || note.entry == kNoSpan || note.cause != 0 || !may_be(note.entry)) continue;
    const Key key = key_of(note.entry);
    if (!counts.contains(key)) continue;
    const Count& of_name = by_name[with_name(key, note.entry)];
    if (of_name.small * 2 >= of_name.all) note.cost = Cost::kTiny;
  }
}

// Gives the parts of a stretch that lie in steps, as far as no other finding tells them.
struct ProgramTree::Cutter {
  const ProgramTree& tree;
  size_t step = 0;
  size_t next_free = 0;                          // of the timeline's large_frees
  std::unordered_map<uint32_t, int64_t> told{};  // of the Python of a span, what others tell; less what was taken off

  // Of a piece, at most what the kernel takes to get large blocks back: they are freed between two events, and the
  // time is not that of Python. Measured: 0.3 us a page.
  int64_t freeing_ns(int64_t begin, int64_t end) {
    constexpr int64_t kPage = 4096, kMostNs = 500;
    const std::vector<TimelineFree>& frees = tree.view_.timeline().large_frees;
    int64_t ns = 0, after = begin;
    for (; next_free < frees.size() && frees[next_free].time < end; ++next_free) {
      const TimelineFree& each = frees[next_free];
      if (each.time < begin || each.row != tree.number_) continue;
      after = std::max(after, each.time);
      const int64_t most = std::min(end - after, each.bytes / kPage * kMostNs);
      add_to(ns, most);
      add_to(after, most);
    }
    return ns;
  }

  template <class F>
  void cut(uint32_t span, uint32_t line, int64_t begin, int64_t end, F& f) {
    if (begin >= end || tree.notes_[span].cost == Cost::kNone) return;
    const std::vector<StepSpan>& steps = tree.view_.steps();
    while (step < steps.size() && steps[step].end <= begin) ++step;
    const auto left = told.empty() ? told.end() : told.find(span);
    for (size_t at = step; at < steps.size() && steps[at].begin < end; ++at) {
      const int64_t from = std::max(begin, steps[at].begin), to = std::min(end, steps[at].end);
      int64_t ns = tree.view_.has_gpu() ? tree.view_.idle_ns(from, to) : to - from;
      ns = std::max<int64_t>(0, ns - freeing_ns(from, to));
      if (left != told.end()) {
        const int64_t off = std::min(ns, left->second);
        left->second -= off;
        ns -= off;
      }
      if (ns > 0) f(span, line, at, ns, from, to);
    }
  }
};

template <class F>
void ProgramTree::for_each_piece(F f) const {
  struct Open {
    uint32_t span;
    uint32_t line;  // of the last call in it
    int64_t at;     // up to here it is cut
  };
  std::vector<Open> open;
  Cutter cutter{*this};
  if (claimed_ != nullptr) cutter.told.insert(claimed_->between.begin(), claimed_->between.end());
  const auto line_in = [this](const Open& o) {
    const Note& note = notes_[o.span];
    return note.entry != kNoSpan ? line_of(note.entry) : o.line;
  };
  const auto close = [&] {
    const Open last = open.back();
    const TimelineSpan& s = spans_[last.span];
    cutter.cut(last.span, line_in(last), last.at, s.end, f);
    open.pop_back();
    if (!open.empty()) open.back().at = std::max(open.back().at, s.end);
  };
  for (uint32_t i = 0; i < spans_.size(); ++i) {
    const TimelineSpan& s = spans_[i];
    while (!open.empty() && open.back().span != s.parent) close();
    if (!open.empty()) {
      Open& outer = open.back();
      if (const uint32_t line = line_of(i); outer.line == 0 && line != 0) outer.line = line;
      cutter.cut(outer.span, line_in(outer), outer.at, s.begin, f);
      outer.at = std::max(outer.at, s.begin);
      if (const uint32_t line = line_of(i); line != 0) outer.line = line;
    }
    // A range begins at the line where what is around it stands.
    const bool is_range = s.kind == SpanKind::kAnnotation && !open.empty();
    open.push_back({i, is_range ? open.back().line : 0, s.begin});
  }
  while (!open.empty()) close();
}

template <class F>
void ProgramTree::for_each_look(F f) const {
  const std::vector<const TimelineSample*>& all = looks_.all();
  auto look = all.begin();
  if (look == all.end()) return;
  for_each_piece([&](uint32_t span, uint32_t line, size_t, int64_t, int64_t begin, int64_t end) {
    while (look != all.end() && (*look)->end < begin) ++look;
    for (; look != all.end() && (*look)->end < end; ++look) f(span, line, **look, begin, end);
  });
}

void ProgramTree::find_lines() {
  struct Seen {
    double looks = 0;
    std::map<uint32_t, int64_t> lines{};
  };
  std::unordered_map<Key, Seen, KeyHash> all;
  for_each_look([&](uint32_t span, uint32_t line, const TimelineSample& look, int64_t, int64_t) {
    if (!is_own(span)) return;
    const uint32_t at = line_in_function(view_.timeline(), look.frame, view_.text(spans_[span].name));
    if (at == 0) return;
    Seen& seen = all[{notes_[span].node, line, 0}];
    seen.looks += ThreadLooks::weight(look);
    add_to(seen.lines[at], look.ns());
  });
  for (const auto& [key, seen] : all) {
    if (seen.looks < kFewestLooks) continue;
    int64_t sum = 0;
    std::vector<std::pair<uint32_t, double>> lines;
    for (const auto& [line, ns] : seen.lines) {
      add_to(sum, ns);
      lines.emplace_back(line, static_cast<double>(ns));
    }
    if (sum <= 0) continue;
    for (auto& [line, share] : lines) share /= static_cast<double>(sum);
    lines_seen_[key] = std::move(lines);
  }
}

void ProgramTree::add_costs() {
  for_each_piece([this](uint32_t span, uint32_t line, size_t, int64_t ns, int64_t, int64_t) {
    Node& node = nodes_[notes_[span].node];
    add_to(node.sum, ns);
    add_to(node.lines[{line, notes_[span].cost == Cost::kWaiting}], ns);
  });
  for (size_t n = nodes_.size(); n-- > 1;) add_to(nodes_[nodes_[n].parent].sum, nodes_[n].sum);
}

std::vector<Region> ProgramTree::regions(int64_t least) {
  regions_.clear();
  least_ = std::max<int64_t>(1, least);
  visit(0);
  measure();
  std::ranges::sort(regions_, std::greater<>(), &Region::all_ns);
  return std::move(regions_);
}

// A function whose cost is nearly all that of another one that it calls is not told: that one is.
void ProgramTree::visit(uint32_t n) {
  const Node& node = nodes_[n];
  if (node.sum < least_) return;
  for (const uint32_t child : node.children)
    if (nodes_[child].sum >= node.sum / 5 * 4) return visit(child);
  // What is around much of a step has parts that have nothing to do with each other.
  if (n == 0 || node.wall > view_.all_ns() / 2) return visit_container(n);
  regions_.push_back({.node = n, .is_whole = true});
}

// The calls that cost much each have a region. What is left belongs to the node's lines; neighbours are one region.
void ProgramTree::visit_container(uint32_t n) {
  std::map<LinePart, int64_t> lines = nodes_[n].lines;
  for (const uint32_t child : nodes_[n].children) {
    if (nodes_[child].sum >= least_)
      visit(child);
    else
      add_to(lines[{nodes_[child].called_from, false}], nodes_[child].sum);
  }
  if (n == 0) return;                                          // not the program's
  std::vector<std::tuple<bool, uint32_t, LinePart>> in_order;  // with the number of the line
  for (const auto& [part, ns] : lines) in_order.emplace_back(part.waits, split_place(view_.text(part.line)).line, part);
  std::ranges::sort(in_order);
  constexpr uint32_t kNear = 3;
  Region region{.node = n};
  int64_t sum = 0;
  uint32_t last = 0;
  bool waits = false;
  const auto finish = [&] {
    if (sum >= least_) regions_.push_back(region);
    region.lines.clear();
    sum = 0;
  };
  for (const auto& [is_wait, number, part] : in_order) {
    if (!region.lines.empty() && (part.line == 0 || number > last + kNear || is_wait != waits)) finish();
    region.lines.push_back(part);
    add_to(sum, lines[part]);
    last = number;
    waits = is_wait;
    if (part.line == 0) finish();
  }
  finish();
}

void ProgramTree::measure() {
  // Which region a node, or a line of it, belongs to.
  std::vector<int32_t> of_node(nodes_.size(), -1);
  std::unordered_map<Key, int32_t, KeyHash> of_line;
  for (size_t r = 0; r < regions_.size(); ++r) {
    Region& region = regions_[r];
    region.by_step.resize(view_.steps().size());
    if (region.is_whole) of_node[region.node] = static_cast<int32_t>(r);
    for (const LinePart& part : region.lines) of_line[{region.node, part.line, part.waits}] = static_cast<int32_t>(r);
  }
  // The line of the region's own node that led to a node; 0: not known, or it is that node.
  std::vector<uint32_t> led_by(nodes_.size());
  // Parents come before the nodes that they call.
  for (uint32_t n = 1; n < nodes_.size(); ++n) {
    if (of_node[n] >= 0) continue;
    const Node& node = nodes_[n];
    const bool is_below =
        of_node[node.parent] >= 0 && regions_[static_cast<size_t>(of_node[node.parent])].node != node.parent;
    led_by[n] = is_below ? led_by[node.parent] : node.called_from;
    if (of_node[node.parent] >= 0) of_node[n] = of_node[node.parent];
    const auto line = of_line.find({node.parent, node.called_from, 0});
    if (line != of_line.end() && node.sum < least_) of_node[n] = line->second;
  }
  struct Sums {
    std::unordered_map<uint32_t, int64_t> lines, inside;
    std::unordered_map<uint32_t, PlaceSum> callees;
    std::unordered_map<uint32_t, int64_t> causes;
    std::unordered_map<uint32_t, uint64_t> ops;
  };
  std::vector<Sums> sums(regions_.size());
  const auto region_of = [&](uint32_t span, uint32_t line) {
    const uint32_t node = notes_[span].node;
    if (of_node[node] >= 0) return of_node[node];
    const auto found = of_line.find({node, line, notes_[span].cost == Cost::kWaiting});
    return found == of_line.end() ? -1 : found->second;
  };
  for_each_piece([&](uint32_t span, uint32_t line, size_t step, int64_t ns, int64_t, int64_t) {
    const int32_t r = region_of(span, line);
    if (r < 0) return;
    Region& region = regions_[static_cast<size_t>(r)];
    Sums& of = sums[static_cast<size_t>(r)];
    const Note& note = notes_[span];
    add_to(region.ns[static_cast<size_t>(note.cost)], ns);
    add_to(region.by_step[step], ns);
    const uint32_t leading = note.node == region.node ? 0 : led_by[note.node];
    const auto seen = is_own(span) ? lines_seen_.find({note.node, line, 0}) : lines_seen_.end();
    if (leading != 0 || seen == lines_seen_.end())
      add_to(of.lines[leading != 0 ? leading : line], ns);
    else
      for (const auto& [at, share] : seen->second)
        add_to(of.lines[at], static_cast<int64_t>(static_cast<double>(ns) * share));
    if (note.entry != kNoSpan) add_to(of.callees[spans_[note.entry].name].ns, ns);
    if (note.cause != 0) add_to(of.causes[note.cause], ns);
    if (note.cost == Cost::kLibrary || note.cost == Cost::kWaiting) add_to(of.inside[spans_[span].name], ns);
  });
  for_each_look([&](uint32_t span, uint32_t line, const TimelineSample& look, int64_t begin, int64_t end) {
    if (const int32_t r = region_of(span, line); r >= 0)
      looks_.add(look, begin, end, regions_[static_cast<size_t>(r)].account);
  });
  for (uint32_t i = 0; i < spans_.size(); ++i) {
    const Note& note = notes_[i];
    if (note.entry == kNoSpan || !view_.begins_in_step(spans_[i].begin)) continue;
    const int32_t r = region_of(i, line_of(note.entry));
    if (r < 0) continue;
    Region& region = regions_[static_cast<size_t>(r)];
    Sums& of = sums[static_cast<size_t>(r)];
    if (note.entry == i) ++of.callees[spans_[i].name].count;
    const uint32_t parent = spans_[i].parent;
    if (note.cost != Cost::kTiny || !is_operation(spans_[i]) || (parent != kNoSpan && is_operation(spans_[parent])))
      continue;
    ++region.operators;
    ++of.ops[spans_[i].name];
    const std::string_view name = view_.text(spans_[i].name);
    const int64_t elements = largest_input(name, view_.timeline().inputs(spans_[i].inputs));
    region.on_few += elements > 0 && elements <= kFewElements;
    region.on_many += elements > kFewElements;
    region.in_graph += spans_[i].sequence != 0;
    region.items += name == "aten::item" || name == "aten::_local_scalar_dense" || name == "aten::is_nonzero";
  }
  const auto most = [](const auto& map) {
    return std::ranges::max_element(map, {}, [](const auto& e) { return e.second; });
  };
  for (size_t r = 0; r < regions_.size(); ++r) {
    Region& region = regions_[r];
    Sums& of = sums[r];
    of.lines.erase(0);
    if (const auto line = most(of.lines); line != of.lines.end()) region.line = line->first;
    if (const auto op = most(of.ops); op != of.ops.end()) region.op = op->first;
    if (const auto inside = most(of.inside); inside != of.inside.end()) {
      region.inside = inside->first;
      region.inside_ns = inside->second;
    }
    if (const auto cause = most(of.causes); cause != of.causes.end()) {
      region.cause = &cause_at(static_cast<uint8_t>(cause->first));
      region.cause_ns = cause->second;
    }
    const auto callee = std::ranges::max_element(of.callees, {}, [](const auto& e) { return e.second.ns; });
    if (callee != of.callees.end()) {
      region.callee = callee->first;
      region.callee_ns = callee->second.ns;
      region.callee_calls = callee->second.count;
    }
  }
}

}  // namespace torchprof::formats
