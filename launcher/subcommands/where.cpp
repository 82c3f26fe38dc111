// torchprof where: what every thread is doing. It reads the spools, and of processes that live the memory in which
// Python keeps its stacks; where that is not allowed it asks the thread of ours in them (tracer/window_thread.h). The
// program is not stopped, and nothing of it is changed.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "formats/gpu/kernel_names.h"
#include "formats/io/cells.h"
#include "formats/io/error.h"
#include "formats/io/median.h"
#include "formats/io/process_files.h"
#include "formats/io/text.h"
#include "formats/trace/python_stacks.h"
#include "launcher/run/environment.h"
#include "launcher/run/signals.h"
#include "launcher/run_dir/hang_info.h"
#include "launcher/run_dir/input.h"
#include "launcher/run_dir/run_info.h"
#include "launcher/run_dir/temporary_directory.h"
#include "launcher/run_dir/wall_clock.h"
#include "launcher/run_dir/writers.h"
#include "launcher/subcommands/alive_runs.h"
#include "launcher/subcommands/attachment.h"
#include "launcher/subcommands/control.h"
#include "launcher/subcommands/subcommands.h"
#include "launcher/terminal/say.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;

constexpr size_t kWidest = 100;  // columns of a command
constexpr size_t kDeepest = 40;  // columns of indentation

// "12.3 s", or milliseconds if less than a second.
std::string seconds_text(double seconds) {
  char text[32];
  snprintf(text, sizeof(text), seconds < 1 ? "%.1f ms" : "%.1f s", seconds < 1 ? seconds * 1e3 : seconds);
  return text;
}

const std::string kOrderly = ": every process ended in an orderly way: nothing was open";

std::string title_of(const Info& process) {
  std::string command;
  for (const auto& argument : process.value("command", Info::array()))
    command.append(" ").append(argument.get<std::string>());
  std::string title = "process " + std::to_string(process.value("pid", 0u));
  if (process.contains("role")) title.append(", ").append(process["role"].get<std::string>());
  const std::string ended = process.value("ended", "killed or replaced");
  if (process.value("running", false))
    title += ", running:";
  else if (process.value("clean_exit", false) || ended == "ended")
    title += ", ended:";
  else
    title += ended == "killed or replaced" ? ", dead:" : ", dead (" + formats::printable(ended) + "):";
  return title + formats::shorten(formats::printable(command), kWidest);
}

// What a device had not finished, with who launched it.
std::string stuck_text(const Info& work, bool is_running) {
  constexpr size_t kInnermost = 6;
  std::string out = "  GPU " + std::to_string(work.value("device", 0u));
  out += ", stream " + std::to_string(work.value("stream", 0u)) + ": ";
  const std::string kernel = work.value("kernel", "");
  out += kernel.empty() ? "a copy or a set" : formats::shorten(formats::short_kernel_name(kernel), kWidest);
  out += is_running ? ", not ended for " : ", had not ended after ";
  out += seconds_text(work.value("seconds", 0.0));
  if (const auto behind = work.value("behind", uint64_t{0}); behind != 0)
    out += "; " + std::to_string(behind) + " or more wait behind it";
  out += "\n";
  if (work.contains("collective")) out += "    collective " + work.value("collective", "") + "\n";
  if (work.contains("tid")) out += "    launched by thread " + std::to_string(work.value("tid", 0u)) + " in\n";
  const Info spans = work.value("spans", Info::array());
  const size_t first = spans.size() > kInnermost ? spans.size() - kInnermost : 0;
  for (size_t i = first; i < spans.size(); ++i) out += "      " + spans[i].get<std::string>() + "\n";
  return out;
}

// What is known outside of windows with -w auto.
std::string steps_text(const formats::Process& process, bool is_running) {
  if (process.meta("window") != "auto") return "";
  std::string text = "  operators and Python calls are recorded in windows only\n";
  std::vector<int64_t> ns;
  for (const formats::StepTime& step : process.steps)
    if (step.ns > 0) ns.push_back(step.ns);
  if (ns.empty()) return text;
  const formats::StepTime& step = process.steps.back();
  text.append("  step ").append(std::to_string(step.step)).append(" was the last to end");
  if (is_running) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const int64_t ago = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() - step.end.value;
    text.append(", ").append(seconds_text(static_cast<double>(std::max<int64_t>(0, ago)) / 1e9)).append(" ago");
  }
  text.append("; it took ").append(formats::duration_text(static_cast<double>(ns.back())));
  const auto median = static_cast<double>(formats::median_of(std::move(ns)));
  return text.append(", the median is ").append(formats::duration_text(median)).append("\n");
}

