// What the ranks of a job agree on (plan/window_plan.h, SharedPlan), in a file that they share:
// RUN/spool/windows.HOST.PORT.PARENT.JOB. PORT is MASTER_PORT, PARENT the process that started them. Ranks of other
// machines or run directories have their own.
//
// Jobs that one parent starts after another may have the same port. They are told apart by time: no rank of a job comes
// to its first step before all of them have started, so a plan that a process joined before this one began is that of
// an earlier job. A single rank that is started anew counts as a job of its own.
//
// Errors: without the file, or without MASTER_PORT, a process plans for itself.
// Threads: one at a time. Fork: the child calls forget_shared_plan(); the ranks that a process forks find each other by
// their own MASTER_PORT and parent.
#pragma once

#include "tracer/plan/window_plan.h"

namespace torchprof::window {

// The plan of this process alone until join_shared_plan() has found the others; never a null pointer.
SharedPlan& shared_plan() noexcept;
// Once a process, when it comes to its first step: the environment is complete by then. `directory`: of the spools;
// `began`: when this process began, `now`: both in ns of CLOCK_MONOTONIC.
SharedPlan& join_shared_plan(const char* directory, int64_t began, int64_t now) noexcept;
SharedPlan& forget_shared_plan() noexcept;

}  // namespace torchprof::window
