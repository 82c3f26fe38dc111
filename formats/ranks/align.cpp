#include "formats/ranks/align.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "formats/io/cells.h"
#include "formats/io/sum.h"
#include "formats/io/text.h"
#include "formats/ranks/clock_fit.h"
#include "formats/ranks/match.h"
#include "formats/trace/distributed.h"
#include "formats/trace/roles.h"

namespace torchprof::formats {
namespace {

struct MeetingPart {
  uint32_t machine;
  MachinePart part;
};

class Alignment {
 public:
  explicit Alignment(const Trace& trace) : machines_(trace.machines) {
    std::vector<const Process*> processes;
    for (const Process& p : trace.processes) processes.push_back(&p);
    std::vector<CommsCalls> calls = calls_of(processes);
    const std::vector<uint32_t> jobs = job_numbers(trace.processes);
    for (size_t i = 0; i < calls.size(); ++i) put_into_job(calls[i], jobs[i]);
    std::vector<const CommsCalls*> all;
    for (const CommsCalls& each : calls) {
      all.push_back(&each);
      if (each.empty()) continue;
      const int64_t rank = each.rank.value_or(INT64_MAX);
      const auto [lowest, is_new] = lowest_rank_.try_emplace(each.machine, rank);
      if (!is_new) lowest->second = std::min(lowest->second, rank);
    }
    std::map<CommsKind, MatchedKind> kinds = match(all, Compared::kNone);
    std::erase_if(kinds, [](const auto& kind) { return !waits_for_all(kind.first.name); });
    for (const auto& [kind, matched] : kinds)
      for (const MatchedCalls& of_job : matched.of_jobs) rows_ += of_job.rows() * machines_.size();
    for (const auto& [kind, matched] : kinds)
      for (const MatchedCalls& of_job : matched.of_jobs) add(all, of_job);
    for (const auto& [kind, pairs] : match_pairs(all, Compared::kNone))
      for (const Pair& pair : pairs) {
        const uint32_t from = all[pair.sender]->machine, to = all[pair.receiver]->machine;
        if (from != to && pair.receive->is_until_done)
          messages_[std::minmax(from, to)].push_back({from < to, pair.send->begin, pair.receive->end});
      }
  }

  std::vector<Machine> run() {
    std::vector<bool> is_placed(machines_.size());
    while (true) {
      // The next reference: of those left the one with the lowest rank.
      std::optional<uint32_t> reference;
      for (const auto& [machine, rank] : lowest_rank_)
        if (!is_placed[machine] && (!reference || rank < lowest_rank_.at(*reference))) reference = machine;
      if (!reference) return std::move(machines_);
      set_placed(*reference, is_placed);
      while (place_next(*reference, is_placed))
        ;
    }
  }

 private:
  using Machines = std::pair<uint32_t, uint32_t>;  // the smaller number first
  static constexpr size_t kMostNeighbours = 4;     // more that share less are no better

  void add(const std::vector<const CommsCalls*>& all, const MatchedCalls& matched) {
    constexpr size_t kMostParts = 2'000'000;
    const size_t each = rows_ / kMostParts + 1;
    for (size_t n = 0; n < matched.rows(); n += each) {
      std::map<uint32_t, std::pair<MachinePart, std::vector<int64_t>>> parts;
      for (size_t i = 0; i < matched.processes.size(); ++i) {
        const CommsCall* call = matched.row(n)[i];
        if (call == nullptr || !call->is_until_done) continue;
        auto& [part, ends] =
            parts.try_emplace(all[matched.processes[i]]->machine, MachinePart{INT64_MIN, INT64_MAX, 0, INT64_MIN}, 0)
                .first->second;
        part.last_begin = std::max(part.last_begin, call->begin);
        part.first_end = std::min(part.first_end, call->end);
        part.last_end = std::max(part.last_end, call->end);
        ends.push_back(call->end);
      }
      if (parts.size() < 2) continue;
      std::vector<MeetingPart> meeting;
      for (auto& [machine, part] : parts) {
        std::ranges::sort(part.second);
        const size_t half = part.second.size() / 2;
        const int64_t upper = part.second[half], lower = part.second[(part.second.size() - 1) / 2];
        part.first.end = lower + (upper - lower) / 2;
        meeting.push_back({machine, part.first});
      }
      meetings_.push_back(std::move(meeting));
    }
  }

  // A machine that is placed, and how often one that is not has met it.
  struct Neighbour {
    uint32_t machine;
    size_t shared;
  };

  static const MachinePart* part_of(const std::vector<MeetingPart>& meeting, uint32_t machine) {
    const auto found = std::ranges::lower_bound(meeting, machine, {}, &MeetingPart::machine);
    return found == meeting.end() || found->machine != machine ? nullptr : &found->part;
  }

  // Whether a machine is better placed beside the first of the two: where it has met more often, else where the clock
  // is known better.
  bool is_better(const Neighbour& a, const Neighbour& b) const {
    return a.shared != b.shared ? a.shared > b.shared : machines_[a.machine].error_ns < machines_[b.machine].error_ns;
  }

  void set_placed(uint32_t placed, std::vector<bool>& is_placed) {
    is_placed[placed] = true;
    std::vector<size_t> shared(machines_.size());
    for (const auto& meeting : meetings_)
      if (part_of(meeting, placed) != nullptr)
        for (const MeetingPart& other : meeting) ++shared[other.machine];
    for (const auto& [machines, messages] : messages_)
      if (machines.first == placed || machines.second == placed)
        shared[machines.first == placed ? machines.second : machines.first] += messages.size();
    for (uint32_t other = 0; other < shared.size(); ++other) {
      if (is_placed[other] || shared[other] == 0) continue;
      std::vector<Neighbour>& known = neighbours_[other];
      const Neighbour neighbour{placed, shared[other]};
      known.insert(std::ranges::find_if(known, [&](const Neighbour& each) { return is_better(neighbour, each); }),
                   neighbour);
      if (known.size() > kMostNeighbours) known.pop_back();
    }
  }

