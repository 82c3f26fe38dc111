#include "formats/report/step_remarks.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>
#include <optional>

#include "formats/io/cells.h"
#include "formats/io/sum.h"
#include "formats/io/text.h"
#include "formats/ranks/waits.h"
#include "formats/trace/windows.h"

namespace torchprof::formats {
namespace {

constexpr size_t kDescribed = 4;    // groups of processes that are described
constexpr size_t kMostUnusual = 8;  // lines about unusual steps
constexpr size_t kMostRemarks = 32;

using Parts = std::vector<const ReportPart*>;

std::string whole_ns_text(int64_t ns) { return duration_text(static_cast<double>(ns)); }

std::string name_of(const ReportPart& part) { return part.role.empty() ? "pid " + part.pid : part.role; }

// The number of a rank's process.
std::optional<uint64_t> rank_of(const ReportPart& part) {
  constexpr std::string_view kRank = "rank ";
  uint64_t rank = 0;
  if (!part.role.starts_with(kRank)) return {};
  const auto [end, error] = std::from_chars(part.role.data() + kRank.size(), part.role.data() + part.role.size(), rank);
  if (error != std::errc{} || end != part.role.data() + part.role.size()) return {};
  return rank;
}

struct Numbers {
  size_t processes = 0;  // of the whole run
  size_t ranks = 0;      // of these
  size_t described = 0;  // those that remarks are about: with windows
};

// "all 8 ranks: ", "ranks 0-2, 5: ", "pid 17, DataLoader worker 3: "; empty if remarks are about one process alone.
std::string who(const Parts& some, const Numbers& all) {
  constexpr size_t kMostNames = 8;
  if (all.described == 1) return {};
  std::vector<uint64_t> ranks;
  std::string names;
  for (const ReportPart* part : some) {
    if (const auto rank = rank_of(*part)) ranks.push_back(*rank);
    names.append(names.empty() ? "" : ", ").append(name_of(*part));
  }
  const bool are_ranks = ranks.size() == some.size();
  if (are_ranks && some.size() > 1 && some.size() == all.ranks) return "all " + count_text(all.ranks) + " ranks: ";
  if (some.size() == all.processes) return "all " + count_text(all.processes) + " processes: ";
  if (!are_ranks && some.size() > kMostNames) return count_text(some.size()) + " processes: ";
  if (some.size() == 1 || !are_ranks) return names.append(": ");
  std::ranges::sort(ranks);
  return std::string("ranks ").append(step_ranges(ranks, 6)).append(": ");
}

// One character for each part of the run: as high as its longest step, from 0.
std::string line_text(const std::vector<int64_t>& line) {
  static constexpr const char* kHeights[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const int64_t most = std::max<int64_t>(1, *std::ranges::max_element(line));
  std::string text;
  for (const int64_t ns : line)
    text +=
        kHeights[std::min<int64_t>(7, static_cast<int64_t>(8.0 * static_cast<double>(ns) / static_cast<double>(most)))];
  return text;
}

std::string marks_text(const std::vector<bool>& captured) {
  std::string text;
  for (const bool each : captured) text += each ? '^' : ' ';
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

std::string which_text(const UnusualSteps& u) {
  std::string text =
      u.count == 1 ? "step " + std::to_string(u.first)
      : u.is_row   ? "steps " + std::to_string(u.first) + "-" + std::to_string(u.last)
                   : count_text(u.count) + " steps from " + std::to_string(u.first) + " to " + std::to_string(u.last);
  if (u.every != 0) text += ", mostly each " + count_text(u.every);
  text += ": " + print("%.1f", u.times) + " times the median";
  if (u.count > 1) text += ", " + whole_ns_text(u.more_ns) + " in all";
  return text;
}

std::string why_text(const UnusualSteps& u) {
  std::string text;
  if (!u.what.empty())
    text.append("+").append(whole_ns_text(u.what_ns)).append(" a step in ").append(printable(u.what));
  if (!u.shapes.empty()) text.append(text.empty() ? "" : "; ").append("other shapes: ").append(printable(u.shapes));
  if (!text.empty()) return text;
  if (u.is_even) return "all of it took longer";
  return u.captured == 0 ? "not captured" : "nothing stands out in the " + count_text(u.captured) + " captured";
}

// The same steps in several processes.
struct Unusual {
  std::vector<std::pair<const ReportPart*, const UnusualSteps*>> of;
  int64_t more_ns() const {
    int64_t most = 0;
    for (const auto& [part, steps] : of) most = std::max(most, steps->more_ns);
    return most;
  }
  bool has(const ReportPart* part) const {
    return std::ranges::any_of(of, [part](const auto& each) { return each.first == part; });
  }
};

bool are_same(const UnusualSteps& a, const UnusualSteps& b) {
  constexpr double kAlike = 1.3;
  return a.is_row == b.is_row && a.first <= b.last && b.first <= a.last && a.times < b.times * kAlike &&
         b.times < a.times * kAlike;
}

std::vector<Unusual> unusual_of(const Parts& parts) {
  std::vector<Unusual> all;
  for (const ReportPart* part : parts) {
    for (const UnusualSteps& steps : part->run->unusual) {
      const auto same = std::ranges::find_if(
          all, [&](const Unusual& u) { return !u.has(part) && are_same(*u.of.front().second, steps); });
      (same == all.end() ? all.emplace_back() : *same).of.emplace_back(part, &steps);
    }
  }
  std::ranges::stable_sort(all, std::greater<>(), &Unusual::more_ns);
  return all;
}

// One line: which steps, and for those that did different things each of these.
std::string remark_on(const Unusual& unusual, const Numbers& all) {
  const auto& longest =
      *std::ranges::max_element(unusual.of, {}, [](const auto& each) { return each.second->more_ns; });
  std::map<std::pair<std::string, std::string>, Unusual> whys;  // by function and shapes
  Parts parts;
  for (const auto& each : unusual.of) {
    parts.push_back(each.first);
    const UnusualSteps& u = *each.second;
    if (!u.what.empty() || !u.shapes.empty()) whys[{u.what, u.shapes}].of.push_back(each);
  }
  std::string text = who(parts, all) + which_text(*longest.second);
  if (whys.empty()) return text + "; " + why_text(*longest.second);
  for (const auto& [key, why] : whys) {
    Parts those;
    for (const auto& [part, steps] : why.of) those.push_back(part);
    const auto most = std::ranges::max_element(why.of, {}, [](const auto& each) { return each.second->what_ns; });
    text.append("; ").append(whys.size() == 1 ? "" : who(those, all)).append(why_text(*most->second));
  }
  return text;
}

std::string cost_text(const Parts& parts) {
  double least = 0, most = 0;
  bool is_any = false;
  for (const ReportPart* part : parts) {
    if (!part->run->cost) continue;
    const double cost = *part->run->cost * 100;
    least = is_any ? std::min(least, cost) : cost;
    most = is_any ? std::max(most, cost) : cost;
    is_any = true;
  }
  if (!is_any) return {};
  const std::string low = print("%.1f", least), high = print("%.1f", most);
  return "windows added " + (low == high ? low : low + " to " + high) + " % to the run after its beginning";
}

std::string memory_growth_text(const RunSteps& run) {
  const auto text = [](double bytes) { return memory_text(std::llround(bytes)); };
  return "the process's memory grows by " + text(run.memory.step_bytes) + " a step, from " +
         text(static_cast<double>(run.memory.first_bytes)) + " to " + text(static_cast<double>(run.memory.last_bytes));
}

// Processes in whose windows the same steps lie, as in the ranks of a job.
void describe(const Parts& parts, const Numbers& all, bool is_text, std::vector<std::string>& remarks) {
  remarks.push_back(who(parts, all) + "in full: " + parts.front()->run->captured_text + "; the time of every step");
  if (const std::string cost = cost_text(parts); !cost.empty()) remarks.push_back(who(parts, all) + cost);
  const RunSteps& slowest =
      *(*std::ranges::max_element(parts, {}, [](const ReportPart* part) { return part->run->most_ns; }))->run;
  if (slowest.line.empty()) return;
  remarks.push_back(line_text(slowest.line) + "  at most " + whole_ns_text(slowest.most_ns) + ", step " +
                    std::to_string(slowest.slowest));
  if (is_text) remarks.push_back(marks_text(slowest.line_captured));
}

// The part of a process's steps in which it waited.
struct Waiting {
  const ReportPart* part;
  int64_t waited_ns = 0, all_ns = 0;
  double share() const { return static_cast<double>(waited_ns) / static_cast<double>(all_ns); }
};

// None if a process has no steps, or if they have no common clock.
std::vector<Waiting> waiting_of(const std::vector<ReportPart>& parts, const CommsTally& tally) {
  std::vector<Waiting> all;
  for (const CommsWait& wait : tally.waits) {
    Waiting& one = all.emplace_back(Waiting{&parts[wait.process]});
    for (const StepSpan& step : one.part->statistics.steps.spans) {
      add_to(one.all_ns, step.end - step.begin);
      add_to(one.waited_ns, wait.when.length(step.begin, step.end));
    }
    const CommsCalls &calls = one.part->statistics.comms, &first = all.front().part->statistics.comms;
    if (one.all_ns <= 0 || calls.job != first.job || calls.reference != first.reference) return {};
  }
  return all;
}

// A rank for which all others wait: at least a twentieth of the captured steps' time, and twice what it waits itself.
// Where there are many groups of ranks, those in which the others wait longest.
void name_slow_rank(const std::vector<ReportPart>& parts, std::vector<std::string>& remarks) {
  constexpr uint64_t kFewest = 10;
  constexpr double kLeastPart = 0.05, kTimes = 2;
  std::vector<const CommsCalls*> processes;
  for (const ReportPart& part : parts) processes.push_back(&part.statistics.comms);
  std::multimap<int64_t, std::string, std::greater<>> found;  // by what the others wait
  for (const auto& [kind, t] : compare(processes)) {
    if (t.compared < kFewest) continue;
    std::vector<Waiting> all = waiting_of(parts, t);
    if (all.size() < 2) continue;
    std::ranges::stable_sort(all, {}, &Waiting::share);
    const Waiting &slow = all[0], &others = all[1];
    if (others.share() < kLeastPart || others.share() < kTimes * slow.share()) continue;
    // What their clocks may be off by makes nobody slow.
    const int64_t error = clock_error(others.part->statistics.comms, slow.part->statistics.comms);
    if (others.waited_ns - slow.waited_ns <= error * static_cast<int64_t>(t.compared)) continue;
    const std::string name = name_of(*slow.part);
    found.emplace(others.waited_ns, printable(kind.name) + ": the others wait for " + name + ", " +
                                        percent_text(others.waited_ns, others.all_ns) +
                                        " of their steps' time or more; " + name + " itself waits " +
                                        percent_text(slow.waited_ns, slow.all_ns));
  }
  for (auto& [ns, text] : found) {
    if (remarks.size() >= kMostRemarks) return;
    remarks.push_back(std::move(text));
  }
}

}  // namespace

std::vector<std::string> step_remarks(const std::vector<ReportPart>& parts, bool is_text) {
  std::vector<std::string> remarks;
  std::map<std::string, Parts> alike;
  Parts runs;
  for (const ReportPart& part : parts) {
    if (!part.run) continue;
    runs.push_back(&part);
    alike[part.run->captured_text].push_back(&part);
  }
  const auto are_ranks = [](const ReportPart& part) { return rank_of(part).has_value(); };
  const Numbers all{parts.size(), static_cast<size_t>(std::ranges::count_if(parts, are_ranks)), runs.size()};
  std::vector<Parts> groups;
  for (auto& [text, group] : alike) groups.push_back(std::move(group));
  std::ranges::stable_sort(groups, std::greater<>(), [](const Parts& group) { return group.size(); });
  size_t described = 0;
  for (size_t i = 0; i < std::min(groups.size(), kDescribed); ++i) {
    describe(groups[i], all, is_text, remarks);
    described += groups[i].size();
  }
  if (described < runs.size())
    remarks.push_back(plural(runs.size() - described, "more process") + " with steps of this kind: report --json");
  const std::vector<Unusual> unusual = unusual_of(runs);
  for (size_t i = 0; i < std::min(unusual.size(), kMostUnusual); ++i) remarks.push_back(remark_on(unusual[i], all));
  name_slow_rank(parts, remarks);
  size_t growing = 0;
  for (const ReportPart* part : runs) {
    if (!part->run->memory.is_steady || ++growing > kDescribed) continue;
    remarks.push_back((runs.size() == 1 ? "" : name_of(*part) + ": ") + memory_growth_text(*part->run));
  }
  return remarks;
}

}  // namespace torchprof::formats
