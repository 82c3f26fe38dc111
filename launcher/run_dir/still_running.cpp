#include "launcher/run_dir/still_running.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "formats/io/process_files.h"
#include "formats/io/text.h"

namespace torchprof::launcher {
namespace {

constexpr size_t kMostShown = 8;

// Empty for a process that has ended or is a zombie.
Info command_of(uint32_t pid) {
  const std::string text = formats::read_process_file(pid, "cmdline");
  Info command = Info::array();
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\0', begin), text.size());
    command.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return command;
}

std::string line_of(const Info& process) {
  std::string command;
  for (const Info& argument : process.value("command", Info::array()))
    command.append(" ").append(argument.get<std::string>());
  std::string line = "  process " + std::to_string(process.value("pid", 0));
  if (process.contains("role")) line.append(", ").append(process["role"].get<std::string>());
  if (!process.value("traced", false)) line.append(", not traced");
  return line.append(":").append(formats::shorten(formats::printable(command), kWidestCommand)).append("\n");
}

}  // namespace

Info still_running(const std::vector<Running>& processes) {
  Info running = Info::array();
  for (const Running& process : processes) {
    Info& one = running.emplace_back(Info{{"pid", process.pid}});
    one["command"] = process.is_seen ? command_of(process.pid) : Info::array();
    if (!process.spool.empty()) one["spool"] = process.spool;
  }
  return running;
}

Info those_that_still_run(const Info& earlier, const std::vector<std::filesystem::path>& spools) {
  Writers writers;
  std::vector<Running> found;
  for (const auto& spool : spools)
    if (const std::optional<Running> writer = writers.running(spool)) found.push_back(*writer);
  Info running = still_running(found);
  for (const Info& process : earlier) {
    if (!process.is_object() || process.contains("spool")) continue;
    const auto pid = process.value("pid", 0u);
    if (std::ranges::any_of(found, [pid](const Running& one) { return one.pid == pid; })) continue;
    const Info command = command_of(pid);
    if (!command.empty() && command == process.value("command", Info::array())) running.push_back(process);
  }
  return running;
}

void add_roles_of_running(Info& info) {
  if (!info.contains("still_running")) return;
  for (Info& running : info["still_running"]) {
    const std::string spool = running.value("spool", "");
    // A process that had no spool when it was looked at may have made one since.
    const uint32_t own = spool.empty() ? own_number(running.value("pid", 0u)) : number_in(spool);
    running["traced"] = !spool.empty();
    for (const Info& process : info["processes"]) {
      if (process.value("pid", 0u) != own) continue;
      running["traced"] = true;
      if (process.contains("role")) running["role"] = process["role"];
    }
  }
}

std::string still_running_lines(const Info& info) {
  const Info running = info.value("still_running", Info::array());
  if (running.empty()) return {};
  const auto is_traced = [](const Info& process) { return process.value("traced", false); };
  std::string out = running.size() == 1 ? "1 process" : std::to_string(running.size()) + " processes";
  out.append(" of the command still running");
  out.append(std::ranges::any_of(running, is_traced) ? "; the trace holds what they did until now:\n"
                                                     : ", none of them traced:\n");
  for (size_t i = 0; i < std::min(running.size(), kMostShown); ++i) out.append(line_of(running[i]));
  if (running.size() > kMostShown)
    out.append("  and ").append(std::to_string(running.size() - kMostShown)).append(" more: see run.json\n");
  return out;
}

}  // namespace torchprof::launcher
