// A name for a module that stays the same if other modules are added or removed.
#pragma once

#include <string>

#include "formats/trace/name_role.h"

namespace torchprof::formats {

// "Linear decoder.out" of "nn.Module: Linear_0" and its path; without a path "Linear_0".
inline std::string stable_module_name(const std::string& name, const std::string& path) {
  const std::string plain(without_role(name, NameRole::kModule));
  return path.empty() ? plain : plain.substr(0, plain.rfind('_')) + " " + path;
}

}  // namespace torchprof::formats
