// CPython without Python.h: its API, and the layout of objects that has been the same since 3.10. What differs between
// versions is in offsets.h, nowhere else.
//
// Functions are public C API (or exported, as marked) and found at run time in whatever executable or libpython is in
// the process. Raw offsets are used only on release builds with a GIL, and only after load() and check_layout() have
// compared them with what the API says. Sources: CPython's headers of the versions named; facts without a version were
// measured on 3.10.13, 3.11.7, 3.12.1, 3.13.0, 3.14 and 3.15.2.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torchprof::python {

struct Object;  // PyObject
struct ThreadState;
struct Interpreter;
struct Frame;
using Size = intptr_t;  // Py_ssize_t

struct MethodDef {  // PyMethodDef, stable ABI
  const char* name;
  void* function;
  int flags;
  const char* doc;
};
struct Allocator {  // PyMemAllocatorEx, 3.5 to 3.15
  void* context;
  void* (*malloc)(void* context, size_t size);
  void* (*calloc)(void* context, size_t count, size_t size);
  void* (*realloc)(void* context, void* block, size_t size);
  void (*free)(void* context, void* block);
};
// PyMemAllocatorDomain, 3.5 to 3.15. Both are used with the GIL held.
inline constexpr int kMemDomain = 1, kObjectDomain = 2;
inline constexpr int kMethNoArgs = 0x4;
inline constexpr int kMethO = 0x8;
inline constexpr int kMethVarArgs = 0x1;
inline constexpr int kMethKeywords = 0x2;
inline constexpr int kMethClass = 0x10;
inline constexpr int kMethFastCall = 0x80;

using Vectorcall = Object* (*)(Object* callable, Object* const* args, size_t count_and_flags, Object* keywords);
using TraceFunction = int (*)(Object* self, Frame* frame, int what, Object* arg);
enum TraceWhat { kTraceCall = 0, kTraceReturn = 3, kTraceCCall = 4, kTraceCException = 5, kTraceCReturn = 6 };

