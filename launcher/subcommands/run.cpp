// torchprof run: starts the command under the library, waits for it, writes its trace, and ends as it ended.

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "formats/io/error.h"
#include "formats/ranks/choose.h"
#include "launcher/run/child.h"
#include "launcher/run/environment.h"
#include "launcher/run/target.h"
#include "launcher/run/write_run.h"
#include "launcher/run_dir/run_dir.h"
#include "launcher/run_dir/run_info.h"
#include "launcher/run_dir/still_running.h"
#include "launcher/run_dir/writers.h"
#include "launcher/subcommands/finish_run.h"
#include "launcher/subcommands/metrics.h"
#include "launcher/subcommands/subcommands.h"
#include "launcher/terminal/say.h"
#include "tracer/config/program_file.h"
#include "tracer/config/run_directory.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kPatience = 3s;  // how long to wait for processes that outlive the command

int print_variables(const std::vector<std::string>& variables) {
  for (const std::string& variable : variables) {
    // As it is, for who takes it: env $(torchprof run --dry-run)
    isatty(STDOUT_FILENO) != 0 ? print_text(variable + "\n") : print(variable + "\n");
    if (variable.find_first_of(" \t\n*?[") != std::string::npos)
      complain(variable + ": `env $(torchprof run --dry-run)` would split this value");
  }
  return 0;
}

// Variables that this command needs in addition, as "NAME=VALUE". Warns if it will run untraced; throws Error if it
// would not start.
std::vector<std::string> look_before(const std::string& command, const std::vector<std::string>& environment) {
  const Target target = look_at(command, value_in(environment, "PATH"));
  if (!target.refusal.empty()) throw Error(target.refusal);
  if (!target.warning.empty()) say(target.warning);
  const std::string options = value_in(environment, kAsanOptions);
  if (!target.needs_asan || options.find(kAsanOption) != std::string::npos) return {};
  return {std::string(kAsanOptions) + '=' + options + (options.empty() ? "" : ":") + kAsanOption};
}

// A Python script that cannot be started itself is run with Python, as other profilers do.
void take_python(Arguments& command, const std::string& path_list) {
  Arguments with_python = as_python_command(command, path_list);
  if (with_python.empty()) return;
  say(command.front() + (look_at(command.front(), path_list).file.empty() ? " is not executable" : " has no #! line") +
      ": it is run with " + with_python.front() + " (" + look_at(with_python.front(), path_list).file.string() + ")");
  command = std::move(with_python);
}

// Whether the environment already names a run directory: of a `torchprof run` around this one, or set from `run
// --dry-run`. The capture goes there and is exported from there.
bool is_inside(const RunOptions& options, const std::vector<std::string>& environment, const Library& library) {
  return !options.output_named && wanted_by_environment() && preloads(environment, library);
}

// Says what finish() would say of a run that has recorded nothing, and gives the earlier run its place back. Throws
// nothing.
void keep_earlier(RunDir& dir, const Info& info, bool is_any_running) try {
  const Written outcome = write_run(dir, info, {}, formats::NativeFrames::kFolded, [](const std::string&) {});
  say(oom_line(info));
  say(outcome.text);
  say_each(outcome.trouble);
  say(still_running_lines(dir.read_info()));
  if (is_any_running) {  // it may record something yet
    complain("nothing was recorded so far; the earlier run lies in " + dir.earlier().string());
    return;
  }
  dir.give_up();
  complain("nothing was recorded, so the earlier run in " + dir.path().string() + " stays as it was");
} catch (const std::exception& error) {
  complain(reason_of(error));
  complain("the earlier run lies in " + dir.earlier().string());
}

// In a process of its own: what goes wrong there, lack of memory for instance, does not change how the command's end is
// reported. Throws nothing.
void open_page(const fs::path& run) {
  const pid_t pid = fork();
  if (pid < 0) return complain(std::string("--open: fork: ") + std::strerror(errno));
  if (pid != 0) {
    waitpid(pid, nullptr, 0);
    return;
  }
  try {
    report({run.string(), "--open"});
  } catch (const std::exception& error) {
    complain("--open: " + reason_of(error));
  }
  _exit(0);
}

