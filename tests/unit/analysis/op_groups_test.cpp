// Self and total time of operators as defined in formats/report/summary.h, and groups of operators with one name.
#include "formats/analysis/op_groups.h"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <set>

#include "formats/analysis/statistics.h"
#include "formats/io/error.h"
#include "formats/report/summary.h"
#include "tests/unit/support/spool_builder.h"

namespace op_groups_test {

using namespace torchprof;
using namespace torchprof::formats;
using test::SpoolBuilder;

namespace {

using Spans = std::vector<std::pair<uint64_t, uint64_t>>;

int64_t length_of_union(Spans intervals) {
  std::ranges::sort(intervals);
  uint64_t sum = 0, until = 0;
  for (const auto& [begin, end] : intervals) {
    if (end > until) sum += end - std::max(begin, until);
    until = std::max(until, end);
  }
  return static_cast<int64_t>(sum);
}

// Random operators that nest, on one thread; the intervals in which each name was open.
std::map<std::string, Spans> random_operators(SpoolBuilder& b, TrackId track, uint32_t seed) {
  std::mt19937 random(seed);
  std::map<std::string, Spans> intervals;
  std::vector<std::pair<std::string, uint64_t>> open;
  uint64_t t = 1 + seed, key = seed * 100'000;
  b.on(track);
  for (int i = 0; i < 400; ++i) {
    t += random() % 50;
    if (open.empty() || (open.size() < 8 && random() % 2 == 0)) {
      open.emplace_back(std::string(1, static_cast<char>('a' + random() % 4)), t);
      b.at(t).op(key + open.size(), open.back().first);
    } else {
      b.at(t).op_end(key + open.size());
      intervals[open.back().first].emplace_back(open.back().second, t);
      open.pop_back();
    }
  }
  for (; !open.empty(); open.pop_back()) {
    b.at(t).op_end(key + open.size());
    intervals[open.back().first].emplace_back(open.back().second, t);
  }
  return intervals;
}

Statistics statistics(const SpoolBuilder& b, const OpGrouping& grouping) {
  const test::LoadedTrace trace(b);
  return statistics_of(trace->processes[0], {.grouping = grouping});
}

OpGrouping grouping(std::string_view text) {
  OpGrouping result;
  REQUIRE(parse_grouping(text, result));
  return result;
}

// {detail: calls} of the groups of a name.
std::map<std::string, uint64_t> details(const Statistics& s, std::string_view name) {
  std::map<std::string, uint64_t> calls;
  for (const auto& [key, group] : s.op_groups)
    if (group.name == name) calls[group.detail] = group.tally.calls;
  return calls;
}

}  // namespace

TEST_CASE("totals are unions of intervals, and self times add up to the union of all") {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SpoolBuilder b;
    b.use_chunks_of(64 * 1024);
    std::map<std::string, int64_t> totals;
    int64_t all = 0;
    for (uint32_t thread = 0; thread < 3; ++thread) {
      Spans of_thread;
      for (const auto& [name, intervals] : random_operators(b, b.thread(100 + thread), seed + thread)) {
        totals[name] += length_of_union(intervals);
        of_thread.insert(of_thread.end(), intervals.begin(), intervals.end());
      }
      all += length_of_union(of_thread);
    }
    b.clean_exit(1'000'000);
    const Statistics s = statistics(b, grouping("thread"));
    CHECK(s.operator_ns == all);
    std::map<std::string, int64_t> of_groups;
    for (const auto& [key, group] : s.op_groups) of_groups[group.name] += group.tally.total_ns;
    for (const auto& [name, total] : totals) {
      CHECK(s.operators.at(name).total_ns == total);
      CHECK(of_groups.at(name) == total);
    }
  }
}

TEST_CASE("an asynchronous range has no self time, and takes none from what is around it") {
  SpoolBuilder b;
  b.on(b.thread(100)).at(0).op(1, "outer").at(10).op(2, "range", {.is_async = true}).at(20).op(3, "inner");
  b.at(50).op_end(3).at(80).op_end(2).at(100).op_end(1).clean_exit(1000);
  const Statistics s = statistics(b, {});
  CHECK((s.operators.at("range").self_ns == 0 && s.operators.at("range").total_ns == 70));
  CHECK(s.operators.at("outer").self_ns == 70);  // less "inner"
  CHECK(s.operator_ns == 100);
}

