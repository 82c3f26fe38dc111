#include "tracer/python/imports.h"

#include <cstring>

#include "tracer/process/open_table.h"
#include "tracer/python/interpreters.h"
#include "tracer/python/modules.h"

namespace torchprof::python {

bool g_imports_in_brief = false;

namespace {

// A module that was imported, or should have been. Guarded by the GIL of the first interpreter.
struct Module {
  StringId name;
  FunctionId function;
  bool has_file;  // it is in the definition

  uint64_t hash() const noexcept { return hash_of(name); }
  bool is_free() const noexcept { return !name; }
  bool is_dead() const noexcept { return false; }
  static uint64_t hash_of(StringId name) noexcept { return name.value * 0x9e3779b97f4a7c15u >> 32; }
};
OpenTable<Module> g_modules;

Module* module_of(StringId name) noexcept {
  if (!name) return nullptr;
  if (Module* known = g_modules.find(Module::hash_of(name), [&](const Module& m) { return m.name == name; }))
    return known;
  if (!g_modules.reserve()) return nullptr;
  const FunctionId function = define_import({}, name, nullptr);
  return function ? g_modules.add({name, function, false}) : nullptr;
}

// A function that was compiled, by its own id.
struct Compiled {
  FunctionId function;
  FunctionId compilation;

