#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/advice/program_tree.h"
#include "formats/advice/rules.h"
#include "formats/advice/spread.h"
#include "formats/advice/wait_text.h"
#include "formats/io/cells.h"
#include "formats/io/intervals.h"
#include "formats/io/sum.h"
#include "formats/timeline/rare_parts.h"
#include "formats/trace/names.h"

namespace torchprof::formats {
namespace {

// What people call it: "augment", and of the code of a file "the script".
std::string who(std::string_view text) {
  const std::string_view name = split_place(text).name;
  return name.empty() || name == "<module>" ? "The script" : std::string(name);
}

// "percentile of numpy": a function of a library. A C call is given as it is.
std::string callee_text(std::string_view text) {
  const PlaceParts place = split_place(text);
  if (place.file.empty()) return std::string(text);
  std::string_view library = place.file;
  if (const size_t packages = library.rfind("-packages/"); packages != library.npos)
    library.remove_prefix(packages + 10);
  else if (const size_t python = library.rfind("/lib/python3"); python != library.npos)
    library.remove_prefix(std::min(library.size(), library.find('/', python + 12) + 1));
  library = library.substr(0, library.find('/'));
  if (library.ends_with(".py")) library.remove_suffix(3);
  return std::string(place.name) + " of " + std::string(library);
}

std::string where_of(const StepView& view, const ProgramTree& tree, const Region& r) {
  if (r.line != 0) return view.where(r.line);
  if (const uint32_t from = tree.called_from(r.node); from != 0) return view.where(from);
  return view.where(tree.function_of(r.node));
}

class PythonRules {
 public:
  PythonRules(const Subject& subject, Findings& findings)
      : v_(subject.view), tree_(v_, v_.main(), subject.claimed), use_(subject.use), findings_(findings) {
    for (const StepSpan& s : v_.steps()) numbers_.push_back(s.number);
  }

  void run() {
    const std::vector<Region> regions = tree_.regions(v_.all_ns() / kLeast);
    find_sleep(regions);
    for (const Region& r : regions) tell(r);
    rare_parts();
  }

 private:
  static constexpr int64_t kLeast = 33;  // 3 % of the steps
  // Python of the program for each operator that it calls, most of which is the binding's: to parse the arguments and
  // to make the result's object takes 2 to 10 us beside what torch records of the operator.
  static constexpr int64_t kBinding = 20'000;

  // The region whose own code is where the thread sleeps: what a step sleeps beyond the waits that are known by their
  // names is what this region takes, and no other one takes as much. On a busy machine the thread waits for a
  // processor as well, and where it does is not known: then the region may be such a wait for the most part.
  void find_sleep(const std::vector<Region>& regions) {
    const std::optional<int64_t> slept = use_.typical_slept();
    if (!slept) return;
    int64_t known = 0;
    const Region* largest = nullptr;
    for (const Region& r : regions) {
      if (is_mostly(r, Cost::kWaiting))
        add_to(known, spread_of(r.by_step).cost());
      else if (largest == nullptr && (is_mostly(r, Cost::kOwn) || is_mostly(r, Cost::kLibrary)))
        largest = &r;
    }
    if (largest == nullptr) return;
    const int64_t cost = spread_of(largest->by_step).cost(), sleep = *slept - known;
    if (sleep * 10 >= cost * 7 && sleep * 10 <= cost * 13)
      sleeps_ = largest;
    else if ((std::max<int64_t>(0, sleep) + use_.typical_queued().value_or(0)) * 2 >= cost)
      may_wait_ = largest;
  }

  static bool is_mostly(const Region& r, Cost cost) { return r.ns[static_cast<size_t>(cost)] * 2 >= r.all_ns(); }

  // What a few steps have more, without what they waited for a processor: of all steps, in ns.
  int64_t without_queue(const Region& r, const Spread& spread) const {
    int64_t cost = 0;
    for (size_t i = 0; i < r.by_step.size(); ++i)
      if (r.by_step[i] * 4 >= spread.typical)
        add_to(cost, std::max<int64_t>(0, r.by_step[i] - (use_.is_known[i] ? use_.queued[i] : 0)));
    return cost;
  }

