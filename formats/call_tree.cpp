#include "formats/call_tree.h"

#include "formats/process_label.h"
#include "formats/steps.h"
#include "formats/thread_stack.h"

namespace torchprof::formats {

class CallTree::Builder final : public Sink {
 public:
  explicit Builder(CallTree& tree) : tree_(tree) {}

  void slice(const Slice& s) override {
    if (tree_.replay_.rows()[s.row].is_overflow) return;
    if (s.row >= lanes_.size()) lanes_.resize(s.row + 1);
    Lane& lane = lanes_[s.row];
    if (lane.root == 0) lane.root = tree_.tree_.child(0, NameId{s.row});
    Node& node = tree_.tree_.nodes[tree_.tree_.child(inner(lane, s), name_of(s.name))];
    node.own_ns += s.own_ns;
    ++node.calls;
  }

  void finish() {
    for (uint32_t row = 0; row < lanes_.size(); ++row)
      if (lanes_[row].root != 0) tree_.threads_.push_back({thread_label(tree_.replay_.rows()[row]), lanes_[row].root});
  }

 private:
  struct Open {
    uint64_t key;
    uint32_t node;
  };
  struct Lane {
    uint32_t root = 0;
    std::vector<Open> open;  // nodes of what was open when the last slice came
  };

  static uint64_t key_of(const Span& span) { return span.id << 1 | uint64_t{span.is_op()}; }

  // The node of what is directly around it. A span never moves up on its stack: one that is where it was last time has
  // the same ones below it.
  uint32_t inner(Lane& lane, const Slice& s) {
    uint32_t known = std::min<uint32_t>(s.depth, static_cast<uint32_t>(lane.open.size()));
    while (known > 0 && lane.open[known - 1].key != key_of(s.around[known - 1])) --known;
    lane.open.resize(known);
    for (uint32_t i = known; i < s.depth; ++i) {
      const uint32_t below = i == 0 ? lane.root : lane.open[i - 1].node;
      lane.open.push_back({key_of(s.around[i]), tree_.tree_.child(below, name_of(s.around[i].name))});
    }
    return s.depth == 0 ? lane.root : lane.open[s.depth - 1].node;
  }

  NameId name_of(NameId name) {
    if (name.value >= names_.size()) names_.resize(tree_.replay_.names().size() + 1);
    NameId& known = names_[name.value];
    if (!known) {
      const bool is_step = tree_.text(name).starts_with(kProfilerStep);
      known = is_step ? tree_.replay_.names().intern("ProfilerStep*") : name;
    }
    return known;
  }

  CallTree& tree_;
  std::vector<Lane> lanes_;    // by row
  std::vector<NameId> names_;  // what a name is counted as
};

CallTree::CallTree(const Process& process) : replay_(process) {
  Builder builder(*this);
  replay_.run(builder);
  builder.finish();
  const std::vector<uint32_t> numbers = leave_out_moved();
  for (Thread& thread : threads_) thread.root = numbers[thread.root];
}

uint32_t CallTree::Nodes::child(uint32_t parent, NameId name) {
  const auto [it, is_new] =
      by_path.try_emplace(uint64_t{parent} << 32 | name.value, static_cast<uint32_t>(nodes.size()));
  if (!is_new) return it->second;
  const uint32_t node = it->second;
  nodes.push_back({.parent = parent, .name = parent == 0 ? NameId{} : name});
  links.emplace_back(0, 0);
  last_child.push_back(0);
  (last_child[parent] == 0 ? links[parent].first : links[last_child[parent]].second) = node;
  last_child[parent] = node;
  return node;
}

// An annotation that a function opens and leaves open begins, in a trace, where the function ends: what ended in it
// before ran in the function. Its path inside of the function has no call then. Gives the new number of each node.
std::vector<uint32_t> CallTree::leave_out_moved() {
  Nodes kept;
  std::vector<uint32_t> numbers(tree_.nodes.size());
  for (uint32_t i = 1; i < tree_.nodes.size(); ++i) {  // parents come first
    const Node& node = tree_.nodes[i];
    const bool is_thread = node.parent == 0;
    const uint32_t parent = numbers[node.parent];
    numbers[i] = is_thread ? kept.child(0, NameId{i}) : node.calls == 0 ? parent : kept.child(parent, node.name);
    kept.nodes[numbers[i]].own_ns += node.own_ns;
    kept.nodes[numbers[i]].calls += node.calls;
  }
  tree_ = std::move(kept);
  return numbers;
}

void CallTree::each_path(const Thread& thread, const Visit& visit) const {
  std::vector<NameId> path;
  uint32_t at = tree_.links[thread.root].first;
  while (at != 0) {
    path.push_back(tree_.nodes[at].name);
    if (tree_.nodes[at].own_ns != 0 || tree_.nodes[at].calls != 0) visit(path, tree_.nodes[at]);
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
