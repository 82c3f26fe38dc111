// What a worker of a DataLoader does. Times in ns.
#pragma once

#include <cstdint>
#include <string>

#include "formats/advice/rules.h"
#include "formats/advice/step_view.h"

namespace torchprof::formats {

struct LoaderWork {
  int64_t begin = 0, end = 0;  // of the process
  int64_t start_ns = 0;        // until it waits for its first batch: the interpreter and imports, where it is spawned
  Busiest busiest{};           // what batches took on the main thread, without waiting for the next one
  std::string source{};        // the text of that line; empty: not known
};

// Of a process that is such a worker.
LoaderWork loader_work_of(const StepView& view);

}  // namespace torchprof::formats
