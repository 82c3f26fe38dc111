// The command line of `attach`.
#include <cstring>

#include "formats/io/error.h"
#include "launcher/options/options.h"
#include "launcher/options/parser.h"

namespace torchprof::launcher {
namespace {

// Windows are short, and five looks at what a thread waits for are the least that says something.
constexpr uint32_t kSampleHz = 200;

}  // namespace

AttachOptions parse_attach(const Arguments& arguments) {
  AttachOptions options;
  Parser parser(
      "attach", "PID [--steps N | --for TIME | -w SPEC] [OPTIONS]",
      "Profiles a program that runs already: records some steps of it, prints the same summary as `run`, and\n"
      "leaves it as it was. Ctrl-C ends the recording sooner. `torchprof doctor PID` says what may be in the way.");
  CLI::App& app = parser.app();
  std::string steps, time;
  app.add_option("PID", options.target, "the process; of `torchrun` and others that start one, the one that trains")
      ->required()
      ->type_name("");
  app.add_option("--steps", steps, "record so many steps, from the next one on [5]")
      ->type_name("N")
      ->check(whole_number);
  app.add_option("--for", time, "record for so long, from now on: 10s, 500ms, 2m")->type_name("TIME");
  app.add_flag("--children", options.children, "the processes that it has started, too (DataLoader workers, ranks)");
  app.add_flag("--all-ranks", options.all_ranks, "every rank of its job on this machine");
  bool has_spec = false;
  add_settings(app, options.config, [&](const Setting& setting) {
    if (std::string_view(setting.option) == "--output") options.output_named = true;
    if (std::string_view(setting.option) == "--window") has_spec = true;
  });
  add_step(app, options.step);
  app.footer(
      "\nWindows of -w count from the moment of attaching; `auto` is for programs that are run.\n"
      "Without --steps, --for and -w: 5 steps, or 10 s where no step ends within 10 s.\n"
      "Without --sample: 200 looks a second.\n"
      "What needs to be there from the start is missing and named: programs that are started, NVTX.");
  parser.parse(arguments);
  if (!steps.empty() + !time.empty() + has_spec > 1)
    throw Error("attach: only one of --steps, --for and -w" + see_help("attach"));
  if (options.config.sample == kSampleOfWindow) options.config.sample = kSampleHz;
  options.window_named = !steps.empty() || !time.empty() || has_spec;
  if (has_spec && std::strcmp(options.config.window, "auto") == 0)
    throw Error("attach: -w auto is for programs that are run; --steps or --for says how much is recorded");
  // The step in which it comes is not whole.
  const std::string window = !time.empty() ? "after=0s,for=" + time : "steps=1.." + (steps.empty() ? "5" : steps);
  ErrorText error;
  for (const Setting& setting : settings())
    if (!has_spec && std::string_view(setting.option) == "--window" &&
        !assign(options.config, setting, window.c_str(), time.empty() ? "--steps" : "--for", error))
      throw Error(std::string("attach: ") + error.text);
  return options;
}

}  // namespace torchprof::launcher
