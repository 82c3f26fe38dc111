#include "launcher/input.h"

#include "formats/error.h"
#include "formats/trace.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;

bool is_trace(const fs::path& file) {
  const std::string name = file.filename();
  return name.ends_with(".json") || name.ends_with(".json.gz");
}

// The merged trace, or else the only one.
fs::path trace_in(const fs::path& directory) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    if (name.find(".pt.trace.json") == std::string::npos || !is_trace(entry.path())) continue;
    if (name.starts_with("merged.")) return entry.path();
    found.push_back(entry.path());
  }
  if (found.size() > 1)
    throw Error(directory.string() + ": holds " + std::to_string(found.size()) +
                " traces and no merged one: name one of them");
  return found.empty() ? fs::path{} : found.front();
}

}  // namespace

Input find_input(const fs::path& path) {
  Input input;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) throw Error(path.string() + ": " + (error ? error.message() : "no such file or directory"));
  if (!fs::is_directory(status)) {
    if (path.extension() == ".spool")
      input.spools.push_back(path);
    else if (is_trace(path))
      input.trace = path;
    else
      throw Error(path.string() + ": is no trace (.json, .json.gz), no spool (.spool) and no run directory");
    return input;
  }
  if (fs::exists(path / "run.json", error) || fs::is_directory(path / "spool", error)) {
    input.run.emplace(RunDir::open(path));
    input.spools = input.run->spools();
  } else {
    input.spools = formats::find_spools(path);
  }
  if (input.spools.empty()) input.trace = trace_in(path);
  if (input.spools.empty() && input.trace.empty())
    throw Error(path.string() + ": holds neither traces nor spools: no process was traced, or nothing was exported");
  return input;
}

}  // namespace torchprof::launcher
