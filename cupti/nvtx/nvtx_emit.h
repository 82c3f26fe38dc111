// --nvtx emit: each operator as an NVTX range, for another tool (Nsight Systems) that NVTX_INJECTION64_PATH names.
//
// We are a client of NVTX like any other: the tool's library is loaded and gets an export table from us
// (cupti/nvtx/nvtx_abi.h), then its push and pop are called around each operator, only while a window is open. An
// asynchronous operator may end on another thread and gets no range.
#pragma once

namespace torchprof::nvtx {

// Once, before torch is looked for. Operators then have ranges, if a tool listens when torch comes; if none does, one
// line says so.
void emit_operators() noexcept;

}  // namespace torchprof::nvtx
