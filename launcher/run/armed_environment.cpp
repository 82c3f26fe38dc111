#include "launcher/run/armed_environment.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "formats/io/error.h"
#include "formats/io/open_file.h"
#include "formats/io/output.h"
#include "formats/io/text.h"
#include "tracer/config/run_directory.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;

using Strings = std::vector<std::string>;

constexpr const char* kPreload = "LD_PRELOAD";
constexpr const char* kPythonPath = "PYTHONPATH";
constexpr const char* kPthName = "torchprof.pth";
constexpr const char* kPthBegin = "# torchprof:";  // of a file of ours

struct Variable {
  std::string name, value;
};

Variable taken_apart(const std::string& entry) {
  const size_t equals = entry.find('=');
  return {entry.substr(0, equals), entry.substr(equals + 1)};
}

std::string replaced(const std::string& text, char what, const std::string& by) {
  std::string out;
  for (const char c : text) c == what ? out += by : out += c;
  return out;
}

std::string in_fish(const std::string& value) {
  return "'" + replaced(replaced(value, '\\', "\\\\"), '\'', "\\'") + "'";
}

// csh looks for its history in quotes, too, and ends a line in them.
std::string in_csh(const std::string& value) {
  return "'" + replaced(replaced(replaced(value, '\'', "'\\''"), '!', "\\!"), '\n', "\\\n") + "'";
}

// Kubernetes puts the value of a variable for $(NAME), and one $ for two. A text of JSON is one of YAML.
std::string in_kubernetes(const Variable& variable) {
  try {
    return nlohmann::json(replaced(variable.value, '$', "$$")).dump();
  } catch (const nlohmann::json::exception&) {
    throw Error(variable.name + ": " + formats::printable(variable.value) + " is not UTF-8, as this format has to be");
  }
}

// Bytes, where they are more than ASCII: what Python calls a path is made of them.
std::string in_python(const std::string& text) {
  std::string out;
  bool is_ascii = true;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    is_ascii = is_ascii && byte < 0x80;
    char escaped[8];
    snprintf(escaped, sizeof(escaped),
             byte < 0x20 || byte >= 0x7f ? "\\x%02x"
             : c == '"' || c == '\\'     ? "\\%c"
                                         : "%c",
             byte);
    out += c == '\n' ? "\\n" : escaped;
  }
  return is_ascii ? '"' + out + '"' : "os.fsdecode(b\"" + out + "\")";
}

std::string of_shell(const std::string& format, const Variable& variable) {
  if (format == "fish") return "set -gx " + variable.name + " " + in_fish(variable.value) + "\n";
  if (format == "csh") return "setenv " + variable.name + " " + in_csh(variable.value) + ";\n";
  return "export " + variable.name + "=" + in_sh(variable.value) + "\n";
}

std::string removal_in_shell(const std::string& format, const std::string& name) {
  if (format == "fish") return "set -e " + name + "\n";
  if (format == "csh") return "unsetenv " + name + ";\n";
  return "unset " + name + "\n";
}

void demand_one_line(const Variable& variable) {
  if (variable.value.find('\n') != std::string::npos)
    throw Error(variable.name + ": " + formats::printable(variable.value) +
                " has a line break, which this format cannot hold");
}

// The script of a task prolog: Slurm puts what it prints into the task's environment (slurm.conf(5), TaskProlog:
// "export NAME=value", without quotes, to the end of the line). What the task has in lists stays in them.
std::string of_task_prolog(const std::vector<Variable>& variables) {
  std::string out = "#!/bin/sh\n# A task prolog of Slurm: srun --task-prolog=FILE, or TaskProlog in slurm.conf.\n";
  for (const Variable& variable : variables) {
    demand_one_line(variable);
    const std::string value = "export " + variable.name + "=" + variable.value;
    std::string before, after;
    if (variable.name == kPreload) before = "${LD_PRELOAD:+$LD_PRELOAD:}";
    if (variable.name == kPythonPath) after = "${PYTHONPATH:+:$PYTHONPATH}";
    out += "printf '%s\\n' ";
    if (before.empty())
      out += in_sh(value);
    else
      out += in_sh("export " + variable.name + "=") + "\"" + before + "\"" + in_sh(variable.value);
    if (!after.empty()) out += "\"" + after + "\"";
    out += "\n";
  }
  return out;
}

