// The clock that we give CUPTI (cuptiActivityRegisterTimestampCallback, since 11.6).
//
// CUPTI's own is CLOCK_REALTIME, and it converts a device's times by readings of it: when the wall clock is set, its
// calls jump, and its kernels are wrong by as much until it has read both clocks again (H100, CUDA 13.0: kernels 3.9 s
// before their launch). This one is the recording clock in ns: nothing moves it. It
// counts from 10^18 ns after 1970 (in 2001), by the wall clock of its beginning, so that its times are never taken for
// those of CLOCK_REALTIME.
#pragma once

#include <cstdint>

namespace torchprof::cupti {

// At the library's start, once.
void prepare_own_clock() noexcept;
// Before own_clock() is called, once. The longer after prepare_own_clock(), the nearer its second is to a second.
void begin_own_clock() noexcept;
// ns. Any thread; no lock, no system call where the recording clock needs none.
uint64_t own_clock() noexcept;

}  // namespace torchprof::cupti
