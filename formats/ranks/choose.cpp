#include "formats/ranks/choose.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "formats/io/error.h"
#include "formats/io/median.h"
#include "formats/io/sum.h"
#include "formats/ranks/waits.h"
#include "formats/trace/distributed.h"
#include "formats/trace/roles.h"

namespace torchprof::formats {
namespace {

struct RankOfJob {
  int64_t rank;
  const Process* process;
  int64_t waited_ns = 0;
  int64_t step_ns = 0;  // the median; 0: not known
};

bool is_rank(const Process& process, int64_t rank) { return process.role == "rank " + std::to_string(rank); }

std::vector<RankOfJob> ranks_of(const Trace& trace) {
  std::vector<RankOfJob> ranks;
  for (const Process& process : trace.processes) {
    const std::optional<int64_t> rank = distributed_of(process).rank;
    if (!rank || !is_rank(process, *rank)) continue;
    ranks.push_back({*rank, &process});
  }
  return ranks;
}

int64_t median_step(const Process& process) {
  std::vector<int64_t> steps;
  for (const StepTime& step : process.steps)
    if (step.ns > 0) steps.push_back(step.ns);
  return steps.empty() ? 0 : median_of(std::move(steps));
}

// Fills in how long each waited. False: nothing could be compared.
bool find_waits(const Trace& trace, std::vector<RankOfJob>& ranks) {
  const std::vector<uint32_t> jobs = job_numbers(trace.processes);
  std::vector<const Process*> processes;
  for (const RankOfJob& rank : ranks) processes.push_back(rank.process);
  std::vector<CommsCalls> calls = calls_of(processes);
  for (size_t i = 0; i < calls.size(); ++i)
    put_into_job(calls[i], jobs[static_cast<size_t>(processes[i] - trace.processes.data())]);
  std::vector<const CommsCalls*> all;
  for (const CommsCalls& each : calls) all.push_back(&each);
  std::vector<Intervals> waits(ranks.size());
  bool has_any = false;
  for (const auto& [kind, tally] : compare(all))
    for (const CommsWait& wait : tally.waits) {
      has_any = true;
      waits[wait.process].add(wait.when);
    }
  for (size_t i = 0; i < ranks.size(); ++i) {
    waits[i].settle();
    for (const auto& [begin, end] : waits[i].all()) add_to(ranks[i].waited_ns, end - begin);
  }
  return has_any;
}

// In windows, where there are any.
int64_t recorded_ns(const Process& process) {
  if (process.windows.empty()) return process.end - process.start;
  int64_t ns = 0;
  for (const Window& window : process.windows) add_to(ns, window.end - window.begin);
  return ns;
}

// From the slowest to the fastest.
std::vector<RankOfJob> slowest_first(const Trace& trace, std::vector<RankOfJob> ranks) {
  constexpr double kDiffer = 0.1;  // of the time: less may be chance
  if (find_waits(trace, ranks)) {
    const auto [least, most] = std::ranges::minmax(ranks, {}, &RankOfJob::waited_ns);
    const auto time = static_cast<double>(recorded_ns(*ranks.front().process));
    if (static_cast<double>(most.waited_ns - least.waited_ns) > kDiffer * time) {
      std::ranges::stable_sort(ranks, {}, &RankOfJob::waited_ns);
      return ranks;
    }
  }
  for (RankOfJob& rank : ranks) rank.step_ns = median_step(*rank.process);
  std::ranges::stable_sort(ranks, std::ranges::greater{}, &RankOfJob::step_ns);
  return ranks;
}

}  // namespace

size_t ranks_in(const Trace& trace) { return ranks_of(trace).size(); }

std::string lowest_rank(const Trace& trace) {
  const std::vector<RankOfJob> ranks = ranks_of(trace);
  const auto lowest = std::ranges::min_element(ranks, {}, &RankOfJob::rank);
  return lowest == ranks.end() ? std::string() : std::to_string(lowest->rank);
}

std::vector<ChosenRank> choose_ranks(const Trace& trace, std::string_view wanted) {
  const std::vector<RankOfJob> ranks = ranks_of(trace);
  std::map<int64_t, std::string> chosen;
  std::optional<std::vector<RankOfJob>> order;
  for (size_t begin = 0, end; begin <= wanted.size(); begin = end + 1) {
    end = std::min(wanted.find(',', begin), wanted.size());
    const std::string text(wanted.substr(begin, end - begin));
    if (text == kSlowestRank || text == kTypicalRank) {
      if (!order) order = slowest_first(trace, ranks);
      if (order->empty()) continue;
      const size_t place = text == kSlowestRank ? 0 : order->size() / 2;
      std::string& why = chosen[(*order)[place].rank];
      if (why.empty()) why = text;
      continue;
    }
    const auto found = std::ranges::find_if(ranks, [&](const RankOfJob& r) { return std::to_string(r.rank) == text; });
    if (found == ranks.end())
      throw Error("--ranks " + text + ": the run has no such rank (" + kSlowestRank + " and " + kTypicalRank +
                  " name two that it has)");
    chosen.try_emplace(found->rank);
  }
  std::vector<ChosenRank> out;
  for (auto& [rank, why] : chosen) out.push_back({rank, std::move(why)});
  return out;
}

Trace part_of(const Trace& trace, const std::vector<ChosenRank>& chosen, std::vector<size_t>* indices) {
  Trace part{.processes = {},
             .machines = trace.machines,
             .unreadable = trace.unreadable,
             .uncaptured = trace.uncaptured,
             .start = trace.start,
             .end = trace.end,
             .run_end = trace.run_end};
  for (size_t i = 0; i < trace.processes.size(); ++i) {
    const std::optional<int64_t> rank = distributed_of(trace.processes[i]).rank;
    if (!rank || std::ranges::find(chosen, *rank, &ChosenRank::rank) == chosen.end()) continue;
    part.processes.push_back(trace.processes[i]);
    if (indices != nullptr) indices->push_back(i);
  }
  return part;
}

std::string text_of(const std::vector<ChosenRank>& chosen) {
  std::string text;
  for (size_t i = 0; i < chosen.size(); ++i) {
    if (i > 0) text += i + 1 == chosen.size() ? " and " : ", ";
    text += std::to_string(chosen[i].rank);
    if (!chosen[i].why.empty()) text += " (" + chosen[i].why + ")";
  }
  return text;
}

}  // namespace torchprof::formats
