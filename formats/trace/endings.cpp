#include "formats/trace/endings.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <map>
#include <utility>

#include "formats/io/signal_names.h"

namespace torchprof::formats {
namespace {

constexpr std::string_view kChild = "child.";
constexpr std::string_view kSignalled = "\tsignalled";

template <class T>
bool parse(std::string_view text, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc{} && end == text.data() + text.size();
}

std::string signal_text(int signal) {
  const char* name = signal_name(signal);
  return name ? name : "signal " + std::to_string(signal);
}

bool is_usual_signal(const Process& p) { return p.is_helper && p.was_signalled && p.exit_status == -SIGTERM; }

}  // namespace

std::optional<ChildEnd> child_end_of(std::string_view key, std::string_view value) {
  if (!key.starts_with(kChild)) return std::nullopt;
  ChildEnd end;
  if (value.ends_with(kSignalled)) {
    end.was_signalled = true;
    value.remove_suffix(kSignalled.size());
  }
  constexpr int kMost = 255;
  if (!parse(key.substr(kChild.size()), end.pid) || !parse(value, end.status) || end.status < -kMost ||
      end.status > kMost)
    return std::nullopt;
  return end;
}

void assign_endings(std::vector<Process>& processes) {
  std::map<std::pair<std::string_view, uint32_t>, std::vector<size_t>> of_pid;
  for (size_t i = 0; i < processes.size(); ++i) of_pid[{processes[i].host, processes[i].pid}].push_back(i);
  // A parent learns the ends of its own children, and from its fork server those of the server's, which may itself have
  // recorded nothing.
  const auto is_waited_for_by = [&](const Process& parent, const Process& child) {
    if (child.parent_pid == parent.pid) return true;
    const auto servers = of_pid.find({child.host, child.parent_pid});
    if (servers == of_pid.end()) return child.is_helper;
    return std::ranges::any_of(
        servers->second, [&](size_t i) { return processes[i].is_helper && processes[i].parent_pid == parent.pid; });
  };
  for (const Process& parent : processes) {
    for (const ChildEnd& end : parent.children) {
      const auto found = of_pid.find({parent.host, end.pid});
      if (found == of_pid.end()) continue;
      // The latest: a process that replaced itself by exec has several spools. A number may come again, in a child of
      // somebody else.
      Process* child = nullptr;
      for (const size_t i : found->second)
        if (processes[i].start >= parent.start && is_waited_for_by(parent, processes[i])) child = &processes[i];
      if (child == nullptr || child == &parent) continue;
      child->exit_status = end.status;
      child->was_signalled = end.was_signalled;
    }
  }
}

std::string ending_text(const Process& process) {
  const std::optional<int> status = process.exit_status;
  if (!status) return process.clean_exit ? "clean" : "killed or replaced";
  if (*status == 0) return process.clean_exit ? "clean" : "ended";
  if (*status > 0) return "exit " + std::to_string(*status);
  if (is_usual_signal(process)) return "ended";
  return process.was_signalled ? signal_text(-*status) + " by parent" : "killed by " + signal_text(-*status);
}

bool has_failed(const Process& process) { return process.exit_status.value_or(0) != 0 && !is_usual_signal(process); }

uint32_t shown_group(const Process& process) { return has_failed(process) ? 0 : process.group; }

bool has_ended_well(const Process& process) { return process.exit_status ? !has_failed(process) : process.clean_exit; }

}  // namespace torchprof::formats
