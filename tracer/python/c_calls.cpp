#include "tracer/python/c_calls.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "tracer/process/open_table.h"
#include "tracer/process/same_text.h"

namespace torchprof::python {
namespace {

using session::now;

bool is_c_function(Object* type) noexcept {
  return type == api().function_type || api().is_subtype(type, api().function_type);
}

// ---- the name -------------------------------------------------------------------------------------------------------

// As repr() has it, without the address: calls of one method on many objects have one name, the same in every process.

StringId name_of(const Callee& callee) noexcept {
  char text[512];
  const int length = callee.type
                         ? snprintf(text, sizeof(text), "<built-in method %s of %s object>", callee.name, callee.type)
                         : snprintf(text, sizeof(text), "<built-in function %s>", callee.name);
  if (length <= 0) return {};
  return session::intern({text, std::min(static_cast<size_t>(length), sizeof(text) - 1)});
}

// ---- the place ------------------------------------------------------------------------------------------------------

uint64_t hash_of(FunctionId function, uint32_t offset, uint64_t name) noexcept {
  const uint64_t h = (uint64_t{function.value} << 32 | offset) * 0x9e3779b97f4a7c15u;
  return (h ^ h >> 32) + name;
}

// Guarded by the GIL. Sites of code objects that have died stay, as their definitions do.
struct CallSite {
  FunctionId function;  // of the code object; unlike an address it is never used again
  uint32_t offset;
  StringId name;
  CallSiteId id;  // none: a free entry

  uint64_t hash() const noexcept { return hash_of(function, offset, name.value); }
  bool is_free() const noexcept { return !id; }
  bool is_dead() const noexcept { return false; }
};
OpenTable<CallSite> g_sites;

[[gnu::noinline, gnu::cold]] CallSiteId define_site(FunctionId function, StringId name,
                                                    const CallPlace& place) noexcept {
  if (!g_sites.reserve()) return {};
  int line = 0;
  if (place.frame && api().frame_line) line = api().frame_line(place.frame);
  if (!place.frame && api().code_line) line = api().code_line(place.code, static_cast<int>(place.offset));
  const CallSiteId id = session::define_call_site(name, function, line > 0 ? static_cast<uint32_t>(line) : 0);
  if (id) g_sites.add({function, place.offset, name, id});
  return id;
}

CallSiteId find_site(FunctionId function, StringId name, const CallPlace& place) noexcept {
  const CallSite* known = g_sites.find(hash_of(function, place.offset, name.value), [&](const CallSite& site) {
    return site.function == function && site.offset == place.offset && site.name == name;
  });
  if (known) [[likely]]
    return known->id;
  return function && name ? define_site(function, name, place) : CallSiteId{};
}

// What was called lately. A callee is recognised by the addresses of its texts and, since that memory may have been
// used again, by the texts themselves; so a hit does not need the whole name to be put together.
struct Recent {
  FunctionId function;
  uint32_t offset = 0;
  Callee callee;
  const char* name = nullptr;  // the same texts, which live as long as the process
  const char* type = nullptr;
  CallSiteId id;
};
// All zeros: a pointer in it would be relocated at the start of every process, also of one that is not traced.
constinit Recent g_recent[1024];

bool is_it(const Recent& recent, FunctionId function, const Callee& callee, const CallPlace& place) noexcept {
  return recent.function == function && recent.offset == place.offset && recent.callee.name == callee.name &&
         recent.callee.type == callee.type && same_text(recent.name, callee.name) &&
         (!callee.type || same_text(recent.type, callee.type));
}

[[gnu::noinline]] bool learn(Recent& recent, FunctionId function, const Callee& callee,
                             const CallPlace& place) noexcept {
  const auto* name = session::intern_text(callee.name);
  const auto* type = callee.type ? session::intern_text(callee.type) : name;
  const CallSiteId id = name && type ? find_site(function, name_of(callee), place) : CallSiteId{};
  if (id) recent = {function, place.offset, callee, name->text, type->text, id};
  return static_cast<bool>(id);
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

void begin_c_call(ThreadBuffer& buffer, const Callee& callee, const CallPlace& place) noexcept {
  const FunctionId function = function_of(place.code).id();
  const uint64_t hash = hash_of(function, place.offset, reinterpret_cast<uintptr_t>(callee.name) >> 4);
  Recent& recent = g_recent[hash % std::size(g_recent)];
  // The clock is read last, so that our own work is not part of the call.
  if (is_it(recent, function, callee, place) || learn(recent, function, callee, place)) [[likely]]
    put<CCallBeginAt>(buffer, recent.id.value, now());
  else
    put<CCallBegin>(buffer, name_of(callee).value, now());
}

void end_c_call(ThreadBuffer& buffer, Ticks time) noexcept {
  if (buffer.append<CCallEnd>(time)) buffer.commit();
}

}  // namespace torchprof::python
