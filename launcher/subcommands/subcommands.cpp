#include "launcher/subcommands/subcommands.h"

#include <string>
#include <string_view>
#include <vector>

#include "formats/io/error.h"
#include "formats/io/nearest.h"
#include "launcher/terminal/say.h"

namespace torchprof::launcher {
namespace {

constexpr Subcommand kSubcommands[] = {
    {"run", "profile a command and everything it starts", run},
    {"attach", "profile some steps of a program that runs already", attach},
    {"env", "what arms any command without `torchprof run`: for shells, containers, images, jobs", env},
    {"report", "tables of a run or a trace: operators, GPU kernels, modules, memory, Python, steps", report},
    {"export", "write a format again", export_},
    {"merge", "several runs or nodes into one", merge},
    {"collect", "a run as one file, for where its directory does not stay", collect},
    {"diff", "what got slower from one run to another; a gate for CI", diff},
    {"ctl", "open and close the window of a running program", ctl},
    {"where", "what every thread is doing now, or was doing when it died", where},
    {"top", "what a running program does now, refreshed each second", top},
    {"metrics", "the numbers of a running program for Prometheus: a file or an address", metrics},
    {"doctor", "what would be captured here, what would not, and why", doctor},
    {"help", "this text, or that of a subcommand", help},
    {"--version", "the version", version},
};

void print_overview() {
  std::string out =
      "Usage: torchprof SUBCOMMAND ...\n\nProfiles PyTorch programs without a change to their code: torchprof run "
      "python train.py\n\n";
  for (const auto& [name, meaning, ignored] : kSubcommands) {
    const std::string_view column = name;
    out.append("  ").append(column).append(12 - column.size(), ' ').append(meaning).append("\n");
  }
  print(out + "\n`torchprof help SUBCOMMAND` says more.\n");
}

}  // namespace

std::span<const Subcommand> subcommands() { return kSubcommands; }

const Subcommand& subcommand_named(const char* name) {
  std::string_view wanted = name ? name : "";
  if (wanted.empty()) throw Error("the subcommand is missing: torchprof run COMMAND; see `torchprof help`");
  if (wanted == "-h" || wanted == "--help") wanted = "help";
  for (const Subcommand& subcommand : kSubcommands) {
    if (wanted == subcommand.name) return subcommand;
  }
  std::vector<std::string> names;
  for (const Subcommand& subcommand : kSubcommands) names.emplace_back(subcommand.name);
  throw Error("'" + std::string(wanted) + "' is not a subcommand" + formats::did_you_mean(wanted, names) +
              "; to profile it: torchprof run " + std::string(wanted) + " ...; see `torchprof help`");
}

int help(const Arguments& arguments) {
  if (arguments.empty() || arguments.front() == "help")
    print_overview();
  else
    return subcommand_named(arguments.front().c_str()).main({"--help"});
  return 0;
}

}  // namespace torchprof::launcher
