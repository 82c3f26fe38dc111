// torchprof ctl RUN steps=N..M, next=K: all processes of a run record the same steps, on whatever hosts they run.
//
// The request is a line of RUN/spool/control (tracer/spool/control_file.h), which each process reads within a second;
// those that can be reached are told to read it at once. Each answers in its spool. Where one was late, having come to
// the first step by then, the request is taken back; `next` asks again for steps that are further ahead.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launcher/options/options.h"

namespace torchprof::launcher {

struct TakenSteps {
  uint64_t first, last;
  std::vector<std::filesystem::path> spools;  // of the processes that record them
  bool is_by_all;                             // that were asked
};

// `ranks`: a list as in the control file; empty: all processes. Says who records them and who does not. Throws Error
// where none can be asked.
TakenSteps ask_steps(const std::string& target, const StepsAsked& asked, const std::string& ranks);

}  // namespace torchprof::launcher