// One line, as site.py wants it. It runs in every Python, so nothing is imported but what is there already. Where the
// environment says where the run goes, it says all: `torchprof run` is the same with and without this file.
std::string of_pth(const std::vector<Variable>& variables, const Library& library) {
  std::string set;
  for (const Variable& variable : variables)
    if (variable.name != kPreload && variable.name != kPythonPath)
      set += (set.empty() ? "" : ", ") + in_python(variable.name) + ": " + in_python(variable.value);
  const std::string file = in_python(library.preload);
  const std::string code =
      "def arm():\n"
      " import os, sys\n"
      " e = os.environ\n"
      " if e.get('TORCHPROF_DISABLE', '0') not in ('', '0') or not os.path.exists(" +
      file +
      "): return\n"
      " if not e.get('TORCHPROF_OUTPUT'): e.update({" +
      set +
      "})\n"
      " try:\n"
      "  import _frozen_importlib, _imp\n"
      "  _imp.create_dynamic(_frozen_importlib.ModuleSpec('_torchprof', None, origin=" +
      file +
      "))\n"
      " except Exception as error: sys.stderr.write('torchprof: %s; this process is not profiled\\n' % error)\n"
      "arm()\n";
  return std::string(kPthBegin) +
         " arms each Python that reads this file, until it is removed (`torchprof env --unset --pth DIR`).\n"
         "import os; exec(" +
         in_python(code) + ", {})\n";
}

bool is_ours(const fs::path& file) { return formats::read_file(file).starts_with(kPthBegin); }

fs::path pth_in(const fs::path& directory) {
  std::error_code error;
  if (!fs::is_directory(directory, error))
    throw Error(directory.string() + ": is no directory; --pth wants one of those that " +
                "`python3 -c \"import site; print(site.getsitepackages())\"` prints");
  return directory / kPthName;
}

}  // namespace

std::string in_sh(const std::string& value) { return "'" + replaced(value, '\'', "'\\''") + "'"; }

std::string shared_output(const Config& config) {
  ErrorText error;
  if (!is_shared_output(config.output, error)) throw Error(error.text);
  if (config.output[0] == '/') return fs::path(config.output).lexically_normal();
  std::error_code code;
  const fs::path here = fs::current_path(code);
  if (code) throw Error("output '" + std::string(config.output) + "': the working directory: " + code.message());
  return (fs::path(doubled_percent(here)) / config.output).lexically_normal();
}

std::string arming_text(const std::string& format, const Strings& environment, const Library& library,
                        const Config& config) {
  const bool is_shell = format == "sh" || format == "fish" || format == "csh";
  std::vector<Variable> set;
  for (const std::string& entry :
       variables_of_pattern(is_shell ? environment : Strings{}, library, config, shared_output(config)))
    set.push_back(taken_apart(entry));
  if (format == "slurm") return of_task_prolog(set);
  if (format == "pth") return of_pth(set, library);
  std::string out = format == "k8s" ? "env:\n" : "";
  for (const Variable& variable : set) {
    if (format == "docker") {
      demand_one_line(variable);
      out += variable.name + "=" + variable.value + "\n";
    } else if (format == "k8s") {
      out += "- name: " + variable.name + "\n  value: " + in_kubernetes(variable) + "\n";
    } else {
      out += of_shell(format, variable);
    }
  }
  return out;
}

std::string disarming_text(const std::string& format, const Strings& environment, const Library& library) {
  std::string out;
  for (const Setting& setting : settings()) out += removal_in_shell(format, setting.variable);
  for (const std::string& entry : without_library(environment, library)) {
    const Variable left = taken_apart(entry);
    out += left.value.empty() ? removal_in_shell(format, left.name) : of_shell(format, left);
  }
  return out;
}

void install_pth(const fs::path& directory, const std::string& text) {
  const fs::path file = pth_in(directory);
  std::error_code error;
  if (fs::exists(fs::symlink_status(file, error)) && !is_ours(file))
    throw Error(file.string() + ": is not of `torchprof env`; it stays as it is");
  formats::Output out(file);
  out.write(text);
  out.commit();
}

void remove_pth(const fs::path& directory) {
  const fs::path file = pth_in(directory);
  std::error_code error;
  if (!fs::exists(file, error)) throw Error(file.string() + ": is not there");
  if (!is_ours(file)) throw Error(file.string() + ": is not of `torchprof env`; it stays as it is");
  if (!fs::remove(file, error)) throw Error(file.string() + ": " + error.message());
}

}  // namespace torchprof::launcher
