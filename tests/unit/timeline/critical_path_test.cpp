// The critical path of a step, and what the step would take without some of it: of planted cases, against the time of
// the same program with that taken out.
#include "formats/timeline/critical_path.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace critical_path_test {

using namespace torchprof::formats;

namespace {

// A program that is run by simple rules, so that its cured form is known: calls take `call` ns, kernels begin `delay`
// after their call began and `gap` after the one before them.
struct Machine {
  explicit Machine(int64_t call_ns = 10) : call(call_ns) {
    t.rows.resize(2);
    t.rows[0].thread = "1 (main)";
    t.rows[1].thread = "2 (autograd)";
  }

  void cpu(const std::string& name, int64_t ns) { span(0, name, SpanKind::kOperator, now, now + ns), now += ns; }

  // Returns the index of the kernel for sync() and after().
  size_t launch(const std::string& name, int64_t ns, uint32_t stream = 7, int64_t after = 0) {
    const uint32_t correlation = ++correlations;
    span(0, "cudaLaunchKernel", SpanKind::kCall, now, now + call, correlation);
    int64_t& free = ends[stream];
    const int64_t begin = std::max({now + delay, free == 0 ? 0 : free + gap, after});
    free = begin + ns;
    t.work.push_back({.begin = begin, .end = free, .name = t.name(name), .stream = stream, .correlation = correlation});
    now += call;
    return t.work.size() - 1;
  }

  // The stream's next kernel has to wait for the work so far of `of`.
  int64_t stream_wait(uint32_t stream, uint32_t of) {
    const uint32_t record = ++correlations, wait = ++correlations;
    span(0, "cudaEventRecord", SpanKind::kCall, now, now + 1, record);
    span(0, "cudaStreamWaitEvent", SpanKind::kCall, now + 1, now + 2, wait);
    t.waits.push_back({.begin = now + 1,
                       .end = now + 2,
                       .stream = stream,
                       .correlation = wait,
                       .recorded = record,
                       .of_stream = of,
                       .kind = WaitKind::kStreamEvent});
    now += 2;
    return ends[of] + gap;
  }

  void sync(uint32_t stream = 7, bool is_recorded = true) {
    const uint32_t correlation = ++correlations;
    const int64_t end = std::max(now, ends[stream]) + back;
    span(0, "cudaStreamSynchronize", SpanKind::kCall, now, end, correlation);
    if (is_recorded)
      t.waits.push_back(
          {.begin = now, .end = end, .stream = stream, .correlation = correlation, .kind = WaitKind::kStream});
    now = end;
  }

  void span(uint32_t row, const std::string& name, SpanKind kind, int64_t begin, int64_t end, uint32_t correlation = 0,
            bool is_backward = false) {
    t.rows[row].spans.push_back({.begin = begin,
                                 .end = end,
                                 .name = t.name(name),
                                 .correlation = correlation,
                                 .kind = kind,
                                 .is_backward = is_backward});
  }

  StepSpan finish() {
    span(0, "ProfilerStep#1", SpanKind::kAnnotation, 0, now);
    t.steps = {{0, now, 1}};
    t.finish();
    return t.steps[0];
  }

  Timeline t;
  int64_t call, delay = 20, gap = 3, back = 5, now = 0;
  std::map<uint32_t, int64_t> ends;
  uint32_t correlations = 0;
};

struct Result {
  explicit Result(Machine& m) : step(m.finish()), index(m.t), graph(index, step) { sums.add(graph, {0}); }
  int64_t ns(PathClass kind) const { return sums.by_class[static_cast<size_t>(kind)]; }
  int64_t without_name(const std::string& name) const {
    return graph.without(
        [&](const PathPart& p) { return p.kind != PathClass::kLaunchDelay && graph.name_of(p) == name; });
  }
  // It is in order, without holes, and adds up to the step.
  void check_whole() const {
    int64_t at = step.begin;
    for (const PathSegment& s : graph.path()) {
      CHECK(s.begin == at);
      CHECK(s.end > s.begin);
      at = s.end;
    }
    CHECK(at == step.end);
    CHECK(graph.without([](const PathPart&) { return false; }) == step.end - step.begin);
  }
  StepSpan step;
  TimelineIndex index;
  StepGraph graph;
  PathSums sums;
};

int64_t time_of(Machine& m) {
  const StepSpan step = m.finish();
  return step.end - step.begin;
}

}  // namespace

