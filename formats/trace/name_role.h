// What the name of a slice says of it beyond its kind: of modules and optimizers what we and torch.profiler write, of
// ranges and operators what torch itself calls them. A role is what a name begins with.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace torchprof::formats {

enum class NameRole : uint8_t {
  kPlain,          // none of these
  kModule,         // a call of an nn.Module; as torch.profiler names it (torch/csrc/autograd/profiler_python.cpp)
  kOptimizer,      // a step of an optimizer, as a Python call; the name is ours
  kNode,           // what the autograd engine runs of a backward, with all that its function calls; torch 1.13 to 2.15
  kProfilerStep,   // a step of the program, by torch.profiler or by us (torch/profiler/profiler.py, 1.13 to 2.15)
  kOptimizerStep,  // a step of an optimizer, as an annotation (torch/optim/optimizer.py, 1.13 to 2.15)
  kZeroGrad,       // its zero_grad() (likewise)
  kLoading,        // a DataLoader's __next__ (torch/utils/data/dataloader.py, 1.13 to 2.15)
};

// What names of a role begin with, by role. None is the beginning of another.
inline constexpr std::array<std::string_view, 8> kNamePrefixes = {
    "",
    "nn.Module: ",
    "Optimizer: ",
    "autograd::engine::evaluate_function: ",
    "ProfilerStep#",
    "Optimizer.step#",
    "Optimizer.zero_grad#",
    "enumerate(DataLoader)#",
};

constexpr std::string_view prefix_of(NameRole role) { return kNamePrefixes[static_cast<size_t>(role)]; }

// Compares texts: where it is asked for each slice, Names and Timeline know the role of each of their names.
NameRole role_of_name(std::string_view text);

// The rest of a name of this role; any other text as it is.
constexpr std::string_view without_role(std::string_view text, NameRole role) {
  return text.substr(text.starts_with(prefix_of(role)) ? prefix_of(role).size() : 0);
}

}  // namespace torchprof::formats
