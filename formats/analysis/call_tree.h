// The calls of a process, added up by their whole path: Python functions, modules, C calls, operators and annotations,
// each inside the slice around it in the trace.
//
//   own_ns   time in a call without anything that ran inside it: over a thread it adds up to the time in which anything
//            was open
//   calls    how often the path was called
//   step_ns  the part of own_ns in the times that were given as steps; step_calls: calls that have a part there
//   gpu_ns   time of a kernel, copy or set. It is a node of its own at the end of the path that launched it, with its
//            number in gpu_calls. Work whose call is not known is on a thread of its own, kUnknownThread
//
// With native stacks, the frames through which an operator was called are around it (formats/native/path.h), as nodes
// without time or calls of their own.
//
// Spans that cross others (overflow rows of a replay) and marks of steps that we make are not in the tree;
// what ran inside them is on the thread's own row. Marks that the program makes are one name, "ProfilerStep*". Memory:
// one node for each path.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/io/intervals.h"
#include "formats/replay/replay.h"

namespace torchprof::formats {

class CallTree {
 public:
  enum class Native : uint8_t { kByText, kByAddress };  // kByAddress: a frame has all functions inlined there
  // Takes part in the replay of the process, and is complete when that has run; until then it stays where it is. The
  // tree's names are the replay's. `steps`: settled, may be empty.
  CallTree(const Process& process, Replay& replay, Native native = Native::kByText, Intervals steps = {});
  ~CallTree();
  CallTree(const CallTree&) = delete;
  CallTree& operator=(const CallTree&) = delete;

  struct Node {
    uint32_t parent = 0;  // index; 0 for a thread (the tree's root, which is no call)
    NameId name{};        // none for a thread
    int64_t own_ns = 0;
    uint64_t calls = 0;
    int64_t step_ns = 0;
    uint64_t step_calls = 0;
    int64_t gpu_ns = 0;
    uint64_t gpu_calls = 0;
    bool is_empty() const { return own_ns == 0 && calls == 0 && gpu_calls == 0; }
    void add(const Node& other);  // adds times and calls
  };
  static constexpr const char* kUnknownThread = "launched by unknown calls";
  struct Thread {
    std::string label;
    uint32_t root;  // index of its node
  };

  // The text of a name; of a native frame by address, that of its innermost function.
  std::string_view text(NameId name);
  size_t names() const { return native_begin_ + native_.size(); }
  // The place of a native frame by address; none: the name is something else.
  std::optional<uint32_t> place(NameId name);
  const std::vector<Thread>& threads() const { return threads_; }  // those with calls, in the order of rows

  // Calls `visit` for each path of the thread that took time or was called, callers before callees. `path` begins with
  // the outermost.
  using Visit = std::function<void(const std::vector<NameId>& path, const Node& node)>;
  void each_path(const Thread& thread, const Visit& visit) const;

 private:
  class Builder;
  struct Nodes {
    std::vector<Node> nodes{1};
    std::vector<std::pair<uint32_t, uint32_t>> links{1};  // of each node: first child, next sibling
    std::vector<uint32_t> last_child{0};
    std::unordered_map<uint64_t, uint32_t> by_path;  // parent and name
    std::vector<uint32_t> unused;

    uint32_t child(uint32_t parent, NameId name);
    // A new node without a parent.
    uint32_t apart();
    // Moves all children of `from` to `to` and adds up equal paths.
    void move_children(uint32_t from, uint32_t to);
    // Frees a node without parent and children.
    void drop(uint32_t node) { unused.push_back(node); }

   private:
    uint32_t add(Node node);
    void link(uint32_t parent, uint32_t node);
  };
  static constexpr uint32_t kNative = uint32_t{1} << 31;  // bit of a name while the tree grows: it is a native frame's
  static bool is_native(NameId name) { return name.value >= kNative; }
  std::vector<uint32_t> leave_out_moved();
  NameId final_name(NameId name);

  const Process& process_;
  const Native by_;
  const Intervals steps_;
  Replay& replay_;
  std::unique_ptr<Builder> builder_;
  size_t native_begin_ = SIZE_MAX;  // the replay's last name when the tree was complete
  std::vector<uint32_t> native_;    // places or texts; their names follow it
  std::unordered_map<uint32_t, NameId> native_names_;
  Nodes tree_;
  std::vector<Thread> threads_;
};

}  // namespace torchprof::formats
