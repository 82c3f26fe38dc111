// The command lines of the subcommands that take several runs.
#include <charconv>

#include "formats/diff/diff.h"
#include "formats/io/error.h"
#include "formats/io/nearest.h"
#include "launcher/options/options.h"
#include "launcher/options/parser.h"

namespace torchprof::launcher {
namespace {

std::string percent(const std::string& value) {
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool is_one = error == std::errc{} && end == value.data() + value.size() && number >= 0 && number <= 1e9;
  return is_one ? "" : "'" + value + "' is not a percentage of 0 or more";
}

}  // namespace

DiffOptions parse_diff(const Arguments& arguments) {
  DiffOptions options;
  Parser parser(
      "diff", "BASE NEW [OPTIONS]",
      "Compares two runs, spools or traces: time, calls and memory of each operator, module, kernel and Python\n"
      "function, per step where both runs have steps. Times are tested over steps, so that noise is no "
      "regression.");
  CLI::App& app = parser.app();
  std::string metrics;
  app.add_option("BASE", options.base, "a run directory, a spool or a trace: whatever report takes")
      ->required()
      ->type_name("");
  app.add_option("NEW", options.now, "the same, for the run to judge")->required()->type_name("");
  app.add_option("--fail-over", options.compared.fail_over, "exit with 1 if a metric went up by more than this percent")
      ->type_name("PCT")
      ->check(percent);
  app.add_option(
         "--metric", metrics,
         "what --fail-over checks [step, or total if there are no steps]:\n" + in_lines(formats::metric_names()))
      ->type_name("M[,M]");
  app.add_option("--budget", options.budget, "limits in a JSON file; exit with 1 if one is exceeded")
      ->type_name("FILE");
  app.add_option("--min-share", options.compared.share,
                 "names with less than this percent of their table in both runs are not judged [1]")
      ->type_name("PCT")
      ->check(percent);
  app.add_option("--warmup", options.compared.warmup, "how many first steps of each process do not count [1]")
      ->type_name("N")
      ->check([](const std::string& value) { return value == "0" ? "" : whole_number(value); });
  app.add_flag("--waits", options.compared.has_waits,
               "show and judge Python functions that only wait (for locks, other threads), too");
  app.add_flag("--markdown", options.is_markdown, "print GitHub's markdown, for a job summary");
  app.add_option("--junit", options.junit, "also write the limits as tests of JUnit's XML")->type_name("FILE");
  app.add_option("--html", options.html, "also write an HTML page: all tables, and the two runs side by side")
      ->type_name("FILE");
  app.add_option("-n,--top", options.rows, "rows of each table [15]")->type_name("N")->check(whole_number);
  app.footer(
      "\nThe exit status is 0; 1 if a limit is exceeded, 125 if nothing can be compared.\n"
      "With fewer than " +
      std::to_string(formats::kMinSteps) + " steps in a run nothing is tested, and any change past the limit counts.");
  parser.parse(arguments);
  if (!metrics.empty() && !options.compared.fail_over)
    throw Error("diff: --metric needs --fail-over" + see_help("diff"));
  if (!metrics.empty())
    for (const std::string& name : split(metrics)) {
      const auto metric = formats::metric_named(name);
      if (!metric)
        throw Error("diff: --metric: '" + name + "' is not a metric: " + joined(formats::metric_names()) +
                    formats::did_you_mean(name, formats::metric_names()));
      options.compared.metrics.push_back(*metric);
    }
  return options;
}

MergeOptions parse_merge(const Arguments& arguments) {
  MergeOptions options;
  Parser parser("merge", "RUN... -o RUN [OPTIONS]",
                "Puts the processes of several runs, of one machine or many, into one run on one clock, and writes its "
                "trace and\n"
                "tables. The runs need their raw records (so no `torchprof run --discard`) and stay as they are.");
  CLI::App& app = parser.app();
  app.add_option("RUN", options.runs, "run directories, or what `torchprof collect` has packed of them")
      ->required()
      ->type_name("")
      ->take_all();
  app.add_option("-o,--output", options.output, "the run directory to make")->required()->type_name("RUN");
  app.add_option("-f,--format", options.format, "what is written, as `torchprof run` takes it [kineto,table]")
      ->type_name("F[,F]");
  add_align(app, options.align);
  add_jobs(app);
  bool keep = false;
  app.add_flag("--discard", options.discard, "remove the raw records in the new run when everything has been written");
  app.add_flag("--keep-spool", keep, "keep them: the default, and wins over --discard");
  app.footer(
      "\nMachines are aligned by their collectives, which all ranks leave nearly together. Where they share none, and "
      "with\n--align off, by their clocks: differences that NTP leaves between these stay.");
  parser.parse(arguments);
  options.discard = options.discard && !keep;
  return options;
}

}  // namespace torchprof::launcher
