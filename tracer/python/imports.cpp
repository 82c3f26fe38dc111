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

bool begin_import(ThreadBuffer& buffer, Frame* frame) noexcept {
  if (!is_first_interpreter()) return false;
  const KeepError keep;
  if (!frame) frame = api().current_frame();
  auto* imports = buffer.sources.map<Imports>();
  const char* name = frame && imports && imports->count < kMostImports ? name_in(frame) : nullptr;
  const Module* module = name && !imported(name) ? module_of(session::intern(name)) : nullptr;
  if (!module) return false;
  Import& import = imports->open[imports->count++];
  import = {frame, module->function, 0, 0, buffer.last_op.handle, false};
  set_brief(buffer, *imports);
  begin_call(buffer, span_of(import), frame);
  return true;
}

bool end_import(ThreadBuffer& buffer, Frame* frame, Ticks time) noexcept {
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
  define_file(frame);
  return true;
}

bool detail::begin_in_brief_slow(ThreadBuffer& buffer, Function function, Frame* frame) noexcept {
  auto& imports = *buffer.sources.mapped<Imports>();
  Import& import = imports.open[imports.count - 1];
  if (function.is_plain()) {
    if (buffer.last_op.handle != import.last_op) ++import.ops;
    import.last_op = buffer.last_op.handle;
    if (import.ops < kMostOps && import.calls < kMostCalls) return false;
  } else if (function.is_followed()) {
    if (function.kind() == FunctionKind::kImport)
      begin_import(buffer, frame);
    else
      follow(function, frame, false);
    return false;
  }
  const KeepError keep;
  import.is_full = true;
  state_callers(buffer, frame);
  return true;
}

void detail::end_in_brief_slow(ThreadBuffer& buffer, Function function, Frame* frame, Ticks time) noexcept {
  if (function.kind() == FunctionKind::kImport)
    end_import(buffer, frame, time);
  else
    follow(function, frame, true);
}

// ---- a stack that is stated anew ------------------------------------------------------------------------------------

FoundImports::FoundImports(ThreadBuffer& buffer) noexcept
    : buffer_(buffer), known_(g_imports_in_brief ? buffer.sources.map<Imports>() : nullptr) {}

const Import* FoundImports::add(Frame* frame, Function function, Object* inner) noexcept {
  if (function.kind() != FunctionKind::kImport || !known_ || count_ == kMostImports || !is_first_interpreter())
    return nullptr;
  const KeepError keep;
  const char* name = name_in(frame);
  if (!name || (imported(name) && !calls_the_loader(inner))) return nullptr;
  const Module* module = module_of(session::intern(name));
  if (!module) return nullptr;
  Import& found = found_[count_++];
  found = {frame, module->function, 0, 0, buffer_.last_op.handle, false};
  for (size_t i = 0; i < known_->count; ++i)
    if (known_->open[i].frame == frame && known_->open[i].function == found.function) found = known_->open[i];
  return &found;
}

void FoundImports::set() noexcept {
  if (!known_) return;
  known_->count = count_;
  for (size_t i = 0; i < count_; ++i) known_->open[i] = found_[count_ - 1 - i];
  set_brief(buffer_, *known_);
}

}  // namespace torchprof::python
