// The program that runs the cases of doctest, in the same surroundings wherever it is started. tests/conftest.py does so
// for the other tests.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <array>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace {

// What the tests themselves are told, and where files may lie. Sanitizers have read theirs by now.
constexpr std::array kKept = {"PATH", "HOME", "TMPDIR", "TORCHPROF_UPDATE_GOLDEN"};

void set_surroundings() {
  std::vector<std::pair<const char*, std::string>> kept;
  for (const char* name : kKept) {
    if (const char* value = std::getenv(name)) kept.emplace_back(name, value);
  }
  clearenv();
  for (const auto& [name, value] : kept) setenv(name, value.c_str(), 1);
  setenv("LANG", "C.UTF-8", 1);
  umask(022);
}

}  // namespace

int main(int argc, char** argv) {
  set_surroundings();
  return doctest::Context(argc, argv).run();
}
