// torchprof doctor: what would be captured here, what would not, and why. It runs the interpreter under the library to
// find out.
#include <fcntl.h>
#include <spawn.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <thread>

#include "formats/io/error.h"
#include "formats/io/text.h"
#include "formats/trace/trace.h"
#include "launcher/attach/remote_script.h"
#include "launcher/attach/rights.h"
#include "launcher/run/environment.h"
#include "launcher/run/target.h"
#include "launcher/run_dir/input.h"
#include "launcher/run_dir/run_dir.h"
#include "launcher/run_dir/run_info.h"
#include "launcher/run_dir/temporary_directory.h"
#include "launcher/run_dir/writers.h"
#include "launcher/subcommands/subcommands.h"
#include "launcher/terminal/say.h"
#include "tracer/spool/clock.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;

// Prints facts as KEY=VALUE, and runs as many operators as the recorder checks (tracer/objects/check.h).
constexpr const char* kTrial = R"(import sys
print('python=' + sys.version.split()[0])
print('executable=' + sys.executable)
def work():
    try:
        import torch
    except Exception as error:
        print('no_torch=%s: %s' % (type(error).__name__, str(error).split('\n')[0]))
    else:
        for _ in range(32): torch.ones(2) + 1
        print('torch=' + torch.__version__)
work()
)";

struct Trial {
  std::map<std::string, std::string> facts;  // what kTrial printed
  std::string last_line;                     // the last line that it printed, which has the cause if it failed
  int wait_status = 0;
  formats::Trace trace;
};

Trial try_out(const fs::path& python, const Library& library, const Config& config) {
  const TemporaryDirectory run("torchprof-doctor-");
  fs::create_directory(run.path() / "spool");
  const std::vector<std::string> before = current_environment();
  std::vector<std::string> environment = with_variables(before, variables(before, library, config, run.path()));
  std::vector<char*> envp;
  for (std::string& variable : environment) envp.push_back(variable.data());
  envp.push_back(nullptr);

  const std::string printed = run.path() / "printed";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, printed.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  std::string program = python, option = "-c", script = kTrial;
  char* argv[] = {program.data(), option.data(), script.data(), nullptr};
  pid_t pid = 0;
  const int failure = posix_spawn(&pid, python.c_str(), &actions, nullptr, argv, envp.data());
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) throw Error(python.string() + ": " + std::strerror(failure));
  Trial trial;
  while (waitpid(pid, &trial.wait_status, 0) < 0 && errno == EINTR) {
  }
  std::ifstream in(printed);
  for (std::string line; std::getline(in, line);) {
    if (const size_t equals = line.find('='); equals != std::string::npos)
      trial.facts[line.substr(0, equals)] = line.substr(equals + 1);
    if (!line.empty()) trial.last_line = line;
  }
  trial.trace = formats::load(formats::find_spools(run.path() / "spool"));
  return trial;
}

void line(std::string_view name, std::string_view text) {
  std::string out(name);
  out.resize(std::max<size_t>(13, name.size()), ' ');
  print_text(out.append(" ").append(text).append("\n"));
}

void describe_machine(const Library& library) {
  utsname system{};
  uname(&system);
  line("machine", std::string(system.nodename) + ", " + system.sysname + " " + system.release + " " + system.machine +
                      ", " + std::to_string(std::thread::hardware_concurrency()) + " processors");
  line("torchprof", TORCHPROF_VERSION);
  line("library", library.preload.string());
  std::error_code error;
  if (!fs::is_directory(library.python, error))
    line("", "missing: " + library.python.string() + " (the second way into Python)");
  line("rights", "none needed: no ptrace, no root, no capability");
  const std::string counter = std::string("processor's own counter (") + clock::kCounterName + ")";
  line("clock", clock::choose() == ClockSource::kCounter ? "the " + counter + ", which this kernel trusts"
                                                         : "CLOCK_MONOTONIC: some 15 ns an event slower than the " +
                                                               counter + ", which this kernel does not trust");
}

