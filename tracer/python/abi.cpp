#include "tracer/python/abi.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>

#include "tracer/python/offsets.h"

namespace torchprof::python {

thread_local constinit unsigned t_own_work = 0;
namespace detail {
Api g_api;
const Layout* g_layout = nullptr;
bool g_knows_instruction = false;
bool g_knows_tracing = false;
}  // namespace detail

namespace {

using detail::g_api;
using detail::g_layout;

void* g_library = RTLD_DEFAULT;

void* find_symbol(const char* symbol) noexcept { return *symbol ? dlsym(g_library, symbol) : nullptr; }

bool find_all(const char** missing) noexcept {
  Api& a = g_api;
#define X(result, name, symbol, args)                              \
  a.name = reinterpret_cast<result(*) args>(find_symbol(#symbol)); \
  if (!a.name) {                                                   \
    *missing = #symbol;                                            \
    return false;                                                  \
  }
  TORCHPROF_PYTHON_REQUIRED(X)
#undef X
#define X(result, name, symbol, other, args)                      \
  a.name = reinterpret_cast<result(*) args>(find_symbol(symbol)); \
  if (!a.name) a.name = reinterpret_cast<result(*) args>(find_symbol(other));
  TORCHPROF_PYTHON_OPTIONAL(X)
#undef X
  struct Wanted {
    Object** place;
    const char* symbol;
  };
  const Wanted objects[] = {{&a.none, "_Py_NoneStruct"},
                            {&a.true_object, "_Py_TrueStruct"},
                            {&a.function_type, "PyCFunction_Type"},
                            {&a.method_type, "PyMethod_Type"},
                            {&a.method_descriptor_type, "PyMethodDescr_Type"},
                            {&a.tuple_type, "PyTuple_Type"},
                            {&a.cell_type, "PyCell_Type"},
                            {&a.dict_type, "PyDict_Type"},
                            {&a.list_type, "PyList_Type"},
                            {&a.long_type, "PyLong_Type"},
                            {&a.bool_type, "PyBool_Type"},
                            {&a.python_function_type, "PyFunction_Type"},
                            {&a.float_type, "PyFloat_Type"},
                            {&a.complex_type, "PyComplex_Type"},
                            {&a.static_method_type, "PyStaticMethod_Type"},
                            {&a.code_type, "PyCode_Type"}};
  for (const Wanted& object : objects) {
    *object.place = static_cast<Object*>(find_symbol(object.symbol));
    *missing = object.symbol;
    if (!*object.place) return false;
  }
  return true;
}

}  // namespace

void* symbol(const char* name) noexcept { return find_symbol(name); }

void use_library_at(const void* address) noexcept {
  Dl_info info;
  if (g_api.version || !dladdr(address, &info) || !info.dli_fname) return;
  void* library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (library && dlsym(library, "Py_GetVersion"))
    g_library = library;  // never closed
  else if (library)
    dlclose(library);
}

bool is_running() noexcept {
  const auto ask = reinterpret_cast<int (*)()>(find_symbol("Py_IsInitialized"));
  return ask && ask();
}

bool present() noexcept { return find_symbol("PyImport_Inittab") != nullptr; }

bool load(const char** why) noexcept {
  static char text[160];
  *why = text;
  // "3.12.1 (main, ...) [GCC ...]"; a free-threaded build says so in it.
  const auto ask = reinterpret_cast<const char* (*)()>(find_symbol("Py_GetVersion"));
  const char* version = ask ? ask() : "?";
  int major = 0;
  if (sscanf(version, "%d.%d.%d", &major, &g_api.minor, &g_api.micro) < 2 || major != 3 || g_api.minor < kOldestMinor) {
    snprintf(text, sizeof(text), "Python %.*s is not one that this version knows (3.%d to 3.%d)",
             static_cast<int>(strcspn(version, " ")), version, kOldestMinor, kNewestMinor);
    return false;
  }
  const char* missing = "";
  if (!find_all(&missing)) {
    snprintf(text, sizeof(text), "this interpreter lacks %s", missing);
    return false;
  }
  if (strstr(version, "free-threading")) {
    snprintf(text, sizeof(text), "free-threaded builds of Python are not supported yet");
    return false;
  }
  // A debug build with reference tracing has two more words in front of every object.
  g_api.plain_build = find_symbol("_Py_RefTotal") == nullptr && find_symbol("_Py_GetRefTotal") == nullptr;
  if (!g_api.plain_build) {
    snprintf(text, sizeof(text), "debug builds of Python are not supported");
    return false;
  }
  if (const char* wrong = check_objects()) {
    snprintf(text, sizeof(text), "Python %.*s: %s", static_cast<int>(strcspn(version, " ")), version, wrong);
    return false;
  }
  find_offsets();
  return true;
}

namespace {

bool g_matches = false;
// From two calls of compare() in one line: f_lasti as Python has it, and as we read it.
long g_lasti[2];
long g_instruction[2];
int g_compared = 0;

// Called by the line of Python in check_layout(), so that the function and the first local of the frame are known.
Object* compare(Object*, Object* expected) noexcept {
  const Layout& want = *profile_layout();
  Frame* frame = g_api.current_frame();
  const Ref code(g_api.frame_code(frame));
  const void* data = want.frame_data ? read_pointer(frame, want.frame_data) : frame;
  g_matches = read_pointer(data, want.code) == code.get() && read_pointer(data, want.locals) == expected;
  const Ref lasti(g_api.get_attr(reinterpret_cast<Object*>(frame), "f_lasti"));
  const void* where = read_pointer(data, want.instruction);
  // 3.10 keeps the number of an instruction of two bytes each; f_lasti is in bytes.
  const auto read = want.frame_data ? static_cast<const char*>(where) - reinterpret_cast<const char*>(code.get())
                                    : 2 * static_cast<ptrdiff_t>(reinterpret_cast<uintptr_t>(where));
  if (lasti && g_compared < 2) {
    g_lasti[g_compared] = g_api.as_long(lasti.get());
    g_instruction[g_compared++] = read;
  }
  g_api.incref(g_api.none);
  return g_api.none;
}

int ignore(Object*, Frame*, int, Object*) noexcept { return 0; }

// The flag that the evaluation loop looks at, PyThreadState.cframe->use_tracing, at the beginning of *cframe: an int, 0
// or 1 (3.10); a uint8_t, 0 or 255 (3.11).
struct TracingState {
  int tracing;  // how deep in trace or profile functions the thread is; use_tracing is 0 there
  char* use_tracing;
  bool has_trace_function;

  TracingState(ThreadState* thread, const Layout& at) noexcept
      : tracing(0),
        use_tracing(static_cast<char*>(read_pointer(thread, at.profile_function - sizeof(void*)))),
        has_trace_function(read_pointer(thread, at.profile_function + sizeof(void*)) != nullptr) {
    memcpy(&tracing, reinterpret_cast<const char*>(thread) + at.tracing, sizeof(tracing));
  }

  bool is(bool on) const noexcept { return static_cast<uint8_t>(*use_tracing) == (on ? value() : 0); }
  void set(bool on) const noexcept { *use_tracing = static_cast<char>(on ? value() : 0); }

 private:
  static uint8_t value() noexcept { return g_api.minor == 10 ? 1 : 255; }  // the lowest byte of either
};

}  // namespace

bool set_profile_function(ThreadState* thread, TraceFunction function) noexcept {
  const Layout& at = *layout();
  if (!detail::g_knows_tracing) {
    const bool is_set = g_api.set_profile(thread, function, nullptr) == 0;
    g_api.error_clear();
    return is_set;
  }
  write_pointer(thread, at.profile_function, reinterpret_cast<void*>(function));
  // A thread that is in a trace function computes the flag when it leaves that.
  const TracingState state(thread, at);
  if (state.tracing == 0) state.set(function || state.has_trace_function);
  return true;
}

void check_layout() noexcept {
  if (!profile_layout()) return;
  const KeepError keep;
  static MethodDef definition = {"compare", reinterpret_cast<void*>(compare), kMethO, nullptr};
  const Ref function(g_api.function_new(&definition, nullptr, nullptr));
  const Ref globals(g_api.dict_new());
  const Ref marker(g_api.from_long(0x70726f66));
  if (!function || !globals || !marker) return;
  g_api.dict_set(globals.get(), "compare", function.get());
  g_api.dict_set(globals.get(), "marker", marker.get());
  constexpr int kEvalInput = 258;  // Py_eval_input, Include/compile.h
  const Ref result(g_api.run_string("(lambda known: (compare(known), compare(known)))(marker)", kEvalInput,
                                    globals.get(), globals.get()));
  if (!result) g_api.error_clear();

  detail::g_knows_instruction =
      g_compared == 2 && g_lasti[1] > g_lasti[0] && g_lasti[1] - g_lasti[0] == g_instruction[1] - g_instruction[0];
  const Layout& want = *profile_layout();
  ThreadState* self = g_api.this_thread();
  // Finds the place of the profile function by setting one. Somebody else's is left alone: then nothing is known.
  if (!g_matches || !g_api.set_profile || !self || read_pointer(self, want.profile_function)) return;
  const TracingState state(self, want);
  const bool is_seen = state.tracing == 0 && !state.has_trace_function && state.use_tracing && state.is(false);
  g_api.set_profile(self, ignore, nullptr);
  const bool found = read_pointer(self, want.profile_function) == reinterpret_cast<void*>(ignore);
  const bool is_on = is_seen && state.is(true);
  g_api.set_profile(self, nullptr, nullptr);
  detail::g_knows_tracing = found && is_on && state.is(false);
  g_api.error_clear();
  if (found) g_layout = &want;
}

}  // namespace torchprof::python
