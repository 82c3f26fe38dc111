// The subcommands. Each is a file, and a row in the table of subcommands.cpp. They return the exit status, and throw
// Error or HelpWanted.
#pragma once

#include <span>

#include "launcher/options/options.h"

namespace torchprof::launcher {

struct Subcommand {
  const char* name;
  const char* meaning;  // for the list in `torchprof help`
  int (*main)(const Arguments& arguments);
};

std::span<const Subcommand> subcommands();
// The row of `name`; that of "help" for -h and --help. Throws Error if there is no such subcommand.
const Subcommand& subcommand_named(const char* name);

int run(const Arguments& arguments);
int attach(const Arguments& arguments);
int env(const Arguments& arguments);
int report(const Arguments& arguments);
int export_(const Arguments& arguments);
int merge(const Arguments& arguments);
int collect(const Arguments& arguments);
int diff(const Arguments& arguments);
int ctl(const Arguments& arguments);
int where(const Arguments& arguments);
int top(const Arguments& arguments);
int metrics(const Arguments& arguments);
int doctor(const Arguments& arguments);
int help(const Arguments& arguments);
int version(const Arguments& arguments);

}  // namespace torchprof::launcher
