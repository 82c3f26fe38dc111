#include "formats/advice/advice.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <set>
#include <string_view>

#include "formats/advice/rules.h"
#include "formats/io/cells.h"
#include "formats/io/median.h"
#include "formats/io/sum.h"

namespace torchprof::formats {
namespace {

// Of two that cost about the same the one that is cured more easily comes first: a wait for the GPU may go where the
// work of the host around it has to stay.
double preference_of(std::string_view rule) { return rule == "sync" ? 1.15 : 1; }

bool is_in(const std::vector<StepSpan>& steps, int64_t time) {
  const auto after = std::ranges::upper_bound(steps, time, {}, &StepSpan::begin);
  return after != steps.begin() && time < std::prev(after)->end;
}

class AdviceAssembly {
 public:
  explicit AdviceAssembly(const std::vector<AdvisedProcess>& processes) : all_(processes) {
    // Steps of training count before other units, and these before none.
    const auto rank = [](const AdvisedProcess& p) { return !p.advice->has_steps ? 0 : p.advice->unit.empty() ? 2 : 1; };
    int most_rank = 0;
    for (const AdvisedProcess& p : all_)
      if (!p.is_loader) most_rank = std::max(most_rank, rank(p));
    const bool have_steps = most_rank == 2;
    for (size_t i = 0; i < all_.size(); ++i)
      if (!all_[i].is_loader && rank(all_[i]) == most_rank && (have_steps || all_[i].advice->worked_ns > 0))
        looked_at_.push_back(i);
    if (looked_at_.empty()) look_at_program_without_operators();
    keep_largest_job();
    if (have_steps || looked_at_.size() < 2) return;
    // Ranks of a program whose steps are not known are compared, too; of others only one counts.
    std::vector<size_t> ranks = looked_at_;
    std::erase_if(ranks, [this](size_t i) { return all_[i].comms->empty(); });
    if (ranks.size() > 1) {
      looked_at_ = std::move(ranks);
      return;
    }
    const auto most = std::ranges::max_element(looked_at_, {}, [this](size_t i) { return all_[i].advice->worked_ns; });
    looked_at_ = {*most};
  }

  Advice run() {
    if (looked_at_.empty()) return {};
    result_.has_steps = all_[looked_at_.front()].advice->has_steps;
    result_.unit = all_[looked_at_.front()].advice->unit;
    result_.imports_ns = all_[looked_at_.front()].advice->imports_ns;
    result_.imports_most = all_[looked_at_.front()].advice->imports_most;
    for (const size_t i : looked_at_) {
      add_to(result_.step_ns, all_[i].advice->step_ns);
      add_to(result_.mean_step_ns, all_[i].advice->mean_step_ns);
      result_.parts += all_[i].parts;
    }
    std::vector<StepInput> inputs;
    for (const size_t i : looked_at_) inputs.push_back(all_[i].advice->input);
    result_.input = mean_of(inputs);
    result_.ranks = inputs.size();
    result_.parts = result_.parts / static_cast<int64_t>(looked_at_.size());
    result_.step_ns = mean(result_.step_ns);
    result_.mean_step_ns = mean(result_.mean_step_ns);
    if (!is_known_) {
      result_.parts = {};
      find_most();
      if (!result_.most.empty())
        result_.most += "; whether that is work or a wait is not known: `torchprof run --sample 50` tells it";
      return std::move(result_);
    }
    merge();
    slow_rank();
    communication();
    processor();
    // Rules look at one process and at the mean of its steps: what one rank of many has, or what a typical step has
    // little of, may be next to nothing.
    std::erase_if(result_.findings, [this](const Finding& f) {
      if (only_prepares_ && f.is_work && !f.is_rare) return true;
      return f.cost_ns > 0 && !is_worth(f.cost_ns, f.is_rare ? result_.mean_step_ns : result_.step_ns);
    });
    std::ranges::stable_sort(result_.findings, std::greater<>(), [this](const Finding& f) {
      return f.weight * static_cast<double>(result_.step_ns) + static_cast<double>(f.cost_ns) * preference_of(f.rule);
    });
    for (Finding& f : result_.findings)
      if (const size_t at = f.what.find("{}"); at != std::string::npos) f.what.replace(at, 2, ns_text(f.cost_ns));
    find_most();
    if (all_[looked_at_.front()].advice->is_first_step) note("it is the first step alone, which prepares the others");
    return std::move(result_);
  }

