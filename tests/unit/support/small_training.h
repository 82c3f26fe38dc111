// A process that the tests of several formats write.
#pragma once

#include "tests/unit/support/spool_builder.h"

namespace torchprof::test {

// One step of training: a module, an annotation, a forward operator and its backward on another thread.
inline void train(SpoolBuilder& b, uint32_t pid) {
  const TrackId main = b.thread(pid, "pt_main_thread", 1), engine = b.thread(pid + 1, "pt_autograd_0", 2);
  b.meta("python.version", "3.11.2");
  b.source("python", SourceState::kOn, "PyEval_SetProfile on every thread");
  b.source("operators", SourceState::kFailed, "no row for torch 9.9");
  const FunctionId module = b.function("<module>"), call = b.function("/usr/lib/torch/nn/modules/module.py", 1190,
                                                                      "_call_impl", 9, FunctionKind::kModuleCall);
  const ObjectId linear = b.object("Linear");
  b.on(main).at(1'000).frame(module).at(2'000).annotation(1, "ProfilerStep#0");
  b.at(3'000).begin(call, linear).at(4'000).op(2, "aten::linear", {.sequence = 7, .handle = 31}).at(5'500).op_end(2);
  b.c_begin("<built-in function len>").at(5'750).c_end().at(6'001).end(call);
  b.on(engine).at(7'000).op(3, "autograd::engine::evaluate_function: AddmmBackward0", {.handle = 32});
  b.at(7'100)
      .op(4, "AddmmBackward0", {OpScope::kBackwardFunction, 7, 1, false, 33})
      .at(8'000)
      .op_end(4)
      .at(8'100)
      .op_end(3);
  b.on(main).at(9'000).op_end(1).at(9'500).op(5, "aten::add");
  b.clean_exit(10'000);
}

// Names that no format may let through as they are: quotes, control characters, bytes that are no UTF-8, lone
// surrogates as Python writes them (surrogatepass), a name without end, none at all.
inline void hostile(SpoolBuilder& b) {
  b.use_chunks_of(64 * 1024);
  const TrackId track = b.thread(100, "\x01\xff");
  const FunctionId f = b.function("C:\\x\"y\".py\n", 1, "\xc3(", 0);
  b.on(track).at(10).begin(f).op(1, "<\x7f\x1b[31m>").at(1010).op_end(1);
  b.op(2, std::string(kMaxString, '\x02')).at(2010).op_end(2).op(3, "").at(3010).op_end(3);
  b.op(4, "\xed\xa0\x80;;\t").at(4010).op_end(4).end(f);
}

}  // namespace torchprof::test
