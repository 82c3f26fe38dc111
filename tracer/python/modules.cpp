#include "tracer/python/modules.h"

#include <cstring>
#include <string_view>
#include <utility>

#include "tracer/process/open_table.h"
#include "tracer/python/code.h"
#include "tracer/python/details.h"
#include "tracer/session.h"

namespace torchprof::python {
namespace {

// ---- identity: address -> id ----------------------------------------------------------------------------------------

// Values of Entry::settled besides a value of g_steps.
constexpr uint32_t kAlways = ~0u, kNotCalled = ~0u - 1;

// Guarded by the GIL.
struct Entry {
  Object* address;
  Object* watch;  // the weak reference, ours; nullptr: dead
  ObjectId id;
  uint32_t settled;  // when a call needs only the id: kAlways, while g_steps has this value, or kNotCalled: not yet
  ObjectId root;
  StringId class_name;
  const char* path;  // NUL-terminated, never freed; nullptr: none
  StringId path_id;
  uint32_t walk;   // the last walk that came by
  uint32_t steps;  // root: g_steps at its last walk; optimizer: how many of its steps were recorded
  ObjectKind kind;
  bool has_stepped;  // an optimizer
  ObjectId stepper;  // of an optimizer: its own id, or that of the first of those that it has replaced
  const void* first_parameter;

  uint64_t hash() const noexcept { return hash_of_address(address); }
  bool is_free() const noexcept { return !address; }
  bool is_dead() const noexcept { return !watch; }
};
OpenTable<Entry> g_entries;
uint32_t g_walks = 0;
uint32_t g_first_calls = 0;
uint32_t g_steps = 0;  // first and second steps of optimizers so far: these bring gradients and state
size_t g_wasted = 0;   // see kMaxWasted

// The last kMost optimizers that no longer exist: a new one may replace one of them. The address of a parameter that is
// gone, too, may have become that of another model's; whoever counts steps notices that (spool/step_counter.h).
class Gone {
 public:
  void add(const Entry& optimizer) noexcept { all_[count_++ % kMost] = optimizer; }
  // Whose steps a new optimizer goes on with: those of the last one of its class that had its first parameter.
  ObjectId take(const Entry& optimizer) noexcept {
    for (size_t back = 1; back <= kMost && optimizer.first_parameter; ++back) {
      Entry& gone = all_[(count_ - back) % kMost];
      if (gone.first_parameter == optimizer.first_parameter && gone.class_name == optimizer.class_name)
        return std::exchange(gone, {}).stepper;
    }
    return {};
  }

 private:
  static constexpr size_t kMost = 64;
  Entry all_[kMost]{};
  size_t count_ = kMost;
};
constinit Gone g_gone;

Entry* find_entry(const Object* address) noexcept {
  return g_entries.find(hash_of_address(address),
                        [&](const Entry& entry) { return entry.address == address && entry.watch; });
}

// Callback of the weak reference; `address` is the object's address, as an int.
Object* on_death(Object* address, Object*) noexcept {
  if (Entry* entry = find_entry(static_cast<Object*>(api().as_pointer(address)))) {
    Object* watch = entry->watch;
    entry->watch = nullptr;
    if (entry->kind == ObjectKind::kOptimizer) g_gone.add(*entry);
    api().decref(watch);
  }
  api().incref(api().none);
  return api().none;
}

ObjectId define_module(const Entry& entry, uint32_t first_call) noexcept {
  ObjectDef definition{};
  definition.id = entry.id;
  definition.class_name = entry.class_name;
  definition.address = reinterpret_cast<uintptr_t>(entry.address);
  definition.kind = entry.kind;
  definition.first_call = first_call;
  definition.stepper = entry.stepper;
  return session::define_object(definition);
}

// Returns the new entry. Older entries may move.
Entry* add(Object* self, ObjectKind kind) noexcept {
  static MethodDef on_death_definition = {"torchprof_on_death", reinterpret_cast<void*>(on_death), kMethO, nullptr};
  if (!g_entries.reserve()) return nullptr;
  const Ref address(api().from_pointer(self));
  const Ref callback(address ? api().function_new(&on_death_definition, address.get(), nullptr)
                             : static_cast<Object*>(nullptr));
  Ref watch(callback ? api().weakref_new(self, callback.get()) : static_cast<Object*>(nullptr));
  if (!watch) {
    api().error_clear();
    return nullptr;
  }
  Entry entry{};
  entry.address = self;
  entry.kind = kind;
  // For a class that Python made this is __name__, which is not asked for because that might run a metaclass.
  entry.settled = kNotCalled;
  entry.class_name = session::intern(type_name(type_of(self)));
  entry.id = define_module(entry, 0);
  if (!entry.id) return nullptr;
  entry.watch = watch.release();
  return g_entries.add(entry);
}

Entry* add_optimizer(Object* self) noexcept {
  Entry* entry = add(self, ObjectKind::kOptimizer);
  if (!entry) return nullptr;
  entry->first_parameter = first_parameter_of(self);
  const ObjectId stepper = g_gone.take(*entry);
  entry->stepper = stepper ? stepper : entry->id;
  return entry;
}

// ---- walks ----------------------------------------------------------------------------------------------------------

// What we allocate must not make the garbage collector run: it calls finalizers.
class WithoutCollector {
 public:
  WithoutCollector() noexcept : was_on_(api().gc_disable() != 0) {}
  ~WithoutCollector() {
    if (was_on_) api().gc_enable();
  }
  WithoutCollector(const WithoutCollector&) = delete;
  WithoutCollector& operator=(const WithoutCollector&) = delete;

