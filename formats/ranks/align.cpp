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
      is_placed[*reference] = true;
      while (place_next(*reference, is_placed))
        ;
    }
  }

 private:
  using Machines = std::pair<uint32_t, uint32_t>;  // the smaller number first

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
      for (size_t a = 0; a < meeting.size(); ++a)
        for (size_t b = a + 1; b < meeting.size(); ++b) ++shared_[{meeting[a].machine, meeting[b].machine}];
      meetings_.push_back(std::move(meeting));
    }
  }

  // Places the machine that shares most with one that is placed; false: there is none.
  bool place_next(uint32_t reference, std::vector<bool>& is_placed) {
    std::map<Machines, size_t> candidates = shared_;
    for (const auto& [machines, messages] : messages_) candidates[machines] += messages.size();
    while (true) {
      const Machines* most = nullptr;
      size_t count = 0;
      int64_t error = INT64_MAX;
      for (const auto& [machines, shared] : candidates) {
        const auto [a, b] = machines;
        if (is_placed[a] == is_placed[b] || shared < count) continue;
        const Machine& placed = machines_[is_placed[a] ? a : b];
        if (placed.reference != reference || (shared == count && placed.error_ns >= error)) continue;
        error = placed.error_ns;
        most = &machines;
        count = shared;
      }
      if (most == nullptr) return false;
      const auto [a, b] = *most;
      if (place(is_placed[a] ? a : b, is_placed[a] ? b : a)) {
        is_placed[is_placed[a] ? b : a] = true;
        return true;
      }
      candidates.erase(*most);
    }
  }

  // Puts a machine's clock to that of another one, and so to its reference's.
  bool place(uint32_t here, uint32_t there) {
    std::vector<Meeting> meetings;
    for (const auto& meeting : meetings_) {
      const auto a = std::ranges::find(meeting, here, &MeetingPart::machine);
      const auto b = std::ranges::find(meeting, there, &MeetingPart::machine);
      if (a != meeting.end() && b != meeting.end()) meetings.push_back({a->part, b->part});
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
  std::vector<std::vector<MeetingPart>> meetings_;
  std::map<Machines, size_t> shared_;
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
