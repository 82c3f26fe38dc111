// libFuzzer: whatever a spool holds, the commands that read one end in an orderly way. tests/fuzz/run builds it.
#include <functional>
#include <string_view>
#include <vector>

#include "formats/diff/diff.h"
#include "formats/io/error.h"
#include "formats/io/output.h"
#include "formats/report/page.h"
#include "formats/report/summary.h"
#include "formats/trace/open_threads.h"
#include "formats/trace/trace.h"
#include "formats/write/format.h"
#include "tests/fuzz/each_byte.h"
#include "tests/fuzz/target.h"
#include "tests/unit/support/gpu_program.h"
#include "tests/unit/support/small_training.h"

using namespace torchprof;
using test::SpoolBuilder;

namespace {

constexpr uint8_t kNvtxAttributes = 84, kNativeStack = 90, kComms = 44, kNativeObject = 24, kNativeFrame = 25;

void memory(SpoolBuilder& b, uint64_t address, int64_t bytes) {
  b.raw(static_cast<uint8_t>(Kind::Memory), {address, static_cast<uint64_t>(bytes), 1 << 20, 1 << 21, 0xff00});
}

// Steps with modules, memory, native frames, NVTX and a collective, so that every table has something to say.
void add_steps(SpoolBuilder& b) {
  const TrackId main = b.thread(100, "python3", 1);
  const FunctionId f = b.function("/x.py", 7, "forward", 2, FunctionKind::kModuleCall);
  const ObjectId linear = b.object("Linear");
  b.detail(linear, linear, "layer.0");
  b.raw_definition(kNativeObject, {1 | uint64_t{b.string("/lib/libtorch.so").value} << 32, b.string("\xab").value,
                                   0x10000, 0x20000, 0x10000});
  b.raw_definition(kNativeFrame, {1, 1, 0x10010});
  b.raw_definition(kNativeFrame, {2 | uint64_t{1} << 32, 1, 0x10020});
  b.on(main);
  for (uint64_t step = 0; step < 10; ++step) {
    const uint64_t at = 1'000 * (step + 1), key = 10 * step;
    b.at(at).annotation(key + 1, "ProfilerStep#" + std::to_string(step)).begin(f, linear);
    b.at(at + 100).op(key + 2, "aten::mm", {.sequence = static_cast<int64_t>(step)}).raw(kNativeStack, {2});
    memory(b, 0x1000 + step, 4096);
    b.at(at + 200).op_end(key + 2).op(key + 3, "record_param_comms");
    b.raw(kComms, {b.string(std::string("\4send\1"
                                        "0\2pg\2\10\17\22\0\0\0\6\4\1\1",
                                        18))
                       .value,
                   step});
    b.at(at + 300).op_end(key + 3).op(key + 4, "range", {.scope = OpScope::kNvtx});
    b.raw(kNvtxAttributes, {b.string("domain").value, 0, 0, 0});
    b.at(at + 400).op_end(key + 4).end(f);
    memory(b, 0x1000 + step, -4096);
    b.at(at + 900).op_end(key + 1);
  }
}

}  // namespace

void write_seeds(const std::filesystem::path& directory) {
  SpoolBuilder calls;
  calls.split_first_chunks();
  const TrackId main = calls.thread(100, "python3", 1), other = calls.thread(101, "worker", 2);
  const FunctionId f = calls.function("/usr/lib/x.py", 7, "f", 9);
  const ObjectId linear = calls.object("Linear");
  calls.detail(linear, linear, "layer.0");
  calls.source("operators", SourceState::kFailed, "no torch");
  calls.meta("distributed.rank", "1");
  calls.on(main).at(10).frame(f).at(20).begin(f, linear).op(1, "aten::add", {.sequence = 1}).at(30).op_end(1);
  calls.at(40).c_begin("len").at(50).c_end().at(60).gc_begin(1).at(70).gc_end(3, 0).sync().frame(f).end(f);
  calls.on(other)
      .at(80)
      .op(2, "B", {.sequence = 1, .fwd_thread = 1})
      .op_end(2)
      .blind(main, "cProfile")
      .blind_end(main, "cProfile");
  calls.next_chunk(2, {80}).op(3, "aten::mul").thread_end();
  calls.clean_exit(1000);
  calls.write(directory / "calls.spool");
  SpoolBuilder windows;
  windows.thread(100);
  windows.window(1, 3, 100);
  windows.window(1, 3, 100, 500);
  windows.window(2, 9, 600);
  for (uint64_t t = 0; t < 1000; t += 100)
    windows.at(t + 10).annotation(t + 1, "Optimizer.step#SGD.step").at(t + 50).op_end(t + 1);
  windows.write(directory / "windows.spool");
  SpoolBuilder training;
  test::train(training, 100);
  training.write(directory / "training.spool");
  SpoolBuilder steps;
  add_steps(steps);
  steps.write(directory / "steps.spool");
  test::Program gpu;
  gpu.b.at(1'000).op(1, "aten::mm").at(9'000).op_end(1);
  gpu.deliver();
  gpu.b.gpu(test::call(100, 2'000, 3'000, 5)).gpu(test::kernel(gpu.b, 4'000, 8'000, 5));
  gpu.b.write(directory / "gpu.spool");
}

namespace {

// What the commands do with a trace.
std::vector<std::function<void()>> consumers_of(const formats::Trace& trace) {
  using By = formats::OpGrouping::By;
  const auto as_text = [](const auto& write) {
    std::string text;
    formats::Output out(text);
    write(out);
    out.commit();
  };
  std::vector<std::function<void()>> consumers;
  for (const formats::Format& format : formats::all_formats())
    consumers.push_back(
        [=, &trace, &format] { as_text([&](formats::Output& out) { format.write(trace, trace.processes, out); }); });
  consumers.push_back([=, &trace] { as_text([&](formats::Output& out) { formats::write_html(trace, out); }); });
  consumers.push_back([&trace] {
    for (const formats::Process& process : trace.processes) formats::open_threads(process);
  });
  if (!trace.processes.empty()) {
    consumers.push_back(
        [&trace] { formats::summary_text(trace, {.tables = formats::table_names(), .has_totals = true}); });
    for (const By by : {By::kShape, By::kStack, By::kModule, By::kThread, By::kOverload, By::kLine})
      consumers.push_back([&trace, by] {
        formats::summary_text(trace, {.tables = {"ops"}, .grouping = {.by = by, .depth = 3, .has_source = true}});
      });
    consumers.push_back([&trace] {
      try {
        const formats::Measured measured = formats::measure(trace, "fuzz", 1);
        formats::diff_text(formats::compare(measured, measured, {}), 10);
      } catch (const Error&) {  // nothing that could be compared
      }
    });
  }
  return consumers;
}

}  // namespace

void consume_all(const uint8_t* data, size_t size) {
  const formats::Trace trace = formats::load({file_of(data, size)});
  for (const auto& consume : consumers_of(trace)) consume();
}

// Each input goes to one of the consumers, which its bytes choose: to all of them it would take a tenth of a second.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const formats::Trace trace = formats::load({file_of(data, size)});
  const auto consumers = consumers_of(trace);
  consumers[std::hash<std::string_view>{}({reinterpret_cast<const char*>(data), size}) % consumers.size()]();
  return 0;
}
