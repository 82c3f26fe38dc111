// What looks at threads alone tell (timeline/thread_looks.h): that a program has nothing to do between its units, and
// that its thread waits for Python's lock.
#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "formats/advice/rules.h"
#include "formats/advice/wait_text.h"
#include "formats/io/cells.h"
#include "formats/io/sum.h"
#include "formats/trace/names.h"

namespace torchprof::formats {
namespace {

// What it waits for comes from outside.
bool is_from_outside(SampledWait wait) {
  return wait == SampledWait::kPoll || wait == SampledWait::kSocket || wait == SampledWait::kRead;
}

std::string function_of(const std::string& place) { return std::string(split_place(place).name); }

struct Waiter {
  ThreadAccount account{};
  std::map<uint32_t, int64_t> lines{};  // of the program
};

void find_idle(const StepView& view, Findings& findings) {
  const Timeline& timeline = view.timeline();
  if (timeline.unit.empty() || timeline.samples.empty() || !view.has_steps()) return;
  const int64_t begin = view.steps().front().begin, end = view.steps().back().end;
  const int64_t all = end - begin, between = all - view.in_steps(begin, end);
  if (between < all / 2) return;
  // By thread, between the units.
  std::map<uint32_t, Waiter> threads;
  const ThreadLooks looks(timeline, kNoSpan);
  int64_t ran = 0;
  for (const TimelineSample& s : timeline.samples) {
    if (s.end <= begin || s.end > end || view.begins_in_step(s.end)) continue;
    add_to(ran, s.ran_ns);
    if (s.is_inner || !is_from_outside(s.wait)) continue;
    Waiter& waiter = threads[s.tid];
    looks.add(s, begin, end, waiter.account);
    for (uint32_t f = s.frame; f != 0; f = timeline.frames[f].caller)
      if (timeline.is_program(timeline.frames[f].name)) {
        add_to(waiter.lines[timeline.frames[f].name], s.ns());
        break;
      }
  }
  const auto most = std::ranges::max_element(threads, {}, [](const auto& each) {
    return std::pair(!each.second.lines.empty(), each.second.account.waited_ns());
  });
  if (most == threads.end() || most->second.account.waited_ns() < between / 2 || ran > between / 2) return;
  const std::optional<WaitText> text = wait_text(timeline, most->second.account);
  if (!text) return;
  Finding f{.rule = "idle", .weight = static_cast<double>(between) / static_cast<double>(all)};
  std::string next = timeline.unit;  // "a request of Handler.do_POST"
  for (const std::string_view article : {"a ", "an "})
    if (next.starts_with(article)) next.erase(0, article.size());
  f.what = "The program is idle for " + percent_text(between, all) + " of the time: until the next " + next + " it " +
           text->does + ".";
  f.evidence = "All its threads together ran for " + percent_text(ran, between) + " of that time.";
  f.todo = "There is nothing to gain in the program then; more of them at a time would use it.";
  const auto line = std::ranges::max_element(most->second.lines, {}, [](const auto& each) { return each.second; });
  if (line != most->second.lines.end()) f.where = view.where(line->first);
  findings.push_back(std::move(f));
}

bool is_of_lock(const Finding& f) { return f.what.find("the GIL") != f.what.npos; }

// What takes time on the thread has its share of the waits, too: each operator may wait for the lock when it returns.
void leave_out_waits(double share, const StepView& view, Findings& findings) {
  std::erase_if(findings, [&](Finding& f) {
    if (!f.is_on_thread || f.cost_ns == 0) return false;
    f.cost_ns = static_cast<int64_t>(static_cast<double>(f.cost_ns) * (1 - share));
    return !is_worth(f.cost_ns, view.step_ns());
  });
}

// Such waits come wherever the thread needs the lock again: no line of its own has many of them.
void find_lock_of_python(const StepView& view, Findings& findings) {
  const Timeline& timeline = view.timeline();
  const ThreadLooks looks(timeline, view.main());
  ThreadAccount account;
  double waits = 0;
  for (const TimelineSample* look : looks.all()) {
    if (!view.begins_in_step(look->end)) continue;
    // What it was at when it was looked at counts for all of the time since the look before.
    looks.add(*look, look->end, look->end, account);
    if (look->wait == SampledWait::kGil) waits += ThreadLooks::weight(*look);
  }
  int64_t ns = 0;
  std::map<uint32_t, int64_t> lines;  // at which others had it
  for (const auto& [what, waited] : account.waits) {
    if (what.wait != SampledWait::kGil) continue;
    add_to(ns, waited);
    if (what.name != 0) add_to(lines[what.name], waited);
  }
  if (waits < kFewestLooks || account.all_ns() <= 0) return;
  const double share = static_cast<double>(ns) / static_cast<double>(account.all_ns());
  const auto cost = static_cast<int64_t>(static_cast<double>(view.typical_ns()) * share);
  constexpr double kPercent = 5;
  if (!is_worth(cost, view.step_ns(), kPercent)) return;
  // Told where it is most of what a function does.
  int64_t told = 0;
  for (const Finding& f : findings)
    if (is_of_lock(f)) add_to(told, f.cost_ns);
  if (told >= cost / 2) return;
  std::erase_if(findings, is_of_lock);
  leave_out_waits(std::min(share, 1.0), view, findings);
  const auto line = std::ranges::max_element(lines, {}, [](const auto& each) { return each.second; });
  const bool is_known = line != lines.end() && line->second * 2 >= ns;
  Finding f{.rule = "GIL", .cost_ns = cost};
  f.what = "The thread that runs the program waits {} for Python's lock (the GIL), which another thread has" +
           (is_known ? ": mostly " + function_of(view.where(line->first)) : std::string()) + ".";
  f.evidence = account_text(timeline, account);
  f.todo =
      "Do the other thread's work in a process, or in code that releases the GIL (numpy, torch), or at another time.";
  if (is_known) f.where = view.where(line->first);
  findings.push_back(std::move(f));
}

}  // namespace

void find_by_looks(const Subject& subject, Findings& findings) {
  if (subject.view.timeline().samples.empty()) return;
  find_idle(subject.view, findings);
  // Beside a GPU such a wait may cost nothing.
  if (subject.view.has_main() && !subject.view.has_gpu()) find_lock_of_python(subject.view, findings);
}

}  // namespace torchprof::formats
