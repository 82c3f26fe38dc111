// The table of collectives of a dataset (dataset_schema.h): the calls of all ranks, those that are the same under one
// number, and who waited for whom. The numbers are those of the table comms.
//
// First those that are matched: sends with their receives, the others by kind and time; then the rest, by process.
//
// Memory: the calls and steps that it is given, and what match() takes. One thread. write() throws what Output throws.
#pragma once

#include <vector>

#include "formats/io/output.h"
#include "formats/ranks/calls.h"
#include "formats/replay/steps.h"
#include "formats/trace/trace.h"

namespace torchprof::formats::parquet {

class Collectives {
 public:
  explicit Collectives(const Trace& trace);
  // `process`: one of the trace, each once before write(). `steps`: sorted, and apart.
  void add(const Process& process, CommsCalls calls, std::vector<StepSpan> steps);
  void write(Output& out);

 private:
  size_t at(const Process& process) const;

  const Trace& trace_;
  // By process, in the order in which they are shown.
  std::vector<const Process*> processes_;
  std::vector<CommsCalls> calls_;
  std::vector<std::vector<StepSpan>> steps_;
};

}  // namespace torchprof::formats::parquet
