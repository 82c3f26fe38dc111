#include "launcher/run/write_run.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "formats/io/error.h"
#include "formats/io/parallel.h"
#include "formats/io/text.h"
#include "formats/native/names.h"
#include "formats/ranks/choose.h"
#include "formats/report/summary.h"
#include "formats/trace/endings.h"
#include "formats/trace/roles.h"
#include "launcher/run/next_command.h"
#include "launcher/run/too_large.h"
#include "launcher/run_dir/input.h"
#include "launcher/run_dir/our_files.h"
#include "launcher/run_dir/still_running.h"
#include "launcher/terminal/progress.h"
#include "launcher/terminal/say.h"
#include "tracer/spool/run_files.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr size_t kSummaryRows = 5;
constexpr size_t kMostProcesses = 8;

constexpr std::string_view kNothingTraced =
    "no process of the command was traced. Likely causes: no Python and no libtorch ran in it, the program is "
    "statically\n"
    "linked or setuid, the environment was dropped on the way (env -i, sudo, ssh, a container), or\n"
    "its processes run in another root or mount namespace, where the run directory is not.\n"
    "`torchprof doctor -- COMMAND` says more.\n";

// The short summary that is printed; summary.txt has all of it. `next`: the command that shows more (next_command.h).
std::string short_summary(const formats::Trace& trace, const fs::path& run, std::string& next) {
  formats::EventCounts counts;
  for (const formats::Process& process : trace.processes) counts += process.counts;
  const char* most = counts.operators == 0 ? "python" : "ops";
  const formats::TableOptions options{.tables = {"advice", most, "modules", "steps"},
                                      .rows = kSummaryRows,
                                      .has_own_functions = true,
                                      .leaves_out_empty = true,
                                      .terminal = said_columns()};
  const formats::Report report = formats::report_for(trace, options);
  next = next_command(report, run);
  return formats::summary_text(report, options);
}

std::string process_lines(const formats::Trace& trace) {
  const size_t count = trace.processes.size();
  if (count < 2) return {};
  std::map<uint32_t, size_t> sizes;  // of groups, each of which is one line
  for (const formats::Process& process : trace.processes) ++sizes[formats::shown_group(process)];
  size_t shown = 0, told = 0;
  std::string out = "\n";
  for (const formats::Process* process : formats::in_shown_order(trace.processes)) {
    const uint32_t group = formats::shown_group(*process);
    const auto size = sizes.find(group);
    if (group != 0 && size == sizes.end()) continue;  // it is in a line that came
    if (shown++ == kMostProcesses) break;
    const size_t alike = group == 0 ? 1 : size->second;
    told += alike;
    if (group != 0) sizes.erase(size);
    std::string command;
    for (const std::string_view argument : process->command) command.append(" ").append(argument);
    if (alike > 1)
      out.append(std::to_string(alike)).append(" ").append(process->group_name);
    else
      out.append("process ").append(std::to_string(process->pid));
    if (alike == 1 && !process->role.empty())
      out.append(", ").append(process->role);
    else if (alike == 1 && !process->forked_from.empty())
      out += ", forked";
    if (alike == 1 && !process->told_host.empty()) out.append(", on ").append(formats::printable(process->told_host));
    if (formats::has_failed(*process)) out.append(", ").append(formats::ending_text(*process));
    out.append(":").append(formats::shorten(formats::printable(command), kWidestCommand)).append("\n");
  }
  if (count > told) out += "and " + std::to_string(count - told) + " more processes: see run.json\n";
  return out;
}

std::string untraced_lines(std::span<const RunDir::Untraced> untraced) {
  std::string out;
  const size_t shown = std::min(untraced.size(), kMostProcesses);
  for (const auto& [program, reason, times] : untraced.first(shown))
    out += "\nuntraced: " + formats::printable(program) +
           (times > 1 ? " (" + std::to_string(times) + " times) " : " ") + reason;
  if (untraced.size() > shown)
    out += "\nand " + std::to_string(untraced.size() - shown) + " more programs: see run.json";
  return out.empty() ? out : out + "\n";
}

