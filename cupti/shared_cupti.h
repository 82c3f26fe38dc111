// CUPTI shared with another client in the process, such as libkineto: the functions that it calls instead of CUPTI's.
//
// CUPTI has only one client, the one that registered last, and disabling a kind disables it for everybody. So we are
// that client for good, registered once, and the other one is our client: we keep its functions; a kind that it
// disables stays enabled while we want it; CUPTI's records come to us, and we give it copies of those that it wanted,
// in buffers of its own (cupti/other_client.h). libkineto disables its kinds and then forces a flush: when that call
// returns, it has its records.
// Source: libkineto/src/CuptiActivityApi.cpp of October 2022 (torch 1.13), December 2024 (2.6) and August 2026 (2.14).
//
// What cannot be shared: cuptiFinalize, after which CUPTI has no client. We come back when the other client registers
// again; the source "gpu" and a pair of GpuDropped (kAside, kBack) say what is missing.
//
// Before we use CUPTI ourselves, after the end, and in a forked child, each call only calls CUPTI's own function,
// `real`. Any thread.
#pragma once

#include <cstdint>

#include "cupti/cupti_api.h"

namespace torchprof::cupti {

int other_registers(RequestBuffer request, BufferCompleted completed, int (*real)(RequestBuffer, BufferCompleted));
int other_enables(uint32_t kind, int (*real)(uint32_t));
int other_disables(uint32_t kind, int (*real)(uint32_t));
// `kind`: abi::kRuntime or kDriver. cuptiActivityEnableRuntimeApi and cuptiActivityEnableDriverApi.
int other_switches_call(uint32_t kind, uint32_t cbid, bool on, int (*real)(uint32_t, uint8_t));
int other_flushes(uint32_t flag, int (*real)(uint32_t));
int other_sets_clock(uint64_t (*clock)(), int (*real)(uint64_t (*)()));
// cuptiGetTimestamp.
int other_reads_clock(uint64_t* time, int (*real)(uint64_t*));
int other_finalizes(int (*real)());

}  // namespace torchprof::cupti
