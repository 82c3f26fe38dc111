#include "formats/analysis/call_tree.h"

#include <algorithm>
#include <span>
#include <utility>

#include "formats/io/pair_key.h"
#include "formats/io/sum.h"
#include "formats/native/path.h"
#include "formats/replay/process_label.h"
#include "formats/replay/thread_stack.h"
#include "formats/trace/gpu_index.h"

namespace torchprof::formats {

class CallTree::Builder final : public Sink {
 public:
  explicit Builder(CallTree& tree) : tree_(tree), native_(tree.process_.native.get()) {}

  void slice(const Slice& s) override {
    if (tree_.replay_.rows()[s.row].is_overflow) return;
    Lane& lane = lane_of(s.row);
    open_around(lane, {s.around, s.depth}, span_key(s));
    Node& node = tree_.tree_.nodes[close(lane, s)];
    add_to(node.own_ns, s.own_ns);
    ++node.calls;
    if (!tree_.steps_.empty()) add_steps(lane, s, node);
  }

  void gpu_activity(const GpuActivity& a) override {
    if (!runs_on_device(a.kind)) return;
    uint32_t caller = 0;
    if (a.call != nullptr) {
      Lane& lane = lane_of(a.call->row);
      const std::span<const Span> around = a.call->stack->spans();
      open_around(lane, around, kNoKey);
      caller = node_below(lane, around.size());
    } else {
      if (unknown_ == 0) unknown_ = tree_.tree_.child(0, NameId{UINT32_MAX});
      caller = unknown_;
    }
    Node& node = tree_.tree_.nodes[tree_.tree_.child(caller, a.name)];
    add_to(node.gpu_ns, a.end - a.begin);
    ++node.gpu_calls;
  }

  void end() override {
    for (Lane& lane : lanes_) give_up(lane, 0);
    for (uint32_t row = 0; row < lanes_.size(); ++row)
      if (lanes_[row].root != 0) tree_.threads_.push_back({thread_label(tree_.replay_.rows()[row]), lanes_[row].root});
    if (unknown_ != 0) tree_.threads_.push_back({kUnknownThread, unknown_});
    tree_.native_begin_ = tree_.replay_.names().size();
    const std::vector<uint32_t> numbers = tree_.leave_out_moved();
    for (Thread& thread : tree_.threads_) thread.root = numbers[thread.root];
  }

 private:
  // A span that is open. If a call and an annotation are directly inside each other, it is not known yet which will be
  // the outer one: `with record_function(...)` begins its annotation inside __enter__ and ends it inside __exit__, and
  // the replay draws these before and after it (range_helpers.h). So the inner span first gets a node apart, without a
  // parent, which takes what happens in it. When it ends, or the span around it does, that node's children move to
  // their place.
  struct Open {
    uint64_t key;
    uint32_t node;
    bool is_apart;
  };
  struct Lane {
    uint32_t root = 0;
    std::vector<Open> open;  // outermost first; only spans inside which something has ended
    // By depth: how long the slices that ended there were in steps, since what is around them began.
    std::vector<int64_t> in_steps;
  };

  static constexpr uint64_t kNoKey = ~uint64_t{0};  // no span_key() has this value

  Lane& lane_of(uint32_t row) {
    if (row >= lanes_.size()) lanes_.resize(row + 1);
    if (lanes_[row].root == 0) lanes_[row].root = tree_.tree_.child(0, NameId{row});
    return lanes_[row];
  }

  void add_steps(Lane& lane, const Slice& s, Node& node) {
    const int64_t begin = s.drawn_begin.value, end = s.drawn_end.value, ns = tree_.steps_.length(begin, end);
    if (lane.in_steps.size() < s.depth + size_t{2}) lane.in_steps.resize(s.depth + size_t{2});
    const int64_t inside = std::exchange(lane.in_steps[s.depth + size_t{1}], 0);
    add_to(lane.in_steps[s.depth], ns);
    // One that no edge of a step cuts has all of its time there, or none.
    const int64_t own = ns == end - begin ? s.own_ns : std::clamp<int64_t>(ns - inside, 0, s.own_ns);
    add_to(node.step_ns, own);
    if (tree_.steps_.length(begin, end + 1) > 0) ++node.step_calls;
  }

  uint32_t node_below(const Lane& lane, size_t i) const { return i == 0 ? lane.root : lane.open[i - 1].node; }

  // Forgets all open spans but the outermost `kept`. The children of nodes apart move to `into`, or to the span below.
  void give_up(Lane& lane, size_t kept, uint32_t into = 0) {
    for (; lane.open.size() > kept; lane.open.pop_back()) {
      const Open& top = lane.open.back();
      if (!top.is_apart) continue;
      tree_.tree_.move_children(top.node, into != 0 ? into : node_below(lane, lane.open.size() - 1));
      tree_.tree_.drop(top.node);
    }
  }

