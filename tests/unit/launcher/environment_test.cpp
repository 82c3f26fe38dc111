// The environment that the command gets.
#include "launcher/run/environment.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>

namespace environment_test {

using namespace torchprof;
using namespace torchprof::launcher;
namespace fs = std::filesystem;

namespace {

using Strings = std::vector<std::string>;

// A library that is there, in a directory that goes with the test.
struct Installed {
  Installed() {
    std::string pattern = fs::temp_directory_path() / "torchprof-test-XXXXXX";
    root = mkdtemp(pattern.data());
    fs::create_directory(root / "python");
    std::ofstream(root / "libtorchprof.so");
    library = {root / "libtorchprof.so", root / "python"};
  }
  ~Installed() { fs::remove_all(root); }
  fs::path root;
  Library library;
};

std::string value_after(const Installed& installed, const std::string& name, const Strings& before,
                        const Config& config = {}) {
  return value_in(with_variables(before, variables(before, installed.library, config, "/run")), name);
}

}  // namespace

TEST_CASE("the user's entries keep their order; ours is the last library and the first folder, once") {
  const Installed here;
  const std::string so = here.library.preload, python = here.library.python;
  CHECK(value_after(here, "LD_PRELOAD", {}) == so);
  CHECK(value_after(here, "LD_PRELOAD", {"LD_PRELOAD="}) == so);
  CHECK(value_after(here, "LD_PRELOAD", {"LD_PRELOAD=libasan.so /b.so:/a.so"}) == "libasan.so:/b.so:/a.so:" + so);
  CHECK(value_after(here, "LD_PRELOAD", {"LD_PRELOAD=" + so + ":/a.so"}) == "/a.so:" + so);
  CHECK(value_after(here, "PYTHONPATH", {}) == python);
  CHECK(value_after(here, "PYTHONPATH", {"PYTHONPATH=b:a"}) == python + ":b:a");
  CHECK(value_after(here, "PYTHONPATH", {"PYTHONPATH=b:" + python}) == python + ":b");
}

TEST_CASE("an empty entry of PYTHONPATH is the current directory and stays") {
  const Installed here;
  CHECK(value_after(here, "PYTHONPATH", {"PYTHONPATH=:a:"}) == here.library.python.string() + "::a:");
}

TEST_CASE("the library is known by any name that leads to it") {
  const Installed here;
  fs::create_symlink(here.library.preload, here.root / "link.so");
  CHECK(preloads({"LD_PRELOAD=/a.so:" + (here.root / "link.so").string()}, here.library));
  CHECK_FALSE(preloads({"LD_PRELOAD=/a.so"}, here.library));
  CHECK_FALSE(preloads({}, here.library));
}

TEST_CASE("settings are set where they differ from the default or from what was set") {
  const Installed here;
  Config config;
  config.python = PythonLevel::kCalls;
  const Strings set = variables({"TORCHPROF_OPS=off", "TORCHPROF_OUTPUT=old"}, here.library, config, "/runs/100%");
  CHECK(set == Strings{"TORCHPROF_OUTPUT=/runs/100%%", "TORCHPROF_PYTHON=calls", "TORCHPROF_OPS=on",
                       "NVTX_INJECTION64_PATH=" + here.library.preload.string(),
                       "PYTHONPATH=" + here.library.python.string(), "LD_PRELOAD=" + here.library.preload.string()});
}

TEST_CASE("NVTX is led to the library, unless the user leads it elsewhere or wants none") {
  const Installed here;
  const std::string so = here.library.preload, name = "NVTX_INJECTION64_PATH";
  CHECK(value_after(here, name, {}) == so);
  CHECK(value_after(here, name, {name + "="}) == so);
  CHECK(value_after(here, name, {name + "=/mine.so"}) == "/mine.so");
  Config config;
  config.nvtx = NvtxMode::kOff;
  CHECK(value_after(here, name, {}, config).empty());
}

TEST_CASE("a variable is replaced wherever and however often it was there") {
  const Strings result =
      with_variables({"A=1", "LD_PRELOAD=x", "B=2", "LD_PRELOAD=y", "LD_PRELOAD2=z", "odd"}, {"LD_PRELOAD=ours"});
  CHECK(result == Strings{"A=1", "B=2", "LD_PRELOAD2=z", "odd", "LD_PRELOAD=ours"});
}

}  // namespace environment_test