// X(result, name in this table, symbol, arguments)
#define TORCHPROF_PYTHON_REQUIRED(X)                                                     \
  X(const char*, version, Py_GetVersion, (void))                                         \
  X(int, add_pending_call, Py_AddPendingCall, (int (*)(void*), void*))                   \
  X(void, incref, Py_IncRef, (Object*))                                                  \
  X(void, decref, Py_DecRef, (Object*))                                                  \
  X(Object*, get_attr, PyObject_GetAttrString, (Object*, const char*))                   \
  X(Object*, call, PyObject_CallObject, (Object*, Object*))                              \
  X(Object*, call_method, PyObject_CallMethod, (Object*, const char*, const char*, ...)) \
  X(Object*, sys_object, PySys_GetObject, (const char*))                                 \
  X(Object*, modules, PyImport_GetModuleDict, (void))                                    \
  X(Object*, dict_get, PyDict_GetItemString, (Object*, const char*))                     \
  X(Size, list_size, PyList_Size, (Object*))                                             \
  X(Object*, list_get, PyList_GetItem, (Object*, Size))                                  \
  X(Object*, tuple_get, PyTuple_GetItem, (Object*, Size))                                \
  X(Object*, tuple_new, PyTuple_New, (Size))                                             \
  X(const char*, utf8, PyUnicode_AsUTF8AndSize, (Object*, Size*))                        \
  X(Object*, encode, PyUnicode_AsEncodedString, (Object*, const char*, const char*))     \
  X(Object*, string, PyUnicode_FromString, (const char*))                                \
  X(char*, bytes_data, PyBytes_AsString, (Object*))                                      \
  X(Size, bytes_size, PyBytes_Size, (Object*))                                           \
  X(Object*, from_long, PyLong_FromLong, (long))                                         \
  X(long, as_long, PyLong_AsLong, (Object*))                                             \
  X(Object*, from_pointer, PyLong_FromVoidPtr, (void*))                                  \
  X(void*, as_pointer, PyLong_AsVoidPtr, (Object*))                                      \
  X(Object*, error_occurred, PyErr_Occurred, (void))                                     \
  X(void, error_clear, PyErr_Clear, (void))                                              \
  X(void, error_fetch, PyErr_Fetch, (Object**, Object**, Object**))                      \
  X(void, error_restore, PyErr_Restore, (Object*, Object*, Object*))                     \
  X(Object*, function_new, PyCFunction_NewEx, (MethodDef*, Object*, Object*))            \
  X(void*, function_pointer, PyCFunction_GetFunction, (Object*))                         \
  X(Object*, weakref_new, PyWeakref_NewRef, (Object*, Object*))                          \
  X(Object*, type_from_spec, PyType_FromSpec, (void*))                                   \
  X(Object*, vectorcall_call, PyVectorcall_Call, (Object*, Object*, Object*))            \
  X(int, is_subtype, PyType_IsSubtype, (Object*, Object*))                               \
  X(Object*, module_def_init, PyModuleDef_Init, (void*))                                 \
  X(int, gil_check, PyGILState_Check, (void))                                            \
  X(int, gil_ensure, PyGILState_Ensure, (void))                                          \
  X(void, gil_release, PyGILState_Release, (int))                                        \
  X(int, is_initialized, Py_IsInitialized, (void))                                       \
  X(Interpreter*, main_interpreter, PyInterpreterState_Main, (void))                     \
  X(Interpreter*, current_interpreter, PyInterpreterState_Get, (void))                   \
  X(Interpreter*, first_interpreter, PyInterpreterState_Head, (void))                    \
  X(Interpreter*, next_interpreter, PyInterpreterState_Next, (Interpreter*))             \
  X(Object*, interpreter_dict, PyInterpreterState_GetDict, (Interpreter*))               \
  X(ThreadState*, first_thread, PyInterpreterState_ThreadHead, (Interpreter*))           \
  X(ThreadState*, next_thread, PyThreadState_Next, (ThreadState*))                       \
  X(ThreadState*, this_thread, PyGILState_GetThisThreadState, (void))                    \
  X(Frame*, thread_frame, PyThreadState_GetFrame, (ThreadState*))                        \
  X(Frame*, current_frame, PyEval_GetFrame, (void))                                      \
  X(Frame*, frame_back, PyFrame_GetBack, (Frame*))                                       \
  X(Object*, frame_code, PyFrame_GetCode, (Frame*))                                      \
  X(Object*, run_string, PyRun_String, (const char*, int, Object*, Object*))             \
  X(Object*, dict_new, PyDict_New, (void))                                               \
  X(int, dict_set, PyDict_SetItemString, (Object*, const char*, Object*))                \
  X(int, dict_delete, PyDict_DelItemString, (Object*, const char*))                      \
  X(int, set_attr, PyObject_SetAttrString, (Object*, const char*, Object*))              \
  X(Object*, generic_get_attr, PyObject_GenericGetAttr, (Object*, Object*))              \
  X(Object*, import_module, PyImport_ImportModule, (const char*))                        \
  X(Object*, list_new, PyList_New, (Size))                                               \
  X(int, list_append, PyList_Append, (Object*, Object*))                                 \
  X(void, gc_untrack, PyObject_GC_UnTrack, (void*))                                      \
  X(void, write_unraisable, PyErr_WriteUnraisable, (Object*))                            \
  X(int, list_set_slice, PyList_SetSlice, (Object*, Size, Size, Object*))                \
  X(Object*, own_dict, PyObject_GenericGetDict, (Object*, void*))                        \
  X(int, dict_next, PyDict_Next, (Object*, Size*, Object**, Object**))                   \
  X(Size, tuple_size, PyTuple_Size, (Object*))                                           \
  X(long long, as_long_long, PyLong_AsLongLong, (Object*))                               \
  X(long long, as_long_long_and_overflow, PyLong_AsLongLongAndOverflow, (Object*, int*)) \
  X(double, as_double, PyFloat_AsDouble, (Object*))                                      \
  X(int, gc_disable, PyGC_Disable, (void))                                               \
  X(int, gc_enable, PyGC_Enable, (void))                                                 \
  X(void*, realloc, PyMem_Realloc, (void*, size_t))

