// Function, file and line of an address in an object file, with elfutils.
//
// Names come from the object's symbol tables (.symtab, .dynsym, .gnu_debugdata), lines and inlined functions from
// DWARF: its own, or where /usr/lib/debug or a debuginfod server (DEBUGINFOD_URLS) has it by the build id.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace torchprof::formats {

struct Symbol {
  std::string function;  // demangled; empty: not known
  std::string file;      // as the compiler recorded it; empty: not known
  uint32_t line = 0;
};

// What is at an address, innermost first: inlined functions, then the function that they were inlined into. Empty:
// nothing is known.
using Place = std::vector<Symbol>;

// One place for each address. Addresses are the file's own (less NativeObjectDef::bias). `build_id`: the bytes of the
// id of the file that ran; if `file` has another one, nothing is known of it; if `build_id` is empty, it is not
// compared.
std::vector<Place> find_symbols(const std::string& file, const std::string& build_id,
                                std::span<const uint64_t> addresses);

// Whether debuginfod servers are asked. They may know what this machine does not.
bool asks_servers();

}  // namespace torchprof::formats
