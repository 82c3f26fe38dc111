// What is said of an output while it is written.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "launcher/terminal/progress.h"
#include "tests/unit/support/spool_builder.h"

namespace progress_test {

using namespace torchprof::launcher;

TEST_CASE("all files of an output count, and no raw records") {
  namespace fs = std::filesystem;
  const torchprof::test::TemporaryDirectory place;
  const fs::path& directory = place.path();
  const auto write = [&directory](const fs::path& name, size_t size) {
    fs::create_directories((directory / name).parent_path());
    std::ofstream(directory / name) << std::string(size, 'x');
  };
  CHECK(bytes_in(directory) == 0);
  write("trace.json.gz", 100);
  write("host=a/rank=0.parquet", 20);
  write("host=b/rank=1.parquet", 3);
  write("spool/b.1.2.spool", 5000);
  CHECK(bytes_in(directory) == 123);
  CHECK(bytes_in(directory / "none") == 0);
}

}  // namespace progress_test