 private:
  void note(const std::string& text) { result_.machine += (result_.machine.empty() ? "" : "; ") + text; }
  int64_t mean(int64_t sum) const { return sum / static_cast<int64_t>(looked_at_.size()); }

  void keep_largest_job() {
    std::map<uint32_t, int64_t> jobs;  // time in steps
    for (const size_t i : looked_at_)
      add_to(jobs[all_[i].job], all_[i].advice->mean_step_ns * static_cast<int64_t>(all_[i].advice->steps));
    if (jobs.size() < 2 || are_ranks()) return;
    const auto largest = std::ranges::max_element(jobs, {}, [](const auto& job) { return job.second; });
    std::erase_if(looked_at_, [&](size_t i) { return all_[i].job != largest->first; });
    result_.machine = "of " + plural(jobs.size(), "job") + " this is " + all_[looked_at_.front()].who;
  }

  // Whether they are ranks of one job that did not say so to their environment: all have collectives, and another name.
  bool are_ranks() const {
    std::set<std::string_view> names;
    for (const size_t i : looked_at_) names.insert(all_[i].who);
    return names.size() == looked_at_.size() &&
           std::ranges::none_of(looked_at_, [this](size_t i) { return all_[i].comms->empty(); });
  }

  // Findings of one rule and place are one.
  void merge() {
    struct Merged {
      const Finding* largest = nullptr;
      size_t most = 0;  // the process with it
      int64_t cost = 0;
      std::vector<size_t> who{};
    };
    std::map<std::pair<std::string_view, std::string>, Merged> merged;
    for (const size_t i : looked_at_)
      for (const Finding& f : all_[i].advice->findings) {
        Merged& m = merged[{f.rule, f.where}];
        add_to(m.cost, f.cost_ns);
        if (m.largest == nullptr || f.cost_ns > m.largest->cost_ns) {
          m.largest = &f;
          m.most = i;
        }
        m.who.push_back(i);
      }
    for (const auto& [key, m] : merged) {
      Finding f = *m.largest;
      f.cost_ns = std::min(mean(m.cost), f.is_rare ? result_.mean_step_ns : result_.step_ns);
      // Numbers of the evidence are those of one process.
      if (m.who.size() > 1 && !f.evidence.empty()) f.evidence = all_[m.most].who + ": " + f.evidence;
      if (looked_at_.size() > 1 && m.who.size() == 1)
        add_sentence(f.evidence, "Of all ranks it is " + all_[m.who.front()].who + " alone.");
      if (f.rule == "loading") add_workers(f);
      result_.findings.push_back(std::move(f));
    }
  }

  // What the workers' own time goes to.
  void add_workers(Finding& loading) const {
    int64_t worked = 0, started = 0;
    std::map<std::string, int64_t> places;
    std::map<std::string, const LoaderWork*> by_place;
    std::vector<const LoaderWork*> workers;
    for (const AdvisedProcess& p : all_) {
      if (!p.is_loader) continue;
      const LoaderWork& work = p.advice->loader;
      workers.push_back(&work);
      add_to(started, work.start_ns);
      add_to(worked, work.busiest.all_ns);
      if (work.busiest.where.empty()) continue;
      add_to(places[work.busiest.where], work.busiest.ns);
      by_place[work.busiest.where] = &work;
    }
    if (workers.empty()) return;
    const size_t at_once = most_at_once(workers);
    const bool is_restarted = workers.size() > at_once;
    std::string whose = plural(at_once, "worker");
    if (is_restarted) whose += " (" + std::to_string(workers.size()) + " in all, one after the other)";
    const auto most = std::ranges::max_element(places, {}, [](const auto& p) { return p.second; });
    if (most != places.end() && most->second * 4 >= worked && worked != 0) {
      const LoaderWork& one = *by_place[most->first];
      add_sentence(loading.evidence, "Of the work of its " + whose + " " + percent_text(most->second, worked) +
                                         " is in " + one.busiest.text() + ".");
      loading.where = most->first;
      loading.source = one.source;
    }
    if (started <= worked) return;
    add_sentence(loading.evidence, "A worker takes " + ns_text(started / static_cast<int64_t>(workers.size())) +
                                       " to start, more than its batches take.");
    if (is_restarted) loading.todo = "Keep the workers from epoch to epoch (persistent_workers=True).";
  }