// Those of the command that run on after it. Throws nothing.
std::vector<Running> wait_for_others(Child& child, const RunDir& dir, const Marks& marks) try {
  return child.wait_for_others([&] { return processes_of_command(dir.spools(), marks); }, kPatience);
} catch (const std::exception& error) {
  complain(reason_of(error));
  return {};
}

// What is done once the command has ended. Throws nothing: whatever goes wrong here, its status is what counts.
void finish(RunDir& dir, Info& info, const RunOptions& options, const Signals& signals, bool has_failed) try {
  if (const std::string befell = dir.what_befell(); !befell.empty()) return finish_without_directory(dir, befell, info);
  if (dir.has_earlier() && dir.is_earlier_worth() && !dir.has_recorded())
    return keep_earlier(dir, info, !info["still_running"].empty());
  if (dir.has_earlier()) replace_earlier(dir, has_failed);
  finish_run(dir, info, options.config, signals);
  if (options.is_open) open_page(dir.path());
} catch (const std::exception& error) {
  complain(reason_of(error));
}

int run_and_finish(const RunOptions& options, const fs::path& output, const std::vector<std::string>& environment,
                   const Library& library) {
  const Signals signals;
  RunDir dir = RunDir::create(output);
  Info info = begin_info(options.command, environment);
  if (!options.step.empty()) info["step"] = options.step;
  if (options.align != kAuto) info["align"] = options.align;
  // Where the raw records go, the trace is all that there will be.
  const bool goes = options.config.discard && !options.config.keep_spool;
  if (goes || !options.ranks.empty()) info["ranks"] = options.ranks.empty() ? formats::kAllRanks : options.ranks;
  const std::optional<uint64_t> killed_before = count_oom_kills();
  int status = 0;
  std::vector<Running> running;
  const Marks marks(output, library.preload);
  try {
    dir.begin();
    dir.write_info(info);
    MetricsBeside measured(output, options.metrics);
    Child child(options.command, environment, signals, marks);
    status = child.wait();
    running = wait_for_others(child, dir, marks);
  } catch (const Error&) {
    dir.give_up();
    throw;
  }
  add_end(info, status, running, killed_before);
  finish(dir, info, options, signals, status != 0);
  end_like(status);
}

}  // namespace

int run(const Arguments& arguments) {
  RunOptions options = parse_run(arguments);
  set_quiet(options.config.quiet);
  const Library library = find_library();
  const std::vector<std::string> before = current_environment();
  const fs::path output = output_path(options.config);
  const std::vector<std::string> set = variables(before, library, options.config, output);
  if (options.dry_run) return print_variables(set);
  take_python(options.command, value_in(before, "PATH"));
  const std::vector<std::string> needed = look_before(options.command.front(), before);
  const std::vector<std::string> environment = with_variables(with_variables(before, set), needed);
  const auto say_untraced = [&](const std::string& why) {
    say(why + (options.metrics.empty() ? "" : "; --metrics: nothing is written"));
  };
  if (disabled_by_environment()) {
    say_untraced("TORCHPROF_DISABLE is set: nothing is captured");
    become(options.command, before);
  }
  if (is_inside(options, before, library)) {
    say_untraced("the capture goes to " + output.string() +
                 ", which the environment names already, and is exported from there");
    become(options.command, environment);
  }
  const Target target = look_at(options.command.front(), value_in(before, "PATH"));
  if (const std::string script = missing_script(target.file, options.command); !script.empty()) {
    say_untraced("there is no " + script + ": nothing is captured");
    become(options.command, before);
  }
  char launched[PATH_MAX + 256];
  write_launched(output.c_str(), launched);
  return run_and_finish(options, output, with_variables(environment, {launched}), library);
}

}  // namespace torchprof::launcher
