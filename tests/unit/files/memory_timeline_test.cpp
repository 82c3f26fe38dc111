#include "formats/write/memory_timeline.h"

#include <doctest/doctest.h>

#include <bit>
#include <nlohmann/json.hpp>

#include "formats/analysis/statistics.h"
#include "formats/memory/categories.h"
#include "tests/unit/support/small_training.h"

namespace memory_timeline_test {

using namespace torchprof;
using namespace torchprof::formats;
using nlohmann::json;
using test::SpoolBuilder;
using test::written;

namespace {

void allocate(SpoolBuilder& b, uint64_t address, int64_t bytes, int8_t type = 1, int8_t index = 0) {
  const uint64_t device = static_cast<uint8_t>(type) | static_cast<uint64_t>(static_cast<uint8_t>(index)) << 8;
  b.raw(static_cast<uint8_t>(Kind::Memory), {address, static_cast<uint64_t>(bytes), 0, 0, device});
}

// One iteration: an input, a module whose operator keeps one block and drops another, the backward, the optimizer.
void iteration(SpoolBuilder& b) {
  const TrackId main = b.thread(100, "python3", 1);
  const FunctionId call = b.function("module.py", 1, "_call_impl", 0, FunctionKind::kModuleCall);
  const ObjectId linear = b.object("Linear");
  b.on(main).at(1'000).op(1, "aten::randn");
  allocate(b, 0x100, 10);
  b.at(2'000).op_end(1).begin(call, linear).at(3'000).op(2, "aten::linear", {.sequence = 7});
  allocate(b, 0x200, 20);
  allocate(b, 0x300, 30);
  b.at(4'000);
  allocate(b, 0x300, -30);
  b.op_end(2).at(5'000).end(call).at(6'000).op(3, "LinearBackward0", {OpScope::kBackwardFunction, 7, 1, false, 0});
  allocate(b, 0x300, 40);
  allocate(b, 0x500, 50);
  b.at(7'000);
  allocate(b, 0x500, -50);
  b.op_end(3).at(8'000);
  allocate(b, 0x200, -20);
  b.annotation(4, "Optimizer.step#SGD.step").op(5, "aten::zeros");
  allocate(b, 0x600, 60);
  b.at(9'000).op_end(5).op_end(4);
  allocate(b, 0x900, -90);
  allocate(b, 0x700, 70);
  b.clean_exit(10'000);
}

constexpr int64_t kStartUs = test::kStartNs / 1000;

}  // namespace

TEST_CASE("what each block was for") {
  SpoolBuilder b;
  iteration(b);
  const test::LoadedTrace trace(b);
  const MemoryCategories categories = categories_of(trace->processes[0]);
  using enum MemoryCategory;
  CHECK((categories.of_allocation ==
         std::vector{kInput, kActivation, kTemporary, kGradient, kTemporary, kOptimizerState, kUnknown}));
  CHECK(categories.preexisting.at({0, {1, 0}}) == 90);
}

TEST_CASE("each backward of a thread of its own is one") {
  SpoolBuilder b;
  const TrackId main = b.thread(100, "python3", 1), engine = b.thread(101, "pt_autograd_0", 2);
  const FunctionId call = b.function("module.py", 1, "_call_impl", 0, FunctionKind::kModuleCall);
  const ObjectId linear = b.object("Linear");
  for (uint64_t i = 0; i < 2; ++i) {
    const uint64_t t = 10'000 * i;
    b.on(main).at(t + 1'000).begin(call, linear).op(1, "aten::linear", {.sequence = static_cast<int64_t>(i)});
    allocate(b, 0x100 + i, 10);
    b.at(t + 2'000).op_end(1).end(call);
    b.on(engine).at(t + 3'000).op(2, "autograd::engine::evaluate_function: LinearBackward0");
    b.op(3, "LinearBackward0", {OpScope::kBackwardFunction, static_cast<int64_t>(i), 1, false, 0});
    allocate(b, 0x200 + i, 20);
    allocate(b, 0x300, 30);
    b.at(t + 4'000);
    allocate(b, 0x300, -30);
    allocate(b, 0x100 + i, -10);
    if (i == 1) allocate(b, 0x200, -20);  // the gradient of the backward before
    b.op_end(3).op_end(2);
  }
  b.clean_exit(50'000);
  using enum MemoryCategory;
  CHECK((categories_of(test::LoadedTrace(b)->processes[0]).of_allocation ==
         std::vector{kActivation, kGradient, kTemporary, kActivation, kGradient, kTemporary}));
}

TEST_CASE("at a peak each category has what lived then, and what no event tells is unknown") {
  SpoolBuilder b;
  b.thread(100);
  const auto memory = [&b](uint64_t t, uint64_t address, int64_t bytes, uint64_t allocated) {
    b.at(t).raw(static_cast<uint8_t>(Kind::Memory), {address, static_cast<uint64_t>(bytes), allocated, 4096, 0x0001});
  };
  b.at(500).op(1, "aten::empty");
  memory(1'000, 1, 100, 1100);  // 1000 were there before
  memory(2'000, 2, 30, 1130);
  memory(3'000, 2, -30, 1100);
  memory(4'000, 3, 50, 1150);
  memory(4'000, 4, 10, 1160);  // the peak
  memory(4'000, 4, -10, 1150);
  memory(5'000, 5, 5, 1155);
  b.at(6'000).op_end(1).clean_exit(7'000);
  const test::LoadedTrace trace(b);
  const Process& process = trace->processes[0];
  Replay replay(process);
  const auto categories = find_peak_categories(process, replay, statistics_of(process).memory);
  replay.run();
  CHECK(categories->finish() == PeakCategories{{{int8_t{1}, int8_t{0}}, CategorySizes{0, 0, 0, 160, 0, 0, 0, 1000}}});
}

TEST_CASE("the timeline has times and sizes as torch's") {
  SpoolBuilder b;
  iteration(b);
  const json doc = json::parse(written(*test::LoadedTrace(b), write_memory_timeline));
  REQUIRE(doc.size() == 2);
  CHECK(doc[0] == json({kStartUs, kStartUs + 1, kStartUs + 3, kStartUs + 4, kStartUs + 6, kStartUs + 7, kStartUs + 8,
                        kStartUs + 9}));
  // A 0; parameter, optimizer state, input, temporary, activation, gradient, autograd detail, unknown.
  CHECK(doc[1] == json({{0, 0, 0, 0, 0, 0, 0, 0, 90},
                        {0, 0, 0, 10, 0, 0, 0, 0, 90},
                        {0, 0, 0, 10, 30, 20, 0, 0, 90},
                        {0, 0, 0, 10, 0, 20, 0, 0, 90},
                        {0, 0, 0, 10, 50, 20, 40, 0, 90},
                        {0, 0, 0, 10, 0, 20, 40, 0, 90},
                        {0, 0, 60, 10, 0, 0, 40, 0, 90},
                        {0, 0, 60, 10, 0, 0, 40, 0, 70}}));
}

TEST_CASE("the raw timeline has every event, and several processes are told apart") {
  SpoolBuilder b(100), c(200);
  iteration(b);
  const json raw = json::parse(written(*test::LoadedTrace(b), write_memory_timeline_raw));
  REQUIRE(raw.size() == 12);
  CHECK(raw[0] == json({-1, 1, 90, 7}));
  CHECK(raw[1] == json({(kStartUs + 1) * 1000, 2, 10, 2}));
  CHECK(raw[4] == json({(kStartUs + 4) * 1000, 4, -30, 3}));
  test::train(c, 200);
  const SpoolBuilder* const both[] = {&b, &c};
  const json merged = json::parse(written(*test::LoadedTrace(both), write_memory_timeline_raw));
  CHECK(merged.at("python3 100") == raw);
  CHECK(merged.at("python3 200") == json::array());
}

TEST_CASE("the picture has a band for each category that there was") {
  SpoolBuilder b;
  iteration(b);
  const std::string html = written(*test::LoadedTrace(b), write_memory_timeline_html);
  CHECK(html.starts_with("<!doctype html>"));
  CHECK(html.find("python3 100, CUDA 0</h2>") != std::string::npos);
  for (const char* name : {"input", "temporary", "activation", "gradient", "optimizer state", "unknown"})
    CHECK(html.find(std::string("<title>") + name + "</title>") != std::string::npos);
  CHECK(html.find("<title>parameter</title>") == std::string::npos);
  CHECK(html.find("http") == std::string::npos);
  SpoolBuilder hostile(100, {"<script>"});
  hostile.thread(100);
  allocate(hostile.on({1}).at(10), 0x1, int64_t{1} << 62);
  allocate(hostile.at(20), 0x2, int64_t{1} << 62);
  CHECK(written(*test::LoadedTrace(hostile), write_memory_timeline_html).find("<script>") == std::string::npos);
}

TEST_CASE("the life of a block ends with its window, and what a window frees of before has lived since its begin") {
  SpoolBuilder b;
  b.window(1, 0, 0, 5'000);
  b.window(2, 9, 10'000, 15'000);
  const TrackId thread = b.thread(100);
  b.in_window(1).on(thread).at(1'000).op(1, "aten::empty");
  allocate(b, 0x100, 10);
  b.at(2'000).op_end(1).in_window(2).on(thread).at(11'000).op(2, "aten::empty");
  allocate(b, 0x100, -10);
  allocate(b, 0x200, 20);
  b.at(12'000).op_end(2).clean_exit(20'000);
  const test::LoadedTrace trace(b);
  const json raw = json::parse(written(*trace, write_memory_timeline_raw));
  const auto unknown = static_cast<int>(MemoryCategory::kUnknown);
  REQUIRE(raw.size() == 5);
  CHECK(raw[1][0] == (kStartUs + 5) * 1000);
  CHECK(raw[1][1] == 4);  // destroyed
  CHECK(raw[2] == json({(kStartUs + 10) * 1000, 1, 10, unknown}));
  CHECK(raw[3] == json({(kStartUs + 11) * 1000, 4, -10, unknown}));
  CHECK(raw[4][2] == 20);
}

}  // namespace memory_timeline_test
