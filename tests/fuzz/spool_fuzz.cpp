// libFuzzer: whatever a spool holds, the commands that read one end in an orderly way. tests/fuzz/run builds it.
#include "formats/format.h"
#include "formats/open_threads.h"
#include "formats/output.h"
#include "formats/trace.h"
#include "tests/fuzz/target.h"
#include "tests/unit/spool_builder.h"

using namespace torchprof;
using test::SpoolBuilder;

void write_seeds(const std::filesystem::path& directory) {
  SpoolBuilder calls;
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
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const formats::Trace trace = formats::load({file_of(data, size)});
  for (const formats::Format& format : formats::all_formats()) {
    std::string text;
    formats::Output out(text);
    format.write(trace, trace.processes, out);
    out.commit();
  }
  for (const formats::Process& process : trace.processes) formats::open_threads(process);
  return 0;
}
