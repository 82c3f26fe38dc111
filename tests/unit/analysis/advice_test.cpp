// Which findings about a GPU's kernels are made; tests/e2e/files/test_advice.py tests the other rules with programs.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "formats/advice/advice.h"
#include "formats/report/summary.h"
#include "tests/unit/support/collective_encoding.h"
#include "tests/unit/support/gpu_program.h"

namespace advice_test {

using namespace torchprof;
using namespace torchprof::formats;
using namespace torchprof::test;

namespace {

// Three steps of 1 ms, each with `count` kernels of `ns` each.
std::string advice(const std::string& kernel_name, uint64_t count, uint64_t ns, ReportStyle style = ReportStyle::kCsv) {
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
  return summary_text(*trace, {.tables = {"advice"}, .style = style});
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

namespace {

// Steps of 1 ms, each with `waits` calls of `ns` that wait for the GPU and as many copies of pageable memory. If asked
// for, the same comes before the first step, too.
std::string waste_of_steps(uint64_t before, uint64_t in_first, uint64_t in_others) {
  constexpr uint64_t kSteps = 6, kFirst = 10'000'000;
  Program p;
  SpoolBuilder& b = p.b;
  for (uint64_t step = 0; step < kSteps; ++step) {
    b.at(kFirst + step * 1'000'000).annotation(step + 1, numbered("ProfilerStep#", step));
    b.at(kFirst + (step + 1) * 1'000'000).op_end(step + 1);
  }
  b.on(p.cupti).at(kFirst + kSteps * 1'000'000 + 1000);
  uint32_t correlation = 0;
  const auto waste = [&](uint64_t time, uint64_t times) {
    for (uint64_t i = 0; i < times; ++i) {
      const uint64_t begin = time + 1000 + i * 20'000;
      b.gpu(call(100, begin, begin + 10'000, ++correlation, kStreamSynchronize));
      b.gpu(call(100, begin + 10'000, begin + 11'000, ++correlation, kMemcpyAsync));
      GpuCopy copy{};
      copy.start = SpoolBuilder::cupti(begin + 11'000);
      copy.end = SpoolBuilder::cupti(begin + 19'000);
      copy.bytes = 1 << 20;
      copy.correlation = correlation;
      copy.context = 1;
      copy.stream = 7;
      copy.copy_kind = 1;
      copy.src_kind = 1;
      copy.dst_kind = 3;
      b.gpu(copy);
    }
  };
  waste(0, before);
  for (uint64_t step = 0; step < kSteps; ++step) waste(kFirst + step * 1'000'000, step == 0 ? in_first : in_others);
  b.clean_exit(kFirst + kSteps * 1'000'000 + 2000);
  const LoadedTrace trace(b);
  return summary_text(*trace, {.tables = {"advice"}, .style = ReportStyle::kCsv});
}

}  // namespace

TEST_CASE("no word of a finding is missing, however long it is") {
  const std::string text = advice("ampere_sgemm_128x64_tn", 5, 60'000, ReportStyle::kText);
  CAPTURE(text);
  CHECK(text.find("...") == text.npos);
  CHECK(text.find("torch.set_float32_matmul_precision(\"high\").") != text.npos);
  for (size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1) CHECK(end - at <= 120);
}

TEST_CASE("what is wasted before the steps or in the first of them is not held against the others") {
  for (const std::string rule : {"sync", "pageable"}) {
    CAPTURE(rule);
    CHECK(!says(waste_of_steps(400, 0, 0), rule));
    CHECK(!says(waste_of_steps(0, 40, 0), rule));
    CHECK(says(waste_of_steps(0, 0, 4), rule));
  }
  // Of four steps (the last mark is what came after them): 4 x 10 us in 1 ms.
  const std::string text = waste_of_steps(400, 40, 4);
  CAPTURE(text);
  CHECK(text.find("\"4 copies, 4.00 MiB by Memcpy HtoD (Pageable -> Device) at 131.1 GB/s.\"") != text.npos);
  CHECK(text.find("40000,4,960000,\"sync\",\"A step waits 40.0 us for the GPU.\"") != text.npos);
}

TEST_CASE("a rank is slow if the others wait for it in the steps, not before them") {
  const auto advice_of = [](uint64_t late_from) {
    SpoolBuilder ranks[] = {SpoolBuilder(100), SpoolBuilder(200)};
    for (uint32_t rank = 0; rank < 2; ++rank) {
      SpoolBuilder& b = ranks[rank];
      b.thread(100 * (rank + 1));
      for (uint64_t i = 0; i < 32; ++i) {  // the first half before the steps
        const uint64_t begin = i * 1'000'000;
        if (i >= 16) b.at(begin).annotation(100 + i, numbered("ProfilerStep#", i - 16));
        const bool is_late = rank == 1 && i / 16 == late_from;
        b.at(begin + 1000 + (is_late ? 500'000 : 0)).op(1, "record_param_comms");
        collective(b, {.group = "0", .ranks = {0, 1}});
        b.at(begin + 600'000).op_end(1).at(begin + 1'000'000);
        if (i >= 16) b.op_end(100 + i);
      }
      b.clean_exit(40'000'000);
    }
    const SpoolBuilder* both[] = {&ranks[0], &ranks[1]};
    const LoadedTrace trace(both);
    return summary_text(*trace, {.tables = {"advice"}, .style = ReportStyle::kCsv});
  };
  CHECK(!says(advice_of(0), "slow rank"));
  CHECK(says(advice_of(1), "slow rank"));
}

TEST_CASE("a rank that has no processor for longer than the others is late by that without being slow") {
  std::mt19937 random(9);
  for (int round = 0; round < 100; ++round) {
    const size_t ranks = 2 + random() % 3;
    constexpr int64_t kStepNs = 10'000'000, kPercentNs = kStepNs / 100;
    // In percent of a step: how much later than the others the last one comes, and how long each had no processor.
    const auto late = static_cast<int64_t>(random() % 50), queued = static_cast<int64_t>(random() % 50);
    const auto of_others = static_cast<int64_t>(random() % 20);
    std::vector<ProcessAdvice> all(ranks);
    std::vector<CommsCalls> comms(ranks);
    std::vector<AdvisedProcess> processes;
    for (size_t rank = 0; rank < ranks; ++rank) {
      ProcessAdvice& advice = all[rank];
      const bool is_late = rank + 1 == ranks;
      advice.has_steps = true;
      advice.steps = 20;
      advice.step_ns = advice.mean_step_ns = kStepNs;
      advice.processors = 8;
      advice.use = {.queued = std::vector<int64_t>(20, (is_late ? queued : of_others) * kPercentNs),
                    .slept = std::vector<int64_t>(20),
                    .is_known = std::vector<bool>(20, true),
                    .others_ran = 8.0};
      CommsKind kind{.name = "gloo:all_reduce"};
      for (uint64_t step = 0; step < 20; ++step) {
        const int64_t begin = static_cast<int64_t>(step) * kStepNs;
        advice.spans.push_back({begin, begin + kStepNs, step});
        comms[rank][kind].push_back({.begin = begin + (is_late ? late : 0) * kPercentNs,
                                     .end = begin + 60 * kPercentNs,
                                     .bytes = 8,
                                     .step = static_cast<int64_t>(step) + 1,
                                     .number = static_cast<int64_t>(step),
                                     .is_until_done = true});
      }
      comms[rank].rank = static_cast<int64_t>(rank);
      comms[rank].job = 1;
    }
    for (size_t rank = 0; rank < ranks; ++rank)
      processes.push_back({"rank " + std::to_string(rank), false, 1, &all[rank], &comms[rank]});
    const Advice advice = advice_of(processes);
    const auto found = std::ranges::find(advice.findings, std::string_view("slow rank"), &Finding::rule);
    const int64_t own = late - std::max<int64_t>(0, queued - of_others);
    CAPTURE(late);
    CAPTURE(queued);
    CAPTURE(of_others);
    REQUIRE((found != advice.findings.end()) == (own >= 5));
    if (own >= 5) CHECK(found->cost_ns == own * kPercentNs);
  }
}

}  // namespace advice_test
