#include "launcher/watch/top_groups.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "formats/io/cells.h"
#include "formats/io/text.h"

namespace torchprof::launcher {
namespace {

constexpr double kAlike = 0.1;

bool is_rank(const TopProcess& process) { return process.view.rank && process.view.worker.empty(); }

// Whether ranks differ in how long they wait; otherwise they are told apart by their steps.
bool goes_by_waiting(const std::vector<TopProcess>& processes, const std::vector<size_t>& ranks) {
  double least = 1, most = 0;
  for (const size_t i : ranks) {
    const double share = waiting_share(processes[i].view);
    if (share < 0) return false;
    least = std::min(least, share);
    most = std::max(most, share);
  }
  return most - least > kAlike;
}

// "0-766, 768-1023"
std::string ranges_of(const std::set<int64_t>& ranks) {
  std::string text;
  for (auto it = ranks.begin(); it != ranks.end();) {
    const int64_t first = *it;
    int64_t last = first;
    for (++it; it != ranks.end() && *it == last + 1; ++it) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(first);
    if (last != first) text += "-" + std::to_string(last);
  }
  return text;
}

std::string where_of(const std::vector<TopProcess>& processes, const std::vector<size_t>& members) {
  std::set<std::string> hosts;
  std::set<int64_t> ranks;
  for (const size_t i : members) {
    hosts.insert(processes[i].host);
    if (processes[i].view.rank) ranks.insert(*processes[i].view.rank);
  }
  const std::string host =
      hosts.size() == 1 ? formats::printable(*hosts.begin()) : formats::plural(hosts.size(), "host");
  return "of " + host + ": " + ranges_of(ranks);
}

}  // namespace

int64_t mean_step(const formats::LiveView& view) {
  constexpr size_t kMost = 20;
  const size_t count = std::min(kMost, view.step_ns.size());
  int64_t total = 0;
  for (size_t i = 0; i < count; ++i) total += view.step_ns[view.step_ns.size() - 1 - i];
  return count == 0 ? 0 : total / static_cast<int64_t>(count);
}

double waiting_share(const formats::LiveView& view) {
  if (!view.collective_ns) return -1;
  return std::min(
      1.0, static_cast<double>(*view.collective_ns) / static_cast<double>(std::max<int64_t>(1, view.covered_ns)));
}

std::vector<size_t> slowest_first(const std::vector<TopProcess>& processes) {
  const bool has_live = std::ranges::any_of(processes, &TopProcess::is_live);
  std::vector<size_t> order;
  for (size_t i = 0; i < processes.size(); ++i)
    if (is_rank(processes[i]) && !processes[i].view.step_ns.empty() && (processes[i].is_live || !has_live))
      order.push_back(i);
  if (goes_by_waiting(processes, order))
    std::ranges::stable_sort(order, {}, [&](size_t i) { return waiting_share(processes[i].view); });
  else
    std::ranges::stable_sort(order, {}, [&](size_t i) { return -mean_step(processes[i].view); });
  return order;
}

std::vector<RankGroup> groups_of_ranks(const std::vector<TopProcess>& processes, const std::vector<size_t>& order) {
  const bool by_waiting = goes_by_waiting(processes, order);
  const auto value = [&](size_t i) {
    return by_waiting ? waiting_share(processes[i].view)
                      : std::log(static_cast<double>(std::max<int64_t>(1, mean_step(processes[i].view))));
  };
  std::vector<RankGroup> groups;
  for (double alike = kAlike; groups.empty() || groups.size() > kMostGroups; alike *= 1.5) {
    groups.clear();
    for (const size_t i : order) {
      if (groups.empty() || std::abs(value(i) - value(groups.back().members.front())) > alike) groups.emplace_back();
      groups.back().members.push_back(i);
    }
    if (order.empty()) break;
  }
  for (RankGroup& group : groups) {
    group.name = formats::plural(group.members.size(), "rank");
    group.where = where_of(processes, group.members);
  }
  const std::set<size_t> known(order.begin(), order.end());
  RankGroup without, workers, others;
  for (size_t i = 0; i < processes.size(); ++i) {
    if (known.contains(i)) continue;
    (is_rank(processes[i]) ? without : !processes[i].view.worker.empty() ? workers : others).members.push_back(i);
  }
  const auto add = [&groups](RankGroup group, const char* what) {
    group.name = formats::plural(group.members.size(), what);
    if (!group.members.empty()) groups.push_back(std::move(group));
  };
  if (!without.members.empty()) without.where = where_of(processes, without.members);
  add(std::move(without), "idle rank");
  add(std::move(workers), "loader worker");
  add(std::move(others), "other process");
  return groups;
}

}  // namespace torchprof::launcher
