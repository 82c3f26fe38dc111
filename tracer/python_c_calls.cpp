#include "tracer/python_c_calls.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string_view>

namespace torchprof::python {
namespace {

using session::now;

bool is_c_function(Object* type) noexcept {
  return type == api().function_type || api().is_subtype(type, api().function_type);
}

// ---- the name: as repr() has it, without the address. Calls of one method on many objects are one name, and the same
// in every process.

constexpr std::string_view kFunctionHead = "<built-in function ", kMethodHead = "<built-in method ", kOf = " of ";

// Compares piece by piece, so that a name that was seen before is found without being put together.
bool is_name(const char* text, const Callee& callee) noexcept {
  const std::string_view head = callee.type ? kMethodHead : kFunctionHead;
  if (strncmp(text, head.data(), head.size()) != 0) return false;
  text += head.size();
  const size_t length = strlen(callee.name);
  if (strncmp(text, callee.name, length) != 0) return false;
  text += length;
  if (!callee.type) return strcmp(text, ">") == 0;
  if (strncmp(text, kOf.data(), kOf.size()) != 0) return false;
  text += kOf.size();
  const size_t type_length = strlen(callee.type);
  return strncmp(text, callee.type, type_length) == 0 && strcmp(text + type_length, " object>") == 0;
}

[[gnu::noinline]] StringId make_name(const Callee& callee, ThreadBuffer::Name& slot) noexcept {
  char text[512];
  const int length = callee.type ? snprintf(text, sizeof(text), "%s%s%s%s object>", kMethodHead.data(), callee.name,
                                            kOf.data(), callee.type)
                                 : snprintf(text, sizeof(text), "%s%s>", kFunctionHead.data(), callee.name);
  if (length <= 0) return {};
  return session::intern_into(slot, callee.name, {text, std::min(static_cast<size_t>(length), sizeof(text) - 1)});
}

StringId name_of(ThreadBuffer& buffer, const Callee& callee) noexcept {
  const auto place = reinterpret_cast<uintptr_t>(callee.name) ^ reinterpret_cast<uintptr_t>(callee.type);
  ThreadBuffer::Name& known = session::slot_of(buffer, place);
  if (known.place == callee.name && is_name(known.text, callee)) [[likely]]
    return known.id;
  return make_name(callee, known);
}

// ---- the place
// --------------------------------------------------------------------------------------------------------

// Open addressing, at most half full. Sites of code objects that have died stay, as their definitions do.
struct Site {
  FunctionId function;  // of the code object: unlike its address it is never used again
  uint32_t offset;
  StringId name;
  CallSiteId id;  // none: a free entry
};
Site* g_sites = nullptr;
uint64_t g_mask = 0;
uint64_t g_used = 0;

uint64_t hash_of(FunctionId function, uint32_t offset, StringId name) noexcept {
  const uint64_t h = (uint64_t{function.value} << 32 | offset) * 0x9e3779b97f4a7c15u;
  return (h ^ h >> 32) + name.value;
}

bool grow() noexcept {
  constexpr uint64_t kFirst = 4096;
  const uint64_t size = g_sites ? (g_mask + 1) * 2 : kFirst;
  void* memory = mmap(nullptr, size * sizeof(Site), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  auto* sites = static_cast<Site*>(memory);
  for (uint64_t k = 0; g_sites && k <= g_mask; ++k) {
    const Site& site = g_sites[k];
    if (!site.id) continue;
    uint64_t i = hash_of(site.function, site.offset, site.name);
    while (sites[i & (size - 1)].id) ++i;
    sites[i & (size - 1)] = site;
  }
  if (g_sites) munmap(g_sites, (g_mask + 1) * sizeof(Site));
  g_sites = sites;
  g_mask = size - 1;
  return true;
}

[[gnu::noinline, gnu::cold]] CallSiteId define_site(FunctionId function, StringId name, const Place& place) noexcept {
  if ((!g_sites || g_used * 2 > g_mask) && !grow()) return {};
  int line = 0;
  if (place.frame && api().frame_line) line = api().frame_line(place.frame);
  if (!place.frame && api().code_line) line = api().code_line(place.code, static_cast<int>(place.offset));
  const CallSiteId id = session::define_call_site(name, function, line > 0 ? static_cast<uint32_t>(line) : 0);
  if (!id) return {};
  uint64_t i = hash_of(function, place.offset, name);
  while (g_sites[i & g_mask].id) ++i;
  g_sites[i & g_mask] = {function, place.offset, name, id};
  ++g_used;
  return id;
}

CallSiteId site_of(StringId name, const Place& place) noexcept {
  const FunctionId function = function_of(place.code).id();
  if (g_sites) [[likely]] {
    for (uint64_t i = hash_of(function, place.offset, name);; ++i) {
      const Site& site = g_sites[i & g_mask];
      if (!site.id) break;
      if (site.function == function && site.offset == place.offset && site.name == name) [[likely]]
        return site.id;
    }
  }
  return function && name ? define_site(function, name, place) : CallSiteId{};
}

template <class R>
void put(ThreadBuffer& buffer, uint32_t id, Ticks time) noexcept {
  if (buffer.put_short(kShortKindOf<R>, id, time)) [[likely]]
    return;
  if (auto* record = buffer.append<R>(time)) {
    *record = {record->header, {id}, 0};
    buffer.commit();
  }
}

}  // namespace

Callee callee_of(Object* callable) noexcept {
  Object* type = type_of(callable);
  if (type == api().method_type) {  // a bound method around a C function: classmethod(repr)
    callable = method_function(callable);
    type = type_of(callable);
  }
  if (type == api().method_descriptor_type)
    return {descriptor_def(callable)->name, type_name(descriptor_owner(callable))};
  if (!is_c_function(type)) return {};
  Object* self = function_owner(callable);
  const char* owner = self ? type_name(type_of(self)) : nullptr;
  const bool is_function = !owner || strcmp(owner, "module") == 0;
  return {function_def(callable)->name, is_function ? nullptr : owner};
}

void begin_c_call(ThreadBuffer& buffer, const Callee& callee, const Place& place) noexcept {
  const StringId name = name_of(buffer, callee);
  const CallSiteId site = place.code ? site_of(name, place) : CallSiteId{};
  // The clock is read last, so that our own work is not part of the call.
  if (site) [[likely]]
    put<CCallBeginAt>(buffer, site.value, now());
  else
    put<CCallBegin>(buffer, name.value, now());
}

void end_c_call(ThreadBuffer& buffer, Ticks time) noexcept {
  if (buffer.append<CCallEnd>(time)) buffer.commit();
}

}  // namespace torchprof::python