TEST_CASE("a step of the host alone is the sum of what ran") {
  Machine m;
  m.cpu("aten::mm", 100);
  m.cpu("aten::relu", 50);
  const Result r(m);
  r.check_whole();
  CHECK(r.ns(PathClass::kHost) == 150);
  CHECK(r.without_name("aten::relu") == 100);
  CHECK(r.graph.without(PathClass::kHost) == 0);
  CHECK(r.graph.path().size() == 2);
}

TEST_CASE("a GPU that waits for the host gains nothing from faster kernels") {
  const auto run = [](Machine& m, int64_t kernel, int64_t host) {
    for (int i = 0; i < 10; ++i) m.cpu("aten::mul", host), m.launch("mul_kernel", kernel);
    m.sync();
  };
  Machine m, fast_kernels, fast_host;
  run(m, 30, 200);
  run(fast_kernels, 0, 200);
  fast_host.gap = 0;  // of the pause between kernels nothing is known where no kernel came at once after another
  run(fast_host, 30, 0);
  const Result r(m);
  r.check_whole();
  CHECK(r.graph.without(PathClass::kKernel) == time_of(fast_kernels));
  CHECK(r.graph.without(PathClass::kHost) == time_of(fast_host));
  CHECK(r.ns(PathClass::kKernel) == 30);
  CHECK(r.ns(PathClass::kHost) == 2000);
}

