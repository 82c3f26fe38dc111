// What NVTX has handles for: domains, their categories, registered strings. Kept as long as the process lives, like
// names (tracer/strings.h); kRoom limits their size.
//
// Threads: any. No lock, and not the program's allocator: memory comes from one mapping, and lists only grow at their
// front. A forked child has them all.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "cupti/nvtx/nvtx_abi.h"
#include "tracer/spool/ids.h"

namespace torchprof::nvtx {

struct Text {
  mutable std::atomic<uint32_t> id{0};  // StringId, once it was needed: the spool may open later
  uint32_t length = 0;
  const char* text = "";  // NUL-terminated
};

struct Category {
  uint32_t number;
  Text name;
  Category* next;
};

struct Domain {
  Text name;
  std::atomic<Category*> categories{nullptr};  // a list that only grows at its front
  Domain* next = nullptr;
};

inline constexpr size_t kRoom = size_t{8} << 20;  // bytes of all names; mapped when the first one comes

// The domain of this name, a new one if there is none. nullptr (which means the default domain): there is no room.
Domain* domain_named(std::string_view name) noexcept;
Domain& default_domain() noexcept;
// nullptr: there is no room.
const Text* register_string(std::string_view text) noexcept;
void name_category(Domain& domain, uint32_t number, std::string_view name) noexcept;
// nullptr: it has no name.
const Text* category_name(const Domain& domain, uint32_t number) noexcept;

// The id of a text; none: nothing can be recorded. Hot: interned only once.
StringId id_of(const Text& text) noexcept;

// Writes a wide string as UTF-8, NUL-terminated, cut to `size`; invalid characters become U+FFFD. Returns the bytes
// written.
size_t to_utf8(const wchar_t* wide, char* out, size_t size) noexcept;

}  // namespace torchprof::nvtx
