// The command line of `env`.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "formats/io/error.h"
#include "launcher/options/options.h"
#include "launcher/options/parser.h"

namespace torchprof::launcher {
namespace {

// What only a launcher does, when the command has ended.
constexpr std::string_view kOfTheEnd[] = {"--format", "--discard", "--keep-spool", "--native-frames", "--quiet"};

constexpr const char* kFormatsOfEnv = "sh|fish|csh|docker|slurm|k8s|pth";

// Closed, until somebody asks; in a directory that all processes of a job share.
constexpr const char* kArmedWindow = "manual";
constexpr const char* kArmedOutput = "torchprof-%j";

void set_default(Config& config, std::string_view option, const char* value) {
  ErrorText error;
  for (const Setting& setting : settings())
    if (option == setting.option && !assign(config, setting, value, setting.option, error)) throw Error(error.text);
}

}  // namespace

EnvOptions parse_env(const Arguments& arguments) {
  EnvOptions options;
  Parser parser(
      "env", "[OPTIONS] [--format FORMAT | --pth DIR] [--unset]",
      "Prints what arms each command that is started with it, without a launcher: a program that loads torch then\n"
      "writes its run into the directory of -o, and records nothing until it is asked to (`torchprof ctl`). Options\n"
      "are those of `run`.");
  CLI::App& app = parser.app();
  add_settings(
      app, options.config, [](const Setting&) {},
      [](const Setting& setting) { return std::ranges::find(kOfTheEnd, setting.option) == std::end(kOfTheEnd); });
  for (const auto& [option, before, now] :
       {std::tuple{"--output", "[torchprof-%t-%p]", "[torchprof-%j]"}, std::tuple{"--window", "[auto]", "[manual]"}}) {
    std::string text = app.get_option(option)->get_description();
    if (const size_t at = text.find(before); at != std::string::npos) text.replace(at, std::strlen(before), now);
    app.get_option(option)->description(text);
  }
  app.add_option("--format", options.format,
                 "sh, fish and csh: for `eval`; docker: --env-file; slurm: the script of a task\n"
                 "prolog; k8s: the env of a container; pth: the file of --pth [sh]")
      ->type_name(kFormatsOfEnv)
      ->check([](const std::string& format) {
        const std::vector<std::string> known = split(kFormatsOfEnv, '|');
        return std::ranges::find(known, format) != known.end() ? "" : "'" + format + "' is none of " + joined(known);
      });
  app.add_option("--pth", options.pth,
                 "put torchprof.pth into this site directory of a Python: arms it whoever starts it,\n"
                 "with nothing in the environment, and no other program")
      ->type_name("DIR");
  app.add_flag("--unset", options.unset, "the other way round: for a shell, or with --pth");
  app.footer(
      "\n    eval \"$(torchprof env)\"                             this shell, and what is started from it\n"
      "    docker run --env-file <(torchprof env --format docker) ...\n"
      "    torchprof env --pth \"$(python3 -c 'import site; print(site.getsitepackages()[0])')\"\n"
      "    torchprof ctl                                         what runs, and how to go on\n\n"
      "%j in -o is the job of Slurm, PBS, Ray or torchrun, or else the pod or the machine; %q{NAME:-INSTEAD} a\n"
      "variable and what stands for it. The library has to have the same path where the command runs.\n"
      "TORCHPROF_DISABLE=1 leaves a command alone.");
  set_default(options.config, "--window", kArmedWindow);
  set_default(options.config, "--output", kArmedOutput);
  ErrorText error;
  const bool wants_help =
      std::ranges::any_of(arguments, [](const std::string& a) { return a == "--help" || a == "-h"; });
  if (!from_environment(options.config, error) && !wants_help) throw Error(error.text);
  parser.parse(arguments);
  if (!options.pth.empty() && app.count("--format") != 0)
    throw Error("env: --pth writes a file, --format prints: only one of them" + see_help("env"));
  if (options.unset && options.pth.empty() && options.format != "sh" && options.format != "fish" &&
      options.format != "csh")
    throw Error("env: --unset is for sh, fish and csh, and for --pth: elsewhere nothing is set that stays");
  return options;
}

}  // namespace torchprof::launcher
