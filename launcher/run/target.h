// Finds out whether a command can be started, and whether the library can get into it. Reads files, runs nothing.
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

// The command that runs a Python script which cannot be started itself, as it is not executable or has no "#!" line:
// with python3 of PATH before it, or python where there is no python3. Empty: the command can be started, is no such
// script, or there is no Python.
std::vector<std::string> as_python_command(const std::vector<std::string>& command, const std::string& path_list);

// The likely cause why execvp() could not start a command, where errno is ENOENT or EACCES, and what helps. Empty: not
// known.
std::string why_not_started(const std::string& command, int error, const std::string& path_list);

// The script of a Python command, where there is none of that name: Python will say so and end. Empty if it is there,
// or the command runs no file. `file`: of look_at(); `command`: with its arguments.
std::string missing_script(const std::filesystem::path& file, const std::vector<std::string>& command);

// Whether its name is "python", "python3", "python3.11" ...; "pypy" is not.
bool is_python(const std::filesystem::path& program);

}  // namespace torchprof::launcher
