#include "formats/diff/budget.h"

#include <doctest/doctest.h>

#include <fstream>

#include "formats/io/error.h"
#include "tests/unit/support/spool_builder.h"

namespace budget_test {

using namespace torchprof;
using namespace torchprof::formats;

namespace {

Budget read(const std::string& text) {
  const test::TemporaryDirectory directory;
  std::ofstream(directory / "budget.json") << text;
  return read_budget(directory / "budget.json");
}

// What the error says after the file's name; empty: there is none.
std::string complaint(const std::string& text) try {
  read(text);
  return {};
} catch (const Error& error) {
  const std::string what = error.what();
  return what.substr(what.find("budget.json: ") + 13);
}

}  // namespace

TEST_CASE("a budget of everything") {
  const Budget budget = read(R"({"fail_over": {"step": 10, "calls": 0}, "step": "1.5s", "total": 90,
      "ops": {"aten::mm": {"time": "3ms", "calls": 20, "allocated": "1.5K"}}, "modules": {"Linear a": {}},
      "kernels": {}, "python": {"train.py: step": {"time": 1}}, "memory": {"CPU": "2G", "CUDA 0": 12}})");
  CHECK(budget.fail_over.at(Metric::kStep) == 10);
  CHECK(budget.fail_over.at(Metric::kCalls) == 0);
  CHECK(budget.names.at(Metric::kStep).at("step").time == 1.5e9);
  CHECK(budget.names.at(Metric::kTotal).at("operators").time == 90e6);
  const NameBudget& mm = budget.names.at(Metric::kOps).at("aten::mm");
  CHECK(mm.time == 3e6);
  CHECK(mm.calls == 20);
  CHECK(mm.bytes == 1536);
  CHECK(budget.names.at(Metric::kMemory).at("CPU").bytes == 2.0 * 1024 * 1024 * 1024);
  CHECK(budget.names.at(Metric::kMemory).at("CUDA 0").bytes == 12);
}

TEST_CASE("each mistake in a budget is named with its place and what is allowed") {
  CHECK(complaint("{}").empty());
  CHECK(complaint(R"({"python": {"f": {"allocated": 1}}})").ends_with("is not a key of a budget: time, calls"));
  CHECK(complaint(R"({"stepp": 1})") ==
        "stepp: is not a key of a budget: fail_over, step, total, ops, modules, kernels, cuda, python, memory");
  CHECK(complaint(R"({"step": "fast"})") ==
        "step: \"fast\" is not a time: \"1.5ms\" (ns, us, ms, s, m), or a number of ms");
  CHECK(complaint(R"({"step": -1})").starts_with("step: -1 is not a time"));
  CHECK(complaint(R"({"step": [[[]]]})").starts_with("step: array is not a time"));
  CHECK(complaint(R"({"ops": {"aten::mm": {"tme": 1}}})") ==
        "ops.aten::mm.tme: is not a key of a budget: time, calls, allocated");
  CHECK(complaint(R"({"ops": {"aten::mm": 3}})") == "ops.aten::mm: is not an object: {time, calls, allocated}");
  CHECK(complaint(R"({"ops": {"aten::mm": {"calls": "3"}}})") == "ops.aten::mm.calls: \"3\" is not a number");
  CHECK(complaint(R"({"memory": {"CPU": "2X"}})") ==
        "memory.CPU: \"2X\" is not a size: \"1.5G\" (K, M, G, T), or a number of bytes");
  CHECK(complaint(R"({"memory": {"CPU": "GK"}})").starts_with("memory.CPU: \"GK\" is not a size"));
  CHECK(complaint(R"({"fail_over": {"speed": 1}})") ==
        "fail_over.speed: is not a metric: step, total, ops, modules, kernels, cuda, python, calls, allocated, memory");
  CHECK(complaint(R"({"step": 1, "step": 2})") == "the key 'step' comes twice");
  CHECK(complaint(R"([])") ==
        "is not an object: {fail_over, step, total, ops, modules, kernels, cuda, python, memory}");
  CHECK(complaint("{").starts_with("it is not JSON: "));
  CHECK(complaint("").starts_with("it is not JSON: "));
  CHECK_THROWS_WITH_AS(read_budget("/nowhere/b.json"), "budget /nowhere/b.json: No such file or directory", Error);
}

TEST_CASE("a budget that is nested without end is refused, not followed") {
  CHECK(complaint(R"({"step": )" + std::string(200'000, '[') + std::string(200'000, ']') + "}")
            .starts_with("step: array is not a time"));
}

}  // namespace budget_test
