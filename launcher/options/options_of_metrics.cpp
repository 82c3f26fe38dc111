// The command line of `metrics`.
#include "formats/io/error.h"
#include "formats/replay/slice_request.h"
#include "launcher/options/options.h"
#include "launcher/options/parser.h"

namespace torchprof::launcher {

MetricsOptions parse_metrics(const Arguments& arguments) {
  MetricsOptions options;
  Parser parser("metrics", "RUN|PID [-o FILE | --listen ADDRESS] [--every TIME] [--once]",
                "The numbers of a running program for Prometheus: steps and how long they take, what they wait for, "
                "memory, and\n"
                "what recording costs. It reads the records; the program is not stopped. Without -o and --listen they "
                "are printed\n"
                "once. It ends with the run.");
  CLI::App& app = parser.app();
  std::string every;
  app.add_option("RUN|PID", options.target,
                 "a run directory, a process that is being profiled, its `torchprof run`, or a .spool")
      ->required()
      ->type_name("");
  app.add_option("-o,--output", options.output,
                 "a file that is replaced as a whole each time and removed at the end, as\nnode_exporter's textfile "
                 "collector takes it: torchprof.prom")
      ->type_name("FILE");
  app.add_option("--listen", options.listen,
                 "answer GET /metrics there: PORT (of this machine alone), 127.0.0.1:PORT,\n0.0.0.0:PORT, [::]:PORT")
      ->type_name("ADDRESS");
  app.add_option("--every", every, "how often the records are looked at [5s]")->type_name("TIME");
  app.add_flag("--once", options.is_once, "look once; a file that is written stays");
  app.footer(
      "\nThe text is Prometheus' text format 0.0.4, and OpenMetrics. What is not known has no line. `torchprof run\n"
      "--metrics FILE` does the same as -o FILE from the begin of the program on.");
  parser.parse(arguments);
  if (!every.empty()) {
    const std::optional<int64_t> ns = formats::parse_duration(every);
    if (!ns || *ns < MetricsOptions::kSoonest)
      throw Error("metrics: --every: '" + every + "' is not a time of 100ms or more, with ms, s or m");
    options.every_ns = *ns;
  }
  if (options.is_once && !options.listen.empty())
    throw Error("metrics: --once answers nobody: leave out --listen" + see_help("metrics"));
  if (options.output.empty() && options.listen.empty()) options.is_once = true;
  return options;
}

}  // namespace torchprof::launcher
