// The stack of an allocation as a list of frames in a memory snapshot (memory_snapshot.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/io/pickle.h"
#include "formats/replay/replay.h"
#include "formats/replay/thread_stack.h"

namespace torchprof::formats {

class SnapshotFrames {
 public:
  using Stack = std::vector<uint32_t>;  // a key that is different for each stack; write() makes the frames

  SnapshotFrames(const Process& process, Names& names, Pickle& pickle)
      : process_(process), names_(names), pickle_(pickle) {}

  static Stack stack_of(const MemoryEvent& event);
  // Writes the stack; when it comes again, only a reference to it.
  void write(const Stack& stack);

 private:
  void write_all(const Stack& stack);
  void write_function(FunctionId function, uint32_t line, std::string_view name);
  void write_frame(std::string_view file, uint32_t line, std::string_view name);
  struct Hash {
    size_t operator()(const Stack& stack) const;
  };

  static constexpr size_t kMostStacks = 50'000;
  const Process& process_;
  Names& names_;
  Pickle& pickle_;
  std::unordered_map<Stack, uint32_t, Hash> known_;
};

}  // namespace torchprof::formats