void print_arrivals(const Info& info) {
  for (const Info& line : info.value("collectives", Info::array()))
    print_text("collective " + line.get<std::string>() + "\n");
}

// Prints a process as in run.json, with what add_open() and add_stuck_gpu() have added.
void print_process(const Info& process) {
  std::string out = title_of(process) + "\n";
  const Info windows = process.value("windows", Info());
  if (windows.is_array() && (windows.empty() || windows.back().value("closed", false)))
    out.append("  outside of its window (")
        .append(process.value("metadata", Info::object()).value("window", ""))
        .append(")\n")
        .append(process.value("steps", ""));
  const auto add = [&out](std::string_view left, size_t depth, std::string_view text) {
    out.append("  ").append(left.size() < 10 ? 10 - left.size() : 0, ' ').append(left);
    out.append(2 + std::min(depth, kDeepest), ' ').append(text).append("\n");
  };
  for (const Info& thread : process.value("open", Info::array())) {
    const std::string before = process.value("running", false) ? " ago" : " before the end";
    out.append("  thread ").append(std::to_string(thread.value("tid", 0u)));
    if (const std::string name = thread.value("name", ""); !name.empty()) out.append(" (").append(name).append(")");
    if (thread.contains("last"))
      out.append(", last event ").append(seconds_text(thread.value("last", 0.0))).append(before);
    else
      out.append(", no event");
    // One of just now needs no word.
    constexpr double kJustNow = 1;
    const double stack = thread.value("stack", 0.0);
    if (thread.contains("stack") && (!process.value("running", false) || stack > kJustNow))
      out.append(", Python's stack as it was ").append(seconds_text(stack)).append(before);
    out.append("\n");
    size_t depth = 0;
    for (const Info& span : thread.value("spans", Info::array())) {
      std::string name = span.value("name", "");
      if (const auto line = span.value("line", 0u); line != 0) name.append(", line ").append(std::to_string(line));
      add(span.contains("seconds") ? seconds_text(span.value("seconds", 0.0)) : "", depth++, name);
    }
    if (const auto deeper = thread.value("deeper", uint64_t{0}); deeper != 0)
      add("", 0, "... and " + std::to_string(deeper) + " calls inside it");
    if (depth == 0) add("", 0, "nothing recorded is open");
  }
  if (process.value("running", false) && process.value("open", Info::array()).empty() &&
      !process.value("has_stacks", true))
    out += "  its stacks cannot be read: that takes Python 3.11 or later, with the GIL\n";
  for (const Info& work : process.value("stuck_gpu", Info::array()))
    out += stuck_text(work, process.value("running", false));
  print_text(out);
}

// The Python stacks of a process that runs, by its memory; `pid`: in our PID namespace, 0: not seen.
std::vector<formats::ThreadLines> stacks_now(const formats::Process& process, uint32_t pid) {
  if (pid == 0) return {};
  return formats::read_stacks(process, pid, wall_clock_now());
}

// Asks the processes whose memory may not be read to state their stacks in their spools. True: one of them did.
bool ask_for_stacks(const formats::Trace& trace, Writers& writers) {
  constexpr std::chrono::milliseconds kPatience{1000};
  std::vector<ControlRequest> requests;
  for (const formats::Process& process : trace.processes) {
    const uint32_t pid = process.interpreter.interpreter != 0 ? writers.writer_of(process.file) : 0;
    if (pid != 0 && !formats::may_read(pid)) requests.emplace_back(pid, "stacks", process.file, kPatience);
  }
  bool has_new = false;
  for (ControlRequest& request : requests) has_new = request.wait().starts_with("ok: ") || has_new;
  return has_new;
}

// Prints from run.json what was open in processes that died, for runs whose spools are gone.
int print_stored(const std::string& target, const RunDir& run) {
  const Info info = run.read_info();
  size_t shown = 0;
  for (const Info& process : info.value("processes", Info::array())) {
    if (!process.contains("open")) continue;
    print_process(process);
    ++shown;
  }
  print_arrivals(info);
  if (shown == 0) say(target + kOrderly);
  return 0;
}

