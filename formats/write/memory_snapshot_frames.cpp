#include "formats/write/memory_snapshot_frames.h"

#include <algorithm>

#include "formats/memory/memory.h"

namespace torchprof::formats {

// The numbers are native, function, line; then kind, name, function, object for each span, innermost first.
SnapshotFrames::Stack SnapshotFrames::stack_of(const MemoryEvent& e) {
  Stack stack{e.native.value, e.line != 0 ? e.function.value : 0, e.line};
  for (int32_t i = e.stack->size() - 1; i >= 0; --i) {
    const Span& span = (*e.stack)[i];
    if (span.kind == SliceKind::kGc || span.kind == SliceKind::kBlind) continue;
    stack.insert(stack.end(),
                 {static_cast<uint32_t>(span.kind), span.name.value, span.function.value, span.object.value});
  }
  return stack;
}

size_t SnapshotFrames::Hash::operator()(const Stack& stack) const {
  uint64_t hash = 0;
  for (const uint32_t part : stack) hash = (hash ^ part) * 0x9e3779b97f4a7c15u;
  return static_cast<size_t>(hash ^ hash >> 32);
}

void SnapshotFrames::write(const Stack& stack) {
  if (const auto it = known_.find(stack); it != known_.end()) return pickle_.recall(it->second);
  write_all(stack);
  if (known_.size() < kMostStacks) known_.emplace(stack, pickle_.remember());
}

void SnapshotFrames::write_all(const Stack& stack) {
  Pickle::List frames(pickle_);
  std::vector<std::pair<uint32_t, uint32_t>> lines;  // function and line of Python functions, innermost first
  if (process_.native) {
    const NativeStacks& native = *process_.native;
    native.each_place(NativeFrameId{stack[0]}, [&](NativeFrameId, uint32_t place) {
      if (native.is_interpreter(place)) return true;
      for (const uint32_t text : native.where(place).texts) {
        const Symbol& symbol = native.symbol(text);
        frames.next();
        write_frame(symbol.file, static_cast<uint32_t>(symbol.line),
                    symbol.function.empty() ? native.texts()[text] : symbol.function);
      }
      return true;
    });
    native.each_python_line(NativeFrameId{stack[0]},
                            [&](FunctionId function, uint32_t line) { lines.emplace_back(function.value, line); });
  }
  if (stack[1] != 0 && (lines.empty() || lines[0].first != stack[1])) lines.insert(lines.begin(), {stack[1], stack[2]});
  auto line = lines.begin();
  for (size_t i = 3; i + 3 < stack.size(); i += 4) {
    frames.next();
    const std::string_view name = names_.text(NameId{stack[i + 1]});
    if (static_cast<SliceKind>(stack[i]) != SliceKind::kPython) {
      write_frame("", 0, name);
      continue;
    }
    // Functions of TorchScript have a line and no span; so has a Python function whose span was not recorded.
    const auto own = std::find_if(line, lines.end(), [&](const auto& of) { return of.first == stack[i + 2]; });
    const bool has_line = own != lines.end();
    if (has_line) line = own + 1;
    const ObjectId object{stack[i + 3]};
    const std::string called = object ? module_text(name, process_.path(object)) : std::string();
    write_function({stack[i + 2]}, has_line ? own->second : 0, called);
  }
  frames.end();
}

void SnapshotFrames::write_function(FunctionId function, uint32_t line, std::string_view name) {
  if (function.value >= process_.functions.size() || !process_.functions[function.value].id)
    return write_frame("", line, name.empty() ? "<unknown function>" : name);
  const FunctionDef& def = process_.functions[function.value];
  write_frame(process_.string(def.file), line != 0 ? line : def.line, name.empty() ? process_.string(def.name) : name);
}

void SnapshotFrames::write_frame(std::string_view file, uint32_t line, std::string_view name) {
  pickle_.dict();
  pickle_.word("filename");
  pickle_.text(file);
  pickle_.member("line", line);
  pickle_.word("name");
  pickle_.text(name);
  pickle_.end_dict();
}

}  // namespace torchprof::formats
