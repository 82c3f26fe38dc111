// Device time in tables, from a spool and from the trace that was written of it.
#include <doctest/doctest.h>

#include "formats/analysis/gpu_statistics.h"
#include "formats/analysis/statistics.h"
#include "formats/gpu/cuda_api.h"
#include "formats/report/summary.h"
#include "formats/write/format.h"
#include "tests/unit/support/gpu_program.h"

namespace gpu_table_test {

using namespace torchprof;
using namespace torchprof::formats;
using namespace torchprof::test;

namespace {

// aten::linear launches a kernel itself and two in aten::addmm; aten::copy_ a copy, on another device.
void work(Program& p) {
  SpoolBuilder& b = p.b;
  b.device(h100(1), "NVIDIA H100");
  b.context(2, 1, 7);
  b.at(1'000).annotation(9, "step").at(2'000).op(1, "aten::linear").at(6'000).op(2, "aten::addmm");
  b.at(20'000).op_end(2).at(30'000).op_end(1).at(40'000).op(3, "aten::copy_").at(60'000).op_end(3);
  b.at(70'000).op_end(9);
  p.deliver();
  b.gpu(call(100, 3'000, 4'000, 1)).gpu(kernel(b, 100'000, 200'000, 1, "bias"));
  b.gpu(call(100, 7'000, 8'000, 2)).gpu(kernel(b, 150'000, 250'000, 2, "gemm", 0, 8));
  b.gpu(call(100, 9'000, 9'500, 3)).gpu(kernel(b, 300'000, 350'000, 3, "gemm"));
  GpuCopy copy{};
  copy.start = SpoolBuilder::cupti(400'000);
  copy.end = SpoolBuilder::cupti(420'000);
  copy.bytes = 1000;
  copy.correlation = 4;
  copy.device = 1;
  copy.context = 2;
  copy.stream = 7;
  copy.copy_kind = 2;
  copy.src_kind = 3;
  copy.dst_kind = 1;
  copy.src_context = copy.dst_context = kNoGpuNumber;
  b.gpu(call(100, 50'000, 51'000, 4, kMemcpyAsync)).gpu(copy).clean_exit(1'000'000);
}

}  // namespace

TEST_CASE("device time belongs to the operator that launched it, and to those around it") {
  Program p;
  work(p);
  const LoadedTrace trace(p.b);
  const Statistics s = statistics_of(trace->processes[0]);
  CHECK((s.operators.at("aten::linear").gpu_self_ns == 100'000 &&
         s.operators.at("aten::linear").gpu_total_ns == 250'000));
  CHECK(
      (s.operators.at("aten::addmm").gpu_self_ns == 150'000 && s.operators.at("aten::addmm").gpu_total_ns == 150'000));
  CHECK((s.operators.at("step").gpu_self_ns == 0 && s.operators.at("step").gpu_total_ns == 270'000));
  CHECK((s.gpu.work.at("gemm").calls == 2 && s.gpu.work.at("gemm").min_ns == 50'000));
  REQUIRE(s.gpu.devices.size() == 2);
  CHECK(s.gpu.devices[0].busy_ns == 200'000);  // what overlaps counts once
  CHECK(s.gpu.devices[0].kernel_ns == 250'000);
  CHECK(s.gpu.devices[1].copies == 1);
}

TEST_CASE("the tables of a spool and of its trace are the same") {
  Program p;
  work(p);
  GpuDropped dropped{};
  dropped.count = 12;
  dropped.loss = GpuLoss::kDropped;
  p.b.gpu(dropped);
  const LoadedTrace trace(p.b);
  TableOptions options{.tables = {"ops", "kernels", "calls"}};
  const std::string summary = summary_text(*trace, options);
  check_golden("summary_gpu.txt", summary);
  const TemporaryDirectory directory;
  const auto tables = [](const std::string& text) {
    const size_t begin = text.find('\n'), end = text.find("\nNot in the trace");
    return text.substr(begin, end == std::string::npos ? end : end - begin);
  };
  write_file(*find_format("kineto"), *trace, trace->processes, directory / "t.pt.trace.json.gz");
  CHECK(tables(summary_text(directory / "t.pt.trace.json.gz", options)) == tables(summary));
  options.tables = {"calls"};
  write_file(*find_format("perfetto"), *trace, trace->processes, directory / "t.pftrace");
  CHECK(tables(summary_text(directory / "t.pftrace", options)) == tables(summary_text(*trace, options)));
}

TEST_CASE("a call's name says what it does") {
  const auto does = [](std::string_view name) { return effect_text(call_effect(name)); };
  for (const char* name :
       {"cudaLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch", "cudaMemcpyAsync", "hipLaunchKernel"})
    CHECK(does(name) == "launch");
  for (const char* name : {"cudaStreamSynchronize", "cudaMemcpy", "cuCtxSynchronize", "hipDeviceSynchronize"})
    CHECK(does(name) == "wait");
  for (const char* name : {"cudaMalloc", "cudaMallocAsync_v11020", "cudaFreeHost", "cuMemMap", "hipFree"})
    CHECK(does(name) == "allocate");
  for (const char* name : {"cudaGetDevice", "cudaStreamWaitEvent", "cudaEventRecord", ""}) CHECK(does(name) == "other");
}

TEST_CASE("what CUPTI had for another is said, and what has no time") {
  Program p;
  work(p);
  GpuDropped turn{};
  turn.loss = GpuLoss::kAside;
  p.b.at(910'000).gpu(turn);
  turn.loss = GpuLoss::kBack;
  p.b.at(935'000).gpu(turn).gpu(kernel(p.b, 2'900, 5'000, 1, "early"));
  GpuKernel never = kernel(p.b, 0, 0, 9, "never");
  never.start = never.end = 0;
  p.b.gpu(never);
  const LoadedTrace trace(p.b);
  const std::string text = summary_text(*trace, {.tables = {"kernels"}});
  CHECK(text.find("GPU not recorded for 25.000 us: another client of CUPTI was using it, 1 time\n") !=
        std::string::npos);
  CHECK(text.find(
            "1 GPU operation would begin before the launch, by up to 0.100 us: the clocks of GPU and CPU disagree\n") !=
        std::string::npos);
  CHECK(text.find("1 GPU operation without a time") != std::string::npos);
  // Times in doubt are in the trace: said below the GPUs, and not with what is missing.
  CHECK(text.find("would begin before") < text.find("Not in the trace"));
}

TEST_CASE("text has short names of kernels; those that share one keep their rows") {
  const std::string fill = "void at::native::vectorized_elementwise_kernel<%, at::native::FillFunctor<float>, X>(int)";
  const auto of_width = [&fill](char width) {
    std::string name = fill;
    name[name.find('%')] = width;
    return name;
  };
  Program p;
  p.b.at(1'000).op(1, "aten::zeros").at(6'000).op_end(1);
  p.deliver();
  p.b.gpu(call(100, 2'000, 3'000, 1)).gpu(kernel(p.b, 100'000, 200'000, 1, of_width('4')));
  p.b.gpu(call(100, 4'000, 5'000, 2)).gpu(kernel(p.b, 210'000, 230'000, 2, of_width('8'))).clean_exit(1'000'000);
  const LoadedTrace trace(p.b);
  const auto count = [](const std::string& text, const std::string& what) {
    size_t n = 0;
    for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++n;
    return n;
  };
  for (const ReportStyle style : {ReportStyle::kText, ReportStyle::kMarkdown}) {
    TableOptions options{.tables = {"kernels"}, .style = style};
    const std::string text = summary_text(*trace, options);
    CHECK(count(text, "elementwise fill") == 2);
    CHECK(count(text, "FillFunctor") == 0);
    options.has_full_names = true;
    CHECK(count(summary_text(*trace, options), "FillFunctor") == 2);
  }
  const TableOptions whole{.tables = {"kernels"}, .has_full_names = true};
  CHECK(count(summary_text(*trace, whole), of_width('4') + "\n") == 1);
  const std::string csv = summary_text(*trace, {.tables = {"kernels"}, .style = ReportStyle::kCsv});
  CHECK(count(csv, "\"" + of_width('8') + "\",\"elementwise fill<fp32> [8]\"") == 1);
}

TEST_CASE("the tables of a merged trace know whose devices they are") {
  Program first, second({"/usr/bin/python3", "other.py"});
  work(first);
  work(second);
  second.b.header().pid = 200;
  const SpoolBuilder* both[] = {&first.b, &second.b};
  const LoadedTrace trace(both);
  const TableOptions options{.tables = {"kernels"}};
  const TemporaryDirectory directory;
  write_file(*find_format("kineto"), *trace, trace->processes, directory / "t.pt.trace.json");
  const std::string text = summary_text(*trace, options), again = summary_text(directory / "t.pt.trace.json", options);
  CHECK(again.substr(again.find('\n')) == text.substr(text.find('\n')));
}

}  // namespace gpu_table_test
