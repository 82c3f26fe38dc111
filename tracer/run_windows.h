// What the ranks of a job agree on (window_plan.h, SharedPlan), in a file that they share:
// RUN/spool/windows.HOST.PORT.PARENT. PORT is MASTER_PORT, PARENT the process that started them. Ranks of other
// machines or run directories have their own.
//
// Errors: without the file, or without MASTER_PORT, a process plans for itself.
// Threads: one at a time. Fork: the child calls forget_shared_plan(); the ranks that a process forks find each other by
// their own MASTER_PORT and parent.
#pragma once

#include "tracer/window_plan.h"

namespace torchprof::window {

// The plan of this process alone until join_shared_plan() has found the others; never a null pointer.
SharedPlan& shared_plan() noexcept;
// Once a process, when it comes to its first step: the environment is complete by then. `directory`: of the spools.
SharedPlan& join_shared_plan(const char* directory) noexcept;
SharedPlan& forget_shared_plan() noexcept;

}  // namespace torchprof::window
