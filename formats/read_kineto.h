// Reads a trace file back: ours or torch.profiler's, .json or .json.gz, also the bare list that torch writes without
// Kineto.
//
// Events are taken from a stream, the document is never held. What is kept of a slice are 32 bytes, since nothing
// promises that the slices of a thread come in an order from which nesting could be told, of a memory event 64, and of
// a kernel, copy or set 40; names are kept once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "formats/statistics.h"

namespace torchprof::formats {

struct TraceFile {
  struct ProcessPart {
    std::string pid;   // as the file has it: a number or a text
    std::string name;  // process_name, empty if there is none
    Statistics statistics;
  };
  std::vector<ProcessPart> processes;  // in the order of their first slice
  UnixNs start{};                      // of the file's clock
  int64_t wall_ns = 0;                 // from the first begin to the last end
};

// Throws Error naming the file and the cause: unreadable, cut off, not JSON, no trace.
TraceFile read_kineto(const std::filesystem::path& file);

}  // namespace torchprof::formats
