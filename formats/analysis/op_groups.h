// Operators by their name and a detail: their input shapes, the Python functions and native frames that call them
// (formats/native/path.h), the module that they run for, their thread, their overload, or the line of Python
// (python_lines.h).
//
// The definitions are those of formats/report/summary.h, by name: a call inside another of the same name adds nothing
// to its group's total, whichever group that is. So the totals of all groups of a name add up to the name's total.
//
// Memory: bounded by groups, never by the number of events. Shapes and stacks past 50,000 are one group, "(others)".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/analysis/python_lines.h"
#include "formats/analysis/tally.h"
#include "formats/native/path.h"
#include "formats/replay/replay.h"

namespace torchprof::formats {

struct OpGrouping {
  enum class By : uint8_t { kName, kShape, kStack, kModule, kThread, kOverload, kLine };
  By by = By::kName;
  uint32_t depth = 0;      // kStack: number of frames
  bool top_level = false;  // only operators outside of any other operator, and no annotations
  bool has_source = false;

  bool is_plain() const { return by == By::kName && !top_level && !has_source; }
  std::string_view column() const;  // the detail's title in a table; empty for kName
};

// Parses "shape", "stack:5", "module", "thread", "overload" or "line". False: it is none of these.
bool parse_grouping(std::string_view text, OpGrouping& grouping);

struct OpGroup {
  std::string name;
  std::string detail;  // "[[2,3],[]]"; functions, innermost first, with "; " between them; the module ...
  std::string source;  // the Python function that called it most often, "train.py(12): step"
  uint64_t source_calls = 0;
  Tally tally;
};
using OpGroups = std::unordered_map<std::string, OpGroup>;  // by name, NUL and detail

void merge(OpGroups& into, const OpGroups& from);

class OpGroupCollector {
 public:
  OpGroupCollector(const Process& process, Replay& replay, const OpGrouping& grouping);

  void slice(const Slice& slice, uint64_t flops);  // an operator's
  void memory(const MemoryEvent& event);
  // Work that was launched while `op` was the innermost operator on `stack`; -1: none was, perhaps an annotation.
  void gpu(const ThreadStack& stack, uint32_t row, int32_t op, int64_t ns);
  OpGroups finish();

 private:
  struct Call {  // an operator, open or ended
    NameId name;
    OpScope scope;
    StringId inputs, recorded;
    ObjectId module;
    uint32_t row;
    const Span* around;  // `depth` of them
    uint32_t depth;
    NativeFrameId native;
    NameId line;
  };
  static Call call_of(const ThreadStack& stack, uint32_t row, int32_t i);
  Tally* tally_of(const Call& call);  // null: the call is left out
  uint64_t key_of(const Call& call);
  uint32_t detail_of(const Call& call);
  uint32_t stack_of(const Call& call);
  uint32_t shape_of(StringId inputs);
  uint32_t intern(const std::string& text);
  std::string stack_text(std::string_view numbers);
  static constexpr uint32_t kOthers = 1;  // 0: none
  std::string module_of(ObjectId module);
  std::string detail_text(uint32_t detail);
  void count_source(uint32_t group, const Call& call);

  const Process& process_;
  Replay& replay_;
  OpGrouping grouping_;
  NativePath native_;
  PythonLines lines_;
  std::unordered_map<uint64_t, uint32_t> by_key_;  // name and detail
  struct Group {
    NameId name;
    uint32_t detail;
    Tally tally;
  };
  std::vector<Group> groups_;
  std::unordered_map<uint64_t, uint64_t> sources_;  // calls by group and name of the function
  std::vector<uint32_t> shapes_;                    // details, by the inputs' id; 0: not looked up yet
  std::unordered_map<std::string, uint32_t> texts_ids_;
  std::vector<std::string> texts_;
  std::string scratch_;
};

}  // namespace torchprof::formats