// Not in every version; the first of the two names that exists is taken.
#define TORCHPROF_PYTHON_OPTIONAL(X)                                                                                  \
  X(Size, request_extra, "_PyEval_RequestCodeExtraIndex", "PyUnstable_Eval_RequestCodeExtraIndex", (void (*)(void*))) \
  X(int, get_extra, "_PyCode_GetExtra", "PyUnstable_Code_GetExtra", (Object*, Size, void**))                          \
  X(int, set_extra, "_PyCode_SetExtra", "PyUnstable_Code_SetExtra", (Object*, Size, void*))                           \
  X(ThreadState*, current_thread, "_PyThreadState_UncheckedGet", "PyThreadState_GetUnchecked", (void))                \
  X(int, set_profile, "_PyEval_SetProfile", "", (ThreadState*, TraceFunction, Object*)) /* exported, 3.10 to 3.15 */  \
  X(Object*, frame_var, "PyFrame_GetVarString", "", (Frame*, const char*))              /* 3.12 */                    \
  X(int, frame_last, "PyFrame_GetLasti", "", (Frame*))                                  /* 3.11 */                    \
  X(int, frame_line, "PyFrame_GetLineNumber", "", (Frame*))                                                           \
  X(void, format_unraisable, "PyErr_FormatUnraisable", "", (const char*, ...)) /* 3.13 */                             \
  X(int, code_line, "PyCode_Addr2Line", "", (Object*, int)) /* reads tables of the code object, needs no GIL */       \
  X(Object*, code_new, "PyCode_NewEmpty", "", (const char*, const char*, int))                                        \
  X(Object*, type_lookup, "_PyType_Lookup", "", (Object*, Object*))    /* exported, 3.10 to 3.15; borrowed */         \
  X(int, is_finalizing, "Py_IsFinalizing", "_Py_IsFinalizing", (void)) /* 3.13, before */                             \
  X(int, at_exit, "Py_AtExit", "", (void (*)(void)))                                                                  \
  X(void, get_allocator, "PyMem_GetAllocator", "", (int, Allocator*))                                                 \
  X(void, set_allocator, "PyMem_SetAllocator", "", (int, Allocator*))

struct Api {
#define X(result, name, symbol, args) result(*name) args = nullptr;
  TORCHPROF_PYTHON_REQUIRED(X)
#undef X
#define X(result, name, symbol, other, args) result(*name) args = nullptr;
  TORCHPROF_PYTHON_OPTIONAL(X)
#undef X
  Object* none = nullptr;                  // _Py_NoneStruct
  Object* true_object = nullptr;           // _Py_TrueStruct
  Object* function_type = nullptr;         // PyCFunction_Type
  Object* method_type = nullptr;           // PyMethod_Type
  Object* python_function_type = nullptr;  // PyFunction_Type
  Object* method_descriptor_type = nullptr;
  Object* tuple_type = nullptr;
  Object* cell_type = nullptr;
  Object* dict_type = nullptr;
  Object* list_type = nullptr;
  Object* long_type = nullptr;
  Object* bool_type = nullptr;
  Object* float_type = nullptr;
  Object* complex_type = nullptr;
  Object* static_method_type = nullptr;
  Object* code_type = nullptr;
  int minor = 0;  // 3.minor
  int micro = 0;
  bool plain_build = false;  // release build with a GIL: object headers are as the offsets below say
};