 private:
  bool was_on_;
};

class Walk {
 public:
  // `root`: the root of the tree; none: the module with which the walk begins. `refresh`: modules that are known
  // already are recorded again if they have gradients.
  Walk(ObjectId root, bool refresh) noexcept : root_(root), refresh_(refresh) { ++g_walks; }

  size_t visited() const noexcept { return visited_; }

  void from(Object* start, const char* path) noexcept {
    module_type_ = module_type();
    if (!module_type_) return;
    length_ = strnlen(path, kMaxPath);
    memcpy(path_, path, length_);
    visit(start, {}, 0);
  }

 private:
  static constexpr int kMaxDepth = 200;

  static Object* module_type() noexcept {  // of torch: it lives as long as the interpreter
    static Object* type = nullptr;
    if (type) return type;
    Object* module = api().dict_get(api().modules(), "torch.nn.modules.module");
    if (module) type = api().get_attr(module, "Module");
    if (!type) api().error_clear();
    return type;
  }

  // `adopted`: a module that was a root and is part of our tree now; modules with that root get ours.
  void visit(Object* self, ObjectId adopted, int depth) noexcept {
    if (depth > kMaxDepth || ++visited_ > kMaxModules) return;
    Entry* entry = find_entry(self);
    bool has_place = entry != nullptr;
    if (!entry) entry = add(self, ObjectKind::kModule);
    if (!entry || entry->walk == g_walks) return;
    entry->walk = g_walks;
    if (has_place && entry->root != root_) {
      if (entry->root == entry->id) adopted = entry->root;
      if (entry->root != adopted) return;
      has_place = false;
    }
    if (!has_place) place(*entry);
    if (entry->root == entry->id) entry->steps = g_steps;
    if (!has_place || refresh_) record_module(self, {entry->id, entry->root, entry->path_id}, has_place);
    visit_children(self, adopted, depth);
  }

  void place(Entry& entry) noexcept {
    entry.root = root_ ? root_ : entry.id;
    root_ = entry.root;
    const StringTable::Entry* text = session::intern_text({path_, length_});
    entry.path = text ? text->text : nullptr;
    entry.path_id = text ? text->id : StringId{};
  }

  void visit_children(Object* self, ObjectId adopted, int depth) noexcept {
    const Ref attributes(api().own_dict(self, nullptr));
    const Ref children(own_dict_item(attributes.get(), "_modules"));
    Size at = 0;
    Object* key = nullptr;
    Object* child = nullptr;
    while (children && api().dict_next(children.get(), &at, &key, &child)) {
      if (!child || !api().is_subtype(type_of(child), module_type_)) continue;
      Size size = 0;
      const char* name = api().utf8(key, &size);
      const auto name_length = static_cast<size_t>(size);
      if (!name) {
        api().error_clear();
        continue;
      }
      const size_t before = length_;
      if (before + 1 + name_length > kMaxPath) continue;
      if (before) path_[length_++] = '.';
      memcpy(path_ + length_, name, name_length);
      length_ += name_length;
      visit(child, adopted, depth + 1);
      length_ = before;
    }
  }

  ObjectId root_;
  const bool refresh_;
  Object* module_type_ = nullptr;
  size_t visited_ = 0;
  size_t length_ = 0;
  char path_[kMaxPath];
};

void walk_root(Object* self) noexcept {
  const Entry* known = find_entry(self);
  Walk(known ? known->root : ObjectId{}, true).from(self, known && known->path ? known->path : "");
}

// ---- calls ----------------------------------------------------------------------------------------------------------

// The callee's first positional argument: `self`, or the first of `*args`. Borrowed: the frame holds it.
Object* self_of(Frame* frame, FunctionKind kind) noexcept {
  const bool in_args = kind == FunctionKind::kOptimizerStep;
  Object* self = first_local(frame, in_args ? "args" : "self");
  if (self && in_args) self = type_of(self) == api().tuple_type ? api().tuple_get(self, 0) : nullptr;
  return self;
}

// The modules whose calls are open around `frame`, the nearest first. If there are more than kMost, the last place is
// that of the outermost.
struct Callers {
  static constexpr size_t kMost = 64;
  Object* modules[kMost];
  size_t count = 0;