  // Evaluations and the like: what few steps do, whatever it is made of. Only what nothing else tells.
  void rare_parts() {
    constexpr double kLeastShare = 0.05;
    if (v_.timeline().unit_is_part) return;  // each kind of them is some
    for (const RarePart& part : rare_parts_of(v_.timeline(), kLeastShare)) {
      const int64_t cost = v_.per_step(part.all_ns);
      const bool is_told =
          std::ranges::any_of(findings_, [&](const Finding& f) { return f.is_rare && f.cost_ns * 2 >= cost; });
      if (is_told || part.row != v_.main()) continue;
      const TimelineSpan& s = v_.timeline().span(part.row, part.span);
      Finding f{.rule = "some steps", .cost_ns = cost, .is_rare = true};
      const bool is_program = s.kind != SpanKind::kPython || v_.timeline().is_program(s.name);
      f.what = (is_program ? who(v_.text(s.name)) : callee_text(v_.text(s.name))) + " runs " +
               (part.calls > 1 ? plural(part.calls, "time") + " " : std::string()) + "in " +
               std::to_string(part.steps) + " of " + plural(part.of_steps, "step") +
               (part.every != 0 ? ", each " + std::to_string(part.every) + " steps" : std::string()) + ", for " +
               ns_text(part.median_ns) + ": {} of a step on average.";
      f.todo = part.calls > 1 ? "Do it for more at a time (a batch, several environments), or less often."
                              : "If it is not part of the work itself (an evaluation, a checkpoint), do it less often, "
                                "or on less data.";
      const uint32_t line = s.called_from != 0 ? s.called_from : s.place;
      f.where = v_.where(line != 0 ? line : s.name);
      findings_.push_back(std::move(f));
      return;
    }
  }

