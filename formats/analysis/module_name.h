// A name for a module that stays the same if other modules are added or removed.
#pragma once

#include <string>

#include "formats/trace/names.h"

namespace torchprof::formats {

// "Linear decoder.out" of "nn.Module: Linear_0" and its path; without a path "Linear_0".
inline std::string stable_module_name(const std::string& name, const std::string& path) {
  const std::string plain = name.substr(name.starts_with(kModulePrefix) ? kModulePrefix.size() : 0);
  return path.empty() ? plain : plain.substr(0, plain.rfind('_')) + " " + path;
}

}  // namespace torchprof::formats
