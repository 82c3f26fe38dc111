// torchprof where: what every thread is doing, from the spools alone. The program is not stopped and not touched.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

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

// The number that a process has in its own PID namespace: there it gave its spool the name.
uint32_t own_number(uint32_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("NSpid:")) continue;
    const size_t last = line.find_last_of(" \t") + 1;
    std::from_chars(line.data() + last, line.data() + line.size(), pid);
    break;
  }
  return pid;
}

// Whether a spool is that of process `number`: its name is HOST.PID.TIME.spool.
bool is_of(const fs::path& spool, uint32_t number) {
  const std::string name = spool.stem();  // HOST.PID.TIME
  const std::string_view rest = std::string_view(name).substr(0, name.rfind('.'));
  return rest.substr(rest.rfind('.') + 1) == std::to_string(number);
}

// The spool of a process, empty if it has none. A forked child maps its parent's too.
fs::path spool_of(uint32_t pid) {
  const uint32_t number = own_number(pid);
  std::ifstream in("/proc/" + std::to_string(pid) + "/maps");
  for (std::string line; std::getline(in, line);) {
    const size_t path = line.find('/');
    if (path == std::string::npos) continue;
    fs::path file = line.substr(path);
    if (file.extension() == ".spool" && is_of(file, number)) return file;
  }
  return {};
}

// The processes that have another number in a PID namespace of their own, by that number.
std::multimap<uint32_t, uint32_t> renumbered_processes() {
  std::multimap<uint32_t, uint32_t> found;
  std::error_code error;
  for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    uint32_t pid = 0;
    const std::string name = at->path().filename();
    const auto [rest, failure] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (failure != std::errc{} || *rest != 0) continue;
    if (const uint32_t number = own_number(pid); number != pid) found.emplace(number, pid);
  }
  return found;
}

bool is_running(const formats::Process& process, const std::multimap<uint32_t, uint32_t>& renumbered) {
  const auto writes_it = [&process](uint32_t pid) { return spool_of(pid).filename() == process.file.filename(); };
  const auto [first, last] = renumbered.equal_range(process.pid);
  return writes_it(process.pid) || std::any_of(first, last, [&](const auto& found) { return writes_it(found.second); });
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
void print_process(const Info& process) {
  std::string out = title_of(process) + "\n";
  const Info windows = process.value("windows", Info());
  if (windows.is_array() && (windows.empty() || windows.back().value("closed", false)))
    out.append("  outside of its window (")
        .append(process.value("metadata", Info::object()).value("window", ""))
        .append(")\n");
  const auto add = [&out](std::string_view left, size_t depth, std::string_view text) {
    out.append("  ").append(left.size() < 10 ? 10 - left.size() : 0, ' ').append(left);
    out.append(2 + std::min(depth, kDeepest), ' ').append(text).append("\n");
  };
  for (const Info& thread : process.value("open", Info::array())) {
    out.append("  thread ").append(std::to_string(thread.value("tid", 0u)));
    out.append(" (").append(thread.value("name", "")).append("), last event ");
    out.append(seconds_text(thread.value("last", 0.0)));
    out.append(process.value("running", false) ? " ago\n" : " before the end\n");
    size_t depth = 0;
    for (const Info& span : thread.value("spans", Info::array()))
      add(seconds_text(span.value("seconds", 0.0)), depth++, span.value("name", ""));
    if (const auto deeper = thread.value("deeper", uint64_t{0}); deeper != 0)
      add("", 0, "... and " + std::to_string(deeper) + " calls inside of it");
    if (depth == 0) add("", 0, "nothing that is recorded");
  }
  print(out);
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
    print_process(process);
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
  const auto renumbered = renumbered_processes();
  for (const formats::Process& process : trace.processes) {
    Info info = process_info(process);
    info["running"] = is_running(process, renumbered);
    add_open(info, process, info["running"]);
    print_process(info);
  }
  return 0;
}

}  // namespace torchprof::launcher