  static size_t most_at_once(const std::vector<const LoaderWork*>& workers) {
    std::vector<std::pair<int64_t, int>> changes;  // one that ends makes room for one that begins then
    for (const LoaderWork* w : workers) {
      changes.emplace_back(w->begin, 1);
      changes.emplace_back(w->end, -1);
    }
    std::ranges::sort(changes);
    int running = 0, most = 1;
    for (const auto& [time, change] : changes) most = std::max(most, running += change);
    return static_cast<size_t>(most);
  }

  // With those for whom no unit recurs, where for others it does: what recurs in one rank does so in all.
  std::vector<size_t> ranks_of_job() const {
    std::vector<size_t> ranks = looked_at_;
    if (result_.unit.empty()) return ranks;
    for (size_t i = 0; i < all_.size(); ++i)
      if (!all_[i].is_loader && !all_[i].comms->empty() && !all_[i].advice->has_steps) ranks.push_back(i);
    return ranks;
  }

  void slow_rank() {
    const std::vector<size_t> ranks = ranks_of_job();
    if (ranks.size() < 2) return;
    const bool have_all_steps = ranks.size() == looked_at_.size();
    std::vector<const CommsCalls*> calls;
    for (const size_t i : ranks) calls.push_back(all_[i].comms);
    const auto is_in_step = [&](size_t process, int64_t begin) {
      return !have_all_steps || is_in(all_[ranks[process]].advice->spans, begin);
    };
    // In each process, the time in which it waited in any collective.
    std::vector<Intervals> waits(ranks.size());
    uint64_t compared = 0;
    std::map<int64_t, std::string_view> names;                                   // of kinds, by the time that is waited
    const std::map<CommsKind, CommsTally> tallies = compare(calls, is_in_step);  // has the names
    for (const auto& [kind, t] : tallies) {
      if (t.waits.size() < ranks.size()) continue;  // of a group that not all are in
      compared += t.compared;
      names.emplace(t.waiting_ns, kind.name);
      for (const CommsWait& w : t.waits) waits[w.process].add(w.when);
    }
    constexpr uint64_t kFewest = 10;
    if (compared < kFewest) return;
    const auto steps = static_cast<int64_t>(all_[looked_at_.front()].advice->steps);
    std::vector<std::vector<int64_t>> waited(waits.size());  // by step
    std::vector<int64_t> typical;
    for (size_t i = 0; i < waits.size(); ++i) {
      waits[i].settle();
      if (have_all_steps)
        for (const StepSpan& s : all_[ranks[i]].advice->spans) waited[i].push_back(waits[i].length(s.begin, s.end));
      else
        waited[i].push_back(waits[i].length(INT64_MIN, INT64_MAX) / steps);
      typical.push_back(median_of(waited[i]));
    }
    const auto slowest = static_cast<size_t>(std::ranges::min_element(typical) - typical.begin());
    int64_t waiting = 0;
    for (const std::vector<int64_t>& of_rank : waited)
      if (!of_rank.empty())
        add_to(waiting,
               std::accumulate(of_rank.begin(), of_rank.end(), int64_t{0}) / static_cast<int64_t>(of_rank.size()));
    waiting_ns_ = waiting / static_cast<int64_t>(waited.size());
    const auto wait_of = [&typical](size_t i) { return typical[i]; };
    const int64_t cost = -more_than_others(ranks.size(), slowest, wait_of) - queued_longer(ranks, slowest);
    if (cost < result_.step_ns / 20 || !is_late_in_most_steps(waited, slowest)) return;
    // What the clocks of machines may be off by makes nobody slow: those who wait on its own machine tell it without.
    int64_t error = 0, beside = 0;
    for (size_t i = 0; i < calls.size(); ++i) {
      const int64_t unsure = clock_error(*calls[i], *calls[slowest]);
      error = std::max(error, unsure);
      if (unsure == 0) beside = std::max(beside, typical[i] - typical[slowest]);
    }
    if (beside < cost / 2 && cost <= error * static_cast<int64_t>(compared) / std::max<int64_t>(1, steps)) return;
    const ProcessAdvice& slow = *all_[ranks[slowest]].advice;
    Finding f{.rule = "slow rank", .cost_ns = cost};
    f.what = "The others wait {} for " + all_[ranks[slowest]].who + ", in " + std::string(names.rbegin()->second) + ".";
    f.where = slow.collective_place;
    f.todo = "Give it the same work as the others, or look at its machine.";
    add_reason(ranks, slowest, f);
    result_.findings.push_back(std::move(f));
  }

