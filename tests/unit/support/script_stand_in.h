// A stand-in for what torch exports of its TorchScript interpreter, with made-up functions; built for both ABIs of
// std::string.
#pragma once

#include <cstddef>

namespace script_stand_in {

struct StandIn {
  void* current;  // as torch::jit::currentCallstack()
  void* prepare;  // as torch::profiler::impl::prepareCallstack()
  size_t string;  // sizeof(std::string)
  // Number of objects that were handed out and not given back.
  long (*owned)();
  // What the next calls return: functions, innermost first, the first `without_file` of which have no file; or lines
  // that cannot be.
  void (*set)(size_t functions, size_t without_file, bool is_wrong);
};

namespace old_abi {
StandIn stand_in();
}
namespace new_abi {
StandIn stand_in();
}

}  // namespace script_stand_in
