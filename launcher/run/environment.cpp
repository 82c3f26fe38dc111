#include "launcher/run/environment.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "formats/io/error.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;

std::string name_of(const std::string& variable) { return variable.substr(0, variable.find('=')); }

const std::string* find(const std::vector<std::string>& environment, const std::string& name) {
  for (const std::string& entry : environment)
    if (entry.size() > name.size() && entry[name.size()] == '=' && entry.starts_with(name)) return &entry;
  return nullptr;
}

// Whether two names are the same file: the library may be named through a link or another prefix.
bool same_file(const std::string& a, const fs::path& b) {
  std::error_code error;
  return a == b || fs::equivalent(a, b, error);
}

std::vector<std::string> split(const std::string& list, const char* separators) {
  std::vector<std::string> out;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find_first_of(separators, at), list.size());
    out.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::string preload_list(const std::string& before, const fs::path& ours) {
  std::string out;
  // ld.so splits at spaces, too. With colons only, the value is one word in `env $(torchprof run --dry-run)`.
  for (const std::string& entry : split(before, ": "))
    if (!entry.empty() && !same_file(entry, ours)) out += entry + ":";
  return out + ours.string();
}

// Ours comes first, unlike in LD_PRELOAD: Python runs the first sitecustomize on the path, and ours then runs the
// user's.
std::string python_path(const std::string& before, const fs::path& ours) {
  if (before.empty()) return ours;
  // An empty entry means the current directory, so it is kept.
  std::string out = ours;
  for (const std::string& entry : split(before, ":"))
    if (entry.empty() || !same_file(entry, ours)) out += ":" + entry;
  return out;
}

std::string value_text(const Config& config, const Setting& setting) {
  std::array<char, PATH_MAX> text;
  value_of(config, setting, text.data(), text.size());
  return text.data();
}

}  // namespace

std::string doubled_percent(const std::string& path) {
  std::string out;
  for (const char c : path) out.append(c == '%' ? 2 : 1, c);
  return out;
}

Library find_library() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) throw Error("cannot read /proc/self/exe: " + error.message());
  const fs::path above = self.parent_path().parent_path();
  for (const fs::path& place : {above / "lib" / "torchprof", above / "inject"}) {
    Library library{place / "libtorchprof.so", place / "python"};
    if (!fs::exists(library.preload, error)) continue;
    if (access(library.preload.c_str(), R_OK) != 0)
      throw Error(library.preload.string() + ": " + std::strerror(errno) + ": the command could not load it");
    if (library.preload.string().find_first_of(": ") != std::string::npos)
      throw Error(library.preload.string() +
                  ": LD_PRELOAD cannot hold a path with a space or a colon: install torchprof elsewhere");
    return library;
  }
  throw Error("libtorchprof.so is not beside this program: looked for " +
              (above / "lib/torchprof/libtorchprof.so").string() + "; install torchprof again");
}

std::vector<std::string> variables(const std::vector<std::string>& environment, const Library& library,
                                   const Config& config, const fs::path& run_directory) {
  return variables_of_pattern(environment, library, config, doubled_percent(run_directory));
}

std::vector<std::string> variables_of_pattern(const std::vector<std::string>& environment, const Library& library,
                                              const Config& config, const std::string& output) {
  std::vector<std::string> out;
  const Config defaults;
  for (const Setting& setting : settings()) {
    const std::string prefix = std::string(setting.variable) + "=";
    if (std::string_view(setting.option) == "--output") {
      out.push_back(prefix + output);
      continue;
    }
    const std::string value = value_text(config, setting);
    if (value != value_text(defaults, setting) || find(environment, setting.variable)) out.push_back(prefix + value);
  }
  const std::string injection = value_in(environment, kNvtxInjection);
  if (config.nvtx != NvtxMode::kOff && (injection.empty() || same_file(injection, library.preload)))
    out.push_back(std::string(kNvtxInjection) + "=" + library.preload.string());
  std::error_code error;
  if (fs::is_directory(library.python, error))
    out.push_back("PYTHONPATH=" + python_path(value_in(environment, "PYTHONPATH"), library.python));
  out.push_back("LD_PRELOAD=" + preload_list(value_in(environment, "LD_PRELOAD"), library.preload));
  return out;
}

std::vector<std::string> without_library(const std::vector<std::string>& environment, const Library& library) {
  const auto rest = [&](const char* name, const char* separators, const fs::path& ours) {
    std::string out;
    bool is_first = true;  // an empty entry counts
    const std::string before = value_in(environment, name);
    if (before.empty()) return std::string(name) + "=";
    for (const std::string& entry : split(before, separators))
      if (!same_file(entry, ours)) out += (std::exchange(is_first, false) ? "" : ":") + entry;
    return std::string(name) + "=" + out;
  };
  return {rest(kNvtxInjection, "", library.preload), rest("PYTHONPATH", ":", library.python),
          rest("LD_PRELOAD", ": ", library.preload)};
}

std::vector<std::string> with_variables(std::vector<std::string> environment,
                                        const std::vector<std::string>& variables) {
  for (const std::string& variable : variables) {
    const std::string name = name_of(variable);
    std::erase_if(environment, [&](const std::string& entry) { return name_of(entry) == name; });
    environment.push_back(variable);
  }
  return environment;
}

std::vector<std::string> current_environment() {
  std::vector<std::string> out;
  for (char** entry = environ; entry && *entry; ++entry) out.emplace_back(*entry);
  return out;
}

std::string value_in(const std::vector<std::string>& environment, const std::string& name) {
  const std::string* entry = find(environment, name);
  return entry ? entry->substr(name.size() + 1) : std::string{};
}

bool preloads(const std::vector<std::string>& environment, const Library& library) {
  return std::ranges::any_of(split(value_in(environment, "LD_PRELOAD"), ": "), [&](const std::string& entry) {
    return !entry.empty() && same_file(entry, library.preload);
  });
}

}  // namespace torchprof::launcher
