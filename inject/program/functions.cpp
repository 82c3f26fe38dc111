#include "inject/program/functions.h"

#include <climits>
#include <cstdio>
#include <cstring>

#include "inject/late/attach.h"
#include "inject/program/annotate.h"
#include "inject/program/annotations.h"
#include "tracer/config/config.h"
#include "tracer/process/diag.h"
#include "tracer/session.h"
#include "tracer/window.h"
#include "tracer/window_thread.h"

namespace torchprof::inject {
namespace of_program {
namespace {

using python::MethodDef;
using python::Object;
using python::Size;

// By name: where nothing is recorded, api() is not filled.
template <class F>
F find(const char* name) noexcept {
  return reinterpret_cast<F>(python::symbol(name));
}

Object* none() noexcept {
  static auto* const object = static_cast<Object*>(python::symbol("_Py_NoneStruct"));
  static const auto incref = find<void (*)(Object*)>("Py_IncRef");
  if (incref) incref(object);
  return object;
}

Object* text(const char* utf8) noexcept {
  const auto decode = find<Object* (*)(const char*, Size, const char*)>("PyUnicode_DecodeUTF8");
  return decode ? decode(utf8, static_cast<Size>(strlen(utf8)), "surrogateescape") : nullptr;
}

// nullptr: an error is set.
const char* bytes_of(Object* object) noexcept {
  const auto data = find<const char* (*)(Object*)>("PyBytes_AsString");
  return data ? data(object) : nullptr;
}

// nullptr: an error is set.
const char* text_of(Object* object) noexcept {
  static const auto utf8 = find<const char* (*)(Object*, Size*)>("PyUnicode_AsUTF8AndSize");
  return utf8 ? utf8(object, nullptr) : nullptr;
}

Object* attach(Object*, Object* settings) {
  const char* const lines = bytes_of(settings);
  if (!lines) return nullptr;
  const char* const answer = attach_from_program(lines);
  return answer ? text(answer) : none();
}

Object* check(Object*, Object* settings) {
  const char* const lines = bytes_of(settings);
  if (!lines) return nullptr;
  static Config config;  // under the GIL, and too large for a small stack
  char output[PATH_MAX];
  ErrorText error;
  if (read_settings(lines, config, output, error)) return text(output);
  auto* const* const kind = static_cast<Object* const*>(python::symbol("PyExc_ValueError"));
  const auto set = find<void (*)(Object*, Object*)>("PyErr_SetObject");
  const auto decref = find<void (*)(Object*)>("Py_DecRef");
  Object* const why = text(error.text);
  if (kind && set && why) set(*kind, why);
  if (why && decref) decref(why);
  return nullptr;
}

Object* recorded(Object*, Object*) {
  if (session::state() == session::State::kOff) return none();
  char directory[PATH_MAX];
  snprintf(directory, sizeof(directory), "%s", session::spool_directory());
  if (char* const slash = strrchr(directory, '/')) *slash = 0;
  return text(directory);
}

Object* truth(bool value) noexcept {
  const auto from = find<Object* (*)(long)>("PyBool_FromLong");
  return from ? from(value) : nullptr;
}

Object* leave(Object*, Object*) {
  const auto save = find<void* (*)()>("PyEval_SaveThread");
  const auto restore = find<void (*)(void*)>("PyEval_RestoreThread");
  if (!save || !restore) return truth(false);
  void* const thread = save();
  const bool has_left = window::leave_and_wait();
  restore(thread);
  return truth(has_left);
}

Object* set_window(Object*, Object* opens) {
  const auto is_true = find<int (*)(Object*)>("PyObject_IsTrue");
  if (!is_true) return nullptr;
  const KeepErrno keep;
  switch (window::set_at_once(is_true(opens) == 1)) {
    case window::Set::kDone:
      return text("done");
    case window::Set::kSame:
      return text("same");
    case window::Set::kBusy:
      return text("busy");
    case window::Set::kRefused:
      break;
  }
  const session::State state = session::state();
  if (state != session::State::kArmed && state != session::State::kCapturing)
    return text("nothing can be recorded any more");
  char why[512];
  snprintf(why, sizeof(why), "its window is %s; only `manual` and `auto` are opened by hand", session::config().window);
  return text(why);
}

Object* mark(Object*, Object* name) {
  if (annotations::is_idle()) return none();
  const char* const utf8 = text_of(name);
  if (!utf8) return nullptr;
  const KeepErrno keep;
  annotations::mark(utf8);
  return none();
}

Object* begin(Object*, Object* name) {
  const char* const utf8 = text_of(name);
  if (!utf8) return nullptr;
  const KeepErrno keep;
  const uint64_t key = annotations::is_idle() ? 0 : annotations::begin(utf8);
  const auto number = find<Object* (*)(unsigned long long)>("PyLong_FromUnsignedLongLong");
  return number ? number(key) : nullptr;
}

Object* end(Object*, Object* const* args, Size count) {
  const char* const utf8 = count == 2 ? text_of(args[0]) : nullptr;
  const auto number = find<unsigned long long (*)(Object*)>("PyLong_AsUnsignedLongLong");
  if (!utf8 || !number) return count == 2 ? nullptr : none();
  const KeepErrno keep;
  if (const uint64_t key = number(args[1]); key != 0) annotations::end(utf8, key);
  return none();
}

Object* annotate(Object*, Object* decorate) {
  Object* const function = annotate_function(decorate);
  return function ? function : none();
}

MethodDef* functions() noexcept {
  using python::kMethFastCall, python::kMethNoArgs, python::kMethO;
  const auto at = [](auto* function) { return reinterpret_cast<void*>(function); };
  static MethodDef all[] = {
      {"attach", at(attach), kMethO, nullptr},          {"check", at(check), kMethO, nullptr},
      {"recorded", at(recorded), kMethNoArgs, nullptr}, {"leave", at(leave), kMethNoArgs, nullptr},
      {"set_window", at(set_window), kMethO, nullptr},  {"begin", at(begin), kMethO, nullptr},
      {"end", at(end), kMethFastCall, nullptr},         {"mark", at(mark), kMethO, nullptr},
      {"annotate", at(annotate), kMethO, nullptr},      {}};
  return all;
}

}  // namespace
}  // namespace of_program

python::MethodDef* program_functions() noexcept { return of_program::functions(); }

}  // namespace torchprof::inject
