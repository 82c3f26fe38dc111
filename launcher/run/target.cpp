#include "launcher/run/target.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <sstream>
#include <string_view>

#include "tracer/config/program_file.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPython = "python";

class File {
 public:
  explicit File(const fs::path& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int descriptor() const { return fd_; }

 private:
  int fd_;
};

bool is_executable_file(const fs::path& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && access(path.c_str(), X_OK) == 0;
}

bool is_path(const std::string& name) { return name.find('/') != std::string::npos; }

// The first file of this name in a directory of PATH that `is_wanted`.
template <class Wanted>
fs::path first_on(const std::string& name, const std::string& path_list, Wanted is_wanted) {
  std::istringstream in(path_list);
  for (std::string directory; std::getline(in, directory, ':');) {
    fs::path candidate = fs::path(directory.empty() ? "." : directory) / name;
    if (is_wanted(candidate)) return candidate;
  }
  return {};
}

fs::path found_on(const std::string& name, const std::string& path_list) {
  if (is_path(name)) return is_executable_file(name) ? fs::path(name) : fs::path{};
  return first_on(name, path_list, is_executable_file);
}

// The interpreter that a script's first line names; empty if the file is no script.
fs::path interpreter_of(const File& file, const std::string& path_list) {
  char line[kScriptLine];
  if (!script_line_of(file.descriptor(), line)) return {};
  std::istringstream words(line);
  std::string interpreter;
  words >> interpreter;
  if (fs::path(interpreter).filename() == "env")
    for (std::string word; words >> word;)
      if (!word.starts_with('-') && word.find('=') == std::string::npos) return found_on(word, path_list);
  return interpreter;
}

}  // namespace

Target look_at(const std::string& command, const std::string& path_list) {
  Target target;
  target.file = target.program = found_on(command, path_list);
  for (int depth = 0; depth < 4 && !target.program.empty(); ++depth) {
    const fs::path next = interpreter_of(File(target.program), path_list);
    if (next.empty()) break;
    target.program = next;
  }
  if (target.program.empty()) return target;
  const File file(target.program);
  ProgramWork work;
  const Barrier barrier = barrier_of(file.descriptor(), target.program.c_str(), work);
  target.needs_asan = needs_asan(file.descriptor(), work);
  const std::string what = target.program.string() + ": " + text_of(barrier);
  if (barrier == Barrier::kMusl)
    target.refusal = what;
  else if (barrier != Barrier::kNone)
    target.warning = what + ": it will run untraced";
  return target;
}

std::vector<std::string> as_python_command(const std::vector<std::string>& command, const std::string& path_list) {
  const std::string& name = command.front();
  std::error_code ignored;
  if (fs::path(name).extension() != ".py") return {};
  const fs::path program = found_on(name, path_list);
  char line[kScriptLine];
  if (!program.empty() && script_line_of(File(program).descriptor(), line)) return {};
  if (program.empty() && !fs::is_regular_file(name, ignored)) return {};
  for (const char* python : {"python3", "python"}) {
    if (found_on(python, path_list).empty()) continue;
    std::vector<std::string> out{python, program.empty() ? name : program.string()};
    if (out.back().starts_with('-')) out.back().insert(0, "./");  // or it would be an option
    out.insert(out.end(), command.begin() + 1, command.end());
    return out;
  }
  return {};
}

namespace {

// Of an executable file.
std::string why_program_not_started(const fs::path& program, int error) {
  char line[kScriptLine];
  if (!script_line_of(File(program).descriptor(), line))
    return error == ENOENT ? "the loader that it names is not there: it was built for another system or C library"
                           : "its file system may be mounted noexec, or a security module forbids it";
  std::string interpreter;
  std::istringstream(line) >> interpreter;
  if (std::string_view(line).ends_with('\r'))
    return "its first line ends with a carriage return, as on Windows: `sed -i 's/\\r$//' " + program.string() +
           "` removes them";
  return "its first line names " + interpreter +
         (error == ENOENT ? ", which is not there" : ", which may not be executed");
}

}  // namespace

std::string why_not_started(const std::string& command, int error, const std::string& path_list) {
  if (error != ENOENT && error != EACCES) return {};
  std::error_code ignored;
  if (const fs::path program = found_on(command, path_list); !program.empty())
    return why_program_not_started(program, error);
  const fs::file_status status = fs::status(command, ignored);
  if (is_path(command)) {
    if (fs::is_directory(status)) return "it is a directory";
    const fs::path parent = fs::path(command).parent_path();
    if (error == ENOENT)
      return fs::exists(parent, ignored) ? "there is no such file in " + parent.string()
                                         : "there is no directory " + parent.string();
    return fs::exists(status) ? "it is not executable: `chmod +x` it, or put its interpreter before it"
                              : "a directory on the way to it may not be entered";
  }
  const auto is_there = [](const fs::path& path) {
    std::error_code unknown;
    return fs::exists(path, unknown);
  };
  if (const fs::path other = first_on(command, path_list, is_there); error == EACCES && !other.empty())
    return other.string() + " is not executable, and no other directory of PATH has one";
  std::string why = "no directory of PATH has it";
  if (command == "python" && !found_on("python3", path_list).empty()) return why + ", but python3";
  if (fs::exists(status)) why += "; the one in this directory is ./" + command;
  return why;
}

// Options as CPython reads them (Python/getopt.c): letters may stand together. What W and X take is the rest of the
// word or the next one; c and m end them, and run no file.
std::string missing_script(const fs::path& file, const std::vector<std::string>& command) {
  if (!is_python(file)) return {};
  for (size_t i = 1; i < command.size(); ++i) {
    const std::string& word = command[i];
    std::error_code ignored;
    if (word == "--check-hash-based-pycs") {
      ++i;
    } else if (!word.starts_with('-')) {
      return fs::status(word, ignored).type() == fs::file_type::not_found ? word : std::string{};
    } else if (word.size() < 2 || word.starts_with("--")) {
      return {};
    } else if (const size_t taker = word.find_first_of("cmWX", 1); taker != word.npos) {
      if (word[taker] == 'c' || word[taker] == 'm') return {};
      if (taker + 1 == word.size()) ++i;
    }
  }
  return {};
}

bool is_python(const fs::path& program) {
  const std::string name = program.filename();
  std::string_view rest = name;
  if (!rest.starts_with(kPython)) return false;
  rest.remove_prefix(kPython.size());
  const auto take_digits = [&] {
    const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
    rest.remove_prefix(digits);
    return digits > 0;
  };
  if (rest.empty()) return true;
  if (!take_digits()) return false;
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    if (!take_digits()) return false;
  }
  return rest.empty() || rest == "t";
}

}  // namespace torchprof::launcher
