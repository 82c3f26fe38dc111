// A program that has nothing to do between its units: it waits for a connection, for data, or for a request.
#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "formats/advice/rules.h"
#include "formats/advice/wait_text.h"
#include "formats/io/cells.h"
#include "formats/io/sum.h"

namespace torchprof::formats {
namespace {

// What it waits for comes from outside.
bool is_from_outside(SampledWait wait) {
  return wait == SampledWait::kPoll || wait == SampledWait::kSocket || wait == SampledWait::kRead;
}

struct Waiter {
  ThreadAccount account{};
  std::map<uint32_t, int64_t> lines{};  // of the program
};

}  // namespace

void find_idle(const Subject& subject, Findings& findings) {
  const StepView& view = subject.view;
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

}  // namespace torchprof::formats
