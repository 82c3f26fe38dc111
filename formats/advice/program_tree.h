// The program's own functions on one thread, as a tree of calls with what they cost in time that is no work of torch:
// Python, libraries, waits, and operators that are so small that calling them is what they cost.
//
//   piece   a stretch of time in a step in which one span is the innermost one. It costs its length; in a process with
//           GPU work only as much as no GPU worked. Each piece belongs to one node and is of one kind of cost
//   node    a function of the program, called from one line of one other node. Node 0 is the thread itself
//   entry   the outermost call by which a node leaves the program: of a function of a library, or of an operator
//   line    the program's line from which a call came, as a name ("train.py(12): step"); 0: not known
//   region  a part of the tree that is told as one thing: a node with all that it calls, or some lines of a node
//
// What Python does in a function between two calls has no line of its own. It is taken for the line of the call before
// it, or of the call after it where there is none before. A function without any calls has no lines. Which line costs
// most is said better where the sampler has looked at what comes after calls of one line at least kFewestLooks times
// (timeline/thread_looks.h): its time is then divided among the lines at which it was seen.
//
// Memory: 16 bytes for each span of the thread, and a bounded number of nodes; what is beyond it belongs to the caller.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/advice/causes.h"
#include "formats/advice/claims.h"
#include "formats/advice/step_view.h"
#include "formats/timeline/thread_looks.h"

namespace torchprof::formats {

enum class Cost : uint8_t {
  kNone,     // work of torch, or what other rules tell
  kOwn,      // Python of the program itself
  kLibrary,  // functions of libraries, C calls, and what torch does that is no work of a network (causes.h)
  kWaiting,  // a function that only waits (formats/trace/waiting.h)
  kTiny,     // operators of a few microseconds, called in a loop
};
inline constexpr size_t kCosts = 5;
inline constexpr int64_t kFewElements = 256;

// What a node does at a line: what it waits for there is apart from all else.
struct LinePart {
  uint32_t line = 0;
  bool waits = false;
  auto operator<=>(const LinePart&) const = default;
};

struct Region {
  uint32_t node = 0;
  bool is_whole = false;             // with all that the node calls
  std::vector<LinePart> lines{};     // not whole: these lines of the node; 0: what has no line
  std::array<int64_t, kCosts> ns{};  // in all steps
  std::vector<int64_t> by_step{};

  uint32_t line = 0;             // the line that costs most; 0: not known
  uint32_t callee = 0;           // name of the entries that cost most; 0: there are none
  int64_t callee_ns = 0;         // what they cost
  uint64_t callee_calls = 0;     // in all steps
  const Cause* cause = nullptr;  // the known cause that costs most
  int64_t cause_ns = 0;          // what it costs
  uint32_t inside = 0;           // of functions that are not the program's, the one with most time itself
  int64_t inside_ns = 0;
  uint64_t operators = 0, items = 0;  // tiny operators in all steps; those of them that read a number, as item() does
  uint64_t on_few = 0, on_many = 0;   // those of them that compute with up to kFewElements elements, and with more
  uint64_t in_graph = 0;              // those of them of which a backward is to come
  uint32_t op = 0;                    // the most frequent of them
  ThreadAccount account{};            // of this time, as far as looks tell

  int64_t all_ns() const;
};

class ProgramTree {
 public:
  // `claimed`: what of the row other findings tell already. Both must outlive it.
  ProgramTree(const StepView& view, uint32_t row, const Claimed& claimed);
  // All that these spans cost, operators too.
  static ProgramTree of_all(const StepView& view, uint32_t row, const std::vector<bool>& wanted) {
    return {view, row, wanted, nullptr};
  }

  // Regions that cost at least so much in all steps, the largest first.
  std::vector<Region> regions(int64_t least);

  int64_t all_ns() const { return nodes_[0].sum; }                             // what all nodes cost
  uint32_t function_of(uint32_t node) const { return nodes_[node].function; }  // its name; 0: of node 0
  // The line that calls it; 0: not known, or a library calls it, which was called from some other line.
  uint32_t called_from(uint32_t node) const { return nodes_[node].is_direct ? nodes_[node].called_from : 0; }
  uint64_t calls_of(uint32_t node) const { return nodes_[node].calls; }  // that began in steps

 private:
  struct Key {
    uint32_t first, second, third;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& k) const {
      return (uint64_t{k.first} * 0x9e3779b97f4a7c15 ^ k.second) * 0x9e3779b97f4a7c15 ^ k.third;
    }
  };
  struct Node {
    uint32_t parent, function, called_from;
    bool is_direct = false;     // called by the program itself
    bool is_recursion = false;  // of a function that a node around it is of, too
    uint64_t calls = 0;
    int64_t wall = 0;  // of its spans, in steps
    int64_t sum = 0;   // cost of its pieces and those of the nodes that it calls
    std::vector<uint32_t> children{};
    std::map<LinePart, int64_t> lines{};  // cost of its own pieces
  };
  struct Note {  // of a span
    uint32_t node = 0;
    uint32_t entry = kNoSpan;  // the span by which the node was left; kNoSpan: it was not
    Cost cost = Cost::kNone;
    uint8_t cause = 0;          // kCauses[cause - 1]; 0: none
    bool is_in_module = false;  // a module's call lies between the entry and it, or is it
  };

  // Calls f(span, line, step, ns, begin, end) for each piece with a cost, in the order of time; the line is that of a
  // call.
  template <class F>
  void for_each_piece(F f) const;
  // Calls f(span, line, look, begin, end) for each look that ends in a piece, with the begin and end of that.
  template <class F>
  void for_each_look(F f) const;
  struct Cutter;

  uint32_t node_for(uint32_t parent, const TimelineSpan& span, bool is_direct);
  uint32_t line_of(uint32_t span) const;  // of the call of this span
  ProgramTree(const StepView& view, uint32_t row, const std::vector<bool>& spans, const Claimed* claimed);
  void note_spans();
  void find_tiny();
  void find_lines();
  bool is_own(uint32_t span) const { return notes_[span].cost == Cost::kOwn && notes_[span].entry == kNoSpan; }
  void add_costs();
  void visit(uint32_t node);
  void visit_container(uint32_t node);
  void measure();

  const StepView& view_;
  const uint32_t number_;  // of the row
  const std::vector<TimelineSpan>& spans_;
  const RowView& row_;
  const std::vector<bool>& chosen_;  // claimed ones, or wanted ones
  const Claimed* const claimed_;     // nullptr: all that wanted ones cost
  std::vector<Note> notes_;          // by span
  std::vector<Node> nodes_;
  std::unordered_map<Key, uint32_t, KeyHash> by_key_;
  ThreadLooks looks_;
  // Of own pieces of a node that come after a call of a line: the lines at which they were seen, and their shares.
  std::unordered_map<Key, std::vector<std::pair<uint32_t, double>>, KeyHash> lines_seen_;
  int64_t least_ = 1;
  std::vector<Region> regions_;
};

}  // namespace torchprof::formats
