// Symbols that were found, beside the spools that need them: what is written of a run elsewhere has the names that the
// machine of the run gave.
//
// Text, fields separated by tabs: a head; "object", the build id in hex or "-" and the path; below it "at" and an
// address in hex; below that for each symbol, innermost first, "symbol", function, file and line. A file that is not
// like this is one without symbols.
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
