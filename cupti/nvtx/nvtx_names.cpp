#include "cupti/nvtx/nvtx_names.h"

#include <sys/mman.h>

#include <cstring>
#include <new>

#include "tracer/session.h"

namespace torchprof::nvtx {
namespace {

std::atomic<char*> g_memory{nullptr};
std::atomic<size_t> g_used{0};
std::atomic<Domain*> g_domains{nullptr};
constinit Domain g_default;

char* memory() noexcept {
  if (char* known = g_memory.load(std::memory_order_acquire)) return known;  // pairs with the compare_exchange below
  void* fresh = mmap(nullptr, kRoom, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (fresh == MAP_FAILED) return nullptr;
  char* expected = nullptr;
  // Pairs with the load above, and with itself, in other threads: the memory is mapped.
  // Pairs with the load above, and with this exchange where another thread was first.
  if (g_memory.compare_exchange_strong(expected, static_cast<char*>(fresh), std::memory_order_acq_rel))
    return static_cast<char*>(fresh);
  munmap(fresh, kRoom);
  return expected;
}

void* allocate(size_t bytes) noexcept {
  char* base = memory();
  bytes = (bytes + 7) & ~size_t{7};
  if (!base || bytes > kRoom) return nullptr;
  size_t used = g_used.load(std::memory_order_relaxed);
  do {
    if (used + bytes > kRoom) return nullptr;
  } while (!g_used.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return base + used;
}

// A new T with a copy of the text after it; nullptr: there is no room.
template <class T>
T* make(std::string_view text, Text T::*name) noexcept {
  text = text.substr(0, kMaxString);
  void* at = allocate(sizeof(T) + text.size() + 1);
  if (!at) return nullptr;
  T* made = new (at) T{};
  char* copy = static_cast<char*>(at) + sizeof(T);
  memcpy(copy, text.data(), text.size());  // the mapping is zeroed: the NUL is there
  (made->*name).text = copy;
  (made->*name).length = static_cast<uint32_t>(text.size());
  return made;
}

template <class T>
void put_in_front(std::atomic<T*>& list, T* made) noexcept {
  made->next = list.load(std::memory_order_relaxed);
  // Pairs with the loads in domain_named() and category_name(): the entry is filled, and leads to the next one.
  while (!list.compare_exchange_weak(made->next, made, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

struct Registered {
  Text text;
};

}  // namespace

Domain& default_domain() noexcept { return g_default; }

Domain* domain_named(std::string_view name) noexcept {
  // Pairs with put_in_front().
  // Pairs with the exchange in put_in_front(): the domain is whole.
  for (Domain* d = g_domains.load(std::memory_order_acquire); d; d = d->next)
    if (name == std::string_view(d->name.text, d->name.length)) return d;
  Domain* made = make(name, &Domain::name);
  if (made) put_in_front(g_domains, made);
  return made;
}

const Text* register_string(std::string_view text) noexcept {
  const Registered* made = make(text, &Registered::text);
  return made ? &made->text : nullptr;
}

void name_category(Domain& domain, uint32_t number, std::string_view name) noexcept {
  const Text* known = category_name(domain, number);
  if (known && name == std::string_view(known->text, known->length)) return;
  Category* made = make(name, &Category::name);
  if (!made) return;
  made->number = number;
  put_in_front(domain.categories, made);
}

const Text* category_name(const Domain& domain, uint32_t number) noexcept {
  // Pairs with put_in_front().
  // Pairs with the exchange in put_in_front(): the category is whole.
  for (const Category* c = domain.categories.load(std::memory_order_acquire); c; c = c->next)
    if (c->number == number) return &c->name;
  return nullptr;
}

StringId id_of(const Text& text) noexcept {
  if (const uint32_t known = text.id.load(std::memory_order_relaxed)) return {known};
  const StringId id = session::intern({text.text, text.length});
  text.id.store(id.value, std::memory_order_relaxed);
  return id;
}

size_t to_utf8(const wchar_t* wide, char* out, size_t size) noexcept {
  char* at = out;
  const char* end = out + size - 1;
  for (; *wide; ++wide) {
    uint32_t c;
    static_assert(sizeof(c) == sizeof(*wide));
    memcpy(&c, wide, sizeof(c));
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) c = 0xfffd;
    const int length = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    if (end - at < length) break;
    if (length == 1) {
      *at++ = static_cast<char>(c);
      continue;
    }
    constexpr uint8_t kLead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    *at++ = static_cast<char>(kLead[length] | c >> 6 * (length - 1));
    for (int i = length - 2; i >= 0; --i) *at++ = static_cast<char>(0x80 | (c >> 6 * i & 0x3f));
  }
  *at = 0;
  return static_cast<size_t>(at - out);
}

}  // namespace torchprof::nvtx
