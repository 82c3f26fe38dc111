#include "inject/python_entry.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <type_traits>
#include <utility>

#include "inject/cuda_entry.h"
#include "inject/custom_functions.h"
#include "inject/entry.h"
#include "inject/exec.h"
#include "inject/fast_ranges.h"
#include "inject/greenlets.h"
#include "inject/imports.h"
#include "inject/late/late_memory.h"
#include "inject/late/replaced.h"
#include "inject/method_table.h"
#include "inject/preload.h"
#include "inject/program/functions.h"
#include "inject/python_signals.h"
#include "inject/python_tools.h"
#include "inject/seccomp_entry.h"
#include "tracer/heap/heap.h"
#include "tracer/process/diag.h"
#include "tracer/python/calls.h"
#include "tracer/python/gc.h"
#include "tracer/python/interpreters.h"
#include "tracer/python/profile.h"
#include "tracer/sampler/sampler.h"
#include "tracer/session.h"
#include "tracer/torch/operators.h"
#include "tracer/window_thread.h"

namespace torchprof::inject {
namespace {

using python::api;
using python::Object;

struct BuiltinModule {  // struct _inittab, Include/import.h, since 2.x
  const char* name;
  Object* (*init)();
};

constexpr size_t kMaxBuiltins = 256;
BuiltinModule g_builtins[kMaxBuiltins];
Object* (*g_posix_init)() = nullptr;

bool g_is_entered = false;  // enter() has run
bool g_entered = false;     // and the interpreter is one that we know

// For a further interpreter, with its GIL held. Does nothing where it was called before.
void enter_other() noexcept {
  const session::State state = session::state();
  if (!g_entered || (state != session::State::kArmed && state != session::State::kCapturing)) return;
  const KeepErrno keep;
  const python::KeepError keep_error;
  if (python::enter_other_interpreter()) python::start_calls_here();
}

int enter_at_safe_point(void*) {
  enter();
  return 0;
}

Object* init_posix() {
  // Only for the first interpreter of the process; others initialise "posix" again (3.13: as the first one).
  static bool asked = false;
  using AddPendingCall = int (*)(int (*)(void*), void*);
  if (const auto add = reinterpret_cast<AddPendingCall>(python::symbol("Py_AddPendingCall")); add && !asked) {
    asked = true;
    add(enter_at_safe_point, nullptr);
  }
  return g_posix_init();
}

// ---- steps before and after built-in functions ----------------------------------------------------------------------

Object* module_named(const char* name) noexcept { return api().dict_get(api().modules(), name); }  // borrowed

// 3.10 and 3.11: a thread that Python did not make takes the GIL through one of the first two functions (autograd's
// threads, ctypes callbacks, pybind11); a profiler in C takes a thread through one of the last two (torch.profiler,
// extension modules). sys.monitoring needs none of this.
struct Imported {
  int (*ensure)();
  void (*acquire_thread)(python::ThreadState*);
  void (*set_profile)(python::TraceFunction, Object*);
  int (*set_profile_of)(python::ThreadState*, python::TraceFunction, Object*);
} g_imported;

int ensure() {
  const int state = g_imported.ensure();
  python::cover_this_thread();
  return state;
}

void acquire_thread(python::ThreadState* thread) {
  g_imported.acquire_thread(thread);
  python::cover_this_thread();
}

// The name of the profiler that is being switched. With a shared libpython its own calls come through the redirected
// functions as well.
const char* g_setter = nullptr;

class Setter {
 public:
  explicit Setter(const char* name) noexcept { g_setter = name; }
  ~Setter() { g_setter = nullptr; }
  Setter(const Setter&) = delete;
  Setter& operator=(const Setter&) = delete;
  Object* done(Object* result) noexcept {
    if (result) python::profile_was_set(before_, g_setter);
    return result;
  }