// Whether there is a driver, and what other tools have taken.
void describe_gpu(const Config& config) {
  const std::vector<std::string> environment = current_environment();
  const auto holder = [&environment](const char* variable) { return value_in(environment, variable); };
  const std::string of_cuda = holder("CUDA_INJECTION64_PATH"), of_nvtx = holder(kNvtxInjection);
  if (config.gpu == GpuMode::kOff)
    line("gpu", "switched off (--gpu off)");
  else if (access("/dev/nvidiactl", F_OK) != 0)
    line("gpu", "no NVIDIA driver here (/dev/nvidiactl): nothing to record");
  else if (!of_cuda.empty())
    line("gpu", "a driver; CUDA_INJECTION64_PATH names " + of_cuda + ", so recorded from the first use of torch.cuda");
  else
    line("gpu", "a driver: recorded by CUPTI from the moment when the program initialises CUDA");
  if (config.gpu == GpuMode::kOn)
    line("", "before CUPTI 12.5 each call of CUDA costs time, recorded or not: there --gpu kernels costs least");
  if (config.nvtx == NvtxMode::kOff)
    line("nvtx", "switched off (--nvtx off)");
  else if (config.nvtx == NvtxMode::kEmit)
    line("nvtx",
         "operators as ranges for " + (of_nvtx.empty() ? "nobody: NVTX_INJECTION64_PATH names no tool" : of_nvtx));
  else
    line("nvtx", of_nvtx.empty() ? "the program's own ranges and marks"
                                 : "off: NVTX_INJECTION64_PATH names " + of_nvtx + ", which keeps them");
}

// True: a run directory can be made at the configured place.
bool describe_output(const Config& config) {
  std::error_code error;
  fs::path place = output_path(config);
  while (!fs::exists(place, error) && place.has_relative_path()) place = place.parent_path();
  struct statvfs room {};
  const bool is_writable = access(place.c_str(), W_OK | X_OK) == 0 && statvfs(place.c_str(), &room) == 0;
  const unsigned long long free = room.f_bavail * room.f_frsize;
  if (is_writable && free > 0) {
    line("output", place.string() + ", " + formats::bytes_text(free) + " free; each process may write " +
                       formats::bytes_text(config.max_size) + " (--max-size)");
    return true;
  }
  line("output", place.string() + ": " + (is_writable ? "nothing can be stored there" : std::strerror(errno)) +
                     "; name another place with -o or TORCHPROF_OUTPUT");
  return false;
}

std::string how_it_ended(const Trial& trial) {
  const std::string said = trial.last_line.empty() ? "" : ": " + trial.last_line;
  if (WIFSIGNALED(trial.wait_status)) return "died by signal " + std::to_string(WTERMSIG(trial.wait_status)) + said;
  return "ended with status " + std::to_string(WEXITSTATUS(trial.wait_status)) + said;
}

// True: something was captured.
bool describe_trial(const fs::path& python, const Trial& trial) {
  const auto fact = [&](const char* key) {
    const auto found = trial.facts.find(key);
    return found == trial.facts.end() ? std::string{} : found->second;
  };
  line("python", python.string() + (fact("python").empty() ? "" : ", version " + fact("python")));
  if (!fact("executable").empty() && fact("executable") != python) line("", "is " + fact("executable"));
  if (trial.wait_status != 0) line("", how_it_ended(trial));
  line("torch", !fact("torch").empty()
                    ? fact("torch")
                    : "cannot be imported here (" + fact("no_torch") + "): only Python calls are recorded");
  bool captures = false;
  for (const formats::Process& process : trial.trace.processes) {
    if (process.counts.records == 0) continue;
    for (const formats::Source& source : process.sources) {
      captures = captures || source.state == SourceState::kOn;
      line(("  " + std::string(source.name)).c_str(),
           std::string(state_text(source.state)) + (source.detail.empty() ? "" : ": ") + std::string(source.detail));
    }
    for (const formats::Meta& fact : process.metadata) {
      if (fact.key.starts_with("torch.")) line("", std::string(fact.key) + ": " + std::string(fact.value));
    }
    break;  // only the interpreter itself, not processes that it started
  }
  if (!captures) line("", "the library recorded nothing in it");
  return captures;
}