  void tell(const Region& r) {
    const Spread spread = spread_of(r.by_step);
    if (!spread.is_rare() && is_unsteady(r.by_step, v_.steps())) return;
    // What comes now and then has to be a twentieth of all: a busy machine leaves as much anywhere.
    if (spread.having * 4 < spread.steps * 3 && without_queue(r, spread) * 20 < v_.all_ns()) return;
    // Few steps that do what the others do, and take far longer: without the thread's own times these may be stalls.
    const auto doing = std::ranges::count_if(r.by_step, [](int64_t ns) { return ns > 0; });
    if (spread.is_rare() && !use_.typical_queued() && static_cast<size_t>(doing) * 2 > spread.steps) return;
    const int64_t all = r.all_ns();
    const auto of = [&r](Cost cost) { return r.ns[static_cast<size_t>(cost)]; };
    const std::string f = who(v_.text(tree_.function_of(r.node)));
    Finding finding{.cost_ns = spread.cost(), .where = where_of(v_, tree_, r), .is_rare = spread.is_rare()};
    const std::optional<WaitText> seen = wait_text(v_.timeline(), r.account);
    const bool has_cause = r.cause != nullptr && r.cause_ns * 2 >= all;
    if (has_cause) {
      finding.rule = r.cause->effort == Effort::kWaits ? "waiting" : "python";
      finding.what = f + " " + std::string(r.cause->does) + ": {}.";
      finding.todo = r.cause->todo;
    } else if (of(Cost::kWaiting) * 2 >= all) {
      if (others_work()) return;
      finding.rule = "waiting";
      finding.what = f + " " + (seen ? seen->does : "waits for another thread or process, or sleeps") + ": {}.";
      finding.todo = seen ? seen->todo : "Prepare what it waits for while the step before runs.";
    } else if (r.operators != 0 && of(Cost::kOwn) + of(Cost::kTiny) >= all / 2 &&
               of(Cost::kOwn) / static_cast<int64_t>(r.operators) < kBinding) {
      // The layers of a deep network are no loop that somebody could leave out.
      constexpr int kLeastOfNetwork = 10;
      const bool is_on_many = r.on_many > r.on_few;
      const bool is_network = is_on_many && r.in_graph * 2 > r.operators;
      if (is_network && spread.cost() * kLeastOfNetwork < v_.step_ns()) return;
      finding.rule = "tiny operators";
      finding.what = f + " takes {} for operators on " + (is_on_many ? "small tensors" : "a few elements each") +
                     ", and the Python between them.";
      finding.evidence =
          number_text(v_.per_step(r.operators), "operator") + ", most of them " + std::string(v_.text(r.op)) + ".";
      if (r.items * 10 > r.operators)
        finding.evidence += " item() is called " + number_text(v_.per_step(r.items), "time") + ".";
      finding.todo = is_network ? "Give them more to do (a larger batch), or let torch.compile join them."
                     : is_on_many
                         ? "Work on all of them at once: one larger tensor, or torch._foreach_ functions for a list."
                         : std::string("Work on whole tensors instead of elements") +
                               (r.items != 0 ? ", and read results once (tolist())." : ".");
    } else if (seen) {
      if (seen->most.wait == SampledWait::kLock && others_ran(r)) return;
      finding.rule = "waiting";
      finding.what = f + " " + seen->does + ": {}.";
      finding.todo = seen->todo;
    } else if (&r == sleeps_ && !r.account.is_enough()) {
      finding.rule = "waiting";
      finding.what = f + " waits or sleeps: {}" +
                     (r.callee_ns * 2 >= all ? ", in " + callee_text(v_.text(r.callee)) : std::string()) + ".";
      finding.evidence = "The thread is off the processor in that time.";
      finding.todo = "Do it less often, or in another thread, while the program goes on.";
    } else if (is_around_steps(r) && of(Cost::kLibrary) * 2 >= all) {
      finding.rule = "python";
      finding.what = callee_text(v_.text(r.callee)) + ", which " + f + " calls, takes {} beside the work of the steps.";
      finding.todo =
          "It runs the loop: give it more work in each step (larger batches), and switch off what it does beside that "
          "(callbacks, logging, checks).";
    } else if (of(Cost::kLibrary) * 2 >= all && r.callee != 0) {
      finding.rule = "python";
      finding.what = f + " takes {} in Python and libraries, most of it in " + callee_text(v_.text(r.callee)) + ".";
      finding.todo = "Do it less often, ahead in a thread or process, or for a whole batch with tensors or arrays.";
    } else if (may_wait(r)) {
      // What helps is another thing for work than for a wait: said only of what cannot be passed over.
      constexpr int kLeastPart = 6;
      if (all * kLeastPart < v_.all_ns()) return;
      finding.rule = "python";
      finding.what = f + " takes {} in Python code of its own or in a wait; which of the two is not known.";
      if (!r.account.is_enough() && use_.typical_slept())
        finding.evidence = "Of a step the thread sleeps " + ns_text(use_.typical_slept().value_or(0)) +
                           " and is ready without a processor " + ns_text(use_.typical_queued().value_or(0)) + ".";
      finding.todo = "Record more steps on a machine that is not busy, or do it less often, or ahead in a thread.";
    } else {
      finding.rule = "python";
      finding.what = f + " takes {} in Python code of its own.";
      finding.todo = "Replace the loop with operations on whole tensors or arrays, do it less often, or ahead.";
    }
    finding.is_work = finding.rule == "python" && !has_cause;
    finding.is_on_thread = finding.rule != "waiting";
    add_calls(r, finding);
    // What is said to work may wait for a part of the time.
    if (seen || sum(r.account.waited_ns(), r.account.queued_ns) * 5 >= r.account.all_ns())
      if (const std::string text = account_text(v_.timeline(), r.account); !text.empty())
        add_sentence(finding.evidence, text);
    if (const std::string text = spread.text(numbers_); !text.empty()) add_sentence(finding.evidence, text);
    if (v_.has_gpu()) {
      finding.rule = "host bound";
      add_sentence(finding.evidence, "No GPU works in that time.");
    }
    findings_.push_back(std::move(finding));
  }

  // Whether the thread did not run for most of the time in which it could have, so far as that is known. In a run with
  // looks, but few of them here, and no times of the thread by step, it is not.
  bool may_wait(const Region& r) const {
    const ThreadAccount& account = r.account;
    if (account.is_enough()) return account.ran_ns < account.waited_ns();
    return &r == may_wait_ || (!use_.typical_slept() && !v_.timeline().samples.empty());
  }