 private:
  void* before_ = python::current_profile();
};

// The profiler that the address belongs to, by its usual name.
const char* profiler_at(void* address, char (&name)[64]) noexcept {
  if (g_setter) return g_setter;
  Dl_info info;
  if (!dladdr(address, &info) || !info.dli_fname) return nullptr;
  const char* slash = strrchr(info.dli_fname, '/');
  const char* file = slash ? slash + 1 : info.dli_fname;
  if (strncmp(file, "libtorch", 8) == 0) return "torch.profiler";
  if (strncmp(file, "_lsprof.", 8) == 0) return "cProfile";
  snprintf(name, sizeof(name), "%.*s", static_cast<int>(strcspn(file, ".")), file);
  return name;
}

// With a shared libpython this calls the other one through the redirected import: that comes from libpython, but who
// has set the function is the outer one's caller.
void set_profile(python::TraceFunction function, Object* object) {
  void* before = python::current_profile();
  char name[64];
  const char* const outer = g_setter;
  g_setter = profiler_at(__builtin_return_address(0), name);
  g_imported.set_profile(function, object);
  const KeepErrno keep;
  python::profile_was_set(before, g_setter);
  g_setter = outer;
}

int set_profile_of(python::ThreadState* thread, python::TraceFunction function, Object* object) {
  void* before = python::current_profile();
  const int result = g_imported.set_profile_of(thread, function, object);
  const KeepErrno keep;
  char name[64];
  const char* by = profiler_at(__builtin_return_address(0), name);
  if (thread == api().current_thread())
    python::profile_was_set(before, by);
  else
    python::cover_threads();
  return result;
}

void redirect_thread_entries() noexcept {
  const Redirect redirects[] = {{"PyGILState_Ensure", reinterpret_cast<void*>(ensure)},
                                {"PyEval_AcquireThread", reinterpret_cast<void*>(acquire_thread)},
                                {"PyEval_SetProfile", reinterpret_cast<void*>(set_profile)},
                                {"_PyEval_SetProfile", reinterpret_cast<void*>(set_profile_of)}};
  const Imported& i = g_imported;
  if (!i.ensure || !i.acquire_thread || !i.set_profile || !i.set_profile_of) return;
  redirect_imports(redirects, std::size(redirects));
  for (const Redirect& each : redirects) note_import(each.replacement, python::symbol(each.symbol));
}

// _lsprof.Profiler.enable(...) and .disable(): cProfile, where it is built into the interpreter and imports nothing.
Keywords g_enable_cprofile = nullptr;
NoArgs g_disable_cprofile = nullptr;

Object* enable_cprofile(Object* self, Object* args, Object* keywords) {
  return Setter("cProfile").done(g_enable_cprofile(self, args, keywords));
}

Object* disable_cprofile(Object* self, Object* none) { return Setter("cProfile").done(g_disable_cprofile(self, none)); }

void look_for_cprofile() noexcept {
  static OnceATurn once;
  if (once.is_done() || api().minor >= 12) return;
  Object* module = module_named("_lsprof");
  const python::Ref type(module ? api().get_attr(module, "Profiler") : static_cast<Object*>(nullptr));
  api().error_clear();
  if (!type) return;
  once.done();
  put_behind(type.get(), "enable", python::kMethVarArgs | python::kMethKeywords, &enable_cprofile, g_enable_cprofile);
  put_behind(type.get(), "disable", python::kMethNoArgs, &disable_cprofile, g_disable_cprofile);
}

FastArgs g_create_dynamic = nullptr;
OneArg g_exec_dynamic = nullptr;
OneArg g_exec_builtin = nullptr;
VarArgs g_start_new_thread = nullptr;
OneArg g_setprofile = nullptr;

constinit std::atomic<bool> g_sampler_is_started{false};

// With torch, or where somebody has asked for it: any other program of Python keeps its one thread.
void start_sampler() noexcept {
  auto& is_started = g_sampler_is_started;
  if (is_started.load(std::memory_order_relaxed)) return;  // publishes nothing, as below
  const Config& config = session::config();
  if (config.python == PythonLevel::kOff || (config.sample == kSampleOfWindow && !torch::loaded())) return;
  if (!is_started.exchange(true, std::memory_order_relaxed)) sampler::start(config);  // nothing is published by it
}

// One thread at a time: interpreters may have a GIL each. A thread that comes meanwhile does not wait; the first one
// looks once more.
void look_for_torch() noexcept {
  static std::atomic<unsigned> wanted{0};
  // The acquire pairs with the compare_exchange below: what the thread before us found is seen. The release pairs with
  // the two below: the thread that looks once more sees what we have loaded.
  if (python::has_other_interpreters() && wanted.fetch_add(1, std::memory_order_acq_rel) != 0) return;
  unsigned seen = 0;
  do {
    seen = wanted.load(std::memory_order_acquire);  // pairs with the fetch_add() above
    torch::attach_if_loaded();
    reach_allocators();
    reach_fast_ranges();
    share_cupti();
    // Pairs with the fetch_add() above.
  } while (seen != 0 && !wanted.compare_exchange_strong(seen, 0, std::memory_order_acq_rel));
  start_sampler();
}

// _imp.create_dynamic(spec, file=None): an extension module has been loaded, perhaps torch's.
Object* create_dynamic(Object* self, Object* const* args, python::Size count) {
  Object* module = g_create_dynamic(self, args, count);
  redirect_thread_entries();
  reach_lookups();
  reach_exec();
  look_for_torch();
  return module;
}

// os.fork(), os.forkpty() and what subprocess forks by: Python counts the process's threads right after the fork.
// METH_NOARGS in 3.10 to 3.15; fork_exec() METH_VARARGS up to 3.11, then METH_FASTCALL (Modules/_posixsubprocess.c).
NoArgs g_fork = nullptr, g_forkpty = nullptr;
FastArgs g_fork_exec = nullptr;
Object* fork_between(Object* self, Object* none) {
  const sampler::Forking forking;
  const window::Resting resting(api().minor >= 12);
  return g_fork(self, none);
}
Object* forkpty_between(Object* self, Object* none) {
  const sampler::Forking forking;
  const window::Resting resting(api().minor >= 12);
  return g_forkpty(self, none);
}
Object* fork_exec_between(Object* self, Object* const* args, python::Size count) {
  const sampler::Forking forking;
  return g_fork_exec(self, args, count);
}

// Whenever a module is there that was not.
void watch_forks() noexcept {
  put_behind(module_named("posix"), "fork", python::kMethNoArgs, &fork_between, g_fork);
  put_behind(module_named("posix"), "forkpty", python::kMethNoArgs, &forkpty_between, g_forkpty);
  put_behind(module_named("_posixsubprocess"), "fork_exec", python::kMethFastCall, &fork_exec_between, g_fork_exec);
}

// An extension module has been executed.
void look_at_module(Object* module) noexcept {
  if (session::config().python != PythonLevel::kOff) look_for_greenlets(module);
  watch_cuda(module);
  look_for_custom_functions(module);
}

// Those that were there before us.
void look_at_loaded_modules() noexcept {
  for (const char* const name : {"torch._C", "greenlet._greenlet"})
    if (Object* module = module_named(name)) look_at_module(module);
}

// _imp.exec_dynamic(module), _imp.exec_builtin(module): the module has been executed.
Object* exec_dynamic(Object* self, Object* module) {
  Object* result = g_exec_dynamic(self, module);
  if (!result) return result;
  look_for_cprofile();
  watch_forks();
  look_at_module(module);
  return result;
}

// A further interpreter that is starting is first seen here, at its first modules.
Object* exec_builtin(Object* self, Object* module) {
  Object* result = g_exec_builtin(self, module);
  if (result) {
    enter_other();
    watch_forks();
    look_for_cprofile();
    if (session::config().python != PythonLevel::kOff) keep_signals_harmless();
    python::module_executed(module);
  }
  return result;
}

// _thread.start_new_thread(function, args[, kwargs]): the new thread's state exists; the thread waits for the GIL,
// which we hold.
Object* start_new_thread(Object* self, Object* args) {
  Object* id = g_start_new_thread(self, args);
  if (id) python::cover_threads();
  return id;
}

// sys.setprofile(function); None: the program lets go of the thread.
Object* setprofile(Object* self, Object* function) {
  return Setter("sys.setprofile").done(g_setprofile(self, function));
}

int on_audit(const char* event, Object*, void*) {
  if (strcmp(event, "import") != 0) return 0;
  torch::attach_if_loaded();
  reach_allocators();
  reach_fast_ranges();
  start_sampler();
  return 0;
}

void watch_imports_by_audit() noexcept {
  static bool is_watching = false;  // such a hook stays for good
  if (std::exchange(is_watching, true)) return;
  using AddAuditHook = int (*)(int (*)(const char*, Object*, void*), void*);
  if (const auto add = reinterpret_cast<AddAuditHook>(python::symbol("PySys_AddAuditHook"))) add(on_audit, nullptr);
}

// Removes the folder of sitecustomize.py from sys.path: we do not need it any more, and in a program that was started
// with -S it would stay.
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
  auto** table = static_cast<BuiltinModule**>(python::symbol("PyImport_Inittab"));
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
  if (g_is_entered || session::state() == session::State::kOff) return;
  g_is_entered = true;
  const KeepErrno keep;
  const char* why = nullptr;
  if (!python::load(&why)) {
    session::note_source("python", SourceState::kFailed, why);
    tell_once_a_run(Cause::kPython, About::kLoss, "Python calls are not recorded: %s", why);
    watch_imports_by_audit();
    look_for_torch();
    return;
  }
  const python::KeepError keep_error;
  g_entered = true;
  python::know_first_interpreter();
  session::note_fact("python.version", api().version());
  prepare_fast_ranges();
  leave_sys_path();
  watch_interpreters_end();
  Object* imp = module_named("_imp");
  if (!put_behind(imp, "create_dynamic", python::kMethFastCall, &create_dynamic, g_create_dynamic))
    watch_imports_by_audit();
  put_behind(imp, "exec_dynamic", python::kMethO, &exec_dynamic, g_exec_dynamic);
  put_behind(imp, "exec_builtin", python::kMethO, &exec_builtin, g_exec_builtin);
  if (api().minor <= 11 && session::config().python != PythonLevel::kOff) {
    VarArgs same = nullptr;
    Object* threads = module_named("_thread");
    put_behind(threads, "start_new_thread", python::kMethVarArgs, &start_new_thread, g_start_new_thread);
    put_behind(threads, "start_new", python::kMethVarArgs, &start_new_thread, same);  // its old name
    put_behind(module_named("sys"), "setprofile", python::kMethO, &setprofile, g_setprofile);
    const auto find = [](const char* name, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(python::symbol(name));
    };
    find("PyGILState_Ensure", g_imported.ensure);
    find("PyEval_AcquireThread", g_imported.acquire_thread);
    find("PyEval_SetProfile", g_imported.set_profile);
    find("_PyEval_SetProfile", g_imported.set_profile_of);
    look_for_cprofile();
    redirect_thread_entries();
    keep_signals_harmless();
  }
  reach_lookups();
  watch_forks();
  python::start_calls(session::config().python);
  heap::start();
  if (api().minor >= 12 && session::config().python != PythonLevel::kOff) hide_our_tool();
  look_for_torch();
  look_at_loaded_modules();
}

void leave() noexcept {
  if (!g_is_entered) return;
  const KeepErrno keep;
  if (g_entered) {
    const python::KeepError keep_error;
    heap::stop();
    python::stop_calls();
    give_back_places();
    forget_allocators();
    leave_signals();
  }
  torch::leave();
  g_is_entered = g_entered = false;
  g_sampler_is_started.store(false, std::memory_order_relaxed);
}

}  // namespace torchprof::inject

