#include "formats/symbols/demangle.h"

#include <cxxabi.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>

#include "formats/symbols/mangled_size.h"

namespace torchprof::formats {

std::string demangle(std::string name) {
  constexpr size_t kLongest = 1024;  // libstdc++ does not take longer ones
  constexpr uint64_t kLargest = uint64_t{1} << 20;
  if (!name.starts_with("_Z") || name.size() > kLongest || name.find('\0') != name.npos) return name;
  const std::optional<uint64_t> size = NameMeasure(name).run();
  if (!size || *size > kLargest) return name;
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                    std::free);
  return status == 0 && text ? text.get() : name;
}

}  // namespace torchprof::formats
