#include "launcher/subcommands/attach_targets.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <utility>

#include "formats/io/process_files.h"
#include "launcher/attach/rights.h"

namespace torchprof::launcher {
namespace {

struct Process {
  uint32_t pid = 0;
  uint32_t parent = 0;
  std::string rank{};  // empty: it has none
  std::string job{};   // where the ranks meet
};

uint32_t parent_of(uint32_t pid) { return formats::status_number(formats::read_process_file(pid, "status"), "PPid"); }

std::map<uint32_t, Process> processes_by_pid() {
  std::map<uint32_t, Process> out;
  for (const uint32_t pid : formats::all_processes()) {
    Process& process = out[pid] = {pid, parent_of(pid)};
    std::istringstream in(formats::read_process_file(pid, "environ"));
    std::string address, port;
    for (std::string variable; std::getline(in, variable, '\0');) {
      if (variable.starts_with("RANK=")) process.rank = variable.substr(5);
      if (variable.starts_with("MASTER_ADDR=")) address = variable;
      if (variable.starts_with("MASTER_PORT=")) port = variable;
    }
    if (!port.empty()) process.job = address + " " + port;
  }
  return out;
}

std::vector<uint32_t> descendants(const std::map<uint32_t, Process>& all, uint32_t pid) {
  std::vector<uint32_t> out{pid};
  for (size_t i = 0; i < out.size(); ++i)
    for (const auto& [child, process] : all)
      if (process.parent == out[i]) out.push_back(child);
  out.erase(out.begin());
  return out;
}

bool runs_python(uint32_t pid) { return look_at_target_process(Image(pid)).minor != 0; }

}  // namespace

std::vector<uint32_t> python_children(uint32_t pid) {
  std::vector<uint32_t> out = descendants(processes_by_pid(), pid);
  std::erase_if(out, [](uint32_t child) { return !runs_python(child); });
  return out;
}

std::vector<uint32_t> ranks_of_job(uint32_t pid) {
  const std::map<uint32_t, Process> all = processes_by_pid();
  std::vector<uint32_t> those{pid};
  std::ranges::copy(descendants(all, pid), std::back_inserter(those));
  std::string job;
  for (const uint32_t each : those)
    if (const auto found = all.find(each); job.empty() && found != all.end() && !found->second.rank.empty())
      job = found->second.job;
  std::vector<uint32_t> out;
  for (const auto& [each, process] : all) {
    if (job.empty() || process.rank.empty() || process.job != job || !runs_python(each)) continue;
    const auto parent = all.find(process.parent);
    const bool is_worker = parent != all.end() && parent->second.job == job && parent->second.rank == process.rank;
    if (!is_worker) out.push_back(each);
  }
  return out;
}

}  // namespace torchprof::launcher