struct Layout;
namespace detail {
extern Api g_api;
extern const Layout* g_layout;
extern bool g_knows_instruction;
extern bool g_knows_tracing;
}  // namespace detail

// The table, filled once by load(). Valid for the life of the process.
inline const Api& api() noexcept { return detail::g_api; }
// False: there is no interpreter, or not one that we can read; `why` says so in one line. With the GIL held, if it has
// started.
bool load(const char** why) noexcept;
// Whether an interpreter's symbols are in this process, also before it has started. Microseconds.
bool present() noexcept;
// Whether it has started.
bool is_running() noexcept;
// To be called before load(): if the library that `address` belongs to has an interpreter in it, that one is used. A
// program may have loaded it with dlopen without RTLD_GLOBAL; then it is not found by name.
void use_library_at(const void* address) noexcept;
// A function or object of the interpreter; nullptr: it has none of this name.
void* symbol(const char* name) noexcept;

// ---- layout, plain builds only --------------------------------------------------------------------------------------

// PyObject.ob_type: {ob_refcnt, ob_type} since 2.x; every plain build, 3.10 to 3.15. load() checks these.
inline Object* type_of(Object* object) noexcept { return reinterpret_cast<Object**>(object)[1]; }

// PyCFunctionObject {PyObject, m_ml, m_self, ...} and PyMethodDescrObject {PyDescr_COMMON {PyObject, d_type, d_name,
// d_qualname}, d_method}: 3.10 to 3.15. PyMethodObject {PyObject, im_func, im_self}. PyTypeObject {PyVarObject,
// tp_name}. PyCellObject {PyObject, ob_ref}.
inline MethodDef* function_def(Object* function) noexcept { return reinterpret_cast<MethodDef**>(function)[2]; }
// m_self, which repr() shows; PyCFunction_GetSelf hides it from static methods (all of torch.*).
inline Object* function_owner(Object* function) noexcept { return reinterpret_cast<Object**>(function)[3]; }
inline MethodDef* descriptor_def(Object* descriptor) noexcept { return reinterpret_cast<MethodDef**>(descriptor)[5]; }
inline Object* descriptor_owner(Object* descriptor) noexcept { return reinterpret_cast<Object**>(descriptor)[2]; }
inline Object* method_function(Object* method) noexcept { return reinterpret_cast<Object**>(method)[2]; }
inline const char* type_name(Object* type) noexcept { return reinterpret_cast<const char**>(type)[3]; }
// PyComplexObject {PyObject, double real, imag}, 3.10 to 3.15.
inline constexpr size_t kComplexValue = 16;
inline Object* cell_value(Object* cell) noexcept { return reinterpret_cast<Object**>(cell)[2]; }
// PyLongObject {PyObject, lv_tag, ob_digit[]}, 3.12 to 3.15; only for numbers from 0 to 2^30 - 1.
inline uint32_t small_int(Object* number) noexcept {
  return static_cast<uint32_t>(reinterpret_cast<uint64_t*>(number)[3]);
}

inline bool is_a(Object* object, Object* type) noexcept {
  return object && (type_of(object) == type || api().is_subtype(type_of(object), type));
}

// Offsets of 3.10 and 3.11, where the API has no way without side effects. See check_layout(). Frame: PyFrameObject in
// 3.10, _PyInterpreterFrame in 3.11.
struct Layout {
  size_t tracing;           // PyThreadState.tracing, an int: 44
  size_t profile_function;  // PyThreadState.c_profilefunc: 56, 64 (3.11); cframe is right before, c_tracefunc after it
  size_t frame_data;        // PyFrameObject.f_frame: 24 (3.11); 0 (3.10): the frame object itself
  size_t code;              // Frame.f_code, the code object: 32
  size_t locals;            // the first local: 352 (3.10, Frame.f_localsplus), 72 (3.11, Frame.localsplus)
  size_t instruction;  // the one that runs: 96 (3.10, Frame.f_lasti, an int), 56 (3.11, Frame.prev_instr, a pointer)
};
// nullptr on other versions, and where check_layout() found that the numbers do not hold.
inline const Layout* layout() noexcept { return detail::g_layout; }
// The place in its code where a frame is: different for each place in one code object. 3.10 and 3.11, and only where
// layout() is known.
inline uint32_t instruction_of(Frame* frame, Object* code) noexcept;
// Compares the table with the interpreter, with the GIL held: runs one line of Python whose frame holds a known object.
// Call once.
void check_layout() noexcept;

