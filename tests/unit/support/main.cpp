// The program that runs the cases of doctest, in the same surroundings wherever it is started. tests/conftest.py does
// so for the other tests. A filter that matches no case is a failure: a test whose file was renamed would else pass for
// ever.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace {

// What the tests themselves are told, and where files may lie. Sanitizers have read theirs by now.
constexpr std::array kKept = {
    "PATH", "HOME", "TMPDIR", "TORCHPROF_UPDATE_GOLDEN", "TORCHPROF_DUMP_GOLDEN", "TORCHPROF_GOLDEN"};

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

unsigned g_cases = 0;

struct Count : doctest::IReporter {
  explicit Count(const doctest::ContextOptions&) {}
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats& stats) override { g_cases = stats.numTestCasesPassingFilters; }
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};

DOCTEST_REGISTER_LISTENER("count", 1, Count);

}  // namespace

int main(int argc, char** argv) {
  set_surroundings();
  doctest::Context context(argc, argv);
  const int status = context.run();
  if (context.shouldExit() || g_cases != 0) return status;
  std::fprintf(stderr, "no test case has this name or lies in this file\n");
  return 1;
}