  // Makes the open spans those of `around`. If they are already, the slice with `key` and the spans inside it stay,
  // too.
  void open_around(Lane& lane, std::span<const Span> around, uint64_t key) {
    size_t known = 0;
    while (known < std::min(around.size(), lane.open.size()) && lane.open[known].key == span_key(around[known]))
      ++known;
    if (known < around.size() || (lane.open.size() > known && lane.open[known].key != key)) give_up(lane, known);
    for (size_t i = known; i < around.size(); ++i) {
      const Span& span = around[i];
      const bool is_apart = i > 0 && span.is_op() != around[i - 1].is_op();
      const uint32_t node =
          is_apart ? tree_.tree_.apart()
                   : tree_.tree_.child(through_native(node_below(lane, i), around.first(i), span.scope, span.native),
                                       name_of(span.name));
      lane.open.push_back({span_key(span), node, is_apart});
    }
  }

  // Ends a slice and returns its node.
  uint32_t close(Lane& lane, const Slice& s) {
    const size_t i = s.depth;
    const auto node_of_slice = [&] {
      const uint32_t caller = through_native(node_below(lane, i), {s.around, s.depth}, s.scope, s.native);
      return tree_.tree_.child(caller, name_of(s.name));
    };
    if (lane.open.size() <= i) return node_of_slice();
    // An annotation that is open when a call around it ends keeps what is in it if the call is drawn up to its begin.
    // Otherwise it is drawn elsewhere, and what was in it so far belongs to the call. Calls that are open when an
    // annotation around them ends are ending it: they keep what is in them.
    const Open it = lane.open[i];
    const bool is_cut = s.drawn_end < s.end;
    if (s.kind != SliceKind::kOperator && !is_cut)
      give_up(lane, i + 1, it.node);
    else if (!is_cut && lane.open.size() > i + 1 && !lane.open[i + 1].is_apart)
      give_up(lane, i + 1);
    lane.open.erase(lane.open.begin() + static_cast<ptrdiff_t>(i));
    if (!it.is_apart) return it.node;
    const uint32_t node = node_of_slice();
    tree_.tree_.move_children(it.node, node);
    tree_.tree_.drop(it.node);
    return node;
  }

  // Adds the native frames through which an operator was called from `node`, and returns the innermost one's node.
  uint32_t through_native(uint32_t node, std::span<const Span> around, OpScope scope, NativeFrameId innermost) {
    const auto child = [&](uint32_t frame) { node = tree_.tree_.child(node, NameId{kNative | frame}); };
    for (const uint32_t place : native_.places(around, scope, innermost)) {
      if (tree_.by_ == Native::kByAddress) {
        child(place);
        continue;
      }
      const std::vector<uint32_t>& texts = tree_.process_.native->where(place).texts;
      std::for_each(texts.rbegin(), texts.rend(), child);
    }
    return node;
  }

  NameId name_of(NameId name) {
    if (name.value >= names_.size()) names_.resize(tree_.replay_.names().size() + 1);
    NameId& known = names_[name.value];
    if (!known) {
      const bool is_step = tree_.replay_.names().role(name) == NameRole::kProfilerStep;
      known = is_step ? tree_.replay_.names().intern("ProfilerStep*") : name;
    }
    return known;
  }