  uint64_t hash() const noexcept { return hash_of(function); }
  bool is_free() const noexcept { return !function; }
  bool is_dead() const noexcept { return false; }
  static uint64_t hash_of(FunctionId function) noexcept { return function.value * 0x9e3779b97f4a7c15u >> 32; }
};
OpenTable<Compiled> g_compiled;

// The compilation that `frame`, of `function`, does. Dynamo's has the code that it compiles as its first argument.
FunctionId compilation_in(Frame* frame, Function function) noexcept {
  Object* code = first_local(frame, "code");
  if (!code && api().minor == 10) {  // it is in a cell, which lies elsewhere there
    const Ref locals(api().get_attr(reinterpret_cast<Object*>(frame), "f_locals"));
    code = is_a(locals.get(), api().dict_type) ? api().dict_get(locals.get(), "code") : nullptr;
  }
  api().error_clear();
  if (!code || type_of(code) != api().code_type) return function.id();
  const FunctionId compiled = function_of(code).id();
  const uint64_t hash = Compiled::hash_of(compiled);
  if (const Compiled* known = g_compiled.find(hash, [&](const Compiled& c) { return c.function == compiled; }))
    return known->compilation;
  const FunctionId compilation = compiled && g_compiled.reserve() ? define_compilation(code) : FunctionId{};
  if (!compilation) return function.id();
  g_compiled.add({compiled, compilation});
  return compilation;
}

// The name that `frame`, of _find_and_load, was given. nullptr: it is no str, or not one of UTF-8.
const char* name_in(Frame* frame) noexcept {
  Object* name = first_local(frame, "name");
  const char* text = name ? api().utf8(name, nullptr) : nullptr;
  api().error_clear();
  return text;
}

Object* imported(const char* name) noexcept { return api().dict_get(api().modules(), name); }  // borrowed

// The file of a module is known once its import has ended.
void define_file(Frame* frame) noexcept {
  const char* name = name_in(frame);
  Module* known = name ? module_of(session::intern(name)) : nullptr;
  Object* module = known && !known->has_file ? imported(name) : nullptr;
  if (!module) return;
  // Its own dictionary, so that no __getattr__ of the program is called.
  const Ref attributes(api().own_dict(module, nullptr));
  Object* file = is_a(attributes.get(), api().dict_type) ? api().dict_get(attributes.get(), "__file__") : nullptr;
  if (file && file != api().none)
    known->has_file = static_cast<bool>(define_import(known->function, known->name, file));
  api().error_clear();
}

bool calls_the_loader(Object* inner) noexcept {
  const Ref name(inner ? api().get_attr(inner, "co_name") : static_cast<Object*>(nullptr));
  const char* text = name ? api().utf8(name.get(), nullptr) : nullptr;
  return text && strcmp(text, "_find_and_load_unlocked") == 0;
}

// What stands for the import or the compilation that `frame`, of `function`, does; none: it imports nothing, or it
// cannot be told. `inner`: the code that the frame has called; nullptr: it has just begun, or it is the innermost.
FunctionId span_in(Frame* frame, Function function, Object* inner) noexcept {
  if (function.kind() == FunctionKind::kCompile) return compilation_in(frame, function);
  const char* name = name_in(frame);
  if (!name || (imported(name) && !calls_the_loader(inner))) return {};
  const Module* module = module_of(session::intern(name));
  return module ? module->function : FunctionId{};
}

void set_brief(ThreadBuffer& buffer, const Imports& imports) noexcept {
  const bool is_brief = imports.count > 0 && !imports.open[imports.count - 1].is_full;
  on_thread(buffer).epoch = is_brief ? g_epoch | kBrief : g_epoch;
}

Function span_of(const Import& import) noexcept { return Function::make(import.function, FunctionKind::kFunction); }

}  // namespace

void start_imports() noexcept {
  g_imports_in_brief = session::config().imports == torchprof::Imports::kBrief &&
                       (g_level == PythonLevel::kFunctions || g_level == PythonLevel::kCalls);
  if (g_imports_in_brief) SourceMemory::map_before_seal<Imports>();
}

bool begin_import(ThreadBuffer& buffer, Function function, Frame* frame) noexcept {
  if (!is_first_interpreter()) return false;
  const KeepError keep;
  if (!frame) frame = api().current_frame();
  auto* imports = buffer.sources.map<Imports>();
  if (!frame || !imports || imports->count == kMostImports) return false;
  const FunctionId span = span_in(frame, function, nullptr);
  if (!span) return false;
  const bool is_in_compiler = imports->count > 0 && imports->open[imports->count - 1].is_compilers;
  imports->open[imports->count++] = {
      frame, span, 0, 0, buffer.last_op.handle, false, is_in_compiler || function.kind() == FunctionKind::kCompile};
  set_brief(buffer, *imports);
  begin_call(buffer, span_of(imports->open[imports->count - 1]), frame);
  return true;
}

bool end_import(ThreadBuffer& buffer, Function function, Frame* frame, Ticks time) noexcept {
  auto* imports = buffer.sources.mapped<Imports>();
  if (!imports || !is_first_interpreter()) return false;
  const KeepError keep;
  if (!frame) frame = api().current_frame();
  size_t i = imports->count;
  while (i > 0 && imports->open[i - 1].frame != frame) --i;
  if (i == 0) return false;
  imports->count = i - 1;
  set_brief(buffer, *imports);
  end_call(buffer, span_of(imports->open[i - 1]), frame, time);
  if (function.kind() == FunctionKind::kImport) define_file(frame);
  return true;
}

bool detail::begin_in_brief_slow(ThreadBuffer& buffer, Function function, Frame* frame) noexcept {
  auto& imports = *buffer.sources.mapped<Imports>();
  Import& import = imports.open[imports.count - 1];
  if (function.is_plain()) {
    if (buffer.last_op.handle != import.last_op) ++import.ops;
    import.last_op = buffer.last_op.handle;
    if (import.is_compilers) {
      import.calls = 0;  // it shall not come here at each call from now on
      return false;
    }
    if (import.ops < kMostOps && import.calls < kMostCalls) return false;
  } else if (function.is_followed()) {
    if (is_brief_kind(function.kind()))
      begin_import(buffer, function, frame);
    else
      follow(function, frame, false);
    return false;
  } else if (import.is_compilers) {
    return false;
  }
  const KeepError keep;
  import.is_full = true;
  state_callers(buffer, frame);
  return true;
}

void detail::end_in_brief_slow(ThreadBuffer& buffer, Function function, Frame* frame, Ticks time) noexcept {
  if (is_brief_kind(function.kind()))
    end_import(buffer, function, frame, time);
  else
    follow(function, frame, true);
}

// ---- a stack that is stated anew ------------------------------------------------------------------------------------

FoundImports::FoundImports(ThreadBuffer& buffer) noexcept
    : buffer_(buffer), known_(g_imports_in_brief ? buffer.sources.map<Imports>() : nullptr) {}

const Import* FoundImports::add(Frame* frame, Function function, Object* inner) noexcept {
  if (!is_brief_kind(function.kind()) || !known_ || count_ == kMostImports || !is_first_interpreter()) return nullptr;
  const KeepError keep;
  const FunctionId span = span_in(frame, function, inner);
  if (!span) return nullptr;
  Import& found = found_[count_++];
  found = {frame, span, 0, 0, buffer_.last_op.handle, false, function.kind() == FunctionKind::kCompile};
  for (size_t i = 0; i < known_->count; ++i)
    if (known_->open[i].frame == frame && known_->open[i].function == found.function) found = known_->open[i];
  return &found;
}

void FoundImports::set() noexcept {
  if (!known_) return;
  known_->count = count_;
  for (size_t i = 0; i < count_; ++i) {
    known_->open[i] = found_[count_ - 1 - i];
    if (i > 0 && known_->open[i - 1].is_compilers) known_->open[i].is_compilers = true;
  }
  set_brief(buffer_, *known_);
}

}  // namespace torchprof::python
