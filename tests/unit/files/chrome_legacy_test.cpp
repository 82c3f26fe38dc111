#include "formats/write/chrome_legacy.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/unit/support/small_training.h"
#include "tests/unit/support/spool_builder.h"

namespace chrome_legacy_test {

using namespace torchprof;
using namespace torchprof::formats;
using nlohmann::json;
using test::SpoolBuilder;

namespace {

std::string legacy(const Trace& trace) { return test::written(trace, write_chrome_legacy); }

}  // namespace

TEST_CASE("operators and annotations as the old profiler wrote them") {
  SpoolBuilder b(100, {"/usr/bin/python3", "train.py"});
  test::train(b, 100);
  test::check_golden("chrome_legacy.json", legacy(*test::LoadedTrace(b)));
}

TEST_CASE("processes have their numbers where there are several") {
  SpoolBuilder first(100, {"/usr/bin/python3"}), second(200, {"/usr/bin/python3"});
  test::train(first, 100);
  test::train(second, 200);
  const SpoolBuilder* both[] = {&first, &second};
  const json events = json::parse(legacy(*test::LoadedTrace(both)));
  CHECK(events.front().at("pid") == "CPU functions, python3 100");
  CHECK(events.back().at("pid") == "CPU functions, python3 200");
}

TEST_CASE("nothing is an empty array, and hostile names are JSON") {
  CHECK(legacy(*test::LoadedTrace(SpoolBuilder())) == "[]\n");
  SpoolBuilder b;
  test::hostile(b);
  const json events = json::parse(legacy(*test::LoadedTrace(b)));
  CHECK(events.size() == 4);
  CHECK(events[0].at("name") == "<\x7f\x1b[31m>");
}

}  // namespace chrome_legacy_test
