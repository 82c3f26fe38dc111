// The events of one process in Kineto's form, one a line, each with its comma: rows, slices, flows, allocations, marks
// and GPU work. Sources and what goes beyond Kineto: formats/write/kineto/kineto.h.
#pragma once

#include <cstdint>

#include "formats/io/output.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

struct KinetoIds {  // how many were given so far in this file
  uint64_t external = 0;
  uint64_t python = 0;
  uint64_t flow = 0;
  uint64_t event = 0;
  uint64_t correlation = 0;
  uint32_t process = 0;
};

struct KinetoPlace {
  uint64_t pid = 0;        // in the file, where it is unique
  bool is_merged = false;  // with other processes: it says which it is
  int64_t base = 0;        // times count from here: Unix, ns
  bool names_first =
      false;  // what is known of the threads, so that a part of the trace has it; they come at the end too
};

void write_kineto_events(const Process& process, KinetoPlace place, KinetoIds& ids, Output& out);

}  // namespace torchprof::formats
