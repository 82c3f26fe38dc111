// A file beside the spools with the symbols that were found for them, so that an export on another machine has the
// names that were found on the run's own.
//
// Lines of fields that are separated by tabs. A file of another form counts as one without symbols.
//
//   torchprof symbols 1
//   object  BUILD-ID  PATH              the id in hex; "-" if there is none
//   at      ADDRESS                     in the object above, in hex
//   symbol  FUNCTION  FILE  LINE        at the address above, innermost first
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "formats/symbols/symbols.h"

namespace torchprof::formats {

struct SymbolFile {
  using Object = std::pair<std::string, std::string>;  // bytes of the build id, path
  std::map<Object, std::map<uint64_t, Place>> objects;

  size_t count() const;  // of addresses
  static SymbolFile read(const std::filesystem::path& file);
  void write(const std::filesystem::path& file) const;  // throws Error
};

std::string hex_of(std::string_view bytes);  // two digits each

}  // namespace torchprof::formats
