#include "inject/program/annotate.h"

#include <pthread.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

#include "inject/program/annotations.h"
#include "tracer/process/diag.h"

namespace torchprof::inject {
namespace of_annotations {
namespace {

using python::api;
using python::MethodDef;
using python::Object;
using python::Size;

struct Annotation {
  uintptr_t header[2];  // PyObject of a plain build
  Object* name;
  // The uses that have begun and not ended; of more than fit the oldest are forgotten, and end with what is around
  // them.
  static constexpr size_t kMostUses = 4;
  size_t use_count;
  struct Use {
    uint64_t key;
    pthread_t thread;
  } uses[kMostUses];
};

Object* g_annotation_type = nullptr;  // in the interpreter in which all of these were made; nullptr: in none
Object* g_enter_nothing = nullptr;
Object* g_exit_nothing = nullptr;
Object* g_enter_of = nullptr;  // of an Annotation that is the argument
Object* g_exit_of = nullptr;
Object* (*g_new_object)(Object* type, Size) = nullptr;  // PyType_GenericAlloc
void (*g_free)(void*) = nullptr;                        // PyObject_Free
Object* g_text_type = nullptr;

// Those that were given while nobody listened, by the place of their name.
constexpr size_t kKnown = 64;
Annotation* g_known[kKnown] = {};

Object* taken(Object* object) noexcept {
  api().incref(object);
  return object;
}

// The same of an object that we have made. PyObject.ob_refcnt begins it, in its lowest 32 bits or in all 64 (object.h,
// 3.10 to 3.15); more than 2^30 references make it immortal, and nobody has as many.
Object* taken_quickly(Object* object) noexcept {
  ++*reinterpret_cast<uint64_t*>(object);
  return object;
}

// None is immortal since 3.12 (PEP 683).
bool g_counts_none = true;
Object* none() noexcept { return g_counts_none ? taken(api().none) : api().none; }

const char* text_of(const Annotation& annotation) noexcept {
  const char* const text = api().utf8(annotation.name, nullptr);
  if (text) return text;
  api().error_clear();  // it has lone surrogates
  return "?";
}

// ---- a use ----------------------------------------------------------------------------------------------------------

Object* begin_use(Object* self, Object*) {
  const KeepErrno keep;
  Annotation& annotation = *reinterpret_cast<Annotation*>(self);
  const uint64_t key = annotations::begin(text_of(annotation));
  if (annotation.use_count == Annotation::kMostUses) {
    std::copy(std::begin(annotation.uses) + 1, std::end(annotation.uses), std::begin(annotation.uses));
    --annotation.use_count;
  }
  annotation.uses[annotation.use_count++] = {key, pthread_self()};
  return none();
}

// Of this thread the last one; of another only where this one has none.
uint64_t take_use(Annotation& annotation) noexcept {
  size_t at = annotation.use_count;
  if (at == 0) return 0;
  const pthread_t self = pthread_self();
  while (at > 0 && annotation.uses[at - 1].thread != self) --at;
  if (at == 0) at = annotation.use_count;
  const uint64_t key = annotation.uses[at - 1].key;
  std::copy(annotation.uses + at, annotation.uses + annotation.use_count, annotation.uses + at - 1);
  --annotation.use_count;
  return key;
}

Object* end_use(Object* self, Object* const*, Size) {
  const KeepErrno keep;
  Annotation& annotation = *reinterpret_cast<Annotation*>(self);
  if (const uint64_t key = take_use(annotation); key != 0) annotations::end(text_of(annotation), key);
  return none();
}

bool is_annotation(Object* object) noexcept { return object && python::type_of(object) == g_annotation_type; }

Object* enter_of(Object*, Object* annotation) {
  return is_annotation(annotation) && !annotations::is_idle() ? begin_use(annotation, nullptr) : none();
}
Object* exit_of(Object*, Object* const* args, Size count) {
  return count > 0 && is_annotation(args[0]) ? end_use(args[0], nullptr, 0) : none();
}
Object* enter_nothing(Object*, Object*) { return none(); }
Object* exit_nothing(Object*, Object* const*, Size) { return none(); }

template <class F>
constexpr MethodDef function(const char* name, F* at, int flags) noexcept {
  return {name, reinterpret_cast<void*>(at), flags, nullptr};
}

// ---- what `with` looks up -------------------------------------------------------------------------------------------

// descriptor.__get__(object, type): a method of the object, or what does nothing. `with` takes both methods before it
// calls the first one.
Object* get_enter(Object*, Object* object, Object*) {
  static MethodDef definition = function("__enter__", begin_use, python::kMethNoArgs);
  if (!object) return taken(g_enter_of);
  return annotations::is_idle() ? taken_quickly(g_enter_nothing) : api().function_new(&definition, object, nullptr);
}
Object* get_exit(Object*, Object* object, Object*) {
  static MethodDef definition = function("__exit__", end_use, python::kMethFastCall);
  if (!object) return taken(g_exit_of);
  const bool is_open = reinterpret_cast<Annotation*>(object)->use_count > 0;
  return annotations::is_idle() && !is_open ? taken_quickly(g_exit_nothing)
                                            : api().function_new(&definition, object, nullptr);
}

// ---- annotate(name) -------------------------------------------------------------------------------------------------

Annotation* new_annotation(Object* name) noexcept {
  auto* const annotation = reinterpret_cast<Annotation*>(g_new_object(g_annotation_type, 0));
  if (annotation) annotation->name = taken(name);
  return annotation;
}

void free_annotation(Object* self) {
  Object* const type = python::type_of(self);
  api().decref(reinterpret_cast<Annotation*>(self)->name);
  g_free(self);
  api().decref(type);  // an object of a type that was made holds it
}

// An error is set where `name` is no text.
bool is_text(Object* name) noexcept {
  if (python::is_a(name, g_text_type)) return true;
  const python::Ref wrong(api().encode(name, nullptr, nullptr));  // raises TypeError
  return false;
}

[[gnu::noinline]] Object* annotate_anew(Annotation*& known, Object* name) noexcept {
  if (!is_text(name)) return nullptr;
  Annotation* const annotation = new_annotation(name);
  if (!annotation || !annotations::is_idle()) return reinterpret_cast<Object*>(annotation);
  Annotation* const before = known;
  known = annotation;
  if (before) api().decref(reinterpret_cast<Object*>(before));
  return taken(reinterpret_cast<Object*>(annotation));
}

Object* annotate(Object*, Object* name) {
  constexpr uintptr_t kObjectBytes = 16;  // what objects are aligned to
  Annotation*& known = g_known[reinterpret_cast<uintptr_t>(name) / kObjectBytes % kKnown];
  if (annotations::is_idle() && known && known->name == name) [[likely]]
    return taken_quickly(reinterpret_cast<Object*>(known));
  return annotate_anew(known, name);
}

// ---- making them ----------------------------------------------------------------------------------------------------

struct Member {  // PyMemberDef
  const char* name;
  int type;
  Size offset;
  int flags;
  const char* doc;
};
struct Slot {  // PyType_Slot
  int slot;
  const void* function;
};
struct Spec {  // PyType_Spec
  const char* name;
  int basic_size;
  int item_size;
  unsigned flags;
  const Slot* slots;
};
// typeslots.h, stable ABI.
constexpr int kTpDealloc = 52, kTpDescrGet = 54, kTpMembers = 72;
// Py_TPFLAGS_DISALLOW_INSTANTIATION, object.h, 3.10 and later. Py_TPFLAGS_DEFAULT is 0 here.
constexpr unsigned kMadeByUsAlone = 1u << 7;

Object* new_annotation_type() noexcept {
  static constexpr int kObjectMember = 16, kReadOnly = 1;  // T_OBJECT_EX, READONLY: structmember.h
  static const Member members[] = {{"name", kObjectMember, offsetof(Annotation, name), kReadOnly, "what is recorded"},
                                   {}};
  static const Slot slots[] = {{kTpMembers, members}, {kTpDealloc, reinterpret_cast<const void*>(free_annotation)}, {}};
  static Spec spec = {"torchprof.Annotation", sizeof(Annotation), 0, kMadeByUsAlone, slots};
  return api().type_from_spec(&spec);
}

// An object whose __get__ is `get`.
Object* new_descriptor(Object* (*get)(Object*, Object*, Object*)) noexcept {
  const Slot slots[] = {{kTpDescrGet, reinterpret_cast<const void*>(get)}, {}};
  Spec spec = {"torchprof.method", sizeof(Annotation::header), 0, 0, slots};
  const python::Ref type(api().type_from_spec(&spec));
  return type ? api().call(type.get(), nullptr) : nullptr;
}

// The interpreter has ended, and its objects with it.
void forget() {
  g_annotation_type = nullptr;
  std::fill(std::begin(g_known), std::end(g_known), nullptr);
}

bool has_made(Object* decorate) noexcept {
  static MethodDef nothing_at_enter = function("__enter__", enter_nothing, python::kMethNoArgs);
  static MethodDef nothing_at_exit = function("__exit__", exit_nothing, python::kMethFastCall);
  static MethodDef of_enter = function("__enter__", enter_of, python::kMethO);
  static MethodDef of_exit = function("__exit__", exit_of, python::kMethFastCall);
  g_new_object = reinterpret_cast<Object* (*)(Object*, Size)>(python::symbol("PyType_GenericAlloc"));
  g_free = reinterpret_cast<void (*)(void*)>(python::symbol("PyObject_Free"));
  g_text_type = static_cast<Object*>(python::symbol("PyUnicode_Type"));
  const python::Ref type(new_annotation_type()), at_enter(new_descriptor(get_enter)), at_exit(new_descriptor(get_exit));
  g_enter_nothing = api().function_new(&nothing_at_enter, nullptr, nullptr);
  g_exit_nothing = api().function_new(&nothing_at_exit, nullptr, nullptr);
  g_enter_of = api().function_new(&of_enter, nullptr, nullptr);
  g_exit_of = api().function_new(&of_exit, nullptr, nullptr);
  if (!g_new_object || !g_free || !g_text_type || !type || !at_enter || !at_exit || !g_enter_nothing ||
      !g_exit_nothing || !g_enter_of || !g_exit_of)
    return false;
  for (const auto& [name, value] :
       {std::pair("__enter__", at_enter.get()), std::pair("__exit__", at_exit.get()), std::pair("__call__", decorate)})
    if (api().set_attr(type.get(), name, value) != 0) return false;
  g_annotation_type = taken(type.get());
  g_counts_none = api().minor < 12;
  if (api().at_exit) api().at_exit(forget);
  return true;
}

}  // namespace
}  // namespace of_annotations

python::Object* annotate_function(python::Object* decorate) noexcept {
  using namespace of_annotations;
  const KeepErrno keep;
  const char* why = nullptr;
  if (!python::load(&why) || api().current_interpreter() != api().main_interpreter()) return nullptr;
  if (!g_annotation_type && !has_made(decorate)) {
    api().error_clear();
    return nullptr;
  }
  static MethodDef definition = function("annotate", annotate, python::kMethO);
  return api().function_new(&definition, nullptr, nullptr);
}

}  // namespace torchprof::inject