  explicit Callers(Frame* frame) noexcept {
    constexpr int kMaxFramesBack = 1000;
    Ref back(api().frame_back(frame));
    for (int i = 0; back && i < kMaxFramesBack; ++i) {
      auto* caller = reinterpret_cast<Frame*>(back.get());
      const Ref code(api().frame_code(caller));
      if (function_of(code.get()).kind() == FunctionKind::kModuleCall) {
        if (Object* self = self_of(caller, FunctionKind::kModuleCall)) {
          count -= count == kMost;
          modules[count++] = self;
        }
      }
      api().error_clear();
      back.reset(reinterpret_cast<Object*>(api().frame_back(caller)));
    }
  }
};

// Walks from the modules in which `self`, a module that was not seen before, is likely to be found.
void look_for(Object* self, Frame* frame) noexcept {
  const Callers callers(frame);
  if (callers.count > 0 && !find_entry(callers.modules[callers.count - 1]))
    walk_root(callers.modules[callers.count - 1]);
  for (size_t i = 0; i < callers.count && !find_entry(self) && g_wasted < kMaxWasted; ++i) {
    const Entry* caller = find_entry(callers.modules[i]);
    if (!caller || !caller->path) continue;
    Walk walk(caller->root, false);
    walk.from(callers.modules[i], caller->path);
    if (!find_entry(self)) g_wasted += walk.visited();
  }
  if (!find_entry(self)) walk_root(self);
}

ObjectId first_calls_of(Object* self, Frame* frame, FunctionKind kind) noexcept {
  const WithoutCollector without_collector;
  const bool is_module = kind == FunctionKind::kModuleCall;
  Entry* entry = find_entry(self);
  if (!entry && is_module) {
    look_for(self, frame);
    entry = find_entry(self);
  }
  if (!entry) entry = is_module ? add(self, ObjectKind::kModule) : add_optimizer(self);
  if (!entry) return {};
  const ObjectId id = entry->id;
  const bool is_first = entry->settled == kNotCalled;
  if (is_first) define_module(*entry, ++g_first_calls);
  if (!is_module) {
    ++g_steps;
    entry->settled = ++entry->steps == 2 ? kAlways : g_steps - 1;
    record_optimizer(self, id);
  } else if (entry->root != id) {
    entry->settled = kAlways;
  } else if (is_first && entry->steps == g_steps) {
    entry->settled = g_steps;
  } else {
    entry->settled = kAlways;
    walk_root(self);
  }
  return id;
}

}  // namespace

Object* first_local(Frame* frame, const char* name) noexcept {
  Object* value = nullptr;
  if (const Layout* at = layout()) {
    const void* data = at->frame_data ? read_pointer(frame, at->frame_data) : frame;
    value = static_cast<Object*>(read_pointer(data, at->locals));
    if (value && type_of(value) == api().cell_type) value = cell_value(value);
  } else if (api().frame_var) {
    const Ref holder(api().frame_var(frame, name));
    value = holder.get();
  }
  return value;
}

Object* self_in(Frame* frame) noexcept { return self_of(frame, FunctionKind::kModuleCall); }

window::Stepper stepper_in(Frame* frame) noexcept {
  const KeepError keep;
  Object* self = self_of(frame, FunctionKind::kOptimizerStep);
  api().error_clear();
  if (!self) return {};
  Entry* entry = find_entry(self);
  if (!entry) {
    // What it holds is recorded when a call of it is.
    const WithoutCollector without_collector;
    entry = add_optimizer(self);
  }
  if (!entry) return {};
  return {entry->stepper, !std::exchange(entry->has_stepped, true)};
}

ObjectId object_of(Frame* frame, FunctionKind kind) noexcept {
  if (kind == FunctionKind::kFunction || kind == FunctionKind::kProfilerStep || !frame) return {};
  const KeepError keep;
  Object* self = self_of(frame, kind);
  api().error_clear();
  if (!self) return {};
  const Entry* entry = find_entry(self);
  if (entry && (entry->settled == kAlways || entry->settled == g_steps)) [[likely]]
    return entry->id;
  const ObjectId id = first_calls_of(self, frame, kind);
  api().error_clear();
  return id;
}

}  // namespace torchprof::python
