// Time by nn.Module: of its calls (forward), of the backward operators whose forward operator it called, and of its
// calls that a backward makes to compute again what it needs (activation checkpointing: recompute).
//
//   forward total    time in which a call of it was open; a call of it inside itself adds nothing
//   forward self     time in its calls without calls of other modules directly inside
//   backward self    self time of the backward operators of the operators that it called itself, without recompute
//   backward total   the same with all modules that are part of it: by their paths; those without a path are part of
//                    the module that first called them
//   recompute self   as forward self, of the calls that are made inside of a function of the autograd engine
//   recompute total  the same with all modules that are part of it
//
// No time counts twice. `calls` are those of the forward.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace torchprof::formats {

// Asks `find` for each path above `path`, from the longest to the root's empty one, and returns the first result that
// is not false.
template <class Find>
auto find_holder(std::string_view path, Find find) -> decltype(find(path)) {
  while (!path.empty()) {
    const size_t dot = path.rfind('.');
    path = dot == path.npos ? std::string_view{} : path.substr(0, dot);
    if (const auto holder = find(path)) return holder;
  }
  return {};
}

struct ModuleCosts {  // see module_costs.h
  int64_t gpu_forward_self_ns = 0;
  int64_t gpu_forward_total_ns = 0;
  int64_t gpu_backward_self_ns = 0;
  int64_t gpu_backward_total_ns = 0;
  int64_t gpu_recompute_self_ns = 0;
  int64_t gpu_recompute_total_ns = 0;
  int64_t optimizer_ns = 0;
  int64_t optimizer_gpu_ns = 0;
  uint64_t parameters = 0;
  uint64_t own_parameters = 0;
  int64_t parameter_bytes = 0;
  int64_t cpu_peak_bytes = 0;
  int64_t gpu_peak_bytes = 0;
  // For the same module in two processes: adds times, and takes the larger of sizes.
  ModuleCosts& operator+=(const ModuleCosts& other);
};

struct ModuleTally {
  std::string path;    // in its root, as in named_modules()
  std::string parent;  // name of the nearest called module that holds it; without a path, its first caller
  uint64_t calls = 0;
  int64_t forward_self_ns = 0;
  int64_t forward_total_ns = 0;
  int64_t backward_self_ns = 0;
  int64_t backward_total_ns = 0;
  int64_t recompute_self_ns = 0;
  int64_t recompute_total_ns = 0;
  std::optional<ModuleCosts> costs;  // if asked for
  int64_t self_ns() const { return forward_self_ns + backward_self_ns + recompute_self_ns; }
  int64_t total_ns() const { return forward_total_ns + backward_total_ns + recompute_total_ns; }
  ModuleTally& operator+=(const ModuleTally& other);
};
using ModuleTallies = std::unordered_map<std::string, ModuleTally>;  // by name: "nn.Module: Linear_0"

// Modules are small dense numbers of the caller's choice, from 1; 0 is none.
class ModuleCollector {
 public:
  // The texts count only the first time that `module` comes.
  void define(uint32_t module, std::string_view name, std::string_view path, std::string_view root);
  bool is_defined(uint32_t module) const { return module < modules_.size() && !modules_[module].name.empty(); }
  // `caller`: the module that made this call; 0: none.
  void call(uint32_t module, uint32_t caller, int64_t duration, int64_t self_ns, bool outermost);
  void backward(uint32_t module, int64_t self_ns);
  void recompute(uint32_t module, uint32_t caller, int64_t self_ns);
  // "Linear decoder.out": it stays the same if other modules are added or removed, so that runs can be compared.
  // Without a path the name as in define().
  std::string stable_name(uint32_t module) const;
  ModuleTallies finish();

 private:
  struct Module {
    std::string name;
    std::string root;
    uint32_t caller = 0;  // the first one
    bool is_called = false;
    ModuleTally tally;
  };
  using Places = std::unordered_map<std::string, uint32_t>;  // root and path
  static std::string place(std::string_view root, std::string_view path);
  void roll_up(uint32_t module, int64_t ns, int64_t ModuleTally::*total, const Places& places);
  uint32_t holder(uint32_t module, const Places& places) const;
  Module& at(uint32_t module);

  std::vector<Module> modules_;
};

}  // namespace torchprof::formats
