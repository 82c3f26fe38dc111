// "still_running" of run.json: the processes of the command that outlived it and the launcher's patience.
//
//   [{pid, command (argv, from /proc), role (formats/roles.h; if it has one), traced}]
#pragma once

#include <string>
#include <vector>

#include "launcher/run_info.h"

namespace torchprof::launcher {

Info still_running(const std::vector<int>& pids);

// Of what run.json said: those that run now.
Info those_that_still_run(const Info& earlier);

// Their roles, from info["processes"].
void add_roles_of_running(Info& info);

// For people: a line that counts them and one for each, at most a handful; empty if there is none.
std::string still_running_lines(const Info& info);

}  // namespace torchprof::launcher