// The Python that the command is, or that the script's first line names; empty if it is none.
fs::path python_of(const Target& target) {
  if (is_python(target.file)) return target.file;
  return is_python(target.program) ? target.program : fs::path{};
}

bool examine(const std::string& command, const Library& library, const Config& config, bool& has_torch) {
  const Target target = look_at(command, value_in(current_environment(), "PATH"));
  if (target.file.empty()) {
    line("command", command + ": there is no such command");
    return false;
  }
  if (const std::string trouble = target.refusal + target.warning; !trouble.empty()) {
    line("command", trouble);
    return false;
  }
  const fs::path python = python_of(target);
  if (python.empty()) {
    line("command",
         target.program.string() + ": no Python; it is traced if it links libtorch, and every Python that it starts");
    return true;
  }
  const Trial trial = try_out(python, library, config);
  has_torch = trial.facts.contains("torch");
  return describe_trial(python, trial);
}

// Whether it can be attached to.
int examine_process(uint32_t pid) {
  const Image image(pid);
  const AttachTarget target = look_at_target_process(image);
  std::string why = why_not(target);
  if (!target.is_there) throw Error("process " + std::to_string(pid) + ": " + why);
  std::string shown;
  for (const std::string& argument : target.command) shown += (shown.empty() ? "" : " ") + argument;
  line("process", std::to_string(pid) + ": " + formats::shorten(formats::printable(shown), 100));
  line("rights", target.refused.empty() ? "its memory may be read and changed" : target.refused);
  if (target.minor != 0) {
    const RemoteScript script(image);
    const bool by_script = target.minor >= 14 && !target.is_elsewhere;
    if (by_script && why.empty()) why = script.why();
    line("python", "3." + std::to_string(target.minor) +
                       (by_script ? ": asked to run a script (PEP 768), nothing is stopped"
                                  : ": one thread is stopped for less than a millisecond"));
    line("torch", target.has_torch ? "loaded" : "not loaded: Python calls alone are recorded until it is");
  }
  line("files", target.is_elsewhere ? "another root or mount namespace (a container): it gets the library from us"
                                    : "the library is where it can see it");
  if (target.seccomp == 2)
    line("seccomp", "a filter: if it kills for clone, mmap, openat or socket, attaching kills it (Docker's does not)");
  const std::filesystem::path spool = spool_of(pid);
  if (!spool.empty())
    line("recorded", "into " + spool.parent_path().parent_path().string() + " already: `torchprof ctl " +
                         std::to_string(pid) + " start` opens a window");
  print(why.empty() ? "\nIt can be attached to.\n" : "\nIt cannot be attached to: " + why + ".\n");
  return why.empty() ? 0 : 1;
}

}  // namespace

int doctor(const Arguments& arguments) {
  const Arguments command = parse_doctor(arguments);
  if (const auto pid = command.size() == 1 ? process_named(command.front()) : std::nullopt)
    return examine_process(*pid);
  Config config;
  ErrorText error;
  if (!from_environment(config, error)) throw Error(error.text);
  const Library library = find_library();
  describe_machine(library);
  const bool has_place = describe_output(config);
  describe_gpu(config);
  if (disabled_by_environment()) line("off", "TORCHPROF_DISABLE is set: nothing is captured");
  bool has_torch = false;
  bool works = examine(command.empty() ? "python3" : command.front(), library, config, has_torch);
  if (command.empty() && !has_torch && access("/usr/bin/python3", X_OK) == 0) {
    print("\nThe first python3 on PATH has no torch; the system's:\n");
    works = examine("/usr/bin/python3", library, config, has_torch) || works;
  }
  works = works && has_place && !disabled_by_environment();
  print(works ? "\nA capture would work.\n" : "\nA capture would not work.\n");
  return works ? 0 : 1;
}

}  // namespace torchprof::launcher
