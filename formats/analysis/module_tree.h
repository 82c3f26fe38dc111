// The modules of a process as they hold each other, and the parameters of modules and optimizers.
//
//   holder      of a module: the nearest module in the same root whose path is a beginning of its own. A module without
//               a path that is no root has none
//   parameters  of the module and of those inside it, as they were when last seen. A parameter of several modules
//               counts in each of them, and once in their holder
//   share       of an optimizer in a module: the bytes of its parameters in the module and those inside it, divided by
//               the bytes of all its parameters
//
// A parameter is identified by the address of its Python object. Modules that were never called are in the tree, too.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/trace/trace.h"
#include "formats/values/object_details.h"

namespace torchprof::formats {

class ModuleTree {
 public:
  struct Holding {
    uint64_t parameters = 0;  // number of elements in all of them
    uint64_t own = 0;         // the same without the modules inside
    int64_t bytes = 0;
  };
  using Shares = std::vector<std::pair<ObjectId, double>>;  // 0 to 1, by module

  explicit ModuleTree(const Process& process);

  ObjectId holder(ObjectId module) const {
    return module.value < holders_.size() ? holders_[module.value] : ObjectId{};
  }
  Holding holding(ObjectId module) const {
    return module.value < holdings_.size() ? holdings_[module.value] : Holding{};
  }
  Shares shares(ObjectId optimizer) const;

 private:
  struct Size {
    uint64_t numbers = 0;
    int64_t bytes = 0;
  };
  static Size size_of(const Parameter& parameter);
  void find_holders(const Process& process);
  void add_parameter(ObjectId module, const Parameter& parameter);

  const Process& process_;
  std::vector<ObjectId> holders_;  // by module
  std::vector<Holding> holdings_;
  std::unordered_map<uint64_t, std::vector<ObjectId>> holders_of_;  // by parameter: its modules, and their holders
};

}  // namespace torchprof::formats
