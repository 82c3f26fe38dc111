// CUPTI shared with another client in the process, as libkineto is one: what he calls instead of CUPTI's functions.
//
// CUPTI has one client, whoever registered last, and disabling a kind ends it for all. So we are that client for good,
// registered once, and he is ours: his functions are kept, a kind that he disables stays enabled while we want it, and
// what CUPTI records comes to us, who give him copies of what he wanted in buffers of his (cupti/other_client.h).
// libkineto disables its kinds and then flushes, by force: its records are with it when that call returns.
// Source: libkineto/src/CuptiActivityApi.cpp of October 2022 (torch 1.13), December 2024 (2.6) and August 2026 (2.14).
//
// What cannot be shared: after cuptiFinalize CUPTI knows neither of us. We are back when he next registers; the source
// "gpu" and a pair of GpuDropped (kAside, kBack) say what is missing.
//
// Before we use CUPTI ourselves, after the end and in a forked child each call is CUPTI's own, `real`. Any thread.
#pragma once

#include <cstdint>

#include "cupti/cupti_api.h"

namespace torchprof::cupti {

int other_registers(RequestBuffer request, BufferCompleted completed, int (*real)(RequestBuffer, BufferCompleted));
int other_enables(uint32_t kind, int (*real)(uint32_t));
int other_disables(uint32_t kind, int (*real)(uint32_t));
int other_flushes(uint32_t flag, int (*real)(uint32_t));
int other_sets_clock(uint64_t (*clock)(), int (*real)(uint64_t (*)()));
int other_finalizes(int (*real)());

}  // namespace torchprof::cupti