// Attaches to a process for as long as the object lives, so that it says where its stacks are. What would end us waits
// until the process is left.
class Visit {
 public:
  explicit Visit(uint32_t pid) : directory_("torchprof-where-") {
    const fs::path spool = directory_.path() / "spool";
    if (mkdir(spool.c_str(), 0700) != 0) throw Error(spool.string() + ": " + std::strerror(errno));
    holding_.emplace(directory_.path());
    Config config;
    config.python = PythonLevel::kModules;
    config.ops = config.shapes = config.flops = false;
    config.memory = MemoryMode::kOff;
    config.gpu = GpuMode::kOff;
    config.nvtx = NvtxMode::kOff;
    config.sample = 0;
    std::strcpy(config.window, "manual");
    try {
      attachment_ = std::make_unique<Attachment>(pid, find_library(), config, directory_.path());
    } catch (const Error& error) {
      const std::string why = error.what();
      throw Error(no_spool_of(pid) + "; it cannot be attached to: " + why.substr(why.find(": ") + 2));
    }
  }
  fs::path spool() const {
    const auto spools = attachment_->spools();
    if (spools.empty()) throw Error("process " + std::to_string(attachment_->pid()) + " has ended");
    return spools.front();
  }

 private:
  const Signals signals_;
  const TemporaryDirectory directory_;
  std::optional<Holding> holding_;
  std::unique_ptr<Attachment> attachment_;  // leaves before the directory goes
};

// Whether it has a spool, or there is no such process.
bool is_recorded(uint32_t pid) {
  std::error_code error;
  return !spool_of(pid).empty() || !fs::exists(formats::process_path(pid), error);
}

}  // namespace

int where(const Arguments& arguments) {
  if (arguments.empty()) return list_alive_runs("torchprof where RUN");
  const WhereOptions options = parse_where(arguments);
  const std::string target = without_launcher(options.target);
  std::vector<fs::path> spools;
  bool is_over = false;  // a run whose command has ended: nobody asks for processes that ended in an orderly way
  std::optional<Visit> visit;
  Input input;  // to the end: what an archive holds is unpacked for so long
  const auto pid = process_named(target);
  if (pid && !options.no_attach && !is_recorded(*pid)) {
    visit.emplace(*pid);
    spools.push_back(visit->spool());
  } else if (const fs::path spool = spool_of_process(target); !spool.empty()) {
    spools.push_back(spool);
  } else {
    input = find_input(target);
    demand_trace(input, target);
    if (input.spools.empty() && input.run) return print_stored(target, *input.run);
    spools = input.spools;
    is_over = input.run && !input.run->is_live();
  }
  if (spools.empty()) throw Error(target + ": is a trace, which does not say what was open; give the run directory");
  formats::Trace trace = formats::load(spools, formats::Contents::kDefinitions);
  Writers writers;
  if (ask_for_stacks(trace, writers)) trace = formats::load(spools, formats::Contents::kDefinitions);
  for (const formats::Unreadable& bad : trace.unreadable) complain(bad.file.string() + ": " + bad.reason);
  if (trace.processes.empty()) throw Error(target + ": none of its spools can be read");
  bool is_running = false;
  size_t shown = 0;
  for (const formats::Process& process : trace.processes) {
    Info info = process_info(process);
    const bool runs = writers.is_written(process.file);
    if (is_over && process.clean_exit && !runs) continue;
    ++shown;
    info["running"] = runs;
    if (visit) info.erase("windows");
    info["steps"] = steps_text(process, runs);
    info["has_stacks"] = process.interpreter.interpreter != 0 || process.meta("python.version").empty();
    auto stacks = runs ? stacks_now(process, writers.writer_of(process.file)) : std::vector<formats::ThreadLines>{};
    if (stacks.empty()) stacks = formats::stated_stacks(process);
    add_open(info, process, stacks, runs);
    add_stuck_gpu(info, process, runs);
    is_running = is_running || runs;
    print_process(info);
  }
  Info run = Info::object();
  add_arrivals(run, trace, is_running);
  print_arrivals(run);
  if (shown == 0) say(target + kOrderly);
  return 0;
}

}  // namespace torchprof::launcher