  CallTree& tree_;
  NativePath native_;
  std::vector<Lane> lanes_;    // by row
  uint32_t unknown_ = 0;       // node of the thread for work without a call
  std::vector<NameId> names_;  // by name: the name under which it is counted
};

CallTree::CallTree(const Process& process, Replay& replay, Native native, Intervals steps)
    : process_(process),
      by_(native),
      steps_(std::move(steps)),
      replay_(replay),
      builder_(std::make_unique<Builder>(*this)) {
  replay.add(*builder_);
}
CallTree::~CallTree() = default;

void CallTree::Node::add(const Node& other) {
  add_to(own_ns, other.own_ns);
  calls += other.calls;
  add_to(step_ns, other.step_ns);
  step_calls += other.step_calls;
  add_to(gpu_ns, other.gpu_ns);
  gpu_calls += other.gpu_calls;
}

uint32_t CallTree::Nodes::add(Node node) {
  if (unused.empty()) {
    nodes.push_back(node);
    links.emplace_back(0, 0);
    last_child.push_back(0);
    return static_cast<uint32_t>(nodes.size() - 1);
  }
  const uint32_t number = unused.back();
  unused.pop_back();
  nodes[number] = node;
  links[number] = {0, 0};
  last_child[number] = 0;
  return number;
}

uint32_t CallTree::Nodes::apart() { return add({}); }

void CallTree::Nodes::link(uint32_t parent, uint32_t node) {
  nodes[node].parent = parent;
  links[node].second = 0;
  (last_child[parent] == 0 ? links[parent].first : links[last_child[parent]].second) = node;
  last_child[parent] = node;
}

uint32_t CallTree::Nodes::child(uint32_t parent, NameId name) {
  const auto [it, is_new] = by_path.try_emplace(pair_key(parent, name.value), 0);
  if (!is_new) return it->second;
  it->second = add({.name = parent == 0 ? NameId{} : name});
  const uint32_t node = it->second;
  link(parent, node);
  return node;
}

void CallTree::Nodes::move_children(uint32_t from, uint32_t to) {
  std::vector<std::pair<uint32_t, uint32_t>> left{{from, to}};
  while (!left.empty()) {
    const auto [source, target] = left.back();
    left.pop_back();
    uint32_t next = 0;
    for (uint32_t node = links[source].first; node != 0; node = next) {
      next = links[node].second;
      by_path.erase(pair_key(source, nodes[node].name.value));
      const auto [it, is_new] = by_path.try_emplace(pair_key(target, nodes[node].name.value), node);
      if (is_new) {
        link(target, node);
        continue;
      }
      nodes[it->second].add(nodes[node]);
      left.emplace_back(node, it->second);
    }
    links[source].first = 0;
    last_child[source] = 0;
    if (source != from) drop(source);
  }
}

// Removes nodes of spans that have moved to a row of their own, because they crossed others: such nodes have no calls.
// Their children become those of their parents. Returns the new indices of the threads' nodes, 0 for all others.
std::vector<uint32_t> CallTree::leave_out_moved() {
  Nodes kept;
  std::vector<uint32_t> numbers(tree_.nodes.size());
  std::vector<std::pair<uint32_t, uint32_t>> left;  // a node, and its parent among those that are kept
  for (uint32_t thread = tree_.links[0].first; thread != 0; thread = tree_.links[thread].second) {
    numbers[thread] = kept.child(0, NameId{thread});
    for (uint32_t i = tree_.links[thread].first; i != 0; i = tree_.links[i].second)
      left.emplace_back(i, numbers[thread]);
  }
  std::ranges::reverse(left);  // the last one is taken first
  std::vector<uint32_t> inside;
  while (!left.empty()) {
    const auto [i, caller] = left.back();
    left.pop_back();
    const Node& node = tree_.nodes[i];
    const bool is_moved = node.calls == 0 && node.gpu_calls == 0 && !is_native(node.name);
    const uint32_t to = is_moved ? caller : kept.child(caller, final_name(node.name));
    kept.nodes[to].add(node);
    inside.clear();
    for (uint32_t k = tree_.links[i].first; k != 0; k = tree_.links[k].second) inside.push_back(k);
    for (auto k = inside.rbegin(); k != inside.rend(); ++k) left.emplace_back(*k, to);
  }
  tree_ = std::move(kept);
  return numbers;
}

NameId CallTree::final_name(NameId name) {
  if (!is_native(name)) return name;
  NameId& known = native_names_[name.value];
  if (!known) {
    native_.push_back(name.value & ~kNative);
    known = {static_cast<uint32_t>(names())};
  }
  return known;
}

std::optional<uint32_t> CallTree::place(NameId name) {
  if (by_ != Native::kByAddress || name.value <= native_begin_) return std::nullopt;
  return native_[name.value - native_begin_ - 1];
}

std::string_view CallTree::text(NameId name) {
  if (name.value <= native_begin_) return replay_.names().text(name);
  const uint32_t frame = native_[name.value - native_begin_ - 1];
  const NativeStacks& stacks = *process_.native;
  return stacks.texts()[by_ == Native::kByAddress ? stacks.where(frame).texts.front() : frame];
}

void CallTree::each_path(const Thread& thread, const Visit& visit) const {
  std::vector<NameId> path;
  uint32_t at = tree_.links[thread.root].first;
  while (at != 0) {
    path.push_back(tree_.nodes[at].name);
    if (!tree_.nodes[at].is_empty()) visit(path, tree_.nodes[at]);
    if (tree_.links[at].first != 0) {
      at = tree_.links[at].first;
      continue;
    }
    while (at != thread.root && tree_.links[at].second == 0) {
      at = tree_.nodes[at].parent;
      path.pop_back();
    }
    if (at == thread.root) break;
    path.pop_back();
    at = tree_.links[at].second;
  }
}

}  // namespace torchprof::formats
