// Tells CUPTI, one by one, which calls of the CUDA runtime and driver it is to watch (since CUPTI 12.5).
//
// What a real one does (H100, CUDA 13.0):
//  * It counts whether any call is enabled when the first context is made. If not, calls that are enabled later have no
//    records, until the process ends. So one call is always enabled: one that no program makes.
//  * After cuptiActivityDisable of all runtime or driver calls (kinds 5 and 4), calls that are enabled one by one have
//    no records any more. So these kinds are never enabled while we watch calls: another client that wants one has each
//    call enabled in its place.
//
// With the lock `switching`, unless said otherwise.
#pragma once

#include <cstdint>

#include "cupti/cupti_abi.h"
#include "cupti/recorded_calls.h"

namespace torchprof::cupti {

// The kinds of records that are calls, and of which part of CUDA.
constexpr bool is_api(uint32_t kind) noexcept { return kind == abi::kRuntime || kind == abi::kDriver; }
constexpr GpuApiKind api_of(uint32_t kind) noexcept {
  return kind == abi::kRuntime ? GpuApiKind::kRuntime : GpuApiKind::kDriver;
}

// Whether calls can be watched one by one: before the first context, and if nobody has had all of them enabled.
bool can_watch_calls() noexcept;
// If work was launched and not one call was seen, for some reason that we do not know: has all calls watched from now
// on. Takes the locks `switching` and `writing`.
void check_watched_calls() noexcept;
// Our part: those of recorded_calls(). The other client keeps what it wants.
void watch_our_calls() noexcept;
// Switches those off that nobody wants any more. Takes the lock for each call anew, since CUPTI takes 50 us for one
// (H100, CUDA 13.0): a window that opens need not wait for the rest of an earlier one's.
void forget_our_calls() noexcept;
// All calls of a kind (abi::kRuntime or kDriver), for the other client. The result of CUPTI.
int watch_all_calls(uint32_t kind, bool on) noexcept;
// One call, for the other client.
int watch_call(uint32_t kind, uint32_t cbid, bool on) noexcept;

}  // namespace torchprof::cupti
