// libFuzzer: whatever run.json holds, the commands that read it end in an orderly way. tests/fuzz/run builds it.
#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "formats/io/error.h"
#include "launcher/subcommands/subcommands.h"
#include "launcher/terminal/say.h"
#include "tests/fuzz/target.h"
#include "tests/unit/support/spool_builder.h"

using namespace torchprof;
namespace fs = std::filesystem;

void write_seeds(const fs::path& directory) {
  std::ofstream(directory / "exported") << R"({"torchprof": "1", "command": ["python3", "x.py"], "host": "h",
    "start": "2026-01-01T00:00:00.000000Z", "start_ns": 5, "end": "2026-01-01T00:00:01.000000Z", "seconds": 1.5,
    "exit_status": 0, "files": ["h_1.pt.trace.json"], "exported": true, "oom_kills": 1, "signal": 9,
    "still_running": [{"pid": 3, "command": ["sh"], "traced": false}], "took_ns": {"load": 5, "symbols": 1e300}})";
  std::ofstream(directory / "dead") << R"({"torchprof": "1", "processes": [{"pid": 7, "role": "rank 0",
    "command": ["python3"], "clean_exit": false, "metadata": {"window": "manual"}, "windows": [{"closed": true}],
    "open": [{"tid": 8, "name": "main", "last": 0.5, "spans": [{"name": "f", "seconds": 12.5}], "deeper": 9}]}]})";
  std::ofstream(directory / "deep") << "{\"torchprof\": " << std::string(30000, '[') << std::string(30000, ']') << '}';
}

namespace {

// A run with a trace alone, one with a spool, and a place for others; gone with the process.
const fs::path& directory() {
  static const test::TemporaryDirectory directory;
  static const fs::path path = [] {
    fs::create_directories(directory / "exported");
    std::ofstream(directory / "exported" / "h_1.pt.trace.json")
        << R"({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]})";
    fs::create_directories(directory / "spools" / "spool");
    test::SpoolBuilder spool;
    spool.thread(100);
    spool.at(10).op(1, "aten::mm").at(20).op_end(1);
    spool.write(directory / "spools" / "spool" / "h.100.1.spool");
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(null, STDOUT_FILENO);
    launcher::set_quiet(true);
    return directory / "";
  }();
  return path;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fs::path exported = directory() / "exported", spools = directory() / "spools", out = directory() / "out";
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const fs::path& run : {exported, spools}) std::ofstream(run / "run.json", std::ios::binary) << text;
  struct Command {
    int (*main)(const launcher::Arguments&);
    launcher::Arguments arguments;
  };
  const std::vector<Command> commands = {{launcher::report, {exported}},
                                         {launcher::where, {exported}},
                                         {launcher::merge, {spools, "-o", out, "--format", "none"}},
                                         {launcher::report, {spools, "-t", "profiler,ops"}},
                                         {launcher::export_, {spools, "--format", "stacks"}}};
  try {
    const Command& command = commands[std::hash<std::string_view>{}(text) % commands.size()];
    command.main(command.arguments);
  } catch (const Error&) {
  } catch (const nlohmann::json::exception&) {  // main() says what it is
  }
  fs::remove_all(out);
  return 0;
}
