// Redirects what loaded objects import, by their relocation entries (GOT and PLT slots).
//
// For symbols that a preloaded library cannot interpose because the executable itself defines them (a static libpython)
// and for the case where there is no preloading at all. Source: the ELF specification and its x86-64 and AArch64
// supplements; <link.h>, glibc.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torchprof::inject {

struct Redirect {
  const char* symbol;
  void* replacement;
};

// Visits the objects that have been loaded since the last call (all at the first) but the executable, the loader and
// ourselves, and points their imports of these symbols to the replacements. A slot in a read-only (RELRO) page is made
// writable for the moment of the store. One thread at a time; no lock is held while the program runs. Cheap where
// nothing was loaded.
void redirect_imports(const Redirect* redirects, size_t count) noexcept;

// The same for the objects that are linked with a library (DT_NEEDED), by the beginning of its file's name; each caller
// has its own `visited`.
struct Visited {
  uint64_t adds = 0;
  uint64_t subs = 0;
  size_t objects = 0;
};
void redirect_imports_of_users(const char* library, const Redirect* redirects, size_t count, Visited& visited) noexcept;

// The same for one library, by the beginning of its file's name ("libtorch_python.so"), wherever it stands in the order
// of loading. How many slots now hold a replacement.
size_t redirect_imports_of(const char* library, const Redirect* redirects, size_t count) noexcept;

// Libraries that were loaded with RTLD_LOCAL, by the beginning of their file's name.
bool is_loaded(const char* library) noexcept;
void* find_symbol(const char* library, const char* symbol) noexcept;  // nullptr: no such library or symbol

}  // namespace torchprof::inject
