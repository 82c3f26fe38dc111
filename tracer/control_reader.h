// Reads RUN/spool/control (spool/control_file.h) while the program runs: once a second at most, and of what was there
// only what is new. A file that is not this user's or root's is not read.
//
// By the thread of ours alone (window_thread.h). It waits for the file system, but never while a lock is held or the
// program's threads want something of it. Without the file a look is one stat(2).
#pragma once

#include "tracer/plan/asked_windows.h"
#include "tracer/spool/control_file.h"

namespace torchprof::window::control_reader {

// Does what a line says. False: not now; the same line comes again.
using Obey = bool (*)(const ControlLine& line) noexcept;

inline constexpr int kApartMs = 1000;  // between two looks

// Nothing if the last look was less than kApartMs ago, unless it is to look `at_once`. False: a line could not be
// obeyed now, and the next call looks again.
bool look(bool at_once, Obey obey) noexcept;
// The rank of this process in its job, as torch or the environment says it: lines for other ranks are passed over. The
// last one holds. Any thread.
void know_rank(uint64_t rank) noexcept;
// Records the answer to a line, for whoever asked on any host: it came in this step.
void answer(const ControlLine& line, AskedWindows::Taken taken, uint64_t step) noexcept;
// Reads all of it again, perhaps in another run's directory. While the thread does not run.
void begin_anew() noexcept;

}  // namespace torchprof::window::control_reader
