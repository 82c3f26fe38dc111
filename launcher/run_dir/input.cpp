#include "launcher/run_dir/input.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "formats/io/error.h"
#include "formats/io/process_files.h"
#include "formats/ranks/align.h"
#include "formats/read/read_trace.h"
#include "formats/timeline/build.h"
#include "formats/write/format.h"
#include "launcher/run_dir/archive.h"
#include "launcher/run_dir/writers.h"
#include "launcher/terminal/say.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;

// The trace of the run, or else the only one of a rank; Perfetto's if there is no other. Earlier versions began the
// names of runs' traces with "merged". Of several `several` says so.
fs::path trace_in(const fs::path& directory, std::string& several) {
  fs::path whole = directory / formats::run_file(*formats::find_format("kineto"));
  if (fs::exists(whole)) return whole;
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    if (!name.ends_with(".pt.trace.json") && !name.ends_with(".pt.trace.json.gz")) continue;
    if (name.starts_with("merged.")) return entry.path();
    found.push_back(entry.path());
  }
  if (found.size() > 1) {
    several = directory.string() + ": holds " + std::to_string(found.size()) +
              " traces and none of the whole run: name one of them";
    return {};
  }
  if (!found.empty()) return found.front();
  const formats::Format& perfetto = *formats::find_format("perfetto");
  for (const std::string& name : {formats::run_file(perfetto), "merged" + std::string(perfetto.extension)})
    if (fs::exists(directory / name)) return directory / name;
  return {};
}

Input input_of_archive(const fs::path& path) {
  auto unpacked = std::make_unique<TemporaryDirectory>("torchprof-unpacked-");
  show_as(unpacked->path().string() + "/", path.string() + ":");
  show_as(unpacked->path().string(), path.string());
  std::string damage;
  const fs::path run = unpack(path, unpacked->path(), damage);
  if (!damage.empty()) complain(damage + "; what comes before is read");
  // A run directory, a directory of spools or of traces; what lies in it was looked at.
  Input input = find_input(run);
  input.unpacked = std::move(unpacked);
  return input;
}

}  // namespace

std::optional<uint32_t> process_named(const std::string& target) {
  uint32_t pid = 0;
  std::error_code ignored;
  const auto [end, error] = std::from_chars(target.data(), target.data() + target.size(), pid);
  if (error != std::errc{} || *end != 0 || fs::exists(target, ignored)) return std::nullopt;
  return pid;
}

// A launcher keeps its run directory open, for the lock, and its run.json names it.
std::string without_launcher(const std::string& target) {
  const std::optional<uint32_t> pid = process_named(target);
  if (!pid) return target;
  std::error_code error, ignored;
  for (fs::directory_iterator at("/proc/" + target + "/fd", error), end; !error && at != end; at.increment(error)) {
    const fs::path path = fs::read_symlink(at->path(), ignored);
    if (!path.is_absolute() || !fs::exists(path / "run.json", ignored) || !is_locked(path)) continue;
    try {
      if (RunDir::open(path).read_info().value("launcher", 0u) == own_number(*pid)) return path;
    } catch (const Error&) {  // somebody else's directory
    }
  }
  return target;
}

fs::path spool_of_process(const std::string& target) {
  const std::optional<uint32_t> pid = process_named(target);
  std::error_code ignored;
  if (!pid) return {};
  if (fs::path spool = spool_of(*pid); !spool.empty()) return spool;
  throw Error(fs::exists(formats::process_path(*pid), ignored) ? no_spool_of(*pid)
                                                               : "there is no process " + std::to_string(*pid));
}

std::string no_spool_of(uint32_t pid) {
  return "process " + std::to_string(pid) + " has recorded nothing, or its memory cannot be read by this user";
}

Input find_input(const fs::path& path) {
  Input input;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) throw Error(path.string() + ": " + (error ? error.message() : "no such file or directory"));
  if (!fs::is_directory(status)) {
    if (is_archive(path)) return input_of_archive(path);
    if (const std::string packing = other_packing(path); !packing.empty()) throw Error(path.string() + ": " + packing);
    if (formats::form_of(path) == formats::TraceForm::kSpool)
      input.spools.push_back(path);
    else
      input.trace = path;
    return input;
  }
  if (fs::exists(path / "run.json", error) || fs::is_directory(path / "spool", error)) {
    input.run.emplace(RunDir::open(path));
    input.spools = input.run->spools();
  } else {
    input.spools = formats::find_spools(path);
  }
  if (input.spools.empty()) input.trace = trace_in(path, input.several);
  if (input.spools.empty() && input.trace.empty() && input.several.empty())
    throw Error(path.string() + ": holds neither traces nor spools: no process was traced, or nothing was exported" +
                (input.run && fs::is_directory(input.run->earlier(), error)
                     ? "; the run before it is in " + input.run->earlier().string()
                     : ""));
  return input;
}

const fs::path& one_trace(const Input& input) {
  if (!input.several.empty()) throw Error(input.several);
  return input.trace;
}

void demand_no_archive(const Input& input, const fs::path& path, const std::string& instead) {
  if (input.unpacked) throw Error(path.string() + ": is the archive of a run: " + instead);
}

void demand_other(const fs::path& read, const fs::path& output) {
  if (std::error_code error; fs::equivalent(read, output, error))
    throw Error(output.string() + ": is what is read, and would be replaced; choose another name");
}

void demand_not_input(const Input& input, const fs::path& path, const fs::path& output) {
  demand_other(path, output);
  demand_other(input.trace, output);
  if (input.run) demand_other(input.run->path() / "run.json", output);
  std::error_code error;
  if (!fs::exists(output, error)) return;  // thousands of spools are not asked for
  for (const fs::path& spool : input.spools) demand_other(spool, output);
}

void demand_trace(const Input& input, const fs::path& path) {
  if (!input.spools.empty() || input.run || !input.several.empty() || formats::may_be_trace(input.trace)) return;
  throw Error(path.string() + ": is neither a run directory nor a spool nor a trace");
}

formats::Trace load_spools(const std::vector<fs::path>& spools, const std::string& align, const Info& info) {
  const std::string chosen = align.empty() ? info.value("align", std::string()) : align;
  return chosen == "off" ? formats::load(spools) : formats::load_aligned(spools);
}

formats::Trace load(const Input& input, const fs::path& path, const std::string& align) {
  formats::Trace trace = load_spools(input.spools, align, input.run ? input.run->read_info() : Info::object());
  const auto is_same = [&trace](const formats::Unreadable& bad) { return bad.reason == trace.unreadable[0].reason; };
  if (trace.processes.empty() && !trace.unreadable.empty() && std::ranges::all_of(trace.unreadable, is_same))
    throw Error(path.string() + ": none of its spools can be read: " + trace.unreadable[0].reason);
  for (const formats::Unreadable& bad : trace.unreadable) complain(bad.file.string() + ": " + bad.reason);
  if (input.run) trace.run_end = run_end_of(input.run->read_info());
  if (trace.processes.empty()) throw Error(path.string() + ": none of its spools can be read");
  return trace;
}

void choose_step(formats::Trace& trace, const std::string& step, const Info& info) {
  const std::string chosen = step.empty() ? info.value("step", std::string()) : step;
  if (chosen.empty()) return;
  formats::check_step(trace, chosen);
  for (formats::Process& process : trace.processes) process.selection.step = chosen;
}

}  // namespace torchprof::launcher