bool is_among(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// The trace that a user wants to open: of those of the whole run the one that was named first, or the first one of a
// rank.
std::string main_trace(const std::vector<std::string>& files, const std::vector<std::string>& traces) {
  for (const std::string& file : files)
    for (const char* format : {"kineto", "perfetto"})
      if (file == formats::run_file(*formats::find_format(format))) return file;
  const auto first = std::ranges::find_if_not(traces, &std::string::empty);
  return first == traces.end() ? std::string{} : *first;
}

// The files that a run directory has already, and those that will be written. They are in run.json before they are
// written, so that files of a launcher that is killed are known as ours.
std::vector<std::string> files_to_be(const RunDir& dir, std::vector<std::string> own, const formats::Trace& trace,
                                     const std::vector<const formats::Format*>& formats) {
  std::error_code ignored;
  std::erase_if(own, [&](const std::string& name) { return !fs::exists(dir.path() / name, ignored); });
  const auto add = [&](const std::string& name) {
    if (!name.empty() && !is_among(own, name) && !fs::exists(fs::symlink_status(dir.path() / name, ignored)))
      own.push_back(name);
  };
  for (const formats::Format* format : formats) {
    for (const formats::PlannedFile& file : formats::files_of(*format, trace.processes)) add(file.name);
    add(formats::manifest_file(*format, trace.processes));
  }
  return own;
}

}  // namespace

void write_format(const formats::Format& format, const formats::Trace& trace, const fs::path& directory,
                  const std::vector<std::string>& own, std::vector<std::string>& files,
                  std::vector<std::string>& traces) {
  const formats::Processes all = trace.processes;
  const std::vector<formats::PlannedFile> planned = formats::files_of(format, all);
  const auto written = [&](size_t i) {
    const auto& [name, first, count] = planned[i];
    formats::write_file(format, trace, all.subspan(first, count), directory / name,
                        is_among(own, name) ? formats::Existing::kOwn : formats::Existing::kKept);
    return true;
  };
  formats::in_order(planned.size(), written, [&](size_t i, bool) {
    const auto& [name, first, ignored] = planned[i];
    files.push_back(name);
    if (format.name == "kineto-ranks")
      traces[first] = name;
    else if (format.name == "kineto")
      for (std::string& trace_of : traces)
        if (trace_of.empty()) trace_of = name;
  });
  if (const std::string name = formats::manifest_file(format, all); !name.empty()) {
    formats::write_manifest(format, all, directory / name,
                            is_among(own, name) ? formats::Existing::kOwn : formats::Existing::kKept);
    files.push_back(name);
  }
}

namespace {

// Of a trace of many ranks no viewer opens all: those that are written as one file over time.
bool is_of_chosen_ranks(const formats::Format& format) {
  return format.name == "kineto" || format.name == "perfetto" || format.name == "json-stream";
}

constexpr size_t kManyRanks = 8;

struct Part {
  formats::Trace trace;
  std::vector<size_t> indices;  // of its processes in the whole
};

// The part that these formats have; none: all of it.
std::optional<Part> part_of(const formats::Trace& trace, const Info& info,
                            const std::vector<const formats::Format*>& formats, const fs::path& run, const Tell& tell) {
  std::string names;
  for (const formats::Format* format : formats)
    if (is_of_chosen_ranks(*format)) names += (names.empty() ? "" : ", ") + formats::run_file(*format);
  std::string wanted = info.value("ranks", std::string());
  if (names.empty() || wanted == formats::kAllRanks) return {};
  const size_t count = formats::ranks_in(trace);
  if (wanted.empty() && count <= kManyRanks) return {};
  if (wanted.empty()) wanted = formats::lowest_rank(trace) + "," + formats::kSlowestRank + "," + formats::kTypicalRank;
  try {
    const std::vector<formats::ChosenRank> chosen = formats::choose_ranks(trace, wanted);
    if (chosen.empty()) return {};
    Part part;
    part.trace = formats::part_of(trace, chosen, &part.indices);
    tell(names + ": ranks " + formats::text_of(chosen) + " of " + std::to_string(count) + "; `torchprof export " +
         run.string() + " --format kineto-ranks -o DIR` writes a file for each, run --ranks all one of all");
    return part;
  } catch (const Error& error) {
    tell(error.what());
    return {};
  }
}

// How long each phase took, in ns: for run.json.
class Phases {
 public:
  void over(std::string_view phase) {
    const auto end = std::chrono::steady_clock::now();
    took_[std::string(phase)] = std::chrono::duration_cast<std::chrono::nanoseconds>(end - begin_).count();
    begin_ = end;
  }
  const Info& took() const { return took_; }

