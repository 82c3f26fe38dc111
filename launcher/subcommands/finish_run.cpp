#include "launcher/subcommands/finish_run.h"

#include <nlohmann/json.hpp>

#include "formats/io/error.h"
#include "formats/write/format.h"
#include "launcher/options/options.h"
#include "launcher/run/write_run.h"
#include "launcher/run_dir/still_running.h"
#include "launcher/run_dir/writers.h"
#include "launcher/terminal/say.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;

const std::string kStay = "the raw records stay in ";

}  // namespace

void finish_run(const RunDir& dir, const Info& info, const Config& config, const Signals& signals) try {
  const auto formats = formats_named(config.format);
  dir.remove_dead_doors();
  try {
    dir.write_info(info);
  } catch (const Error& error) {  // a full disk, for instance; write_run() tries again and prints the summary
    if (formats.empty()) complain(error.what());
  }
  if (formats.empty()) {
    say_each(oom_line(info) + "not exported: `torchprof export " + dir.path().string() +
             " --format kineto -o FILE` writes a trace");
    return;
  }
  const auto frames = config.all_native_frames ? formats::NativeFrames::kAll : formats::NativeFrames::kFolded;
  const std::vector<fs::path> spools = dir.spools();
  const bool is_any_written = !written(spools).empty();
  const Written outcome = write_run_apart(dir, info, formats, frames, signals);
  const bool writes_on = is_any_written || dir.spools() != spools;  // or one has begun since
  Info written = dir.read_info();
  if (!written.contains("end")) {
    written = info;
    add_roles_of_running(written);
  }
  say(oom_line(written));
  say(still_running_lines(written));
  if ((!outcome.is_complete || writes_on) && dir.spools().empty()) {
    complain(outcome.trouble);
  } else if (!outcome.is_complete || writes_on) {
    std::string trouble = outcome.trouble;  // its last line says what becomes of the records
    while (trouble.ends_with('\n')) trouble.pop_back();
    complain((trouble.empty() ? "" : trouble + "; ") + kStay + dir.spool().string() + "; `torchprof export " +
             dir.path().string() + "` writes the trace again");
  } else if (spools.empty() || (config.discard && !config.keep_spool)) {
    dir.remove_spools();
  }
} catch (const std::exception& error) {
  complain(reason_of(error));
  if (!dir.spools().empty()) complain(kStay + dir.spool().string());
}

void finish_without_directory(RunDir& dir, const std::string& what_befell, const Info& info) try {
  say(oom_line(info));
  say(still_running_lines(info));
  complain(what_befell);
  if (!dir.has_earlier()) return;
  dir.give_up();
  if (!dir.has_earlier()) complain("the earlier run in " + dir.path().string() + " stays as it was");
} catch (const std::exception& error) {
  complain(reason_of(error));
}

void replace_earlier(RunDir& dir, bool has_failed) try {
  if (has_failed && dir.is_earlier_worth() && dir.keep_last_good()) {
    complain("the command failed: what it recorded is in " + dir.path().string() + ", and the run before it in " +
             dir.last_good().string());
    return;
  }
  dir.remove_earlier();
  say(dir.path().string() + ": the earlier run in it was replaced");
} catch (const std::exception& error) {
  complain(reason_of(error));
}

}  // namespace torchprof::launcher