extern "C" torchprof::python::Object* PyInit__torchprof() {
  using torchprof::python::Object;
  // PyModuleDef_Slot, stable ABI: any interpreter may load it, with a GIL of its own (Py_mod_multiple_interpreters,
  // Py_MOD_PER_INTERPRETER_GIL_SUPPORTED: 3.12) or without any (Py_mod_gil, Py_MOD_GIL_NOT_USED: 3.13).
  struct Slot {
    int slot;
    uintptr_t value;
  };
  static Slot slots312[] = {{3, 2}, {}};
  static Slot slots313[] = {{3, 2}, {4, 1}, {}};
  // PyModuleDef, stable ABI: {PyModuleDef_Base {PyObject, m_init, m_index, m_copy}, m_name, m_doc, m_size, m_methods,
  // m_slots, m_traverse, m_clear, m_free}
  static struct {
    uintptr_t references = 1;
    uintptr_t rest[4] = {};
    const char* name = "_torchprof";
    const char* doc = nullptr;
    torchprof::python::Size size = 0;
    torchprof::python::MethodDef* methods = nullptr;
    Slot* slots = nullptr;
    void* functions[3] = {};
  } definition;
  using ModuleDefInit = Object* (*)(void*);
  torchprof::python::use_library_at(__builtin_return_address(0));
  const auto init = reinterpret_cast<ModuleDefInit>(torchprof::python::symbol("PyModuleDef_Init"));
  torchprof::inject::arm_for_python();
  torchprof::inject::enter();
  torchprof::inject::enter_other();
  const int minor = torchprof::python::api().minor;
  definition.methods = torchprof::inject::program_functions();
  definition.slots = minor >= 13 ? slots313 : minor == 12 ? slots312 : nullptr;
  return init ? init(&definition) : nullptr;
}
