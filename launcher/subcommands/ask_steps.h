// torchprof ctl RUN steps=N..M, next=K: all processes of a run record the same steps, on whatever hosts they run.
//
// The request is a line of RUN/spool/control (tracer/spool/control_file.h), which each process reads within a second;
// those that can be reached are told to read it at once. Each answers in its spool. Where one was late, having come to
// the first step by then, the request is taken back; `next` asks again for steps that are further ahead.
#pragma once

#include <string>

#include "launcher/options/options.h"

namespace torchprof::launcher {

// The exit status: 1 if a process does not record these steps. Throws Error where none can be asked.
int ask_steps(const std::string& target, const StepsAsked& asked);

}  // namespace torchprof::launcher
