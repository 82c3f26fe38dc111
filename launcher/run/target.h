// What kind of program a command is, as far as it decides whether the library can get in. Reads files, runs nothing.
#pragma once

#include <filesystem>
#include <string>

namespace torchprof::launcher {

struct Target {
  std::filesystem::path file;     // what execvp() would start; empty: not found
  std::filesystem::path program;  // `file`, or for a script its interpreter, through `#!/usr/bin/env NAME` too
  std::string refusal;            // not empty: with the library in LD_PRELOAD it would not even start, and why
  bool needs_asan = false;        // tracer/config/program_file.h
  std::string warning;            // not empty: it will start, untraced, and why
};

// `path_list`: the value of PATH.
Target look_at(const std::string& command, const std::string& path_list);

// "python", "python3", "python3.11" ..., "pypy" is none.
bool is_python(const std::filesystem::path& program);

}  // namespace torchprof::launcher
