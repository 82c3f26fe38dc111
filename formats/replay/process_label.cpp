#include "formats/replay/process_label.h"

#include <algorithm>
#include <unordered_set>

#include "formats/replay/replay.h"

namespace torchprof::formats {

std::string_view program_name(const Process& process) {
  if (process.command.empty()) return "unknown";
  const std::string_view path = process.command.front();
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

std::string process_label(const Process& process) {
  std::string label = std::string(program_name(process)).append(" ").append(std::to_string(process.pid));
  if (!process.role.empty()) label.append(", ").append(process.role);
  return process.told_host.empty() ? label : label.append(", on ").append(process.told_host);
}

std::vector<uint64_t> distinct_pids(Processes processes) {
  std::unordered_set<uint64_t> taken;
  std::vector<uint64_t> pids;
  uint64_t next = 0;
  for (const Process& p : processes) next = std::max<uint64_t>(next, p.pid);
  for (const Process& p : processes) pids.push_back(taken.insert(p.pid).second ? p.pid : ++next);
  return pids;
}

std::string thread_label(const Row& row) {
  std::string label = std::to_string(row.sort_tid).append(" (");
  if (row.python_name.empty() || row.thread_name.empty() || row.python_name.starts_with(row.thread_name))
    return label.append(row.python_name.empty() ? row.thread_name : row.python_name).append(")");
  return label.append(row.python_name).append(", ").append(row.thread_name).append(")");
}

}  // namespace torchprof::formats