 private:
  Info took_ = Info::object();
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

formats::Trace load_run(const RunDir& dir, const Info& info, formats::NativeFrames frames, Phases& phases) {
  formats::Trace trace = load_spools(dir.spools(), {}, info);
  trace.run_end = run_end_of(info);
  if (trace.processes.empty()) formats::read_uncaptured(dir.spool(), trace.uncaptured);
  // A process made the list and had no room for its line.
  std::error_code ignored;
  if (trace.processes.empty() && trace.uncaptured.empty() && fs::exists(dir.spool() / kUncapturedName, ignored))
    trace.uncaptured.more = 1;
  try {
    if (!trace.processes.empty()) choose_step(trace, {}, info);
  } catch (const Error& error) {
    complain(error.what());  // the steps are what they are without it
  }
  phases.over("load");
  formats::name_native_frames(trace, frames);
  phases.over("symbols");
  return trace;
}

// `traces`: as from write_format().
void add_findings(Info& info, const formats::Trace& trace, const std::vector<RunDir::Untraced>& untraced,
                  const std::vector<std::string>& traces) {
  info["torchprof"] = TORCHPROF_VERSION;
  add_processes(info, trace);
  add_roles_of_running(info);
  info["untraced"] = Info::array();
  for (const auto& [program, reason, times] : untraced)
    info["untraced"].push_back({{"program", program}, {"reason", reason}, {"times", times}});
  for (size_t i = 0; i < traces.size(); ++i)
    if (!traces[i].empty()) info["processes"][i]["trace"] = traces[i];
}

// `main`: the path of the trace to open; empty: none was written. `is_known_why`: if nothing was traced, other lines
// say why.
std::string summary_text(const formats::Trace& trace, const std::vector<RunDir::Untraced>& untraced,
                         const fs::path& run, const fs::path& main, bool is_known_why) {
  std::string text, next;
  if (trace.processes.empty() && trace.unreadable.empty() && trace.uncaptured.empty() && !is_known_why)
    text += kNothingTraced;
  if (!trace.processes.empty()) text += short_summary(trace, run, next) + process_lines(trace);
  if (trace.processes.empty())
    for (const std::string& line : formats::uncaptured_lines(trace)) text += line + "\n";
  text += untraced_lines(untraced);
  if (!next.empty()) text += "\nmore: " + next;
  if (!main.empty()) text += "\ntrace: " + main.string() + "\nopen it in https://ui.perfetto.dev or chrome://tracing\n";
  return text;
}

std::string trouble_of(const formats::Trace& trace, const std::string& first_error) {
  std::string trouble;
  for (const formats::Unreadable& bad : trace.unreadable) trouble += bad.file.string() + ": " + bad.reason + "\n";
  return first_error.empty() ? trouble : trouble + first_error + "\n";
}

bool is_whole(const formats::Trace& trace) {
  return trace.unreadable.empty() &&
         std::ranges::none_of(trace.processes, [](const formats::Process& p) { return static_cast<bool>(p.damage); });
}

}  // namespace

Written write_run(const RunDir& dir, Info info, const std::vector<const formats::Format*>& formats,
                  formats::NativeFrames frames, const Tell& tell) {
  Phases phases;
  const formats::Trace trace = load_run(dir, info, frames, phases);
  const std::optional<Part> part = part_of(trace, info, formats, dir.path(), tell);
  if (const std::string line = too_large_line(part ? part->trace : trace, formats, dir.path()); !line.empty())
    tell(line);
  std::vector<std::string> files, traces(trace.processes.size());
  std::string first_error;
  const std::vector<std::string> own = own_files(info), to_be = files_to_be(dir, own, trace, formats);
  info["files"] = to_be;
  info["exported"] = false;
  try {
    dir.write_info(info);
  } catch (const Error& error) {
    first_error = error.what();
    if (!trace.processes.empty())
      first_error +=
          "; `torchprof export " + dir.path().string() + " --format kineto -o FILE` writes the trace elsewhere";
  }
  // A trace that run.json does not list would not be known as ours, so none is written. The summary is made all the
  // same.
  const bool has_info = first_error.empty();
  if (has_info && !trace.processes.empty())
    for (const formats::Format* format : formats) try {
        if (part && is_of_chosen_ranks(*format)) {
          std::vector<std::string> of_part(part->indices.size());
          for (size_t i = 0; i < of_part.size(); ++i) of_part[i] = traces[part->indices[i]];
          write_format(*format, part->trace, dir.path(), own, files, of_part);
          for (size_t i = 0; i < of_part.size(); ++i) traces[part->indices[i]] = of_part[i];
        } else {
          write_format(*format, trace, dir.path(), own, files, traces);
        }
        phases.over(format->name);
      } catch (const Error& error) {
        if (first_error.empty()) first_error = error.what();
      }
  const std::vector<RunDir::Untraced> untraced = dir.untraced();
  add_findings(info, trace, untraced, traces);

  const std::string name = main_trace(files, traces);
  Written out{
      .text = summary_text(trace, untraced, dir.path(), name.empty() ? fs::path() : dir.path() / name, !has_info),
      .trouble = trouble_of(trace, first_error),
      .is_complete = first_error.empty() && is_whole(trace)};
  info["exported"] = out.is_complete && info.value("still_running", Info::array()).empty();
  for (const std::string& file : own)  // written earlier, in other formats
    if (!is_among(files, file) && is_among(to_be, file)) files.push_back(file);
  info["files"] = files;
  info["took_ns"] = phases.took();
  if (has_info) try {
      dir.write_info(info);
    } catch (const Error& error) {
      if (first_error.empty()) out.trouble += std::string(error.what()) + "\n";
      out.is_complete = false;
    }
  return out;
}

namespace {

// A file in memory that a child writes and the parent reads.
class Note {
 public:
  Note() : fd_(memfd_create("torchprof", MFD_CLOEXEC)) {
    if (fd_ < 0) throw Error(std::string("memfd_create: ") + std::strerror(errno));
  }
  ~Note() { close(fd_); }
  Note(const Note&) = delete;
  Note& operator=(const Note&) = delete;

