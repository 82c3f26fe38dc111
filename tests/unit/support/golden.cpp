#include "tests/unit/support/golden.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace torchprof::test {
namespace fs = std::filesystem;

std::string read_file(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  REQUIRE_MESSAGE(in, "cannot read ", file.string());
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

fs::path golden_directory() {
  const char* other = std::getenv("TORCHPROF_GOLDEN");
  return other != nullptr ? other : GOLDEN_DIRECTORY;
}

void check_golden(const std::string& name, const std::string& text) {
  const fs::path file = golden_directory() / name;
  if (std::getenv("TORCHPROF_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(file, std::ios::binary) << text;
    return;
  }
  CHECK_MESSAGE(text == read_file(file), name, " differs; TORCHPROF_UPDATE_GOLDEN=1 writes it anew");
}

}  // namespace torchprof::test
