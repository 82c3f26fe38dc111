#include "tracer/python/details.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "tracer/objects/search.h"
#include "tracer/objects/values.h"
#include "tracer/session.h"
#include "tracer/spool/varint.h"

namespace torchprof::python {
namespace {

const torch::ValueRow* g_row = nullptr;  // nullptr: tensors are not read, or not yet
bool g_searches = false;                 // the layout of tensors is being looked for
Object* g_tensor_base = nullptr;         // torch._C.TensorBase; it lives as long as the interpreter
uint64_t g_written = 0;

void note_modules(SourceState state, const char* text) noexcept { session::note_source("modules", state, text); }

void stop_tensors(const char* why) noexcept {
  g_row = nullptr;
  g_searches = false;
  note_modules(SourceState::kFailed, why);
}

// f(key, value), both borrowed from the dictionary, which nobody else can change meanwhile.
template <class F>
void for_each(Object* dict, F f) noexcept {
  Size at = 0;
  Object* key = nullptr;
  Object* value = nullptr;
  while (dict && api().dict_next(dict, &at, &key, &value)) f(key, value);
}

// f(group) of the parameter groups in an optimizer's dictionary, which may be nullptr.
template <class F>
void for_each_group(Object* attributes, F f) noexcept {
  Object* groups = attributes ? api().dict_get(attributes, "param_groups") : nullptr;
  const Size count = is_a(groups, api().list_type) ? api().list_size(groups) : 0;
  for (Size i = 0; i < count; ++i)
    if (Object* group = api().list_get(groups, i); is_a(group, api().dict_type)) f(group);
}

// At the first module or optimizer: torch is there.
void choose_row() noexcept {
  static bool done = false;
  if (done) return;
  done = true;
  if (!session::config().shapes) return note_modules(SourceState::kOn, "names and paths; no parameters (--shapes off)");
  Object* torch_c = api().dict_get(api().modules(), "torch._C");
  if (torch_c) g_tensor_base = api().get_attr(torch_c, "TensorBase");
  if (torch_c && !g_tensor_base) g_tensor_base = api().get_attr(torch_c, "_TensorBase");  // to 2.0
  api().error_clear();
  if (!g_tensor_base) return stop_tensors("names and paths only: this torch has no TensorBase");
  g_searches = true;
  note_modules(SourceState::kOn, "names and paths; no tensor has shown its layout yet");
}

// While the layout of tensors is not known, every tensor that is at hand is looked at (objects/search.h).
void ask(Object* object) noexcept {
  if (!g_searches || g_row || !is_a(object, g_tensor_base)) return;
  torch::search().see_python_tensor(object);
  if (torch::search().is_hopeless())
    return stop_tensors("names and paths only: no layout that is known fits the tensors of this torch");
  g_row = torch::search().object_row();
  if (!g_row) return;
  char text[session::kNoteSize];
  snprintf(text, sizeof(text), "names, paths and parameters, tensors as in torch %s", g_row->object->name);
  note_modules(SourceState::kOn, text);
}
void ask_all(Object* values) noexcept {
  for_each(values, [](Object*, Object* value) { ask(value); });
}

// Guarded by the GIL.
unsigned char g_part[kMaxDetail];

class Writer {
 public:
  explicit Writer(const Place& place) noexcept : place_(place) {}

  bool has_gradient() const noexcept { return has_gradient_; }
  void finish() noexcept { write_part(); }

  void tag(char tag) noexcept {
    if (make_room()) byte(static_cast<unsigned char>(tag));
  }
  void tag(char tag, Object* key) noexcept {
    if (!make_room()) return;
    byte(static_cast<unsigned char>(tag));
    varint(reinterpret_cast<uintptr_t>(key));
  }

  void parameter(char tag, std::string_view name, Object* object) noexcept {
    if (!g_row || !is_a(object, g_tensor_base) || !make_room()) return;
    const void* impl = impl_of(object);
    if (!impl) return;
    const size_t begin = used_;
    byte(static_cast<unsigned char>(tag));
    text(name);
    varint(reinterpret_cast<uintptr_t>(object));
    if (!tensor(impl)) {
      used_ = begin;
      return;
    }
    const void* gradient = tag == 'p' ? torch::gradient_of(*g_row, impl) : nullptr;
    if (!gradient) return;
    byte('g');
    if (tensor(gradient))
      has_gradient_ = true;
    else
      used_ = begin;
  }

  void named_value(char tag, Object* name, Object* object) noexcept {
    if (!make_room()) return;
    const size_t begin = used_;
    byte(static_cast<unsigned char>(tag));
    text(name_of(name));
    if (!value(object, true)) used_ = begin;
  }

  static std::string_view name_of(Object* name) noexcept {
    Size size = 0;
    const char* text = api().utf8(name, &size);
    if (!text) api().error_clear();
    return text ? std::string_view(text, static_cast<size_t>(size)) : std::string_view("?");
  }

 private:
  static constexpr size_t kMaxElements = 16;  // of a hyperparameter's tuple
  static constexpr size_t kMaxItem = 32 + kMaxName + 2 * torch::kMaxTensor + kMaxElements * 12;
  static_assert(kMaxItem < kMaxDetail);

  bool make_room() noexcept {
    if (kMaxDetail - used_ < kMaxItem) write_part();
    if (g_written < kMaxDetails) return part_ < kMaxParts;
    if (g_row) stop_tensors("names and paths only from here on: there are too many modules");
    return false;
  }

