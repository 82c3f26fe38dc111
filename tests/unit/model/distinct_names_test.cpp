// Short names of the kernels of one table: no two are equal, and what differs is said.
#include <doctest/doctest.h>

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "formats/gpu/distinct_names.h"
#include "formats/gpu/kernel_names.h"
#include "tests/unit/support/spool_builder.h"

namespace distinct_names_test {

using namespace torchprof::formats;
using namespace torchprof::test;

namespace {

std::set<std::string> set_of(const std::vector<std::string>& names) { return {names.begin(), names.end()}; }

}  // namespace

TEST_CASE("kernels that share a short name get the words that only some of them have") {
  const auto names = distinct_kernel_names({"nvjet_sm90_tst_64x32_64x16_4x1_v_bz_NTT",
                                            "nvjet_sm90_tst_64x32_64x16_2x1_v_bz_coopA_NTT", "ampere_sgemm_128x64_tn"});
  CHECK(names[0].ends_with("(nvjet sm90) [4x1]"));
  CHECK(names[1].ends_with("(nvjet sm90) [2x1 coopA]"));
  CHECK(names[2] == short_kernel_name("ampere_sgemm_128x64_tn"));
}

TEST_CASE("one whose words all others have stays as it is") {
  const auto names =
      distinct_kernel_names({"void f<float>(int)", "void f<float>(int, int)", "void f<float>(int, long)"});
  CHECK(set_of(names).size() == 3);
  CHECK(names[2].ends_with("[long]"));
}

TEST_CASE("all kernels of torch 2.11 on an H100 differ, in one table") {
  std::ifstream file(golden_directory() / "gpu/kernel_names.txt");
  std::set<std::string> whole;
  for (std::string line; std::getline(file, line);)
    if (!line.empty()) whole.insert(line);
  const std::vector<std::string_view> names(whole.begin(), whole.end());
  REQUIRE(names.size() > 900);
  CHECK(set_of(distinct_kernel_names(names)).size() == names.size());
}

TEST_CASE("names without a word, and very long ones, are numbered") {
  const std::string longest(10'000, 'x');
  const std::string longer = longest + "y";
  const auto names = distinct_kernel_names({"!!", "??", "", longest, longer});
  CHECK(set_of(names).size() == 5);
  CHECK(distinct_kernel_names({}).empty());
}

}  // namespace distinct_names_test
