#include "tracer/python/code.h"

#include <atomic>
#include <cstring>
#include <iterator>
#include <string_view>

#include "tracer/python/imports.h"
#include "tracer/python/interpreters.h"
#include "tracer/python/site.h"

namespace torchprof::python {
namespace detail {
Size g_extra = -1;
size_t g_extra_offset = 0;
}  // namespace detail

namespace {

using session::intern;

// The text of a str. One that cannot be encoded as UTF-8 (a file name with surrogates) is given as its original bytes.
class Text {
 public:
  explicit Text(Object* text) noexcept {
    if (!text) return;
    Size size = 0;
    if (const char* data = api().utf8(text, &size)) {
      view_ = {data, static_cast<size_t>(size)};
      return;
    }
    api().error_clear();
    bytes_.reset(api().encode(text, "utf-8", "surrogateescape"));
    if (bytes_)
      view_ = {api().bytes_data(bytes_.get()), static_cast<size_t>(api().bytes_size(bytes_.get()))};
    else
      api().error_clear();
  }
  std::string_view view() const noexcept { return view_; }

 private:
  Ref bytes_;
  std::string_view view_;
};

bool ends_with(std::string_view text, std::string_view end) noexcept {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// Bytes at the front of `file` that are an entry of sys.path and the slash after it: the longest such entry, as
// torch.profiler does it.
uint16_t import_prefix(std::string_view file) noexcept {
  Object* path = api().sys_object("path");  // borrowed
  if (!path || file.empty() || file[0] != '/') return 0;
  size_t longest = 0;
  const Size entries = api().list_size(path);
  for (Size i = 0; i < entries; ++i) {
    Object* entry = api().list_get(path, i);
    Size size = 0;
    const char* text = entry ? api().utf8(entry, &size) : nullptr;
    if (!text) {
      api().error_clear();
      continue;
    }
    auto length = static_cast<size_t>(size);
    while (length > 1 && text[length - 1] == '/') --length;
    if (length > longest && length + 1 < file.size() && file[length] == '/' && memcmp(file.data(), text, length) == 0)
      longest = length;
  }
  api().error_clear();  // sys.path that is not a list
  return longest && longest < 0xffff ? static_cast<uint16_t>(longest + 1) : 0;
}

// The folder of Python's own library, with the slash after it; empty: not known.
std::string_view library_folder() noexcept {
  static char folder[1024];
  static size_t length = 0;
  if (length != 0) return {folder, length};
  Object* os = api().dict_get(api().modules(), "os");  // borrowed
  const Ref file(os ? api().get_attr(os, "__file__") : static_cast<Object*>(nullptr));
  const std::string_view text = file ? Text(file.get()).view() : std::string_view{};
  const size_t slash = text.rfind('/');
  api().error_clear();
  if (slash == text.npos || slash + 1 > sizeof(folder)) return {};
  memcpy(folder, text.data(), slash + 1);
  length = slash + 1;
  return {folder, length};
}

// Whether a function of this file is neither of Python's library nor of a package that is installed. What is installed
// in editable form lies elsewhere, and is the program's.
bool is_of_program(std::string_view file) noexcept {
  const auto begins = [file](std::string_view text) { return file.substr(0, text.size()) == text; };
  // Code that was made of a text has no file: that of exec(), `python -c` and notebooks is the program's, what
  // libraries make is not ("<frozen os>", "<eval_with_key>.3", "<__array_function__ internals>").
  if (begins("<")) return begins("<string>") || begins("<stdin>") || begins("<ipython-input");
  if (file.find("/site-packages/") != file.npos || file.find("/dist-packages/") != file.npos) return false;
  const std::string_view library = library_folder();
  return library.empty() ? file.find("/lib/python3") == file.npos : !begins(library);
}

// Whether `code` is that of torch.nn.Module.__call__; the function's own name differs between versions.
bool is_module_call(Object* code) noexcept {
  Object* module = api().dict_get(api().modules(), "torch.nn.modules.module");
  if (!module) return false;
  const Ref type(api().get_attr(module, "Module"));
  const Ref call(type ? api().get_attr(type.get(), "__call__") : static_cast<Object*>(nullptr));
  const Ref its_code(call ? api().get_attr(call.get(), "__code__") : static_cast<Object*>(nullptr));
  api().error_clear();
  return its_code.get() == code;
}

// The number of positional arguments, without *args; -1: not known.
long argument_count(Object* code) noexcept {
  const Ref count(api().get_attr(code, "co_argcount"));
  return count ? api().as_long(count.get()) : -1;
}

// Whether `code` takes no positional argument but *args.
bool takes_anything(Object* code) noexcept {
  const Ref flags(api().get_attr(code, "co_flags"));
  constexpr long kVarArgs = 0x04;  // CO_VARARGS, cpython/Include/cpython/code.h
  return argument_count(code) == 0 && flags && (api().as_long(flags.get()) & kVarArgs);
}

// Whether it is the setter of a property: (self, value).
bool is_setter(Object* code) noexcept { return argument_count(code) == 2; }

// Whether it tells a parent how its children end (workers.h).
bool is_about_children(std::string_view file, std::string_view name) noexcept {
  if (ends_with(file, "/multiprocessing/popen_fork.py") || ends_with(file, "/multiprocessing/popen_forkserver.py"))
    return name == "poll" || name == "_send_signal";
  return ends_with(file, "/subprocess.py") && (name == "_handle_exitstatus" || name == "send_signal");
}

// Whether it compiles a frame (dynamo) or a graph (inductor); 2.0 to 2.14.
bool is_compiler(std::string_view file, std::string_view name) noexcept {
  return (name == "_compile" && ends_with(file, "torch/_dynamo/convert_frame.py")) ||
         (name == "compile_fx_inner" && ends_with(file, "torch/_inductor/compile_fx.py"));
}

// Whether it is of the script by which `torchprof attach` comes to 3.14 and later (launcher/attach/attach.cpp). The
// interpreter gives that no name; it has one function.
bool is_own_script(Object* code, std::string_view file, std::string_view name) noexcept {
  if (file != "<string>" || name != "<module>") return file == "<string>" && name == kOwnFunction;
  const Ref names(api().get_attr(code, "co_names"));
  const bool has_names = names && type_of(names.get()) == api().tuple_type && api().tuple_size(names.get()) > 0;
  const char* const first = has_names ? api().utf8(api().tuple_get(names.get(), 0), nullptr) : nullptr;
  return first && std::string_view(first) == kOwnFunction;
}

// Of the package that records a part of the program for it (packaging/python/).
constexpr std::string_view kOwnProfilerFile = "/torchprof/_profile.py";
bool is_own_package(std::string_view file) noexcept {
  return ends_with(file, kOwnProfilerFile) || ends_with(file, "/torchprof/_annotations.py") ||
         ends_with(file, "/torchprof/_library.py");
}

constexpr std::string_view kProfilerFile = "torch/profiler/profiler.py";  // 1.13 to 2.14

FunctionKind kind_of(Object* code, std::string_view file, std::string_view name) noexcept {
  if (ends_with(file, "torch/nn/modules/module.py") && (ends_with(name, "_call_impl") || name == "__call__") &&
      is_module_call(code))
    return FunctionKind::kModuleCall;
  // Optimizer.profile_hook_step wraps every optimizer's step in `wrapper(*args, **kwargs)` (1.13 to 2.14). Since 2.5
  // that file also has a decorator with a wrapper(func), which runs on import.
  if (name == "wrapper" && ends_with(file, "torch/optim/optimizer.py") && takes_anything(code))
    return FunctionKind::kOptimizerStep;
  if (name == "_find_and_load" && file == "<frozen importlib._bootstrap>")
    return g_imports_in_brief ? FunctionKind::kImport : FunctionKind::kFunction;
  if (is_compiler(file, name)) return g_imports_in_brief ? FunctionKind::kCompile : FunctionKind::kFunction;
  if (name == "step" && (ends_with(file, kProfilerFile) || ends_with(file, kOwnProfilerFile)))
    return FunctionKind::kProfilerStep;
  if (ends_with(file, "/threading.py") && (name == "_bootstrap_inner" || (name == "name" && is_setter(code))))
    return FunctionKind::kThread;
  if (ends_with(file, "torch/distributed/distributed_c10d.py") &&
      (name == "init_process_group" || name == "new_group" || name == "_new_group_with_tag" || name == "split_group" ||
       name == "shrink_group"))  // 1.13 to 2.14
    return FunctionKind::kProcessGroup;
  if ((ends_with(file, "/multiprocessing/process.py") && (name == "_after_fork" || name == "_bootstrap")) ||
      (ends_with(file, "/multiprocessing/context.py") && name == "_after_fork") ||  // of SpawnProcess
      (ends_with(file, "torch/utils/data/_utils/worker.py") && name == "_worker_loop") ||
      (ends_with(file, "torch/utils/data/dataloader.py") && name == "create_fetcher") || is_about_children(file, name))
    return FunctionKind::kWorker;
  if (file == kOwnFile || is_own_package(file) || is_own_script(code, file, name)) return FunctionKind::kOurs;
  return FunctionKind::kFunction;
}

// What a code object says of itself.
struct CodeTexts {
  explicit CodeTexts(Object* code) noexcept
      : file_object(api().get_attr(code, "co_filename")),
        name_object(api().get_attr(code, "co_name")),
        qualname_object(api().minor >= 11 ? api().get_attr(code, "co_qualname") : static_cast<Object*>(nullptr)),
        line_object(api().get_attr(code, "co_firstlineno")),
        file(file_object.get()),
        name(name_object.get()),
        qualname(qualname_object.get()) {
    line = line_object ? api().as_long(line_object.get()) : 0;
    api().error_clear();
  }
  // With its place alone.
  FunctionDef definition() const noexcept {
    FunctionDef definition{};
    definition.file = intern(file.view());
    definition.line = static_cast<uint32_t>(line);
    definition.trim = import_prefix(file.view());
    return definition;
  }

  const Ref file_object, name_object, qualname_object, line_object;
  const Text file, name, qualname;
  long line = 0;
};

// 3.12: code objects of modules that are frozen into the interpreter are immortal and shared by all interpreters
// (Include/object.h, Tools/build/deepfreeze.py; 3.13 has none). What they carry belongs to the first interpreter;
// others, which may run at the same time, keep what they have learned about them here.
struct SharedCode {
  std::atomic<Object*> code;
  std::atomic<uintptr_t> bits;
};
constinit SharedCode g_shared[2048];  // there are about 900 of them

bool is_shared(Object* code) noexcept {
  if (api().minor != 12) return false;
  int32_t references = 0;
  memcpy(&references, code, sizeof(references));
  return references < 0;  // _Py_IsImmortal()
}

// nullptr: there is no room.
SharedCode* shared_place(Object* code) noexcept {
  const uintptr_t hash = (reinterpret_cast<uintptr_t>(code) >> 4) * 0x9e3779b97f4a7c15u >> 32;
  for (size_t i = 0; i < std::size(g_shared); ++i) {
    SharedCode& place = g_shared[(hash + i) % std::size(g_shared)];
    Object* expected = nullptr;
    if (place.code.compare_exchange_strong(expected, code, std::memory_order_relaxed) || expected == code)
      return &place;
  }
  return nullptr;
}

// CPython's own function makes room for all indices of the process, so other owners get an empty slot. When the code
// object dies, CPython calls their functions for freeing with that slot. Such a function may be gone by then (made with
// ctypes, at the end of the interpreter), and the program would crash. So we make room only up to our slot.
void set_extra(Object* code, Function function) noexcept {
  using detail::Extra;
  const Size ours = detail::g_extra;
  auto* extra = detail::g_extra_offset == 0 ? nullptr : static_cast<Extra*>(read_pointer(code, detail::g_extra_offset));
  if (detail::g_extra_offset == 0 || (extra && extra->size > ours)) {
    api().set_extra(code, ours, reinterpret_cast<void*>(function.bits));
    return;
  }
  // Allocated as CPython does it, since CPython frees it.
  const Size before = extra ? extra->size : 0;
  extra = static_cast<Extra*>(api().realloc(extra, sizeof(Size) + static_cast<size_t>(ours + 1) * sizeof(void*)));
  if (!extra) return;
  for (Size i = before; i < ours; ++i) extra->slots[i] = 0;
  extra->slots[ours] = function.bits;
  extra->size = ours + 1;
  write_pointer(code, detail::g_extra_offset, extra);
}

// PyCodeObject.co_extra, whatever the version: in a code object of our own it is the one word that changes when the API
// sets a mark, and the mark is where it points to. 0: there is no such word.
size_t find_extra_offset() noexcept {
  const Api& a = api();
  const Ref size(a.get_attr(a.code_type, "__basicsize__"));
  const Ref code(a.code_new ? a.code_new("torchprof", "torchprof", 1) : static_cast<Object*>(nullptr));
  uintptr_t before[64] = {}, after[std::size(before)] = {};
  const long bytes = size ? a.as_long(size.get()) : 0;
  if (!code || bytes < static_cast<long>(sizeof(uintptr_t)) || bytes > static_cast<long>(sizeof(before))) return 0;
  const auto words = static_cast<size_t>(bytes) / sizeof(uintptr_t);
  const Function mark = Function::make({0xabcde}, FunctionKind::kFunction);
  memcpy(before, code.get(), words * sizeof(uintptr_t));
  if (a.set_extra(code.get(), detail::g_extra, reinterpret_cast<void*>(mark.bits)) != 0) return 0;
  memcpy(after, code.get(), words * sizeof(uintptr_t));
  size_t found = 0, changed = 0;
  for (size_t i = 0; i < words; ++i) {
    if (before[i] == after[i]) continue;
    found = i;
    ++changed;
  }
  auto* extra = changed == 1 && before[found] == 0 ? reinterpret_cast<detail::Extra*>(after[found]) : nullptr;
  if (!extra || extra->size <= detail::g_extra || extra->slots[detail::g_extra] != mark.bits) {
    a.set_extra(code.get(), detail::g_extra, nullptr);
    return 0;
  }
  extra->size = 0;  // so that no owner of another slot is told of the end of this code object
  return found * sizeof(uintptr_t);
}

}  // namespace

bool prepare_objects() noexcept {
  const Api& a = api();
  if (!a.request_extra || !a.get_extra || !a.set_extra) return false;
  if (detail::g_extra < 0) detail::g_extra = a.request_extra(nullptr);  // the same in every turn
  if (detail::g_extra < 0) return false;
  detail::g_extra_offset = find_extra_offset();
  a.error_clear();
  return true;
}

bool prepare_objects_here() noexcept { return api().request_extra(nullptr) == detail::g_extra; }

Function detail::function_slow(Object* code) noexcept {
  const KeepError keep;
  void* extra = nullptr;
  api().get_extra(code, g_extra, &extra);
  if (const auto bits = reinterpret_cast<uintptr_t>(extra); bits > Function::kNoId) return {bits};
  const bool is_first = is_first_interpreter();
  SharedCode* const shared = is_first || !is_shared(code) ? nullptr : shared_place(code);
  if (shared)
    if (const uintptr_t bits = shared->bits.load(std::memory_order_relaxed)) return {bits};
  const CodeTexts texts(code);
  FunctionKind kind = kind_of(code, texts.file.view(), texts.name.view());
  if (kind == FunctionKind::kOurs) {
    const Function ours = Function::make({}, kind);
    if (is_first || !is_shared(code)) set_extra(code, ours);
    api().error_clear();
    return ours;
  }
  // What we know about modules, groups and workers is guarded by the first interpreter's GIL.
  if (!is_first && kind != FunctionKind::kThread) kind = FunctionKind::kFunction;
  // At the level `modules` this may be the very first event. Without the spool the function could not be defined, and
  // would count as a plain one. How children end is worth no spool of its own.
  if (kind != FunctionKind::kFunction && kind != FunctionKind::kThread &&
      !is_about_children(texts.file.view(), texts.name.view()) && !session::open_spool())
    return {};
  FunctionDef definition = texts.definition();
  definition.name = intern(texts.name.view());
  definition.qualname = texts.qualname_object ? intern(texts.qualname.view()) : StringId{};
  // Of importlib's function itself: what stands for an import is defined by define_import().
  definition.kind = kind == FunctionKind::kImport ? FunctionKind::kFunction : kind;
  const FunctionId id = session::define_function(definition);
  const bool has_lines = id && is_of_program(texts.file.view()) && define_lines(id, code);
  const Function function = id ? Function::make(id, kind, has_lines) : Function{};
  if (id && shared)
    shared->bits.store(function.bits, std::memory_order_relaxed);
  else if (id && (is_first || !is_shared(code)))
    set_extra(code, function);
  api().error_clear();
  return function;
}

Function detail::seen_function_slow(Object* code) noexcept {
  const KeepError keep;
  const Ref file_object(api().get_attr(code, "co_filename"));
  const Ref name_object(api().get_attr(code, "co_name"));
  const Text file(file_object.get());
  const Text name(name_object.get());
  const bool is_plain = kind_of(code, file.view(), name.view()) == FunctionKind::kFunction;
  api().error_clear();
  if (!is_plain) return function_slow(code);
  if (is_first_interpreter() || !is_shared(code)) set_extra(code, {Function::kNoId});
  return {Function::kNoId};
}

bool is_of_profiler(Object* code) noexcept {
  const KeepError keep;
  const Ref file_object(api().get_attr(code, "co_filename"));
  const Text file(file_object.get());
  return ends_with(file.view(), kProfilerFile) || ends_with(file.view(), kOwnProfilerFile);
}

FunctionId define_compilation(Object* code) noexcept {
  const CodeTexts texts(code);
  constexpr std::string_view kWhat = "compile ";
  char name[512];
  const std::string_view function = texts.name.view().substr(0, sizeof(name) - kWhat.size());
  memcpy(name, kWhat.data(), kWhat.size());
  memcpy(name + kWhat.size(), function.data(), function.size());
  FunctionDef definition = texts.definition();
  definition.name = intern({name, kWhat.size() + function.size()});
  definition.kind = FunctionKind::kCompile;
  return session::define_function(definition);
}

FunctionId define_import(FunctionId id, StringId name, Object* file) noexcept {
  const Text text(file);
  FunctionDef definition{};
  definition.id = id;
  definition.name = name;
  if (!text.view().empty()) definition.file = intern(text.view());
  definition.trim = import_prefix(text.view());
  definition.kind = FunctionKind::kImport;
  return session::define_function(definition);
}

}  // namespace torchprof::python
