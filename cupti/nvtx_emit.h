// --nvtx emit: each operator as a range of NVTX, for another tool (Nsight Systems) that NVTX_INJECTION64_PATH names.
//
// We are a client of NVTX like any other: the tool's library is loaded and given an export table of ours
// (cupti/nvtx_abi.h), then its push and pop are called around each operator, in windows alone. An operator that is
// asynchronous may end on another thread and gets no range.
#pragma once

namespace torchprof::nvtx {

// Once, before torch is looked for: from then on operators have ranges, if somebody listens when torch comes. If nobody
// does, one line says so.
void emit_operators() noexcept;

}  // namespace torchprof::nvtx