// Sets the profile function of a thread that has none, or ours, without an object; 3.10 and 3.11, and only where
// layout() is known. With the GIL held. _PyEval_SetProfile() would call the program's audit hooks. While such a hook,
// written in Python, lets go of the GIL, every other call of _PyEval_SetProfile() fails: the program's own
// sys.setprofile(), too, and our call leaves its exception in the other thread.
bool set_profile_function(ThreadState* thread, TraceFunction function) noexcept;

inline void write_pointer(void* base, size_t offset, void* value) noexcept {
  *reinterpret_cast<void**>(static_cast<char*>(base) + offset) = value;
}
inline void* read_pointer(const void* base, size_t offset) noexcept {
  return *reinterpret_cast<void* const*>(static_cast<const char*>(base) + offset);
}

inline uint32_t instruction_of(Frame* frame, Object* code) noexcept {
  const Layout* at = layout();
  if (!detail::g_knows_instruction) return 0;
  if (!at->frame_data) return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(read_pointer(frame, at->instruction)));
  const void* where = read_pointer(read_pointer(frame, at->frame_data), at->instruction);
  return static_cast<uint32_t>(static_cast<const char*>(where) - reinterpret_cast<const char*>(code));
}

// How many OwnWork the calling thread is in.
extern thread_local constinit unsigned t_own_work __attribute__((tls_model("initial-exec")));
// What the calling thread asks of the interpreter meanwhile is ours and not the program's (heap/heap.h).
class OwnWork {
 public:
  OwnWork() noexcept { ++t_own_work; }
  ~OwnWork() { --t_own_work; }
  OwnWork(const OwnWork&) = delete;
  OwnWork& operator=(const OwnWork&) = delete;
};

// Keeps the exception that is being raised while we ask the interpreter something, and drops exceptions of our own.
class KeepError : OwnWork {
 public:
  KeepError() noexcept { api().error_fetch(&type_, &value_, &traceback_); }
  ~KeepError() { api().error_restore(type_, value_, traceback_); }
  KeepError(const KeepError&) = delete;
  KeepError& operator=(const KeepError&) = delete;

 private:
  Object* type_ = nullptr;
  Object* value_ = nullptr;
  Object* traceback_ = nullptr;
};

// A reference that is released at the end of the scope.
class Ref {
 public:
  Ref() = default;
  explicit Ref(Object* object) noexcept : object_(object) {}
  explicit Ref(Frame* frame) noexcept : object_(reinterpret_cast<Object*>(frame)) {}
  ~Ref() {
    if (object_) api().decref(object_);
  }
  Ref(const Ref&) = delete;
  Ref& operator=(const Ref&) = delete;
  Object* get() const noexcept { return object_; }
  void reset(Object* object) noexcept {
    if (object_) api().decref(object_);
    object_ = object;
  }
  Object* release() noexcept {
    Object* object = object_;
    object_ = nullptr;
    return object;
  }
  explicit operator bool() const noexcept { return object_ != nullptr; }

 private:
  Object* object_ = nullptr;
};

// An attribute of the object itself, a new reference: neither __getattr__ nor __getattribute__ of a subclass is called.
inline Object* own_attribute(Object* object, const char* name) noexcept {
  const Ref key(api().string(name));
  return key ? api().generic_get_attr(object, key.get()) : nullptr;
}

}  // namespace torchprof::python