  // By how much what a rank has is more than what the others have on average.
  template <class F>
  static int64_t more_than_others(size_t ranks, size_t rank, F of) {
    int64_t others = 0;
    for (size_t i = 0; i < ranks; ++i)
      if (i != rank) add_to(others, of(i));
    return of(rank) - others / static_cast<int64_t>(ranks - 1);
  }

  // How much longer than the others a rank was ready to run in a typical step, and had no processor: it is late by that
  // without a fault, and others who want processors may have that be one rank for as long as a run takes.
  int64_t queued_longer(const std::vector<size_t>& ranks, size_t rank) const {
    return std::max<int64_t>(0, more_than_others(ranks.size(), rank, [&](size_t i) {
                               return all_[ranks[i]].advice->use.typical_queued().value_or(0);
                             }));
  }

  // On a busy machine any rank is late, now this one, now that one.
  static bool is_late_in_most_steps(const std::vector<std::vector<int64_t>>& waited, size_t rank) {
    size_t steps = SIZE_MAX, late = 0;
    for (const auto& of_rank : waited) steps = std::min(steps, of_rank.size());
    for (size_t s = 0; s < steps; ++s)
      late += std::ranges::all_of(waited, [&](const auto& of_rank) { return of_rank[s] >= waited[rank][s]; });
    return late * 4 >= steps * 3;
  }

  // What the slow rank spends more time in than the others on average: the most.
  void add_reason(const std::vector<size_t>& ranks, size_t slowest, Finding& f) const {
    int64_t most = 0;
    const std::pair<std::string, std::string>* reason = nullptr;
    for (const auto& each : all_[ranks[slowest]].advice->costs) {
      const int64_t more = more_than_others(ranks.size(), slowest, [&](size_t i) {
        const auto& costs = all_[ranks[i]].advice->costs;
        const auto of = costs.find(each.first);
        return of == costs.end() ? 0 : of->second;
      });
      if (more <= most) continue;
      most = more;
      reason = &each.first;
    }
    if (reason == nullptr || most < f.cost_ns / 4) return;
    const std::string& what = reason->second.empty() ? reason->first : reason->second;
    f.evidence =
        "It spends " + ns_text(most) + " more than they in " + (what.empty() ? "something not recorded" : what) + ".";
    if (!reason->first.empty()) f.where = reason->first;
  }

  void communication() {
    int64_t ns = 0;
    for (const size_t i : looked_at_) add_to(ns, all_[i].advice->communication_ns);
    const int64_t exposed = mean(ns);
    const int64_t cost = exposed - waiting_ns_;
    if (cost < result_.step_ns / 20) return;
    Finding f{.rule = "communication", .cost_ns = cost};
    f.what = "Collectives take " + ns_text(exposed) + " while nothing is computed.";
    int64_t nccl = 0;
    for (const size_t i : looked_at_) add_to(nccl, all_[i].advice->nccl_ns);
    if (nccl > 0)
      add_sentence(f.evidence, "NCCL's kernels take " + ns_text(mean(nccl)) + "; " +
                                   percent_text(std::max<int64_t>(0, mean(nccl) - exposed), mean(nccl)) +
                                   " of that overlaps with computing.");
    if (waiting_ns_ > 0) add_sentence(f.evidence, "Of these " + ns_text(waiting_ns_) + " are waiting for others.");
    add_rate(f.evidence);
    f.where = all_[looked_at_.front()].advice->collective_place;
    f.todo =
        "Let them overlap with the backward (DistributedDataParallel, async_op=True), send less (bfloat16, "
        "gradient accumulation), or larger buckets.";
    result_.findings.push_back(std::move(f));
  }

