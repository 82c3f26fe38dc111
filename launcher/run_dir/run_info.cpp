#include "launcher/run_dir/run_info.h"

#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "formats/io/open_file.h"
#include "formats/io/signal_names.h"
#include "formats/io/text.h"
#include "formats/trace/endings.h"
#include "formats/trace/open_threads.h"
#include "launcher/run_dir/hang_info.h"
#include "launcher/run_dir/still_running.h"
#include "launcher/run_dir/wall_clock.h"

namespace torchprof::launcher {
namespace {

std::string iso_time(UnixNs time) { return formats::iso_time(time.value); }

}  // namespace

const char* state_text(SourceState state) {
  switch (state) {
    case SourceState::kOff:
      return "off";
    case SourceState::kOn:
      return "on";
    case SourceState::kFailed:
      return "failed";
  }
  return "unknown";
}

Info process_info(const formats::Process& process, UnixNs run_end) {
  Info out;
  out["pid"] = process.pid;
  out["parent_pid"] = process.parent_pid;
  out["host"] = process.host;
  if (process.machine != 0) out["machine"] = process.machine;
  out["command"] = process.command;
  if (!process.role.empty()) out["role"] = process.role;
  out["start"] = iso_time(process.start);
  out["end"] = iso_time(process.end);
  if (!process.group_name.empty()) out["group"] = process.group_name;
  out["clean_exit"] = process.clean_exit;
  if (process.clean_exit || process.exit_status) out["ended"] = formats::ending_text(process);
  out["metadata"] = Info::object();
  for (const formats::Meta& meta : process.metadata) out["metadata"][std::string(meta.key)] = meta.value;
  out["sources"] = Info::object();
  for (const formats::Source& source : process.sources)
    out["sources"][std::string(source.name)] = {{"state", state_text(source.state)}, {"detail", source.detail}};
  out["events"] = {
      {"python", process.counts.python}, {"c_calls", process.counts.c_calls}, {"operators", process.counts.operators}};
  out["lost"] = Info::object();
  for (size_t cause = 0; cause < process.lost.size(); ++cause)
    if (process.lost[cause] != 0 && (!process.stopped || static_cast<LossCause>(cause) == LossCause::kReentry))
      out["lost"][formats::loss_text(static_cast<LossCause>(cause))] = process.lost[cause];
  if (const auto cut = formats::cut_short(process, run_end)) {
    out["cut_short"] = {{"captured_seconds", cut->has_events ? static_cast<double>(cut->ns) / kNsPerSecond : 0.0}};
    if (cut->of_ns) out["cut_short"]["of_seconds"] = static_cast<double>(*cut->of_ns) / kNsPerSecond;
    out["cut_short"]["reason"] = formats::loss_text(cut->cause);
  }
  if (!process.meta("window").empty()) out["windows"] = Info::array();
  for (const formats::Window& window : process.windows)
    out["windows"].push_back({{"number", window.number},
                              {"begin", iso_time(window.begin)},
                              {"end", iso_time(window.end)},
                              {"step", window.step},
                              {"closed", window.closed}});
  for (size_t i = 0; i < process.windows.size(); ++i)
    if (process.windows[i].reason != WindowReason::kNone)
      out["windows"][i]["reason"] = formats::reason_text(process.windows[i].reason);
  for (const formats::Blind& blind : process.blind)
    out["blind"].push_back(
        {{"by", blind.by}, {"times", blind.times}, {"seconds", static_cast<double>(blind.ns) / kNsPerSecond}});
  if (process.recycled_bytes != 0) out["recycled_bytes"] = process.recycled_bytes;
  if (process.doubtful_chunks != 0) out["doubtful_chunks"] = process.doubtful_chunks;
  if (process.damage) out["dropped_bytes"] = process.damage.bytes;
  return out;
}

void add_open(Info& info, const formats::Process& process, const std::vector<formats::ThreadLines>& stacks,
              bool is_running) {
  const auto threads = formats::open_threads(process, stacks);
  UnixNs end = process.end;
  for (const formats::OpenThread& thread : threads) end = std::max({end, thread.last, thread.stack_at});
  if (is_running) end = wall_clock_now();
  const auto seconds = [end](UnixNs since) { return seconds_between(since, end); };
  Info& open = info["open"] = Info::array();
  for (const formats::OpenThread& thread : threads) {
    Info& out = open.emplace_back(Info{{"tid", thread.tid}, {"name", thread.name}});
    if (thread.last != UnixNs{}) out["last"] = seconds(thread.last);
    if (thread.stack_at != UnixNs{}) out["stack"] = seconds(thread.stack_at);
    out["spans"] = Info::array();
    for (const formats::OpenSpan& span : thread.spans) {
      Info& added = out["spans"].emplace_back(Info{{"name", span.name}});
      if (span.begin != UnixNs{}) added["seconds"] = seconds(span.begin);
      if (span.line != 0) added["line"] = span.line;
    }
    if (thread.deeper != 0) out["deeper"] = thread.deeper;
  }
}

Info begin_info(const std::vector<std::string>& command, const std::vector<std::string>& environment) {
  utsname system{};
  uname(&system);
  std::error_code error;
  Info info;
  info["torchprof"] = TORCHPROF_VERSION;
  info["command"] = command;
  info["directory"] = std::filesystem::current_path(error).string();
  info["environment"] = Info::object();
  for (const std::string& variable : environment) {
    const size_t equals = variable.find('=');
    const std::string name = variable.substr(0, equals);
    if (name.starts_with("TORCHPROF_") || name == "LD_PRELOAD" || name == "PYTHONPATH")
      info["environment"][name] = variable.substr(equals + 1);
  }
  info["host"] = system.nodename;
  info["kernel"] = std::string(system.sysname) + " " + system.release + " " + system.machine;
  info["cpus"] = std::thread::hardware_concurrency();
  info["launcher"] = getpid();
  const UnixNs start = wall_clock_now();
  info["start"] = iso_time(start);
  info["start_ns"] = start.value;
  return info;
}

std::optional<uint64_t> count_oom_kills() {
  std::istringstream in(formats::read_file("/proc/vmstat"));
  std::string name;
  for (uint64_t count = 0; in >> name >> count;)
    if (name == "oom_kill") return count;
  return {};
}

std::string oom_line(const Info& info) {
  const auto kills = info.value("oom_kills", uint64_t{0});
  const auto is_killed = [](const Info& process) {
    return !process.value("clean_exit", true) && process.value("ended", "") != "ended";
  };
  const Info processes = info.value("processes", Info::array());
  if (kills == 0 || (info.value("signal", 0) != SIGKILL && std::ranges::none_of(processes, is_killed))) return {};
  return "while the command ran, the kernel killed " +
         (kills == 1 ? std::string("1 process") : std::to_string(kills) + " processes") +
         " of this machine because memory ran out (a cgroup's limit, or all of it)\n";
}

void add_end(Info& info, int wait_status, const std::vector<Running>& running,
             std::optional<uint64_t> oom_kills_before) {
  const UnixNs end = wall_clock_now();
  info["end"] = iso_time(end);
  info["seconds"] = static_cast<double>(end.value - info.value("start_ns", end.value)) / kNsPerSecond;
  if (WIFSIGNALED(wait_status)) {
    info["signal"] = WTERMSIG(wait_status);
    const char* name = formats::signal_name(WTERMSIG(wait_status));
    info["signal_name"] = name ? name : "real-time signal";
  } else {
    info["exit_status"] = WEXITSTATUS(wait_status);
  }
  const std::optional<uint64_t> oom_kills = count_oom_kills();
  if (oom_kills_before && oom_kills && *oom_kills > *oom_kills_before)
    info["oom_kills"] = *oom_kills - *oom_kills_before;
  info["still_running"] = still_running(running);
}

UnixNs run_end_of(const Info& info) {
  const auto start = info.value("start_ns", int64_t{0});
  const double ns = info.value("seconds", 0.0) * kNsPerSecond;
  constexpr double kLongest = 1e18;
  return {start > 0 && start < int64_t{4'000'000'000'000'000'000} && ns > 0 && ns < kLongest
              ? start + static_cast<int64_t>(ns)
              : 0};
}

void add_processes(Info& info, const formats::Trace& trace) {
  info["processes"] = Info::array();
  bool has_died = false;
  for (const formats::Process& process : trace.processes) {
    Info& added = info["processes"].emplace_back(process_info(process, trace.run_end));
    // The spool will be removed: this keeps what helps to find why the process died.
    if (process.clean_exit || formats::has_ended_well(process)) continue;
    add_open(added, process, formats::stated_stacks(process), false);
    add_stuck_gpu(added, process, false);
    has_died = true;
  }
  if (has_died) add_arrivals(info, trace, false);
  if (trace.machines.size() > 1) {
    Info& machines = info["machines"] = Info::array();
    for (const formats::Machine& machine : trace.machines) {
      Info& added = machines.emplace_back(Info{{"host", machine.host}, {"reference", machine.reference}});
      if (!machine.correction) continue;
      added["ahead_ns"] = machine.ahead_ns;
      added["drift_ppm"] = machine.drift_ppm;
      added["error_ns"] = machine.error_ns;
      added["collectives"] = machine.collectives;
    }
  }
  info["uncaptured"] = Info::array();
  for (const formats::Uncaptured& u : trace.uncaptured.processes)
    info["uncaptured"].push_back({{"pid", u.pid},
                                  {"parent_pid", u.parent_pid},
                                  {"time", iso_time(u.time)},
                                  {"command", u.command},
                                  {"reason", u.reason()}});
  if (trace.uncaptured.more != 0) info["uncaptured_more"] = trace.uncaptured.more;
  info["unreadable"] = Info::array();
  for (const formats::Unreadable& bad : trace.unreadable)
    info["unreadable"].push_back({{"file", bad.file.filename().string()}, {"reason", bad.reason}});
}

}  // namespace torchprof::launcher
