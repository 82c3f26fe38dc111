#include "formats/ranks/waits.h"

#include <algorithm>
#include <utility>

#include "formats/io/sum.h"

namespace torchprof::formats {
namespace {

class Comparison {
 public:
  Comparison(const std::vector<const CommsCalls*>& processes, const CommsCounts& counts)
      : processes_(processes), counts_(counts) {}

  void add(const MatchedCalls& matched, CommsTally& tally) {
    for (const size_t process : matched.processes) waits_.try_emplace(process);
    for (size_t n = 0; n < matched.rows(); ++n) add_row(matched, n, tally);
  }

  void add(const Pair& pair, CommsTally& tally) {
    if (counts_ && !counts_(pair.sender, pair.send->begin)) return;
    ++tally.compared;
    ++was_last_[pair.sender];
    const Waited wait = waited(*pair.receive, *processes_[pair.receiver], pair.send->begin, *processes_[pair.sender]);
    add_to(tally.waiting_ns, wait.surely_ns);
  }

  void finish(CommsTally& tally) {
    for (const auto& [process, times] : was_last_)
      if (times > tally.slowest_calls) {
        tally.slowest = process;
        tally.slowest_calls = times;
      }
    for (auto& [process, when] : waits_) {
      when.settle();
      tally.waits.push_back({process, std::move(when)});
    }
  }

 private:
  void add_row(const MatchedCalls& matched, size_t n, CommsTally& tally) {
    const CommsCall* const* row = matched.row(n);
    const LastToBegin last = last_to_begin(matched, n, processes_);
    const int64_t begin = row[last.column]->begin;
    const size_t slowest = matched.processes[last.column];
    if (counts_ && !counts_(slowest, begin)) return;
    ++tally.compared;
    for (size_t i = 0; i < matched.processes.size(); ++i) {
      if (row[i] == nullptr) continue;
      const size_t process = matched.processes[i];
      const Waited wait = waited(*row[i], *processes_[process], begin, *processes_[slowest]);
      add_to(tally.waiting_ns, wait.surely_ns);
      waits_[process].add(row[i]->begin, row[i]->begin + wait.ns);
    }
    if (last.is_sure) ++was_last_[slowest];
  }

  const std::vector<const CommsCalls*>& processes_;
  const CommsCounts& counts_;
  std::map<size_t, Intervals> waits_;
  std::map<size_t, uint64_t> was_last_;
};

}  // namespace

Waited waited(const CommsCall& call, const CommsCalls& process, int64_t begin, const CommsCalls& other) {
  const int64_t ns = std::max<int64_t>(0, difference(std::min(begin, call.end), call.begin));
  return {ns, ns <= clock_error(process, other) ? 0 : ns};
}

LastToBegin last_to_begin(const MatchedCalls& matched, size_t n, const std::vector<const CommsCalls*>& processes) {
  const CommsCall* const* row = matched.row(n);
  const size_t count = matched.processes.size();
  LastToBegin last{count, true};
  for (size_t i = 0; i < count; ++i)
    if (row[i] != nullptr && (last.column == count || row[i]->begin > row[last.column]->begin)) last.column = i;
  const CommsCalls& slowest = *processes[matched.processes[last.column]];
  for (size_t i = 0; i < count; ++i) {
    if (row[i] == nullptr || i == last.column) continue;
    const int64_t error = clock_error(*processes[matched.processes[i]], slowest);
    last.is_sure = last.is_sure && (error == 0 || difference(row[last.column]->begin, row[i]->begin) > error);
  }
  return last;
}

int64_t clock_error(const CommsCalls& a, const CommsCalls& b) {
  return a.machine == b.machine ? 0 : sum(a.error_ns, b.error_ns);
}

std::map<CommsKind, CommsTally> compare(const std::vector<const CommsCalls*>& processes, const CommsCounts& counts) {
  std::map<CommsKind, CommsTally> tallies;
  for (const CommsCalls* process : processes)
    for (const auto& [kind, calls] : process->kinds) {
      CommsTally& tally = tallies[kind];
      tally.calls += calls.size();
      for (const CommsCall& call : calls) {
        tally.bytes += call.bytes;
        add_to(tally.total_ns, call.end - call.begin);
      }
    }
  for (const auto& [kind, matched] : match(processes, Compared::kClocks)) {
    CommsTally& tally = tallies[kind];
    tally.uncertain = matched.uncertain;
    Comparison comparison(processes, counts);
    for (const MatchedCalls& of_job : matched.of_jobs) comparison.add(of_job, tally);
    comparison.finish(tally);
  }
  for (const auto& [kind, pairs] : match_pairs(processes, Compared::kClocks)) {
    Comparison comparison(processes, counts);
    for (const Pair& pair : pairs) comparison.add(pair, tallies[kind]);
    comparison.finish(tallies[kind]);
  }
  return tallies;
}

}  // namespace torchprof::formats
