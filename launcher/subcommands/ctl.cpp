// torchprof ctl: opens and closes the windows of running programs. Each process listens on a socket of its own
// (tracer/window_thread.h).
#include <string>
#include <vector>

#include "formats/io/error.h"
#include "formats/trace/trace.h"
#include "launcher/run_dir/input.h"
#include "launcher/subcommands/control.h"
#include "launcher/subcommands/subcommands.h"
#include "launcher/terminal/say.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;

bool is_alive(uint32_t pid) {
  std::error_code ignored;
  return fs::exists("/proc/" + std::to_string(pid), ignored);
}

std::vector<uint32_t> processes_of(const std::string& target) {
  if (const auto pid = process_named(target)) {
    if (!is_alive(*pid)) throw Error("there is no process " + target);
    return {*pid};
  }
  std::vector<uint32_t> pids;
  const Input input = find_input(target);
  demand_trace(input, target);
  const formats::Trace trace = formats::load(input.spools, formats::Contents::kDefinitions);
  for (const formats::Process& process : trace.processes)
    if (is_alive(process.pid)) pids.push_back(process.pid);
  if (pids.empty()) throw Error(target + ": none of its processes runs any more");
  return pids;
}

}  // namespace

int ctl(const Arguments& arguments) {
  const CtlOptions options = parse_ctl(arguments);
  int status = 0;
  for (const uint32_t pid : processes_of(without_launcher(options.target))) {
    const std::string answer = ControlRequest(pid, options.command).wait();
    const std::string name = "process " + std::to_string(pid);
    if (answer.starts_with("ok: ")) {
      print(name + ": " + answer.substr(4) + "\n");
    } else {
      complain(name + ": " + (answer.starts_with("error: ") ? answer.substr(7) : answer));
      status = 1;
    }
  }
  return status;
}

}  // namespace torchprof::launcher