TEST_CASE("memory of an operator, its own and with what ran inside it") {
  SpoolBuilder b;
  b.on(b.thread(100)).at(0).op(1, "outer").at(10).op(2, "inner");
  b.short_record(kShortMemory, 0, {0x1000, 64}).at(20).op_end(2).short_record(kShortMemory, 0, {0x2000, 100});
  b.short_record(kShortMemory, 0, {0x1000, static_cast<uint64_t>(-64)}).at(30).op_end(1).clean_exit(1000);
  const Statistics s = statistics(b, grouping("module"));
  CHECK((s.operators.at("inner").cpu_bytes == 64 && s.operators.at("inner").cpu_total_bytes == 64));
  CHECK((s.operators.at("outer").cpu_bytes == 36 && s.operators.at("outer").cpu_total_bytes == 100));
  for (const auto& [key, group] : s.op_groups)
    CHECK(group.tally.cpu_total_bytes == s.operators.at(group.name).cpu_total_bytes);
}

TEST_CASE("operators by module, thread, overload and calling functions") {
  SpoolBuilder b;
  const FunctionId call = b.function("module.py", 1, "_call_impl", 0, FunctionKind::kModuleCall);
  const FunctionId main = b.function("main"), helper = b.function("helper");
  const ObjectId linear = b.object("Linear");
  b.on(b.thread(100, "one")).at(0).begin(main).begin(call, linear).begin(helper);
  b.op(1, std::string("aten::add\0Tensor", 16)).at(10).op_end(1).end(helper).op(2, "aten::add").at(20).op_end(2);
  b.end(call).end(main).on(b.thread(101, "two")).at(30).op(3, "aten::add").at(40).op_end(3).clean_exit(1000);
  using Details = std::map<std::string, uint64_t>;
  CHECK(details(statistics(b, grouping("module")), "aten::add") == Details{{"", 1}, {"nn.Module: Linear_0", 2}});
  CHECK(details(statistics(b, grouping("thread")), "aten::add") == Details{{"100 (one)", 2}, {"101 (two)", 1}});
  CHECK(details(statistics(b, grouping("overload")), "aten::add") == Details{{"", 2}, {"Tensor", 1}});
  CHECK(details(statistics(b, grouping("stack:1")), "aten::add") ==
        Details{{"", 1}, {"nn.Module: Linear_0", 1}, {"test.py(1): helper", 1}});
  CHECK(details(statistics(b, grouping("stack:9")), "aten::add")
            .contains("test.py(1): helper; nn.Module: Linear_0; test.py(1): main"));
}

TEST_CASE("stacks without end are bounded") {
  SpoolBuilder b;
  b.use_chunks_of(1024 * 1024);
  std::vector<FunctionId> functions;
  for (int i = 0; i < 250; ++i) functions.push_back(b.function(std::to_string(i)));
  b.on(b.thread(100)).at(0);
  for (const FunctionId outer : functions)
    for (const FunctionId inner : functions)
      b.begin(outer).begin(inner).op(1, "aten::add").op_end(1).end(inner).end(outer);
  b.clean_exit(1000);
  const Statistics s = statistics(b, grouping("stack:2"));
  CHECK(s.op_groups.size() < 51'000);
  CHECK(details(s, "aten::add").at("(others)") > 12'000);
}

TEST_CASE("the top level is what no operator is around; annotations are none") {
  SpoolBuilder b;
  b.on(b.thread(100)).at(0).annotation(1, "step").at(5).op(2, "outer").op(3, "inner").at(10).op_end(3).op_end(2);
  b.at(20).op(4, "inner").at(25).op_end(4).at(30).op_end(1).clean_exit(1000);
  const test::LoadedTrace trace(b);
  TableOptions options{.tables = {"ops"}, .columns = {"calls", "name"}};
  options.grouping.top_level = true;
  CHECK(summary_text(*trace, options).ends_with("  calls  name\n      1  inner\n      1  outer\n"));
}

TEST_CASE("the function that calls an operator most often is its source") {
  SpoolBuilder b;
  const FunctionId often = b.function("often"), once = b.function("once");
  b.on(b.thread(100)).at(0).begin(once).op(1, "aten::add").at(10).op_end(1).end(once).begin(often);
  for (uint64_t key = 2; key < 4; ++key) b.op(key, "aten::add").op_end(key);
  b.end(often).clean_exit(1000);
  OpGrouping with_source;
  with_source.has_source = true;
  for (const auto& [key, group] : statistics(b, with_source).op_groups) CHECK(group.source == "test.py(1): often");
}

TEST_CASE("what is no grouping is refused") {
  for (const char* text : {"", "shapes", "stack", "stack:", "stack:0", "stack:x", "stack:5x", "module:1"}) {
    OpGrouping grouping;
    CAPTURE(text);
    CHECK(!parse_grouping(text, grouping));
  }
}

}  // namespace op_groups_test