  void write_part() noexcept {
    if (part_ >= kMaxParts || (part_ > 0 && used_ == 0)) return;
    ObjectDetailDef detail{};
    detail.object = place_.object;
    detail.root = place_.root;
    detail.path = place_.path;
    detail.length = static_cast<uint32_t>(used_);
    detail.part = part_++;
    g_written += used_;
    session::define_detail(detail, g_part);
    used_ = 0;
  }

  void byte(unsigned char value) noexcept { g_part[used_++] = value; }
  void varint(uint64_t value) noexcept { used_ = static_cast<size_t>(put_varint(g_part + used_, value) - g_part); }
  void text(std::string_view text) noexcept {
    text = text.substr(0, kMaxName);
    varint(text.size());
    memcpy(g_part + used_, text.data(), text.size());
    used_ += text.size();
  }

  static const void* impl_of(Object* object) noexcept {
    const void* impl = torch::tensor_of(*g_row, object);
    if (!impl) stop_tensors("names and paths only: a torch.Tensor is not as its layout says");
    return impl;
  }

  bool tensor(const void* impl) noexcept {
    const size_t size = torch::encode_tensor(*g_row, impl, g_part + used_);
    used_ += size;
    if (size == 0) stop_tensors("names and paths only: a tensor is not as its layout says");
    return size != 0;
  }

  bool value(Object* object, bool may_nest) noexcept {
    if (!object) return false;
    if (object == api().none) {
      byte('N');
    } else if (type_of(object) == api().bool_type) {
      byte('B');
      byte(api().as_long(object) != 0);
    } else if (is_a(object, api().long_type)) {
      const long long number = api().as_long_long(object);
      if (number == -1 && api().error_occurred()) {
        api().error_clear();
        return false;
      }
      byte('I');
      varint(zigzag_of(number));
    } else if (is_a(object, api().float_type)) {
      const double number = api().as_double(object);
      byte('D');
      memcpy(g_part + used_, &number, sizeof(number));
      used_ += sizeof(number);
    } else if (may_nest && is_a(object, api().tuple_type)) {
      return elements(object);
    } else if (may_nest && g_row && is_a(object, g_tensor_base)) {
      const void* impl = impl_of(object);
      byte('=');
      return impl && tensor(impl);
    } else {
      return false;
    }
    return true;
  }

  bool elements(Object* tuple) noexcept {
    const Size count = api().tuple_size(tuple);
    if (count > static_cast<Size>(kMaxElements)) return false;
    byte('(');
    varint(static_cast<uint64_t>(count));
    for (Size i = 0; i < count; ++i)
      if (!value(api().tuple_get(tuple, i), false)) return false;
    return true;
  }

  const Place place_;
  size_t used_ = 0;
  uint32_t part_ = 0;
  bool has_gradient_ = false;
};

}  // namespace

Object* own_dict_item(Object* dict, const char* key) noexcept {
  if (!dict || !is_a(dict, api().dict_type)) {
    api().error_clear();
    return nullptr;
  }
  Object* item = api().dict_get(dict, key);
  if (!item || !is_a(item, api().dict_type)) return nullptr;
  api().incref(item);
  return item;
}

void record_module(Object* self, const Place& place, bool again) noexcept {
  choose_row();
  Writer writer(place);
  if (g_row || g_searches) {
    const Ref attributes(api().own_dict(self, nullptr));
    const Ref parameters(own_dict_item(attributes.get(), "_parameters"));
    const Ref buffers(own_dict_item(attributes.get(), "_buffers"));
    ask_all(parameters.get());
    ask_all(buffers.get());
    for_each(parameters.get(), [&](Object* key, Object* value) { writer.parameter('p', Writer::name_of(key), value); });
    for_each(buffers.get(), [&](Object* key, Object* value) { writer.parameter('b', Writer::name_of(key), value); });
  }
  if (!again || writer.has_gradient()) writer.finish();
}

void record_optimizer(Object* self, ObjectId id) noexcept {
  choose_row();
  Writer writer({id, {}, {}});
  const Ref attributes(api().own_dict(self, nullptr));
  if (!attributes) api().error_clear();
  for_each_group(attributes.get(), [&](Object* group) {
    writer.tag('G');
    for_each(group, [&](Object* key, Object* value) {
      if (!is_a(value, api().list_type)) return writer.named_value('h', key, value);
      if (Writer::name_of(key) != "params") return;
      const Size size = api().list_size(value);
      for (Size k = 0; k < size; ++k) ask(api().list_get(value, k));
      for (Size k = 0; k < size; ++k) writer.parameter('p', {}, api().list_get(value, k));
    });
  });
  const Ref state(own_dict_item(attributes.get(), "state"));
  for_each(state.get(), [&](Object* key, Object* values) {
    if (!is_a(key, g_tensor_base) || !is_a(values, api().dict_type)) return;
    writer.tag('s', key);
    for_each(values, [&](Object* name, Object* value) { writer.named_value('v', name, value); });
  });
  writer.finish();
}

const void* first_parameter_of(Object* optimizer) noexcept {
  const Ref attributes(api().own_dict(optimizer, nullptr));
  if (!attributes) api().error_clear();
  const void* first = nullptr;
  for_each_group(attributes.get(), [&](Object* group) {
    if (first) return;
    Object* parameters = api().dict_get(group, "params");
    if (is_a(parameters, api().list_type) && api().list_size(parameters) > 0) first = api().list_get(parameters, 0);
  });
  return first;
}

}  // namespace torchprof::python
