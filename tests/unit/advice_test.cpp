// What of a GPU's kernels is worth saying; the other rules have programs: tests/e2e/test_advice.py.
#include <doctest/doctest.h>

#include "formats/table.h"
#include "tests/unit/gpu_program.h"

using namespace torchprof;
using namespace torchprof::formats;
using namespace torchprof::test;

namespace {

// Three steps of 1 ms, each with `count` kernels of `ns` each.
std::string advice(const std::string& kernel_name, uint64_t count, uint64_t ns) {
  Program p;
  SpoolBuilder& b = p.b;
  for (uint64_t step = 0; step < 3; ++step) {
    b.at(step * 1'000'000 + 1000).annotation(step + 1, numbered("ProfilerStep#", step));
    b.at((step + 1) * 1'000'000).op_end(step + 1);
  }
  b.on(p.cupti).at(3'100'000);
  for (uint32_t step = 0; step < 3; ++step)
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t begin = step * 1'000'000 + 10'000 + i * (ns + 100);
      const uint32_t correlation = step * 1000 + i + 1;
      b.gpu(call(100, begin - 50, begin - 10, correlation)).gpu(kernel(b, begin, begin + ns, correlation, kernel_name));
    }
  b.clean_exit(4'000'000);
  const LoadedTrace trace(b);
  return summary_text(*trace, {.tables = {"advice"}, .style = ReportStyle::kCsv});
}

bool says(const std::string& text, const std::string& rule) { return text.find("\"" + rule + "\"") != text.npos; }

}  // namespace

TEST_CASE("many kernels that take a few microseconds each are named, few or long ones are not") {
  CHECK(says(advice("add", 120, 3000), "tiny kernels"));
  CHECK(!says(advice("add", 60, 3000), "tiny kernels"));
  CHECK(!says(advice("add", 60, 12'000), "tiny kernels"));
}

TEST_CASE("float32 on ordinary cores is named, on tensor cores it is not") {
  CHECK(says(advice("ampere_sgemm_128x64_tn", 5, 60'000), "autocast"));
  CHECK(!says(advice("ampere_sgemm_128x64_tn", 5, 6000), "autocast"));
  CHECK(!says(advice("cutlass_80_tensorop_s1688gemm_128x128", 5, 60'000), "autocast"));
}

TEST_CASE("cuDNN's transposes are named where they take time") {
  CHECK(says(advice("void cudnn::ops::nchwToNhwcKernel<float>", 5, 10'000), "layout"));
  CHECK(!says(advice("void cudnn::ops::nchwToNhwcKernel<float>", 1, 10'000), "layout"));
}
