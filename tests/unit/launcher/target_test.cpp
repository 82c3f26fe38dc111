#include "launcher/run/target.h"

#include <doctest/doctest.h>

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

}  // namespace target_test
