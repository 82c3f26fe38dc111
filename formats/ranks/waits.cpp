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
    for (size_t n = 0; n < matched.rows(); ++n) add_row(matched, matched.row(n), tally);
  }

  void add(const Pair& pair, CommsTally& tally) {
    if (counts_ && !counts_(pair.sender, pair.send->begin)) return;
    ++tally.compared;
    ++was_last_[pair.sender];
    add_to(tally.waiting_ns, surely(waited(*pair.receive, pair.send->begin), error(pair.receiver, pair.sender)));
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
  // How long it waited for another that began then.
  static int64_t waited(const CommsCall& call, int64_t begin) {
    return std::max<int64_t>(0, difference(std::min(begin, call.end), call.begin));
  }
  int64_t error(size_t a, size_t b) const { return clock_error(*processes_[a], *processes_[b]); }
  static int64_t surely(int64_t ns, int64_t error) { return ns <= error ? 0 : ns; }

  void add_row(const MatchedCalls& matched, const CommsCall* const* row, CommsTally& tally) {
    const size_t count = matched.processes.size();
    size_t last = count;
    for (size_t i = 0; i < count; ++i)
      if (row[i] != nullptr && (last == count || row[i]->begin > row[last]->begin)) last = i;
    const int64_t begin = row[last]->begin;
    const size_t slowest = matched.processes[last];
    if (counts_ && !counts_(slowest, begin)) return;
    ++tally.compared;
    bool is_last = true;
    for (size_t i = 0; i < count; ++i) {
      if (row[i] == nullptr) continue;
      const size_t process = matched.processes[i];
      const int64_t ns = waited(*row[i], begin), unsure = error(process, slowest);
      is_last = is_last && (i == last || unsure == 0 || begin - row[i]->begin > unsure);
      add_to(tally.waiting_ns, surely(ns, unsure));
      waits_[process].add(row[i]->begin, row[i]->begin + ns);
    }
    if (is_last) ++was_last_[slowest];
  }

  const std::vector<const CommsCalls*>& processes_;
  const CommsCounts& counts_;
  std::map<size_t, Intervals> waits_;
  std::map<size_t, uint64_t> was_last_;
};

}  // namespace

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
