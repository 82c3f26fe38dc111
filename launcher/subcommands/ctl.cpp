// torchprof ctl: opens and closes the windows of running programs. Each process listens on a socket of its own
// (tracer/window_thread.h).
#include <map>
#include <string>
#include <vector>

#include "formats/io/cells.h"
#include "formats/io/error.h"
#include "formats/io/text.h"
#include "formats/trace/trace.h"
#include "launcher/run_dir/input.h"
#include "launcher/run_dir/writers.h"
#include "launcher/subcommands/alive_runs.h"
#include "launcher/subcommands/ask_steps.h"
#include "launcher/subcommands/capture.h"
#include "launcher/subcommands/control.h"
#include "launcher/subcommands/subcommands.h"
#include "launcher/terminal/say.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;

struct Asked {
  uint32_t pid;
  fs::path spool;  // its file; empty: it has none
};

// A process id alone says nothing: it may be another process's by now, or count on another machine.
std::vector<Asked> processes_of(const std::string& target) {
  if (const auto pid = process_named(target)) {
    std::error_code ignored;
    if (!fs::exists("/proc/" + target, ignored)) throw Error("there is no process " + target);
    return {{*pid, spool_of(*pid)}};
  }
  std::vector<Asked> asked;
  std::map<std::string, size_t> elsewhere;  // by host
  const Input input = find_input(target);
  demand_no_archive(input, target, "nobody records into it; give the run directory");
  demand_trace(input, target);
  Writers writers;
  const formats::Trace trace = formats::load(input.spools, formats::Contents::kDefinitions);
  for (const formats::Process& process : trace.processes) {
    const uint32_t pid = writers.writer_of(process.file);
    if (pid == 0 && !is_this_host(process.host) && !process.clean_exit && !ControlRequest::is_reached(process.file))
      ++elsewhere[std::string(process.host)];
    else if (pid != 0 || writers.is_written(process.file))
      asked.push_back({pid != 0 ? pid : process.pid, process.file});
  }
  for (const auto& [host, count] : elsewhere)
    complain(formats::plural(count, "process") + " of host " + formats::printable(host) +
             " skipped: `torchprof ctl` reaches those of its own machine");
  if (asked.empty()) throw Error(target + ": none of its processes runs here any more");
  return asked;
}

}  // namespace

int ctl(const Arguments& arguments) {
  if (arguments.empty()) return list_alive_runs("torchprof ctl RUN capture|start|stop|status|steps=N..M|next=K");
  const CtlOptions options = parse_ctl(arguments);
  const std::string target = without_launcher(options.target);
  if (options.command == "capture") return capture(target, options);
  if (options.steps) return ask_steps(target, *options.steps, options.ranks).is_by_all ? 0 : 1;
  const std::vector<Asked> processes = processes_of(target);
  most_open_spools();  // and sockets
  // All at once: each may wait for a step to end.
  std::vector<ControlRequest> requests;
  for (const auto& [pid, spool] : processes) requests.emplace_back(pid, options.command, spool);
  int status = 0;
  for (ControlRequest& request : requests) {
    const std::string answer = request.wait();
    const std::string name = "process " + std::to_string(request.pid());
    if (answer.starts_with("ok: ")) {
      print_text(name + ": " + answer.substr(4) + "\n");
    } else {
      complain(name + ": " + (answer.starts_with("error: ") ? answer.substr(7) : answer));
      status = 1;
    }
  }
  return status;
}

}  // namespace torchprof::launcher
