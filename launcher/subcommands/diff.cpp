// torchprof diff: compares two runs, and fails if something got slower by more than a limit.
#include "formats/diff/diff.h"
#include "formats/diff/budget.h"
#include "formats/io/error.h"
#include "formats/io/output.h"
#include "formats/report/page.h"
#include "formats/write/diff_page.h"
#include "launcher/run_dir/input.h"
#include "launcher/subcommands/subcommands.h"
#include "launcher/terminal/say.h"

namespace torchprof::launcher {
namespace {

// One of the two runs, and what a page shows of it beside the other.
struct Compared {
  formats::Measured measured;
  formats::RunOfPair shown{};
};

Compared measure(const std::filesystem::path& path, const DiffOptions& options) {
  const Input input = find_input(path);
  if (input.run && input.run->is_live()) say(path.string() + ": the run still goes on: this is what there is so far");
  const std::string name = path.string();
  const size_t warmup = options.compared.warmup;
  Compared run;
  run.shown.name = name;
  if (input.spools.empty()) {
    run.measured = formats::measure(one_trace(input), name, warmup);
    if (!options.html.empty()) run.shown.json = formats::run_for_pair(one_trace(input), name);
    return run;
  }
  const formats::Trace trace = load(input, path);
  run.measured = formats::measure(trace, name, warmup);
  if (!options.html.empty()) run.shown.json = formats::run_for_pair(trace, name);
  return run;
}

}  // namespace

int diff(const Arguments& arguments) {
  constexpr int kPastTheLimit = 1;
  DiffOptions options = parse_diff(arguments);
  for (const std::filesystem::path& output : {options.junit, options.html})
    for (const std::filesystem::path& input : {options.base, options.now, options.budget}) demand_other(input, output);
  formats::Budget budget;
  if (!options.budget.empty()) {
    budget = formats::read_budget(options.budget);
    options.compared.budget = &budget;
  }
  const Compared base = measure(options.base, options);
  const Compared now = measure(options.now, options);
  const formats::Diff diff = formats::compare(base.measured, now.measured, options.compared);
  if (!options.junit.empty()) {
    formats::Output out(options.junit);
    out.write(formats::diff_junit(diff));
    out.commit();
  }
  if (!options.html.empty()) {
    formats::Output out(options.html);
    formats::write_diff_html(diff, base.shown, now.shown, out);
    out.commit();
    say(options.html.string() + ": written");
  }
  const std::string text =
      options.is_markdown ? formats::diff_markdown(diff, options.rows) : formats::diff_text(diff, options.rows);
  print_text(text);
  return diff.failed() == 0 ? 0 : kPastTheLimit;
}

}  // namespace torchprof::launcher
