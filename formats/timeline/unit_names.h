// What names of spans say about the calls that may be units (units.h).
//
//   "path(line): name"   a function of Python
//   "nn.Module: GPT_0"   a module: the first object of its class
#pragma once

#include <string_view>

#include "formats/timeline/timeline.h"

namespace torchprof::formats {

bool is_import(const TimelineSpan& s, std::string_view name);
// The code of the program that the interpreter was started with, a file or "-m". CPython's runpy.py, 3.10 to 3.15.
bool is_main_module(const TimelineSpan& s, std::string_view name);
// torch/_tensor.py and torch/autograd/__init__.py, 1.13 to 2.15.
bool is_backward_call(std::string_view name);
// Ranges that torch makes itself, 1.13 to 2.15.
bool is_torchs_range(std::string_view name);

struct FunctionText {       // of "path(line): name"
  std::string_view file{};  // without directories
  std::string_view name{};
};
FunctionText split_function(std::string_view text);

// The class of "nn.Module: GPT_0".
std::string_view module_class(std::string_view name);

}  // namespace torchprof::formats
