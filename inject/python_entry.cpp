#include "inject/python_entry.h"

#include <dlfcn.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "inject/entry.h"
#include "inject/imports.h"
#include "tracer/diag.h"
#include "tracer/python_calls.h"
#include "tracer/session.h"
#include "tracer/torch_ops.h"

namespace torchprof::inject {
namespace {

using python::api;
using python::MethodDef;
using python::Object;

struct BuiltinModule {  // struct _inittab, Include/import.h, since 2.x
  const char* name;
  Object* (*init)();
};

constexpr size_t kMaxBuiltins = 256;
BuiltinModule g_builtins[kMaxBuiltins];
Object* (*g_posix_init)() = nullptr;

int enter_at_safe_point(void*) {
  enter();
  return 0;
}

Object* init_posix() {
  // Only the first interpreter of the process; a subinterpreter initialises "posix" again.
  static bool asked = false;
  using AddPendingCall = int (*)(int (*)(void*), void*);
  if (const auto add = reinterpret_cast<AddPendingCall>(dlsym(RTLD_DEFAULT, "Py_AddPendingCall")); add && !asked) {
    asked = true;
    add(enter_at_safe_point, nullptr);
  }
  return g_posix_init();
}

// ---- steps behind built-in functions
// ---------------------------------------------------------------------------------------

using FastFunction = Object* (*)(Object* self, Object* const* args, python::Size count);
using Function = Object* (*)(Object* self, Object* args);

FastFunction g_create_dynamic = nullptr;
Function g_start_new_thread = nullptr;
Function g_setprofile = nullptr;

// 3.10 and 3.11: a thread that was not made by Python takes the GIL in one of these two ways (autograd's threads,
// ctypes callbacks, pybind11). sys.monitoring needs none of this.
using Ensure = int (*)();
using AcquireThread = void (*)(python::ThreadState*);
Ensure g_ensure = nullptr;
AcquireThread g_acquire_thread = nullptr;

int ensure() {
  const int state = g_ensure();
  python::cover_this_thread();
  return state;
}

void acquire_thread(python::ThreadState* thread) {
  g_acquire_thread(thread);
  python::cover_this_thread();
}

void redirect_thread_entries() noexcept {
  const Redirect redirects[] = {{"PyGILState_Ensure", reinterpret_cast<void*>(ensure)},
                                {"PyEval_AcquireThread", reinterpret_cast<void*>(acquire_thread)}};
  if (g_ensure && g_acquire_thread) redirect_imports(redirects, std::size(redirects));
}

// _imp.create_dynamic(spec, file=None): an extension module has been loaded, perhaps torch's.
Object* create_dynamic(Object* self, Object* const* args, python::Size count) {
  Object* module = g_create_dynamic(self, args, count);
  redirect_thread_entries();
  torch::attach_if_loaded();
  return module;
}

// _thread.start_new_thread(function, args[, kwargs]): the new thread's state exists, and waits for the GIL that we
// hold.
Object* start_new_thread(Object* self, Object* args) {
  Object* id = g_start_new_thread(self, args);
  if (id) python::cover_threads();
  return id;
}

// sys.setprofile(function): None gives the thread back.
Object* setprofile(Object* self, Object* function) {
  Object* result = g_setprofile(self, function);
  if (result && function == api().none) python::cover_this_thread();
  return result;
}

// Puts `ours` into the method table of a built-in function. False: it is not what we know, or not there.
template <class F>
bool put_behind(const char* module_name, const char* name, F ours, F& theirs) noexcept {
  Object* module = api().dict_get(api().modules(), module_name);  // borrowed
  const python::Ref function(module ? api().get_attr(module, name) : nullptr);
  if (!function || python::type_of(function.get()) != api().function_type) {
    api().error_clear();
    return false;
  }
  MethodDef* definition = python::function_def(function.get());
  void* known = api().function_pointer(function.get());
  if (definition->function != known || strcmp(definition->name, name) != 0) return false;
  if (known == reinterpret_cast<void*>(ours)) return true;
  theirs = reinterpret_cast<F>(known);
  definition->function = reinterpret_cast<void*>(ours);
  return true;
}

int on_audit(const char* event, Object*, void*) {
  if (strcmp(event, "import") == 0) torch::attach_if_loaded();
  return 0;
}

void watch_imports_by_audit() noexcept {
  using AddAuditHook = int (*)(int (*)(const char*, Object*, void*), void*);
  if (const auto add = reinterpret_cast<AddAuditHook>(dlsym(RTLD_DEFAULT, "PySys_AddAuditHook")))
    add(on_audit, nullptr);
}

// Where sitecustomize.py lies: a program started with -S would keep this entry in sys.path, and nobody needs it once we
// are in.
void leave_sys_path() noexcept {
  Dl_info self;
  if (!dladdr(reinterpret_cast<void*>(&init_posix), &self) || !self.dli_fname) return;
  char directory[PATH_MAX];
  const char* slash = strrchr(self.dli_fname, '/');
  if (!slash) return;
  snprintf(directory, sizeof(directory), "%.*s/python", static_cast<int>(slash - self.dli_fname), self.dli_fname);
  Object* path = api().sys_object("path");
  for (python::Size i = path ? api().list_size(path) : 0; i-- > 0;) {
    Object* entry = api().list_get(path, i);
    const char* text = entry ? api().utf8(entry, nullptr) : nullptr;
    if (text && strcmp(text, directory) == 0) api().list_set_slice(path, i, i + 1, nullptr);
  }
  api().error_clear();
}

}  // namespace

bool hook_start() noexcept {
  auto** table = static_cast<BuiltinModule**>(dlsym(RTLD_DEFAULT, "PyImport_Inittab"));
  if (!table || !*table) return false;
  size_t count = 0;
  bool found = false;
  for (const BuiltinModule* m = *table; m->name && count + 1 < kMaxBuiltins; ++m) {
    g_builtins[count] = *m;
    if (strcmp(m->name, "posix") == 0) {
      g_posix_init = m->init;
      g_builtins[count].init = init_posix;
      found = true;
    }
    ++count;
  }
  if (!found || (*table)[count].name) return false;
  g_builtins[count] = {};
  *table = g_builtins;
  return true;
}

void enter() noexcept {
  static bool entered = false;
  if (entered || session::state() == session::State::kOff) return;
  entered = true;
  const KeepErrno keep;
  const char* why = nullptr;
  if (!python::load(&why)) {
    session::note_source("python", SourceState::kFailed, why);
    warn_once(Cause::kPython, "Python calls are not recorded: %s", why);
    watch_imports_by_audit();
    return;
  }
  const python::KeepError keep_error;
  session::note_fact("python.version", api().version());
  leave_sys_path();
  if (!put_behind("_imp", "create_dynamic", &create_dynamic, g_create_dynamic)) watch_imports_by_audit();
  if (api().minor <= 11 && session::config().python != PythonLevel::kOff) {
    Function same = nullptr;
    put_behind("_thread", "start_new_thread", &start_new_thread, g_start_new_thread);
    put_behind("_thread", "start_new", &start_new_thread, same);  // the old name of the same function
    put_behind("sys", "setprofile", &setprofile, g_setprofile);
    g_ensure = reinterpret_cast<Ensure>(dlsym(RTLD_DEFAULT, "PyGILState_Ensure"));
    g_acquire_thread = reinterpret_cast<AcquireThread>(dlsym(RTLD_DEFAULT, "PyEval_AcquireThread"));
    redirect_thread_entries();
  }
  python::start_calls(session::config().python);
  torch::attach_if_loaded();
}

}  // namespace torchprof::inject

extern "C" torchprof::python::Object* PyInit__torchprof() {
  using torchprof::python::Object;
  // PyModuleDef, stable ABI: {PyModuleDef_Base {PyObject, m_init, m_index, m_copy}, m_name, m_doc, m_size, m_methods,
  // m_slots, m_traverse, m_clear, m_free}
  static struct {
    uintptr_t references = 1;
    uintptr_t rest[4] = {};
    const char* name = "_torchprof";
    const char* doc = nullptr;
    torchprof::python::Size size = 0;
    void* members[5] = {};
  } definition;
  using ModuleDefInit = Object* (*)(void*);
  const auto init = reinterpret_cast<ModuleDefInit>(dlsym(RTLD_DEFAULT, "PyModuleDef_Init"));
  torchprof::inject::enter();
  return init ? init(&definition) : nullptr;
}
