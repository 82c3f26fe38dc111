// "still_running" of run.json: the processes of the command that were still running when the launcher stopped waiting.
//
//   [{pid       as the launcher sees it; its own number, if it is in a PID namespace that the launcher does not see
//     command   argv, from /proc
//     spool     file name, if it writes one
//     role      formats/trace/roles.h, if it has one
//     traced}]
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launcher/run_dir/run_info.h"
#include "launcher/run_dir/writers.h"

namespace torchprof::launcher {

constexpr size_t kWidestCommand = 80;  // columns that the command of a process takes in a line for people

Info still_running(const std::vector<Running>& processes);

// Those of `earlier` (from run.json, if the run was one of this machine) that still run, and the writers of `spools`.
Info those_that_still_run(const Info& earlier, const std::vector<std::filesystem::path>& spools);

// Adds their roles, from info["processes"].
void add_roles_of_running(Info& info);

// For people: a line with their number and a line for each of the first few. Empty if there are none.
std::string still_running_lines(const Info& info);

}  // namespace torchprof::launcher
