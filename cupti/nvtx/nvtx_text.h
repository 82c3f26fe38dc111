// The text that torch.autograd.profiler.emit_nvtx gives an operator's range:
//
//     aten::mm, seq = 4, op_id = 17, sizes = [[2, 3], [3, 2]]
//
// `seq`: autograd's number, if there is one; in the backward that of the forward operator. `sizes`, if inputs are read:
// one list for each input: the sizes of a tensor, those of each defined tensor of a list, [] for anything else. Source:
// getNvtxStr, shapesToStr and inputSizes in torch/csrc/profiler/util.cpp and enterNVTX in standalone/nvtx_observer.cpp
// of 1.13 to 2.14. (The documentation says `stashed seq` for the backward; no version from 1.13 on writes that.) Left
// out: `input_op_ids`, which emit_nvtx adds with record_shapes and for which every operator's outputs would be needed.
// Of a boxed call only its own inputs are listed, not the interpreter's whole stack.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tracer/objects/values.h"

namespace torchprof::nvtx {

struct Operator {
  const char* name;
  int64_t sequence;               // -1: none
  uint64_t id;                    // 0: not known
  const torch::ValueRow* values;  // nullptr: inputs are not read
  const char* inputs;             // c10::IValue[count]
  size_t count;
};

// NUL-terminated, cut where `size` ends. Hot: no allocation, nothing of torch is called.
void write_text(const Operator& op, char* out, size_t size) noexcept;

}  // namespace torchprof::nvtx
