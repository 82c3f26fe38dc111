// The command line of `collect`.
#include "formats/io/error.h"
#include "launcher/options/options.h"
#include "launcher/options/parser.h"

namespace torchprof::launcher {

CollectOptions parse_collect(const Arguments& arguments) {
  CollectOptions options;
  Parser parser("collect", "RUN [-o FILE.tar.gz]",
                "A run as one file, for where its directory goes with a pod or a node: the records of all processes, "
                "as far as\n"
                "they have come. The job may go on. Windows that have closed are in it whole.");
  CLI::App& app = parser.app();
  app.add_option("RUN", options.run, "a run directory, or the process id of its `torchprof run`")
      ->required()
      ->type_name("");
  app.add_option("-o,--output", options.output,
                 "the file, compressed if its name ends in .gz, or - for stdout (compressed)\n[RUN.tar.gz, here]")
      ->type_name("FILE");
  app.footer(
      "\nElsewhere: `torchprof report FILE.tar.gz`, as well as `export`, `diff`, `where` and `merge`, read it as it "
      "is.\n"
      "From a pod: kubectl exec POD -- torchprof collect RUN -o - > pod.tar.gz");
  parser.parse(arguments);
  return options;
}

}  // namespace torchprof::launcher
