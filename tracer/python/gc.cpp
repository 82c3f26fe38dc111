#include "tracer/python/gc.h"

#include <cstring>

#include "tracer/process/readable.h"
#include "tracer/python/offsets.h"
#include "tracer/python/site.h"
#include "tracer/session.h"

namespace torchprof::python {
namespace {

Object* g_theirs = nullptr;  // gc.callbacks as the program has it; our function holds a reference
Object* g_hidden = nullptr;

int64_t number(Object* info, const char* key) noexcept {
  Object* value = api().dict_get(info, key);  // borrowed
  return value ? api().as_long(value) : 0;
}

void record(const char* phase, Object* info) noexcept {
  const KeepError keep;
  ThreadBuffer* buffer = session::current_buffer();
  if (!buffer) return;
  // The numbers first: what asking for them makes and frees may be recorded (heap/heap.h).
  if (strcmp(phase, "start") == 0) {
    const auto generation = static_cast<uint32_t>(number(info, "generation"));
    put_line(*buffer);
    if (auto* begin = buffer->append<GcBegin>(session::now())) {
      begin->generation = generation;
      begin->pad = 0;
      buffer->commit();
    }
  } else if (strcmp(phase, "stop") == 0) {
    const int64_t collected = number(info, "collected"), uncollectable = number(info, "uncollectable");
    if (auto* end = buffer->append<GcEnd>(session::now())) {
      end->collected = collected;
      end->uncollectable = uncollectable;
      buffer->commit();
    }
  }
  api().error_clear();
}

// Reports an exception as the interpreter does: 3.14 names the callback in the message, earlier versions as the object.
void report(Object* callback) noexcept {
  if (api().minor >= 14 && api().format_unraisable)
    api().format_unraisable("Exception ignored while calling GC callback %R", callback);
  else
    api().write_unraisable(callback);
}

// (phase, info), as the interpreter calls every callback.
Object* on_gc(Object* theirs, Object* args) noexcept {
  Object* phase = api().tuple_get(args, 0);
  Object* info = api().tuple_get(args, 1);
  const char* text = phase ? api().utf8(phase, nullptr) : nullptr;
  if (text && info) record(text, info);
  for (Size i = 0; i < api().list_size(theirs); ++i) {
    Object* callback = api().list_get(theirs, i);
    api().incref(callback);
    const Ref holder(callback);
    const Ref result(api().call(callback, args));
    if (!result) report(callback);
  }
  api().incref(api().none);
  return api().none;
}

// gc.callbacks; a new reference. The program's sys.modules stays as it is.
Object* find_callbacks() noexcept {
  Object* known = api().dict_get(api().modules(), "gc");  // borrowed
  if (known) return api().get_attr(known, "callbacks");
  const Ref module(api().import_module("gc"));
  if (!module) return nullptr;
  api().dict_delete(api().modules(), "gc");
  return api().get_attr(module.get(), "callbacks");
}

// The interpreter's own pointer to the list; nullptr: there is none where it may be, or more than one.
Object** find_slot(const Object* callbacks) noexcept {
  auto* const interpreter = reinterpret_cast<char*>(api().main_interpreter());
  const CallbacksPlace place = callbacks_place();
  if (place.end <= place.begin || !Readable().bytes(interpreter + place.begin, place.end - place.begin)) return nullptr;
  Object** found = nullptr;
  for (size_t at = place.begin; at + sizeof(void*) <= place.end; at += sizeof(void*)) {
    if (read_pointer(interpreter, at) != callbacks) continue;
    if (found) return nullptr;
    found = reinterpret_cast<Object**>(interpreter + at);
  }
  return found;
}

bool hide_behind(Object** slot) noexcept {
  if (g_hidden && *slot == g_theirs) {  // in an earlier turn; what is ours lives as long as the process
    api().incref(g_hidden);
    *slot = g_hidden;
    api().decref(g_theirs);
    return true;
  }
  static MethodDef definition = {"torchprof_on_gc", reinterpret_cast<void*>(on_gc), kMethVarArgs, nullptr};
  const Ref function(api().function_new(&definition, *slot, nullptr));
  Ref list(function ? api().list_new(0) : static_cast<Object*>(nullptr));
  if (!list || api().list_append(list.get(), function.get()) != 0) return false;
  // So neither gc.get_objects() nor gc.get_referrers() shows them.
  api().gc_untrack(function.get());
  api().gc_untrack(list.get());
  g_theirs = *slot;
  g_hidden = list.release();
  api().incref(g_hidden);
  *slot = g_hidden;
  api().decref(g_theirs);  // the interpreter's reference; our function has its own until the interpreter ends
  return true;
}

}  // namespace

void start_gc() noexcept {
  const KeepError keep;
  const Ref callbacks(find_callbacks());
  Object** slot = callbacks ? find_slot(callbacks.get()) : nullptr;
  const bool is_known = slot != nullptr;
  const bool is_on = is_known && hide_behind(slot);
  session::note_source("gc", is_on ? SourceState::kOn : SourceState::kFailed,
                       is_on      ? "the interpreter's list of callbacks"
                       : is_known ? "out of memory"
                                  : "the interpreter does not keep gc.callbacks where this version looks for it");
  api().error_clear();
}

void stop_gc() noexcept {
  Object** slot = g_hidden ? find_slot(g_hidden) : nullptr;
  if (!slot) return;
  api().incref(g_theirs);
  *slot = g_theirs;
  api().decref(g_hidden);
}

void module_executed(Object* module) noexcept {
  if (!g_hidden) return;
  const KeepError keep;
  const Ref name(api().get_attr(module, "__name__"));
  const char* text = name ? api().utf8(name.get(), nullptr) : nullptr;
  if (text && strcmp(text, "gc") == 0) {
    const Ref shown(api().get_attr(module, "callbacks"));
    if (shown.get() == g_hidden) api().set_attr(module, "callbacks", g_theirs);
  }
  api().error_clear();
}

}  // namespace torchprof::python
