// What `ctl`, `top`, `where` and `report` do without arguments: they list the runs that are alive on this machine, of
// this user (of root: of all), with how to go on.
#pragma once

#include <string>

namespace torchprof::launcher {

// `command`: that of the lines on how to go on, with RUN for the directory. The exit status: 1 if there is none.
int list_alive_runs(const std::string& command);

}  // namespace torchprof::launcher
