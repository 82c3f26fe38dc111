// libFuzzer: whatever a file of limits holds, reading it ends in limits or in an Error. tests/fuzz/run builds it.
#include <fstream>

#include "formats/diff/budget.h"
#include "formats/io/error.h"
#include "tests/fuzz/target.h"

using namespace torchprof;

void write_seeds(const std::filesystem::path& directory) {
  std::ofstream(directory / "budget.json") << R"({"fail_over": {"step": 10, "ops": 25, "memory": 5}, "step": "120ms",
    "total": 90, "ops": {"aten::mm": {"time": "3ms", "calls": 20, "allocated": "10M"}},
    "modules": {"Linear decoder.out": {"time": "1ms"}}, "kernels": {"gemm": {"calls": 1}}, "python": {},
    "memory": {"CPU": "2G", "cuda:0": 1073741824}})";
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    formats::read_budget(file_of(data, size));
  } catch (const Error&) {
  }
  return 0;
}