  // Whether what the region calls is a library's loop, in which the steps are: they have of it, and few call it.
  bool is_around_steps(const Region& r) const {
    return r.callee != 0 && v_.has_steps() && r.callee_ns * 2 >= r.all_ns() &&
           r.callee_calls * 4 < spread_of(r.by_step).having;
  }

  // Whether other threads of the program do something in most of the time in which the main one waits: it waits for
  // their results, and what they do counts.
  bool others_work() const {
    const Timeline& timeline = v_.timeline();
    Intervals busy, waits;
    for (size_t r = 0; r < v_.rows().size(); ++r) {
      const RowView& row = v_.rows()[r];
      const auto& spans = timeline.rows[r].spans;
      for (size_t i = 0; i < row.own.size(); ++i) {
        const bool is_wait = row.activity[i] == Activity::kWaiting;
        if (r == v_.main() ? is_wait : !is_wait && row.own[i] != 0 && is_outermost_operator(row, spans, i))
          (r == v_.main() ? waits : busy).add(spans[i].begin, spans[i].end);
      }
    }
    busy.settle();
    waits.settle();
    int64_t waited = 0, worked = 0;
    for (const auto& [begin, end] : waits.all()) {
      add_to(waited, v_.in_steps(begin, end));
      add_to(worked, busy.length(begin, end));
    }
    return worked * 2 > waited;
  }
  // Whether other threads were on a processor for half of what this region waits, by the looks at them: it waits for
  // their results.
  bool others_ran(const Region& r) const {
    int64_t ran = 0;
    for (const TimelineSample& s : v_.timeline().samples)
      if (s.row != v_.main() && v_.begins_in_step(s.end)) add_to(ran, s.ran_ns);
    return ran >= r.account.waited_ns() / 2;
  }
  static bool is_outermost_operator(const RowView& row, const std::vector<TimelineSpan>& spans, size_t i) {
    const uint32_t parent = spans[i].parent;
    return row.activity[i] == Activity::kOperator && (parent == kNoSpan || row.activity[parent] != Activity::kOperator);
  }

  void add_calls(const Region& r, Finding& finding) const {
    const uint64_t calls = tree_.calls_of(r.node);
    if (r.is_whole && calls > v_.steps().size())
      add_sentence(finding.evidence, "It is called " + number_text(v_.per_step(calls), "time") + " a step.");
    if (r.callee != 0 && r.callee_ns * 10 >= r.all_ns() && finding.rule != "tiny operators" && !is_around_steps(r))
      // A call that began before the first step has no number.
      add_sentence(finding.evidence,
                   (r.callee_calls == 0 ? "A call" : number_text(v_.per_step(r.callee_calls), "call")) + " of " +
                       callee_text(v_.text(r.callee)) + ", " + percent_text(r.callee_ns, r.all_ns()) + " of that.");
    if (r.inside != 0 && r.inside != r.callee && r.inside_ns * 3 >= r.all_ns() && finding.rule != "waiting")
      add_sentence(finding.evidence, "Most of it is in " + std::string(v_.text(r.inside)) + ".");
  }

  const StepView& v_;
  ProgramTree tree_;
  const ThreadUse& use_;
  const Region* sleeps_ = nullptr;
  const Region* may_wait_ = nullptr;
  Findings& findings_;
  std::vector<uint64_t> numbers_;
};

}  // namespace

Busiest busiest_of(const StepView& view, uint32_t row, const std::vector<bool>& wanted) {
  ProgramTree tree = ProgramTree::of_all(view, row, wanted);
  Busiest found{.all_ns = tree.all_ns()};
  const std::vector<Region> regions = tree.regions(found.all_ns / 5);
  if (regions.empty()) return found;
  const Region& r = regions.front();
  found.ns = r.all_ns();
  found.function = who(view.text(tree.function_of(r.node)));
  found.where = where_of(view, tree, r);
  if (r.callee != 0 && r.callee_ns * 2 >= found.ns) found.callee = callee_text(view.text(r.callee));
  return found;
}

void find_in_python(const Subject& subject, Findings& findings) {
  if (subject.view.has_main()) PythonRules(subject, findings).run();
}

}  // namespace torchprof::formats