  // How fast data moves, in the kind of collective that takes longest in steps.
  void add_rate(std::string& evidence) const {
    struct Moved {
      uint64_t calls = 0, bytes = 0;
      int64_t ns = 0;
    };
    std::map<CommsKind, Moved> kinds;  // in steps
    std::vector<const CommsCalls*> calls;
    const auto is_in_step = [&](size_t process, int64_t begin) {
      return is_in(all_[looked_at_[process]].advice->spans, begin);
    };
    for (const size_t i : looked_at_) {
      for (const auto& [kind, all] : all_[i].comms->kinds)
        for (const CommsCall& call : all) {
          if (!is_in_step(calls.size(), call.begin)) continue;
          Moved& moved = kinds[kind];
          ++moved.calls;
          moved.bytes += call.bytes;
          add_to(moved.ns, call.end - call.begin);
        }
      calls.push_back(all_[i].comms);
    }
    const auto most = std::ranges::max_element(kinds, {}, [](const auto& kind) { return kind.second.ns; });
    if (most == kinds.end() || most->second.bytes == 0) return;
    const std::map<CommsKind, CommsTally> tallies = compare(calls, is_in_step);
    const auto tally = tallies.find(most->first);
    const int64_t waiting = tally == tallies.end() ? 0 : tally->second.waiting_ns;
    if (most->second.ns <= waiting) return;
    const auto ns = static_cast<double>(most->second.ns - waiting);
    add_sentence(evidence, most->first.name + " moves " +
                               memory_text(static_cast<int64_t>(most->second.bytes / most->second.calls)) +
                               " a call, at " + print("%.1f", static_cast<double>(most->second.bytes) / ns) + " GB/s.");
  }

  // Processes of the run that are no part of what is looked at and hardly ever wait for anything, so that each wants a
  // processor for itself. Not the workers of a DataLoader: they do what the steps ask for, however long that takes.
  size_t working_beside() const {
    constexpr double kNearlyAlways = 0.9;
    return static_cast<size_t>(std::ranges::count_if(all_, [this](const AdvisedProcess& p) {
      const auto i = static_cast<size_t>(&p - all_.data());
      return !p.is_loader && p.advice->busy > kNearlyAlways && std::ranges::find(looked_at_, i) == looked_at_.end();
    }));
  }

  // The thread of the program is ready to run and has to wait for a processor. Where it is the program's own threads or
  // processes that have them, it can do something about it.
  void processor() {
    int64_t queued = 0, steps = 0;
    double shares = 0;
    for (const size_t i : looked_at_) {
      const std::optional<int64_t> ns = all_[i].advice->use.typical_queued();
      if (!ns) return;
      add_to(queued, *ns);
      add_to(steps, all_[i].advice->step_ns);
      shares += all_[i].advice->use.queued_share;
    }
    if (queued * 20 < steps) return;
    const ProcessAdvice& first = *all_[looked_at_.front()].advice;
    const auto text = [](double n) { return print("%.1f", n); };
    const std::optional<double> known = first.use.others_ran;
    // The most that they can have had where that is not known.
    const double others = known.value_or(std::max(0.0, first.processors - first.use.process_ran));
    std::string evidence;
    if (first.processors != 0)
      evidence = "Of " + plural(first.processors, "processor") + " the process keeps " + text(first.use.process_ran) +
                 " busy" + (known ? ", others " + text(*known) : std::string()) + ".";
    Finding f{.rule = "processor", .cost_ns = mean(queued), .evidence = evidence};
    const size_t children = working_beside();
    // Where others have most of the processors it is not for its own threads that it waits.
    const bool is_its_own = first.use.process_ran * 2 >= others;
    // Others can have kept the thread waiting for as long as they ran. Where it waited for longer, it was for the
    // program's own threads.
    const bool is_not_theirs = others * static_cast<double>(steps) < static_cast<double>(queued);
    if (first.processors != 0 && first.threads > first.processors && is_its_own) {
      f.what = "Operators use " + plural(first.threads, "thread") + ", more than the " +
               plural(first.processors, "processor") +
               " there are: the thread that runs the program is ready to run for "
               "{} and has none.";
      f.todo = "Set OMP_NUM_THREADS to the number of processors, or call torch.set_num_threads().";
      if (!first.sharing.threads.where.empty()) {
        set_place(f, first.sharing.threads);
        add_sentence(f.evidence, "The program calls set_num_threads() at one line.");
        f.todo = "Leave the call out, or set no more threads than there are processors.";
      } else {
        set_place(f, first.sharing.operators);
        add_sentence(f.evidence, "The line is that of the operators that take most of the time.");
      }
    } else if (first.use.process_ran > 1.3 && is_not_theirs) {
      f.what =
          "The process has more threads at work than there are processors: the one that runs the program is ready to "
          "run for {} and has none.";
      f.todo =
          "Use fewer threads: of operators (torch.set_num_threads(), OMP_NUM_THREADS) and of the program's own pools.";
    } else if (children + 1 > first.processors && first.processors != 0 && known && *known > 0.5) {
      f.what =
          "Other processes that the program started keep the processors busy: the thread that runs the program is "
          "ready to run for {} and has none.";
      f.evidence = plural(children, "other process") + " of this run work in that time. " + evidence;
      set_place(f, first.sharing.children);
      f.todo = "Start fewer of them at a time, or give them a lower priority (os.nice()), or another machine.";
    } else {
      note("the machine was busy: the program's thread was ready to run for " +
           print("%.1f %%", 100 * shares / static_cast<double>(looked_at_.size())) +
           " of its time without a processor" +
           (first.processors == 0 || !known
                ? std::string()
                : "; of " + plural(first.processors, "processor") + " others had " + text(*known)));
      return;
    }
    result_.findings.push_back(std::move(f));
  }

