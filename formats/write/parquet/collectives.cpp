#include "formats/write/parquet/collectives.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "formats/ranks/match.h"
#include "formats/ranks/waits.h"
#include "formats/trace/roles.h"
#include "formats/values/collectives.h"
#include "formats/write/parquet/dataset.h"
#include "formats/write/parquet/dataset_schema.h"

namespace torchprof::formats::parquet {
namespace {

std::string_view text_of(MatchedBy by) {
  switch (by) {
    case MatchedBy::kNumber:
      return "number";
    case MatchedBy::kBegin:
      return "begin";
    case MatchedBy::kStep:
      return "step";
    case MatchedBy::kTime:
      break;
  }
  return "time";
}

// What is known of a call because others are the same collective.
struct Comparison {
  int64_t collective;
  MatchedBy by;
  int64_t ranks;
  std::optional<int64_t> waiting{};
  bool is_last;
  int64_t clock_error;
};

class CollectiveRows {
 public:
  CollectiveRows(const std::vector<const CommsCalls*>& calls, const std::vector<const Process*>& processes,
                 const std::vector<std::vector<StepSpan>>& steps, Output& out)
      : calls_(calls), processes_(processes), steps_(steps), file_(out, collective_columns(), about("collectives")) {}

  void add_all() {
    for (const auto& [kind, pairs] : match_pairs(calls_, Compared::kClocks))
      for (const Pair& pair : pairs) add(kind, pair);
    for (const auto& [kind, matched] : match(calls_, Compared::kClocks))
      for (const MatchedCalls& of_job : matched.of_jobs)
        for (size_t n = 0; n < of_job.rows(); ++n) add(kind, of_job, n);
    std::ranges::sort(matched_);
    const std::vector<const CommsCall*> matched = std::move(matched_);
    for (size_t i = 0; i < calls_.size(); ++i)
      for (const auto& [kind, of_kind] : calls_[i]->kinds)
        for (const CommsCall& call : of_kind)
          if (!std::ranges::binary_search(matched, &call)) add(i, kind, call, {});
    file_.finish();
  }

 private:
  void add(const CommsKind& kind, const Pair& pair) {
    const CommsCalls &sender = *calls_[pair.sender], &receiver = *calls_[pair.receiver];
    const MatchedBy by = pair.receive->number >= 0 ? MatchedBy::kNumber : MatchedBy::kBegin;
    Comparison found{++collective_, by, 2, {}, true, 0};
    add(pair.sender, *pair.kind_of_send, *pair.send, found);
    found.waiting = waited(*pair.receive, receiver, pair.send->begin, sender).surely_ns;
    found.is_last = false;
    found.clock_error = clock_error(receiver, sender);
    add(pair.receiver, kind, *pair.receive, found);
  }

  void add(const CommsKind& kind, const MatchedCalls& matched, size_t n) {
    const CommsCall* const* row = matched.row(n);
    const LastToBegin last = last_to_begin(matched, n, calls_);
    const CommsCalls& slowest = *calls_[matched.processes[last.column]];
    const int64_t ranks = std::ssize(matched.processes) -
                          std::count(row, row + matched.processes.size(), static_cast<const CommsCall*>(nullptr));
    ++collective_;
    for (size_t i = 0; i < matched.processes.size(); ++i) {
      if (row[i] == nullptr) continue;
      const size_t process = matched.processes[i];
      const Waited wait = waited(*row[i], *calls_[process], row[last.column]->begin, slowest);
      add(process, kind, *row[i],
          Comparison{collective_, matched.by[n], ranks, wait.surely_ns, last.is_sure && i == last.column,
                     clock_error(*calls_[process], slowest)});
    }
  }

  void add(size_t process, const CommsKind& kind, const CommsCall& call, const std::optional<Comparison>& found) {
    if (found) matched_.push_back(&call);
    const Process& p = *processes_[process];
    const auto if_known = [](int64_t value) { return value < 0 ? std::nullopt : std::optional(value); };
    const auto text = [this](std::string_view text) {
      return text.empty() ? std::nullopt : std::optional<int64_t>(file_.text(text));
    };
    put(CollectiveColumn::kRank, calls_[process]->rank);
    put(CollectiveColumn::kHost, file_.text(p.host));
    put(CollectiveColumn::kPid, p.pid);
    put(CollectiveColumn::kName, file_.text(kind.name));
    put(CollectiveColumn::kGroup, text(kind.group));
    put(CollectiveColumn::kGroupRanks, text(kind.ranks));
    put(CollectiveColumn::kPeer, if_known(call.peer));
    put(CollectiveColumn::kNumber, if_known(call.number));
    put(CollectiveColumn::kStep, step_at(steps_[process], call.begin));
    put(CollectiveColumn::kBytes, call.bytes == 0 ? std::nullopt : std::optional(static_cast<int64_t>(call.bytes)));
    put(CollectiveColumn::kType, text(dtype_of(call.type)));
    put(CollectiveColumn::kStart, call.begin);
    put(CollectiveColumn::kDuration, call.end - call.begin);
    put(CollectiveColumn::kCollective, found ? std::optional(found->collective) : std::nullopt);
    put(CollectiveColumn::kMatchedBy, found ? text(text_of(found->by)) : std::nullopt);
    put(CollectiveColumn::kRanks, found ? std::optional(found->ranks) : std::nullopt);
    put(CollectiveColumn::kWaiting, found ? found->waiting : std::nullopt);
    put(CollectiveColumn::kIsLast, found ? std::optional<int64_t>(found->is_last) : std::nullopt);
    put(CollectiveColumn::kClockError, found ? std::optional(found->clock_error) : std::nullopt);
    if (++rows_ % kRowGroup == 0) file_.end_row_group();
  }

  template <class T>
  void put(CollectiveColumn column, T value) {
    file_.add(static_cast<size_t>(column), value);
  }

  const std::vector<const CommsCalls*>& calls_;
  const std::vector<const Process*>& processes_;
  const std::vector<std::vector<StepSpan>>& steps_;
  TableFile file_;
  std::vector<const CommsCall*> matched_;
  int64_t collective_ = 0;
  size_t rows_ = 0;
};

}  // namespace

Collectives::Collectives(const Trace& trace) : trace_(trace) {
  for (const Process& process : trace.processes) processes_.push_back(&process);
  std::ranges::sort(processes_, {}, &Process::place);
  calls_.resize(processes_.size());
  steps_.resize(processes_.size());
}

size_t Collectives::at(const Process& process) const {
  return static_cast<size_t>(std::ranges::lower_bound(processes_, process.place, {}, &Process::place) -
                             processes_.begin());
}

void Collectives::add(const Process& process, CommsCalls calls, std::vector<StepSpan> steps) {
  if (calls.empty()) return;
  const size_t place = at(process);
  calls_[place] = std::move(calls);
  steps_[place] = std::move(steps);
}

void Collectives::write(Output& out) {
  const std::vector<uint32_t> jobs = job_numbers(trace_.processes);
  for (size_t i = 0; i < jobs.size(); ++i) put_into_job(calls_[at(trace_.processes[i])], jobs[i]);
  std::vector<const CommsCalls*> calls;
  for (const CommsCalls& each : calls_) calls.push_back(&each);
  CollectiveRows(calls, processes_, steps_, out).add_all();
}

}  // namespace torchprof::formats::parquet
