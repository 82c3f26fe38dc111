// Finds out whether the library can get into a command. Reads files, runs nothing.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace torchprof::launcher {

struct Target {
  std::filesystem::path file;     // what execvp() would start; empty: not found
  std::filesystem::path program;  // `file`, or a script's interpreter (also by `#!/usr/bin/env NAME`)
  std::string refusal;            // not empty: why it would not even start with the library in LD_PRELOAD
  bool needs_asan = false;        // see tracer/config/program_file.h
  std::string warning;            // not empty: why it will run untraced
};

// `path_list`: the value of PATH.
Target look_at(const std::string& command, const std::string& path_list);

// The script of a Python command, where there is none of that name: Python will say so and end. Empty if it is there,
// or the command runs no file. `file`: of look_at(); `command`: with its arguments.
std::string missing_script(const std::filesystem::path& file, const std::vector<std::string>& command);

// Whether its name is "python", "python3", "python3.11" ...; "pypy" is not.
bool is_python(const std::filesystem::path& program);

}  // namespace torchprof::launcher
