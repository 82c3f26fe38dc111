// torchprof merge: the processes of several runs as one run.
//
// It merges the spools: every process has a file of its own, named by host, process id and start, and load_aligned()
// puts all files of a directory on one clock. They are hard-linked where the file system can do that, so that nothing
// is copied. Writers make ids unique, as they do for a run on several hosts.
//
// An earlier run in the output is replaced once the new one is there, and stays as it is if anything fails before.
#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "formats/io/error.h"
#include "formats/io/open_file.h"
#include "formats/io/output.h"
#include "formats/ranks/choose.h"
#include "launcher/run/write_run.h"
#include "launcher/run_dir/input.h"
#include "launcher/subcommands/subcommands.h"
#include "launcher/terminal/progress.h"
#include "launcher/terminal/say.h"
#include "tracer/spool/run_files.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;

struct Source {
  fs::path path;
  Input input;
  Info info;
};

// The new run replaces what the output holds, so a source there would be lost. A link counts as what it leads to.
void demand_outside(const fs::path& file, const fs::path& output) {
  std::error_code ignored;
  const fs::path directory = fs::canonical(file, ignored).parent_path();
  if (fs::equivalent(directory, output, ignored) || fs::equivalent(directory, output / "spool", ignored))
    throw Error("merge: " + file.string() + " lies in the output " + output.string() +
                ", which the new run replaces; choose another with -o");
}

std::vector<Source> sources_of(const MergeOptions& options) {
  std::vector<Source> sources;
  std::error_code error;
  for (const fs::path& path : options.runs) {
    if (fs::equivalent(path, options.output, error))
      throw Error("merge: " + path.string() + " is one of the runs and the output; choose another with -o");
    Source source{path, find_input(path), Info::object()};
    for (const fs::path& spool : source.input.spools) demand_outside(spool, options.output);
    if (!source.input.trace.empty()) demand_outside(source.input.trace, options.output);
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

// The spools in the new run's directory, under temporary names until move_to(). Those that were not moved are removed.
class Taken {
 public:
  explicit Taken(fs::path directory) : directory_(std::move(directory)) {}
  ~Taken() {
    std::error_code ignored;
    for (const auto& [name, at] : files_) fs::remove(at, ignored);
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;

  void take(const fs::path& spool) {
    const std::string name = spool.filename();
    if (files_.contains(name))
      throw Error(spool.string() + ": its process is in another of the runs as well: is one of them given twice?");
    std::error_code error;
    fs::path to = formats::Output::temporary_of(directory_ / name);
    // One that a killed merge with our process id has left goes with the earlier run, by its name.
    for (std::string other = name; fs::exists(to, error);)
      to = formats::Output::temporary_of(directory_ / other.insert(0, "-"));
    files_[name] = to;
    fs::create_hard_link(spool, to, error);
    if (error) fs::copy_file(spool, to, error);
    if (error) throw Error(directory_.string() + ": cannot copy " + spool.string() + ": " + error.message());
  }

  void move_to(const fs::path& spools) {
    std::error_code error;
    for (const auto& [name, at] : files_) {
      fs::rename(at, spools / name, error);
      if (error) throw Error((spools / name).string() + ": " + error.message());
    }
    files_.clear();
  }

 private:
  const fs::path directory_;
  std::map<std::string, fs::path> files_;  // by name: where it is
};

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
  for (const char* const name : {kUntracedName, kUncapturedName}) {
    const std::string text = formats::read_file(source.input.spools.front().parent_path() / name);
    if (!text.empty()) std::ofstream(directory / name, std::ios::binary | std::ios::app) << text;
  }
}

// run.json of the new run: for each source what its own run.json says of the command and its end. The times span all.
Info info_of(const std::vector<Source>& sources, const std::string& align, bool discard) {
  Info info;
  info["torchprof"] = TORCHPROF_VERSION;
  if (align != kAuto) info["align"] = align;
  if (discard) info["ranks"] = formats::kAllRanks;
  info["merged"] = Info::array();
  info["still_running"] = Info::array();
  for (const Source& source : sources) {
    Info one = {{"run", formats::absolute_path(source.path).string()}};
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
  RunDir dir = RunDir::create(formats::absolute_path(options.output));
  Written written;
  try {
    Taken taken(dir.path());
    for (const Source& source : sources)
      for (const fs::path& spool : source.input.spools) taken.take(spool);
    dir.begin();
    taken.move_to(dir.spool());
    if (dir.has_earlier() && dir.is_earlier_worth() && !dir.has_recorded())
      throw Error("merge: the runs have recorded nothing, so the earlier run in " + dir.path().string() + " stays");
    for (const Source& source : sources) add_lists(source, dir.spool());
    const BackgroundProgress progress([&dir] { return bytes_in(dir.path()); });
    const Info info = info_of(sources, options.align, options.discard);
    dir.write_info(info);  // here because it must not fail; write_run() would go on
    written = write_run(dir, info, formats, formats::NativeFrames::kFolded, say_each);
  } catch (const Error&) {
    dir.give_up();
    throw;
  }
  dir.remove_earlier();
  say(written.text);
  complain(with_sources(written.trouble, sources, dir.spool()));
  if (written.is_complete && options.discard && !formats.empty()) dir.remove_spools();
  return written.is_complete ? 0 : 125;
}

}  // namespace torchprof::launcher
