// torchprof merge: the processes of several runs as one run.
//
// It merges the spools: every process has a file of its own, named by host, process id and start, and load() puts all
// files of a directory on one clock. They are hard-linked where the file system can do that, so that nothing is copied.
// Writers make ids unique, as they do for a run on several hosts.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "formats/io/error.h"
#include "formats/io/open_file.h"
#include "launcher/run/write_run.h"
#include "launcher/run_dir/input.h"
#include "launcher/subcommands/subcommands.h"
#include "launcher/terminal/progress.h"
#include "launcher/terminal/say.h"
#include "tracer/spool/layout.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;

struct Source {
  fs::path path;
  Input input;
  Info info;
};

std::vector<Source> sources_of(const MergeOptions& options) {
  std::vector<Source> sources;
  std::error_code error;
  for (const fs::path& path : options.runs) {
    if (fs::equivalent(path, options.output, error))
      throw Error("merge: " + path.string() + " is one of the runs and the output; choose another with -o");
    Source source{path, find_input(path), Info::object()};
    demand_trace(source.input, path);
    if (source.input.spools.empty())
      throw Error(path.string() +
                  ": the raw records are gone, and a trace cannot be merged; `torchprof run --discard` removes them");
    if (source.input.run) {
      if (source.input.run->is_live()) throw Error(path.string() + ": the run still goes on");
      source.info = source.input.run->read_info();
    }
    sources.push_back(std::move(source));
  }
  return sources;
}

void take(const fs::path& spool, const fs::path& directory) {
  const fs::path to = directory / spool.filename();
  std::error_code error;
  if (fs::exists(to, error))
    throw Error(spool.string() + ": its process is in another of the runs as well: is one of them given twice?");
  fs::create_hard_link(spool, to, error);
  if (error) fs::copy_file(spool, to, error);
  if (error) throw Error(to.string() + ": cannot copy " + spool.string() + ": " + error.message());
}

// In messages names the source of a spool, which the user knows, and not its link in the new run.
std::string with_sources(std::string trouble, const std::vector<Source>& sources, const fs::path& directory) {
  for (const Source& source : sources)
    for (const fs::path& spool : source.input.spools) {
      const std::string here = (directory / spool.filename()).string();
      if (const size_t at = trouble.find(here + ": "); at != std::string::npos)
        trouble.replace(at, here.size(), spool.string());
    }
  return trouble;
}

// Adds the lists beside the spools: untraced programs (run_dir.h) and processes without room (tracer/spool/layout.h).
void add_lists(const Source& source, const fs::path& directory) {
  for (const char* const name : {"untraced", kUncapturedName}) {
    const std::string text = formats::read_file(source.path / "spool" / name);
    if (!text.empty()) std::ofstream(directory / name, std::ios::binary | std::ios::app) << text;
  }
}

// run.json of the new run: for each source what its own run.json says of the command and its end. The times span all.
Info info_of(const std::vector<Source>& sources) {
  Info info;
  info["torchprof"] = TORCHPROF_VERSION;
  info["merged"] = Info::array();
  info["still_running"] = Info::array();
  for (const Source& source : sources) {
    Info one = {{"run", fs::absolute(source.path).string()}};
    for (const char* key : {"command", "directory", "host", "start", "start_ns", "end", "seconds", "exit_status",
                            "signal", "signal_name"})
      if (source.info.contains(key)) one[key] = source.info[key];
    for (const char* key : {"start", "start_ns"})  // the earliest
      if (one.contains(key) && (!info.contains(key) || one[key] < info[key])) info[key] = one[key];
    if (one.contains("end") && (!info.contains("end") || one["end"] > info["end"])) info["end"] = one["end"];
    if (const auto running = source.info.find("still_running"); running != source.info.end() && running->is_array())
      for (const Info& process : *running) info["still_running"].push_back(process);
    info["merged"].push_back(std::move(one));  // last: `info` moves its values when it gets a new key
  }
  return info;
}

}  // namespace

int merge(const Arguments& arguments) {
  const MergeOptions options = parse_merge(arguments);
  const auto formats = formats_named(options.format.c_str());
  const std::vector<Source> sources = sources_of(options);
  const RunDir dir = RunDir::create(fs::absolute(options.output).lexically_normal());
  dir.remove_earlier();
  Written written;
  try {
    for (const Source& source : sources) {
      for (const fs::path& spool : source.input.spools) take(spool, dir.spool());
      add_lists(source, dir.spool());
    }
    const BackgroundProgress progress([&dir] { return bytes_in(dir.path()); });
    const Info info = info_of(sources);
    dir.write_info(info);  // here because it must not fail; write_run() would go on
    written = write_run(dir, info, formats, formats::NativeFrames::kFolded, say);
  } catch (const Error&) {
    dir.remove_spools();
    dir.remove_if_unused();
    throw;
  }
  say(written.text);
  complain(with_sources(written.trouble, sources, dir.spool()));
  if (written.is_complete && options.discard && !formats.empty()) dir.remove_spools();
  return written.is_complete ? 0 : 125;
}

}  // namespace torchprof::launcher