  static void set_place(Finding& f, const SharingPlace& place) {
    f.where = place.where;
    f.source = place.source;
  }

  // Where nothing has operators the process that did most is looked at, if that is worth a word. By the times of its
  // functions alone nobody knows whether it works or waits.
  void look_at_program_without_operators() {
    constexpr double kWorthSaying = 1e8;
    std::pair<int64_t, double> most;  // on a processor, as far as somebody looked; in functions
    for (size_t i = 0; i < all_.size(); ++i) {
      const ProcessAdvice& each = *all_[i].advice;
      int64_t of_step = 0;
      for (const auto& [key, cost] : each.costs) add_to(of_step, cost);
      const double ns = static_cast<double>(of_step) * static_cast<double>(std::max<size_t>(1, each.steps));
      const std::pair did(each.looked_ran_ns.value_or(0), ns);
      if (!all_[i].is_loader && ns >= kWorthSaying && did > most) most = did, looked_at_ = {i};
    }
    if (looked_at_.empty()) return;
    const ProcessAdvice& looked_at = *all_[looked_at_.front()].advice;
    is_known_ = looked_at.looked_ran_ns.has_value();
    // Who has a program without torch looked at (--sample) wants to know what it does.
    only_prepares_ = looked_at.has_torch;
    if (all_.size() > 1) note("of " + plural(all_.size(), "process") + " this is " + all_[looked_at_.front()].who);
  }

  void find_most() {
    std::map<std::string_view, int64_t> sums;
    for (const size_t i : looked_at_)
      for (const auto& [key, ns] : all_[i].advice->costs) add_to(sums[key.second.empty() ? key.first : key.second], ns);
    sums.erase(std::string_view());
    const auto most = std::ranges::max_element(sums, {}, [](const auto& each) { return each.second; });
    if (most == sums.end() || result_.mean_step_ns == 0) return;
    // A mean over all steps, so of the mean step: where a few take long, that is many times the median.
    const bool is_half = mean(most->second) >= result_.mean_step_ns / 2;
    result_.most = (is_half ? "most of the time is in " : "the largest part of the time is in ") +
                   std::string(most->first) + ", " + percent_text(mean(most->second), result_.mean_step_ns);
  }

  const std::vector<AdvisedProcess>& all_;
  std::vector<size_t> looked_at_;
  bool is_known_ = true;        // whether what is looked at works or waits
  bool only_prepares_ = false;  // torch is loaded, and no operator was recorded
  Advice result_;
  int64_t waiting_ns_ = 0;  // of a step, mean over ranks
};

}  // namespace

Advice advice_of(const std::vector<AdvisedProcess>& processes) { return AdviceAssembly(processes).run(); }

}  // namespace torchprof::formats
