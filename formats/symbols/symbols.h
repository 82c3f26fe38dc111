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
  std::string file;      // as the compiler had it; empty: not known
  uint32_t line = 0;
};

// What an address stands for, innermost first: functions that were inlined, then the one that they were inlined into.
// Empty: nothing is known.
using Place = std::vector<Symbol>;

// One place for each address, which are the file's own (NativeObjectDef::bias is taken off). `build_id` is its bytes;
// a file that has another one is not the one that ran: nothing is known of it. Empty: the file is taken as it is.
std::vector<Place> find_symbols(const std::string& file, const std::string& build_id,
                                std::span<const uint64_t> addresses);

// Whether debuginfod servers are asked: they may have what this machine has not.
bool asks_servers();

}  // namespace torchprof::formats
