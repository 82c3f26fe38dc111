// A run of several machines on one clock, found out from what its ranks did together (clock_fit.h).
//
// The reference is the machine of the lowest rank. Each other machine is put to the clock of one that is aligned
// already, by those collectives that both are in; errors add up. Machines that share none with the others keep their
// own clocks, and one of them is the reference of those that share some with it.
//
// Memory: 32 bytes for each machine and collective that is used, of which there are at most 2 million, spread evenly.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "formats/trace/trace.h"

namespace torchprof::formats {

// As load(), on one clock. Of several machines all is read three times. Nothing to do for one machine.
Trace load_aligned(const std::vector<std::filesystem::path>& spools, Contents contents = Contents::kAll);

// The machines of a trace whose clocks are as they are, with corrections of those clocks. Replays its processes.
std::vector<Machine> aligned_machines(const Trace& trace);

// A line for people for each machine whose clock was corrected, or could not be, of several machines.
std::vector<std::string> clock_lines(const Trace& trace);

}  // namespace torchprof::formats
