// torchprof where: what every thread is doing, from the spools alone. The program is not stopped and not touched.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>

#include "formats/error.h"
#include "formats/text.h"
#include "launcher/input.h"
#include "launcher/run_info.h"
#include "launcher/say.h"
#include "launcher/subcommands.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;

constexpr size_t kWidest = 100;  // columns of a command
constexpr size_t kDeepest = 40;  // columns that nesting takes

// The spool that a process maps, empty if it maps none.
fs::path spool_of(uint32_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/maps");
  for (std::string line; std::getline(in, line);) {
    const size_t path = line.find('/');
    if (path == std::string::npos) continue;
    fs::path file = line.substr(path);
    if (file.extension() == ".spool") return file;
  }
  return {};
}

// "12.3 s"; under a second in milliseconds.
std::string seconds_text(double seconds) {
  char text[32];
  snprintf(text, sizeof(text), seconds < 1 ? "%.1f ms" : "%.1f s", seconds < 1 ? seconds * 1e3 : seconds);
  return text;
}

std::string title_of(const Info& process) {
  std::string command;
  for (const auto& argument : process.value("command", Info::array()))
    command.append(" ").append(argument.get<std::string>());
  std::string title = "process " + std::to_string(process.value("pid", 0u));
  if (process.contains("role")) title.append(", ").append(process["role"].get<std::string>());
  title += process.value("running", false) ? ", running:" : process.value("clean_exit", false) ? ", ended:" : ", dead:";
  return title + formats::shorten(formats::printable(command), kWidest);
}

// A process as run.json has it, with what add_open() says.
void print(const Info& process) {
  printf("%s\n", title_of(process).c_str());
  const Info windows = process.value("windows", Info());
  if (windows.is_array() && (windows.empty() || windows.back().value("closed", false)))
    printf("  outside of its window (%s)\n", process["metadata"].value("window", "").c_str());
  for (const Info& thread : process.value("open", Info::array())) {
    printf("  thread %u (%s), last event %s %s\n", thread.value("tid", 0u), thread.value("name", "").c_str(),
           seconds_text(thread.value("last", 0.0)).c_str(), process.value("running", false) ? "ago" : "before the end");
    size_t depth = 0;
    for (const Info& span : thread.value("spans", Info::array()))
      printf("  %10s  %*s%s\n", seconds_text(span.value("seconds", 0.0)).c_str(),
             static_cast<int>(std::min<size_t>(depth++, kDeepest)), "", span.value("name", "").c_str());
    if (const auto deeper = thread.value("deeper", uint64_t{0}); deeper != 0)
      printf("  %10s  ... and %s calls inside of it\n", "", std::to_string(deeper).c_str());
    if (depth == 0) printf("  %10s  nothing that is recorded\n", "");
  }
}

// A number that is no file's name.
bool is_pid(const std::string& target, uint32_t& pid) {
  const auto [end, error] = std::from_chars(target.data(), target.data() + target.size(), pid);
  std::error_code ignored;
  return error == std::errc{} && *end == 0 && !fs::exists(target, ignored);
}

fs::path spool_of_process(uint32_t pid) {
  if (fs::path spool = spool_of(pid); !spool.empty()) return spool;
  std::error_code ignored;
  const std::string name = "process " + std::to_string(pid);
  throw Error(fs::exists("/proc/" + std::to_string(pid), ignored)
                  ? name + " has recorded nothing, or its memory cannot be read by this user"
                  : "there is no " + name);
}

// What was open in processes that died, once their spools are gone.
int print_stored(const std::string& target, const RunDir& run) {
  const Info info = run.read_info();
  size_t shown = 0;
  for (const Info& process : info.value("processes", Info::array())) {
    if (!process.contains("open")) continue;
    print(process);
    ++shown;
  }
  if (shown == 0) say(target + ": every process ended in an orderly way: nothing was open");
  return 0;
}

}  // namespace

int where(const Arguments& arguments) {
  const std::string target = parse_where(arguments);
  std::vector<fs::path> spools;
  if (uint32_t pid = 0; is_pid(target, pid)) {
    spools.push_back(spool_of_process(pid));
  } else {
    const Input input = find_input(target);
    if (input.spools.empty() && input.run) return print_stored(target, *input.run);
    spools = input.spools;
  }
  if (spools.empty()) throw Error(target + ": is a trace: it does not say what was open; give the run directory");
  const formats::Trace trace = formats::load(spools, formats::Contents::kDefinitions);
  for (const formats::Unreadable& bad : trace.unreadable) complain(bad.file.string() + ": " + bad.reason);
  if (trace.processes.empty()) throw Error(target + ": none of its spools can be read");
  for (const formats::Process& process : trace.processes) {
    Info info = process_info(process);
    info["running"] = spool_of(process.pid).filename() == process.file.filename();
    add_open(info, process, info["running"]);
    print(info);
  }
  return 0;
}

}  // namespace torchprof::launcher
