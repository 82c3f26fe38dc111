// "still_running" of run.json: the processes of the command that outlived it and the launcher's patience.
//
//   [{pid, command (argv, from /proc), spool (file name, if it writes one), role (formats/trace/roles.h; if it has one),
//   traced}]
// `pid` is the launcher's view; of a process in a PID namespace that the launcher does not see, its own.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launcher/run_dir/run_info.h"
#include "launcher/run_dir/writers.h"

namespace torchprof::launcher {

Info still_running(const std::vector<Running>& processes);

// Of what run.json said, those that run now, and the writers of `spools`.
Info those_that_still_run(const Info& earlier, const std::vector<std::filesystem::path>& spools);

// Their roles, from info["processes"].
void add_roles_of_running(Info& info);

// For people: a line that counts them and one for each, at most a handful; empty if there is none.
std::string still_running_lines(const Info& info);

}  // namespace torchprof::launcher
