// The place in a program's own native code that asked for memory.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "formats/trace/names.h"

namespace torchprof::formats {

class NativeSites {
 public:
  NativeSites(const Process& process, Names& names) : process_(process), names_(names) {}

  // The innermost function of TorchScript, or frame outside of torch, the C and C++ libraries and the interpreter, as
  // in NativeStacks::texts(). None if the stack has no such frame: a backward on a thread of torch's own.
  NameId of(NativeFrameId innermost);

 private:
  const Process& process_;
  Names& names_;
  std::unordered_map<uint32_t, NameId> known_;
};

}  // namespace torchprof::formats
