#include "tracer/python/arguments.h"

#include <algorithm>
#include <cstring>

namespace torchprof::python {
namespace {

using torch::PlainValue;
using Kind = PlainValue::Kind;

constexpr Size kMostElements = 64;  // of a container, that are looked at
constexpr Size kMostShown = 30;     // Kineto's SCALAR_LIST_LENGTH_LIMIT; it shows nothing of a longer list
constexpr int kMostNested = 8;
constexpr int kMostLooks = 512;  // objects that are looked at for one argument

Object* g_tensor = nullptr;

// The type that torch infers for an object; equal numbers are equal types.
using Type = uint64_t;
enum : Type { kNoType, kNone, kBoolean, kInteger, kReal, kComplex, kTuple, kDict, kList };
constexpr Type kOptional = Type{1} << 63;

Type with(Type whole, Type part) noexcept { return ((whole ^ part) * 0x9e3779b97f4a7c15u >> 1) | 16; }

Type unify(Type a, Type b) noexcept {
  if (a == b || b == kNone) return a == kNone ? a : a == b ? a : a | kOptional;
  if (a == kNone) return b | kOptional;
  return (a | kOptional) == (b | kOptional) ? a | kOptional : Type{kNoType};
}

Type scalar_type(Object* object) noexcept {
  if (object == api().none) return kNone;
  if (type_of(object) == api().bool_type) return kBoolean;
  if (is_a(object, api().long_type)) return kInteger;
  if (is_a(object, api().float_type)) return kReal;
  return type_of(object) == api().complex_type ? kComplex : kNoType;
}

class Inference {
 public:
  Type type(Object* object, int nested = 0) noexcept {
    if (--looks_left_ < 0 || nested > kMostNested) return kNoType;
    if (const Type scalar = scalar_type(object)) return scalar;
    if (is_a(object, api().tuple_type)) return tuple(object, nested);
    if (is_a(object, api().dict_type)) return dict(object, nested);
    return is_a(object, api().list_type) ? list(object, nested) : Type{kNoType};
  }

 private:
  Type tuple(Object* object, int nested) noexcept {
    const Size size = api().tuple_size(object);
    Type whole = with(kTuple, static_cast<Type>(size));
    for (Size i = 0; i < std::min(size, kMostElements); ++i) {
      const Type part = type(api().tuple_get(object, i), nested + 1);
      if (!part) return kNoType;
      whole = with(whole, part);
    }
    return whole;
  }

  Type dict(Object* object, int nested) noexcept {
    Type keys = kNoType, values = kNoType;
    Size at = 0;
    Object *key = nullptr, *value = nullptr;
    for (Size i = 0; i < kMostElements && api().dict_next(object, &at, &key, &value); ++i) {
      const Type of_key = type(key, nested + 1), of_value = type(value, nested + 1);
      if (!of_key || !of_value) return kNoType;
      keys = i > 0 ? unify(keys, of_key) : of_key;
      values = i > 0 ? unify(values, of_value) : of_value;
      if (!keys || !values) return kNoType;
    }
    return keys ? with(with(kDict, keys), values) : Type{kNoType};
  }

  Type list(Object* object, int nested) noexcept {
    Type elements = kNoType;
    for (Size i = 0; i < std::min(api().list_size(object), kMostElements); ++i) {
      const Type element = type(api().list_get(object, i), nested + 1);
      elements = i > 0 && element ? unify(elements, element) : element;
      if (!elements) return kNoType;
    }
    return elements ? with(kList, elements) : Type{kNoType};
  }

  int looks_left_ = kMostLooks;
};

PlainValue scalar(Object* object, Type type) noexcept {
  PlainValue value;
  switch (type) {
    case kNone:
      value.kind = Kind::kNone;
      break;
    case kBoolean:
      value.kind = Kind::kBoolean;
      value.integer = object == api().true_object;
      break;
    case kInteger: {
      int overflow = 0;
      value.integer = api().as_long_long_and_overflow(object, &overflow);
      value.kind = overflow == 0 ? Kind::kInteger : Kind::kOther;
      break;
    }
    case kReal:
      value.kind = Kind::kReal;
      value.number[0] = api().as_double(object);
      break;
    case kComplex:
      value.kind = Kind::kComplex;
      memcpy(value.number, reinterpret_cast<const char*>(object) + kComplexValue, sizeof(value.number));
      break;
    default:
      break;
  }
  return value;
}

class Arguments {
 public:
  explicit Arguments(PlainValue (&out)[kMostPlainValues]) noexcept : out_(out) {}

  size_t tensors = 0;
  size_t size() const noexcept { return is_full_ ? 0 : size_; }

  void add(Object* object) noexcept {
    if (type_of(object) == g_tensor || is_a(object, g_tensor)) {
      ++tensors;
      PlainValue tensor;
      tensor.kind = Kind::kTensor;
      return put(tensor);
    }
    const Type type = Inference().type(object);
    if (!type) return;
    if (type <= kComplex) return put(scalar(object, type));
    if (is_a(object, api().list_type) && is_list_of_scalars(object)) return add_list(object);
    put({});
  }