  // Places the machine that shares most with one that is placed; false: there is none.
  bool place_next(uint32_t reference, std::vector<bool>& is_placed) {
    while (true) {
      std::optional<uint32_t> next;
      for (uint32_t m = 0; m < machines_.size(); ++m) {
        if (is_placed[m]) continue;
        std::erase_if(neighbours_[m],
                      [&](const Neighbour& each) { return machines_[each.machine].reference != reference; });
        if (!neighbours_[m].empty() && (!next || is_better(neighbours_[m].front(), neighbours_[*next].front())))
          next = m;
      }
      if (!next) return false;
      const uint32_t beside = neighbours_[*next].front().machine;
      neighbours_[*next].erase(neighbours_[*next].begin());
      if (!place(beside, *next)) continue;
      set_placed(*next, is_placed);
      return true;
    }
  }

  // Puts a machine's clock to that of another one, and so to its reference's.
  bool place(uint32_t here, uint32_t there) {
    std::vector<Meeting> meetings;
    for (const auto& meeting : meetings_) {
      const MachinePart *a = part_of(meeting, here), *b = part_of(meeting, there);
      if (a != nullptr && b != nullptr) meetings.push_back({*a, *b});
    }
    std::vector<Message> messages;
    if (const auto sent = messages_.find(std::minmax(here, there)); sent != messages_.end())
      for (Message message : sent->second) {
        message.is_from_here = message.is_from_here == (here < there);
        messages.push_back(message);
      }
    const uint64_t count = meetings.size() + messages.size();
    const std::optional<ClockFit> fit = fit_clock(std::move(meetings), std::move(messages));
    if (!fit) return false;
    const Machine& base = machines_[here];
    Machine& machine = machines_[there];
    auto correction = std::make_shared<ClockCorrection>(ClockCorrection{fit->points});
    if (base.correction)
      for (ClockCorrection::Point& point : correction->points)
        point.ahead += base.correction->ahead_at(point.at - point.ahead);
    machine.reference = base.reference;
    machine.ahead_ns = correction->points.front().ahead;
    machine.drift_ppm = base.drift_ppm + fit->drift_ppm;
    machine.error_ns = sum(base.error_ns, fit->error_ns);
    machine.collectives = count;
    machine.correction = std::move(correction);
    return true;
  }

  std::vector<Machine> machines_;
  std::map<uint32_t, int64_t> lowest_rank_;  // by machine
  size_t rows_ = 0;
  std::vector<std::vector<MeetingPart>> meetings_;                    // each in the order of its machines
  std::vector<std::vector<Neighbour>> neighbours_{machines_.size()};  // by machine that is not placed, the best first
  std::map<Machines, std::vector<Message>> messages_;
};

}  // namespace

std::vector<Machine> aligned_machines(const Trace& trace) {
  return trace.machines.size() < 2 ? trace.machines : Alignment(trace).run();
}

Trace load_aligned(const std::vector<std::filesystem::path>& spools, Contents contents) {
  Trace trace = load(spools, contents);
  const std::vector<Machine> machines = aligned_machines(trace);
  if (std::ranges::none_of(machines, [](const Machine& m) { return m.correction != nullptr; })) return trace;
  trace = {};  // thousands of processes are not held twice
  return load(spools, contents, machines);
}

std::vector<std::string> clock_lines(const Trace& trace) {
  constexpr size_t kMost = 4;  // machines of which each has a line: those whose clocks are known the least
  std::vector<std::string> lines;
  std::vector<bool> has_rank(trace.machines.size());
  for (const Process& p : trace.processes) has_rank[p.machine] = has_rank[p.machine] || distributed_of(p).rank;
  std::vector<const Machine*> aligned;
  for (const Machine& machine : trace.machines)
    if (machine.correction) aligned.push_back(&machine);
  std::ranges::stable_sort(aligned, std::greater<>(), &Machine::error_ns);
  for (size_t i = 0; i < std::min(aligned.size(), kMost); ++i) {
    const Machine& machine = *aligned[i];
    lines.push_back(
        "clock of " + printable(machine.host) + ": " + duration_text(static_cast<double>(std::abs(machine.ahead_ns))) +
        (machine.ahead_ns < 0 ? " behind " : " ahead of ") + printable(trace.machines[machine.reference].host) +
        print(", drifts by %+.1f ppm; aligned within ", machine.drift_ppm) +
        duration_text(static_cast<double>(machine.error_ns)) + " by " + plural(machine.collectives, "collective"));
  }
  if (aligned.size() > kMost)
    lines.push_back("clocks of " + plural(aligned.size() - kMost, "more machine") + ": aligned at least as well");
  std::optional<uint32_t> first;
  size_t left_alone = 0;
  for (uint32_t m = 0; m < trace.machines.size(); ++m)
    if (!trace.machines[m].correction && has_rank[m] && std::exchange(first, first.value_or(m)) &&
        ++left_alone <= kMost)
      lines.push_back("clock of " + printable(trace.machines[m].host) +
                      ": as it is, so that its ranks are not compared with those of " +
                      printable(trace.machines[*first].host) + ": they share no collectives that are surely the same");
  if (left_alone > kMost) lines.push_back("clocks of " + plural(left_alone - kMost, "more machine") + ": likewise");
  return lines;
}

}  // namespace torchprof::formats
