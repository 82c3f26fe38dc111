// torchprof diff: compares two runs, and fails if something got slower by more than a limit.
#include "formats/diff/diff.h"
#include "formats/diff/budget.h"
#include "formats/io/error.h"
#include "formats/io/output.h"
#include "launcher/run_dir/input.h"
#include "launcher/subcommands/subcommands.h"
#include "launcher/terminal/say.h"

namespace torchprof::launcher {
namespace {

formats::Measured measure(const std::filesystem::path& path, size_t warmup) {
  const Input input = find_input(path);
  if (input.run && input.run->is_live()) say(path.string() + ": the run still goes on: this is what there is so far");
  if (input.spools.empty()) return formats::measure(one_trace(input), path.string(), warmup);
  return formats::measure(load(input, path), path.string(), warmup);
}

}  // namespace

int diff(const Arguments& arguments) {
  constexpr int kPastTheLimit = 1;
  DiffOptions options = parse_diff(arguments);
  formats::Budget budget;
  if (!options.budget.empty()) {
    budget = formats::read_budget(options.budget);
    options.compared.budget = &budget;
  }
  const formats::Measured base = measure(options.base, options.compared.warmup);
  const formats::Measured now = measure(options.now, options.compared.warmup);
  const formats::Diff diff = formats::compare(base, now, options.compared);
  if (!options.junit.empty()) {
    formats::Output out(options.junit);
    out.write(formats::diff_junit(diff));
    out.commit();
  }
  const std::string text =
      options.is_markdown ? formats::diff_markdown(diff, options.rows) : formats::diff_text(diff, options.rows);
  print_text(text);
  return diff.failed() == 0 ? 0 : kPastTheLimit;
}

}  // namespace torchprof::launcher