TEST_CASE("a host that waits for the GPU gains nothing from faster operators") {
  const auto run = [](Machine& m, int64_t kernel, int64_t host, bool is_recorded = true) {
    for (int i = 0; i < 10; ++i) m.cpu("aten::mm", host), m.launch("gemm", kernel);
    m.sync(7, is_recorded);
    m.cpu("aten::item", 40);
  };
  for (const bool is_recorded : {true, false}) {
    CAPTURE(is_recorded);
    Machine m, fast_kernels, fast_host;
    run(m, 1000, 20, is_recorded);
    run(fast_kernels, 0, 20);
    run(fast_host, 1000, 0);
    const Result r(m);
    r.check_whole();
    CHECK(r.ns(PathClass::kKernel) == 10'000);
    CHECK(r.graph.without(PathClass::kKernel) == time_of(fast_kernels));
    CHECK(r.without_name("gemm") == time_of(fast_kernels));
    CHECK(r.without_name("aten::mm") == time_of(fast_host));
    // Without the wait the step is as long as its GPU work.
    CHECK(r.graph.without(PathClass::kWait) == m.ends[7]);
  }
}

TEST_CASE("communication that is hidden in part costs the rest") {
  const auto run = [](Machine& m, int64_t communication, int64_t compute) {
    m.cpu("aten::mm", 10);
    m.launch("gemm", compute);
    m.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL()", communication, 20);
    m.cpu("aten::mm", 10);
    m.launch("gemm", compute);
    const int64_t after = m.stream_wait(7, 20);
    m.launch("adam", 50, 7, after);
    m.sync();
  };
  Machine m, without_communication, without_compute;
  run(m, 900, 300);
  run(without_communication, 0, 300);
  run(without_compute, 900, 0);
  const Result r(m);
  r.check_whole();
  CHECK(r.ns(PathClass::kCommunication) == 900);
  CHECK(r.ns(PathClass::kKernel) == 50);
  CHECK(r.graph.without(PathClass::kCommunication) == time_of(without_communication));
  CHECK(r.without_name("gemm") == time_of(without_compute));
}

TEST_CASE("the path of backward goes through autograd's thread") {
  Machine m;
  m.cpu("aten::mm", 100);
  m.span(0, "torch/autograd/__init__.py(1): backward", SpanKind::kPython, 100, 500);
  m.span(1, "autograd::engine::evaluate_function: MmBackward0", SpanKind::kOperator, 130, 300, 0, true);
  m.span(1, "aten::mm", SpanKind::kOperator, 140, 290, 0, true);
  m.span(1, "autograd::engine::evaluate_function: AccumulateGrad", SpanKind::kOperator, 310, 480, 0, true);
  m.now = 500;
  m.cpu("aten::add_", 60);
  const Result r(m);
  r.check_whole();
  CHECK(r.without_name("autograd::engine::evaluate_function: AccumulateGrad") == 560 - 170);
  CHECK(r.without_name("torch/autograd/__init__.py(1): backward") == 560 - 30 - 20);
  CHECK(r.ns(PathClass::kIdle) == 10);
}

TEST_CASE("a thread that works for itself is not on the path") {
  Machine m;
  m.span(1, "aten::copy_", SpanKind::kOperator, 20, 180);
  m.cpu("aten::mm", 100);
  m.cpu("aten::mm", 100);
  const Result r(m);
  r.check_whole();
  CHECK(r.without_name("aten::copy_") == 200);
}

TEST_CASE("what a loader does is loading") {
  Machine m;
  m.span(0, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", SpanKind::kAnnotation, 0, 300);
  m.cpu("aten::stack", 100);
  m.now = 300;
  m.cpu("aten::mm", 100);
  const Result r(m);
  r.check_whole();
  CHECK(r.ns(PathClass::kLoader) == 300);
  CHECK(r.graph.without(PathClass::kLoader) == 100);
}

TEST_CASE("work that runs on after the step keeps its distance to the end") {
  Machine m;
  m.cpu("aten::mm", 100);
  m.launch("gemm", 1000);  // ends at 1120, 1010 after the step
  const Result r(m);
  r.check_whole();
  CHECK(r.graph.without(PathClass::kHost) == 10);
  CHECK(r.graph.without(PathClass::kKernel) == 110);
}

TEST_CASE("a rank that comes late to a collective has the path") {
  const auto run = [](Machine& m, int64_t host, int64_t end) {
    m.cpu("aten::mm", host);
    m.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL()", 0);
    m.t.work.back().end = m.ends[7] = end;
    m.sync();
  };
  Machine early, late;
  run(early, 100, 1000);
  run(late, 900, 1000);
  const StepSpan step = early.finish();
  late.finish();
  const TimelineIndex first(early.t), second(late.t);
  const StepGraph graph({&first, &second}, step);
  const PathSums sums = path_sums_of({&first, &second})[0];
  CHECK(sums.by_class[static_cast<size_t>(PathClass::kCommunication)] == 1000 - 920);
  CHECK(sums.by_class[static_cast<size_t>(PathClass::kHost)] == 900);
  // If the second rank had no work, the first would be last.
  CHECK(graph.without([](const PathPart& p) { return p.process == 1 && p.kind == PathClass::kHost; }) ==
        step.end - step.begin - 800);
}

TEST_CASE("a call waits while the queue of its stream is full") {
  constexpr int kWorks = 1500, kQueue = 1024;
  const auto run = [](Machine& m, int64_t kernel) {
    for (int i = 0; i < kWorks; ++i) {
      const int64_t free = i < kQueue ? 0 : m.t.work[static_cast<size_t>(i - kQueue)].begin;
      m.launch("gemm", kernel);
      TimelineSpan& call = m.t.rows[0].spans.back();
      call.end = m.now = std::max(m.now, free + 2);
    }
  };
  Machine m, fast;
  run(m, 100);
  run(fast, 0);
  const Result r(m);
  r.check_whole();
  CHECK(r.ns(PathClass::kKernel) > 40'000);
  // Its work ran on for the length of a full queue, and may do so again.
  CHECK(r.graph.without(PathClass::kKernel) == time_of(fast));
}

TEST_CASE("waits in a circle, in a damaged file, end") {
  Machine m;
  const uint32_t a = ++m.correlations, b = ++m.correlations;
  m.span(0, "cudaLaunchKernel", SpanKind::kCall, 0, 0, a);
  m.span(0, "cudaLaunchKernel", SpanKind::kCall, 0, 0, b);
  for (const uint32_t stream : {7U, 8U})
    m.t.work.push_back({.begin = 5, .end = 5, .name = m.t.name("k"), .stream = stream, .correlation = stream - 6});
  for (const uint32_t stream : {7U, 8U})
    m.t.waits.push_back(
        {.begin = 0, .end = 0, .stream = stream, .of_stream = 15 - stream, .kind = WaitKind::kStreamEvent});
  m.now = 10;
  m.sync(7);
  m.t.waits[0].begin = m.t.waits[1].begin = 0;
  const Result r(m);
  r.check_whole();
}

}  // namespace critical_path_test
