// Redirects what loaded objects import, through their relocation entries (GOT and PLT slots).
//
// Needed for symbols that a preloaded library cannot interpose because the executable itself defines them (a static
// libpython), and where the library was not preloaded at all. Source: the ELF specification and its x86-64 and AArch64
// supplements; <link.h>, glibc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tracer/processor/call_sites.h"

namespace torchprof::inject {

struct Redirect {
  const char* symbol;
  void* replacement;
};

// Visits the objects that have been loaded since the last call (at the first call all), except for the executable, the
// loader and ourselves, and points their imports of these symbols to the replacements. A slot in a read-only (RELRO)
// page is made writable for the store. One thread at a time; no lock is held while the program runs. Cheap where
// nothing was loaded.
void redirect_imports(const Redirect* redirects, size_t count) noexcept;

// The same for objects that are linked with a library (DT_NEEDED). `library`: the beginning of its file name. Each
// caller has its own `visited`.
struct Visited {
  uint64_t adds = 0;
  uint64_t subs = 0;
  size_t objects = 0;
};
void redirect_imports_of_users(const char* library, const Redirect* redirects, size_t count, Visited& visited) noexcept;
// The same for all objects and the executable, whose own imports are looked at where nothing could be preloaded.
void redirect_imports_of_all(const Redirect* redirects, size_t count, Visited& visited) noexcept;

// The same for the imports of one library, by the beginning of its file name ("libtorch_python.so"), whenever it was
// loaded. Returns how many slots now have a replacement.
size_t redirect_imports_of(const char* library, const Redirect* redirects, size_t count) noexcept;

// In every object but the loader and ourselves: entries of relocation tables that hold `from` hold `to` from now on.
// redirect_imports() then looks at all objects again.
struct Swap {
  void* from;
  void* to;
};
void swap_imports(const Swap* swaps, size_t count) noexcept;

// Where one library's imports of a symbol lie, and its code. Empty: there is no such library or import.
struct ImportSlots {
  static constexpr size_t kMost = 8;
  const void* slots[kMost] = {};
  size_t count = 0;
  processor::Code code[kMost] = {};  // segments that can be executed and read
  size_t code_count = 0;
};
ImportSlots find_imports_of(const char* library, const char* symbol) noexcept;

// Also find a library that was loaded with RTLD_LOCAL, by the beginning of its file name.
bool is_loaded(const char* library) noexcept;
void* find_symbol(const char* library, const char* symbol) noexcept;  // nullptr: no such library or symbol

}  // namespace torchprof::inject