  void write(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t n = ::write(fd_, text.data(), text.size());
      if (n <= 0) return;
      text.remove_prefix(static_cast<size_t>(n));
    }
  }
  std::string read() const {
    std::string out;
    std::array<char, 4096> part;
    for (ssize_t n; (n = pread(fd_, part.data(), part.size(), static_cast<off_t>(out.size()))) > 0;)
      out.append(part.data(), static_cast<size_t>(n));
    return out;
  }

 private:
  int fd_;
};

}  // namespace

Written write_run_apart(const RunDir& dir, const Info& info, const std::vector<const formats::Format*>& formats,
                        formats::NativeFrames frames, const Signals& signals) {
  if (dir.spools().empty()) {  // no data that could be damaged, or too large
    Written written = write_run(dir, info, formats, frames, say_each);
    say(std::exchange(written.text, {}));
    return written;
  }
  const Note early, text, trouble;
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw Error(std::string("fork: ") + std::strerror(errno));
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    try {
      const Written written =
          write_run(dir, info, formats, frames, [&early](const std::string& line) { early.write(line + "\n"); });
      text.write(written.text);
      trouble.write(written.trouble);
      _exit(written.is_complete ? 0 : 1);
    } catch (const std::exception& error) {
      trouble.write("the trace could not be written: " + reason_of(error));
      _exit(1);
    }
  }
  int status = 0, interrupts = 0;
  size_t told = 0;
  {
    Progress progress([&dir] { return bytes_in(dir.path()); });
    while (waitpid(pid, &status, WNOHANG) == 0) {
      if (const std::string lines = early.read(); lines.size() > told) {
        say_each(lines.substr(told));
        told = lines.size();
      }
      progress.update();
      const std::optional<Signal> signal = signals.next(500ms);
      if (!signal || (signal->number != SIGINT && signal->number != SIGTERM)) continue;
      if (++interrupts == 1)
        complain("still writing the trace; interrupt again to stop that and keep only the raw records");
      else
        kill(pid, SIGKILL);
    }
  }
  say_each(early.read().substr(told));
  say(text.read());
  Written out{.text = {}, .trouble = trouble.read(), .is_complete = WIFEXITED(status) && WEXITSTATUS(status) == 0};
  if (WIFEXITED(status)) return out;
  dir.remove_temporaries();
  out.trouble += interrupts > 1 ? "interrupted: the trace was not written"
                                : "writing the trace was ended by signal " + std::to_string(WTERMSIG(status)) +
                                      (WTERMSIG(status) == SIGKILL ? " (out of memory?)" : "");
  return out;
}

}  // namespace torchprof::launcher
