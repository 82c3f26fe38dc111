// The events of one process in Kineto's form, one a line, each with its comma: rows, slices, flows, allocations, marks
// and GPU work. kineto.h has the sources, and what goes beyond Kineto.
#pragma once

#include <cstdint>

#include "formats/io/output.h"
#include "formats/trace/trace.h"

namespace torchprof::formats::kineto {

struct Ids {  // the last ids given in this file
  uint64_t external = 0;
  uint64_t python = 0;
  uint64_t flow = 0;
  uint64_t event = 0;
  uint64_t correlation = 0;
  uint32_t process = 0;
};

struct Place {
  uint64_t pid = 0;        // unique in the file
  bool is_merged = false;  // other processes are in the file, too
  int64_t base = 0;        // Unix time from which times count, ns
  // Names of known threads come before the events, too, so that a part of the file has them.
  bool names_first = false;
};

void write_process(const Process& process, Place place, Ids& ids, Output& out);

}  // namespace torchprof::formats::kineto
