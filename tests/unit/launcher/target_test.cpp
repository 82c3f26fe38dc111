#include "launcher/run/target.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

namespace target_test {

using namespace torchprof::launcher;

TEST_CASE("a script of Python's that is not there is found behind all of Python's options") {
  const auto missing = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "python3");
    return missing_script("/usr/bin/python3.11", arguments);
  };
  for (const std::vector<std::string>& options :
       std::vector<std::vector<std::string>>{{},
                                             {"-u"},
                                             {"-uB", "-W", "ignore"},
                                             {"-Wignore", "-X", "dev"},
                                             {"-BW", "ignore", "-Xdev"},
                                             {"--check-hash-based-pycs", "always"}}) {
    std::vector<std::string> arguments = options;
    arguments.insert(arguments.end(), {"no such file.py", "-c", "x"});
    CHECK(missing(arguments) == "no such file.py");
    for (const std::vector<std::string>& other : std::vector<std::vector<std::string>>{{"/dev/null"},
                                                                                       {"-c", "no such"},
                                                                                       {"-m", "no.such"},
                                                                                       {"-Sm", "no.such"},
                                                                                       {"-cno such"},
                                                                                       {"-"},
                                                                                       {},
                                                                                       {"-V"}}) {
      arguments = options;
      arguments.insert(arguments.end(), other.begin(), other.end());
      CHECK(missing(arguments).empty());
    }
  }
  CHECK(missing_script("/bin/sh", {"sh", "no such file"}).empty());
}

namespace {

// A directory with files, as PATH has it.
class Directory {
 public:
  Directory() {
    char name[] = "/tmp/torchprof-target-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  std::string file(const std::string& name, const std::string& text, bool is_executable) const {
    std::ofstream(path_ / name) << text;
    std::filesystem::permissions(path_ / name, std::filesystem::perms(is_executable ? 0755 : 0644));
    return path_ / name;
  }
  std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace

TEST_CASE("a script of Python's that cannot be started itself is run with the Python of PATH, all else as it is") {
  using Command = std::vector<std::string>;
  const Directory with, without;
  with.file("python3", "#!/bin/sh\n", true);
  const std::string plain = with.file("plain.py", "print()\n", false);
  const std::string executable = with.file("executable.py", "#!/usr/bin/env python3\n", true);
  const std::string no_line = with.file("no_line.py", "print()\n", true);
  const std::string shell = with.file("plain.sh", "echo\n", false);
  CHECK(as_python_command({plain, "-x", "python3"}, with.path()) == Command{"python3", plain, "-x", "python3"});
  CHECK(as_python_command({no_line}, with.path()) == Command{"python3", no_line});
  CHECK(as_python_command({"no_line.py"}, with.path()) == Command{"python3", no_line});
  for (const std::string& other :
       {executable, shell, with.path() + "/none.py", with.path(), std::string("python3"), std::string("plain.py")})
    CHECK(as_python_command({other, plain}, with.path()).empty());
  CHECK(as_python_command({plain}, without.path()).empty());
  without.file("python", "#!/bin/sh\n", true);
  CHECK(as_python_command({plain}, without.path() + ":" + with.path()).front() == "python3");
  CHECK(as_python_command({plain}, without.path()).front() == "python");
}

TEST_CASE("a command that could not be started has a likely cause") {
  const Directory on_path;
  const std::string path = on_path.path();
  on_path.file("closed", "", false);
  on_path.file("python3", "#!/bin/sh\n", true);
  const std::string strange = on_path.file("strange", "#!/no/such/program -x\n", true);
  const std::string windows = on_path.file("windows", "#!/bin/sh\r\necho\r\n", true);
  CHECK(why_not_started("nowhere", ENOENT, path) == "no directory of PATH has it");
  CHECK(why_not_started("python", ENOENT, path) == "no directory of PATH has it, but python3");
  CHECK(why_not_started("closed", EACCES, path) ==
        path + "/closed is not executable, and no other directory of PATH has one");
  CHECK(why_not_started(path + "/none", ENOENT, path) == "there is no such file in " + path);
  CHECK(why_not_started(path + "/none/none", ENOENT, path) == "there is no directory " + path + "/none");
  CHECK(why_not_started(path, EACCES, path) == "it is a directory");
  CHECK(why_not_started(path + "/closed", EACCES, path).starts_with("it is not executable: `chmod +x` it"));
  for (const std::string& name : {strange, std::string("strange")})
    CHECK(why_not_started(name, ENOENT, path) == "its first line names /no/such/program, which is not there");
  CHECK(why_not_started(windows, ENOENT, path).starts_with("its first line ends with a carriage return"));
  CHECK(why_not_started("nowhere", ENOMEM, path).empty());
}

}  // namespace target_test