 private:
  void put(const PlainValue& value) noexcept {
    is_full_ = is_full_ || size_ == kMostPlainValues;
    if (!is_full_) out_[size_++] = value;
  }

  static bool is_list_of_scalars(Object* list) noexcept {
    const Size size = api().list_size(list);
    if (size > kMostShown) return false;
    for (Size i = 0; i < size; ++i) {
      const Type type = scalar_type(api().list_get(list, i));
      if (type == kNoType || type == kNone) return false;
    }
    return true;
  }

  void add_list(Object* list) noexcept {
    PlainValue head;
    head.kind = Kind::kList;
    head.integer = api().list_size(list);
    put(head);
    for (Size i = 0; i < head.integer; ++i) {
      Object* element = api().list_get(list, i);
      put(scalar(element, scalar_type(element)));
    }
  }

  PlainValue (&out_)[kMostPlainValues];
  size_t size_ = 0;
  bool is_full_ = false;
};

// The function of a static method, a new reference; nullptr: `method` is something else.
Object* function_of_method(Object* method) noexcept {
  if (!method || type_of(method) != api().static_method_type) return nullptr;
  Ref function(api().get_attr(method, "__func__"));
  return function && type_of(function.get()) == api().python_function_type ? function.release() : nullptr;
}

// A member of the class or of a base class, by its name; borrowed.
Object* member(Object* type, const char* name, Object*& key) noexcept {
  if (!key && api().type_lookup) key = api().string(name);  // made once
  return key ? api().type_lookup(type, key) : nullptr;
}

// Whether the Function overrides setup_context(): then forward() has no argument ctx, and gets the defaults as well.
bool overrides_setup(Object* type) noexcept {
  static Object *key = nullptr, *inherited = nullptr;
  Object* method = member(type, "setup_context", key);
  if (!method || method == inherited) return false;
  const Ref function(function_of_method(method));
  const Ref name(function ? api().get_attr(function.get(), "__qualname__") : static_cast<Object*>(nullptr));
  const char* text = name ? api().utf8(name.get(), nullptr) : nullptr;
  if (!text || strcmp(text, "_SingleLevelFunction.setup_context") != 0) return true;
  inherited = method;
  return false;
}

Size count_of(Object* dict) noexcept {
  Object *key = nullptr, *value = nullptr;
  Size at = 0, count = 0;
  while (dict && api().dict_next(dict, &at, &key, &value)) ++count;
  return count;
}

// Adds what comes after the positional arguments, in the order in which forward() names them: keywords (2.14) and
// defaults. False: that cannot be found out.
bool add_named(Arguments& arguments, const Applied& applied) noexcept {
  Size keywords = count_of(applied.keywords);
  const bool has_defaults = overrides_setup(applied.function);
  if (keywords == 0 && !has_defaults) return true;
  static Object* key = nullptr;
  const Ref forward(function_of_method(member(applied.function, "forward", key)));
  if (!forward) return keywords == 0;
  const Ref code(api().get_attr(forward.get(), "__code__"));
  const Ref names(code ? api().get_attr(code.get(), "co_varnames") : static_cast<Object*>(nullptr));
  const Ref count(code ? api().get_attr(code.get(), "co_argcount") : static_cast<Object*>(nullptr));
  const Ref defaults(api().get_attr(forward.get(), "__defaults__"));
  if (!names || !count || !defaults) return false;
  const Size end = api().as_long(count.get());
  const Size first_default = defaults.get() == api().none ? end : end - api().tuple_size(defaults.get());
  for (Size i = api().tuple_size(applied.arguments) + (has_defaults ? 0 : 1); i < end; ++i) {
    const char* name = keywords > 0 ? api().utf8(api().tuple_get(names.get(), i), nullptr) : nullptr;
    Object* value = name ? api().dict_get(applied.keywords, name) : nullptr;
    if (value)
      --keywords;
    else if (has_defaults && i >= first_default)
      value = api().tuple_get(defaults.get(), i - first_default);
    else
      break;
    arguments.add(value);
  }
  return keywords == 0;
}

}  // namespace

void know_tensor_type(Object* type) noexcept { g_tensor = type; }

size_t plain_arguments(const Applied& applied, const char* name, size_t tensors,
                       PlainValue (&out)[kMostPlainValues]) noexcept {
  if (!g_tensor || strcmp(name, type_name(applied.function)) != 0) return 0;
  Arguments arguments(out);
  const Size count = api().tuple_size(applied.arguments);
  for (Size i = 0; i < count; ++i) arguments.add(api().tuple_get(applied.arguments, i));
  const bool has_all = add_named(arguments, applied);
  api().error_clear();
  return has_all && arguments.tensors == tensors ? arguments.size() : 0;
}

}  // namespace torchprof::python
