#include "tracer/python/offsets.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "tracer/process/readable.h"

namespace torchprof::python {
namespace {

// ---- 3.10 to 3.12 ---------------------------------------------------------------------------------------------------

constexpr FrameLayout kFrames[] = {
    {24, false, 0, 32, 96, 0, 24, 48, 8, 0, 0, 0, 0, 0, 0, 0},            // 3.10
    {56, true, 8, 32, 56, 184, 48, 56, 16, 68, 69, 16, 160, 72, 48, 72},  // 3.11
    {56, true, 0, 0, 56, 192, 8, 0, 0, 0, 70, 72, 144, 68, 40, 56},       // 3.12
};
// Checked by check_layout() in every process; test: tests/e2e/python/test_python.py, on every version that is found.
constexpr Layout kProfile[] = {
    {44, 56, 0, 32, 352, 96},  // 3.10
    {44, 64, 24, 32, 72, 56},  // 3.11
};
// GCState.callbacks; test: tests/e2e/python/test_gc.py.
constexpr size_t kCallbacks[] = {832, 864, 328};

// ---- what is found --------------------------------------------------------------------------------------------------

FrameLayout g_found{};
const FrameLayout* g_layout_of_frames = nullptr;
CallbacksPlace g_callbacks{};
char g_why_no_frames[120] = "not looked for yet";

size_t basic_size(Object* type) noexcept {
  const Ref size(type ? api().get_attr(type, "__basicsize__") : static_cast<Object*>(nullptr));
  const long value = size ? api().as_long(size.get()) : 0;
  api().error_clear();
  return value > 0 ? static_cast<size_t>(value) : 0;
}

template <class T>
T word_at(const void* base, size_t offset) noexcept {
  T value;
  memcpy(&value, static_cast<const char*>(base) + offset, sizeof(value));
  return value;
}

// _Py_DebugOffsets as numbers of eight bytes: three of the whole, then the sections, each of which begins with the size
// of its structure. The first fields of a section have been the same in every version; `find` looks for one from where
// the last was.
class DebugOffsets {
 public:
  // False: they are not there, or say that they are another version's or build's.
  bool open() noexcept {
    Dl_info info;
    const void* found = nullptr;
    const void* runtime = symbol("_PyRuntime");
    if (!runtime) return fail("it exports no _PyRuntime");
    if (!dladdr1(runtime, &info, const_cast<void**>(&found), RTLD_DL_SYMENT) || !found)
      return fail("the size of _PyRuntime is not known");
    const size_t size = static_cast<const ElfW(Sym)*>(found)->st_size;
    count_ = std::min(size / sizeof(uint64_t), std::size(words_));
    if (count_ < kFixed) return fail("_PyRuntime is too small");
    memcpy(words_, runtime, count_ * sizeof(uint64_t));
    constexpr uint64_t kCookie = 0x7970677562656478;  // "xdebugpy"
    if (words_[0] != kCookie) return fail("_PyRuntime does not begin with its cookie");
    // PY_VERSION_HEX
    if (words_[1] >> 24 != 3 || (words_[1] >> 16 & 0xff) != static_cast<uint64_t>(api().minor))
      return fail("_Py_DebugOffsets is of another version");
    if (words_[2] != 0) return fail("_Py_DebugOffsets is of a free-threaded build");
    if (words_[kRuntimeSize] != size) return fail("_Py_DebugOffsets has another size of _PyRuntime");
    return true;
  }

  bool read(FrameLayout& out, CallbacksPlace& callbacks) noexcept {
    size_t i = kInterpreter;
    const size_t interpreter_size = words_[i];
    if (!is_field(i, 3)) return fail("PyInterpreterState is not what it should be");
    out.threads = words_[i + 3];
    callbacks = {0, interpreter_size};

    if (!find(i, 5, [this](size_t k) { return words_[k + 1] == 0 && words_[k + 2] == 8 && words_[k + 3] == 16; }))
      return fail("PyThreadState is not found in _Py_DebugOffsets");
    out.next_thread = words_[i + 2], out.of_thread = words_[i + 3], out.current = words_[i + 4];
    if (!is_field(i, 4) || !find_tid(i, out.tid)) return fail("PyThreadState is not what it should be");

    if (!find(i, 6, [this](size_t k) { return words_[k + 1] == 8 && words_[k + 2] == 0 && is_field(k, 5); }))
      return fail("_PyInterpreterFrame is not found in _Py_DebugOffsets");
    out.previous = words_[i + 1], out.code = words_[i + 2], out.instruction = words_[i + 3], out.owner = words_[i + 5];

    // The instructions are a PyCodeObject's last field.
    const size_t code = basic_size(api().code_type);
    if (!find(i, 6, [this, code](size_t k) { return code && words_[k] == code + 8 && is_field(k, 5); }))
      return fail("PyCodeObject is not found in _Py_DebugOffsets");
    out.file = words_[i + 1], out.qualname = words_[i + 3], out.lines = words_[i + 4], out.line = words_[i + 5];
    if (!find(i, 1, [this, code](size_t k) { return words_[k] == code; }))
      return fail("the instructions are not found in _Py_DebugOffsets");
    out.first = code;

    // PyObject {size, ob_type}: as abi.h has it.
    if (!find(i, 2, [this](size_t k) { return words_[k] == 16 && words_[k + 1] == 8; }))
      return fail("PyObject is not what it should be");
    out.code_units = words_[i];

    const size_t bytes = basic_size(static_cast<Object*>(symbol("PyBytes_Type")));  // with its first byte
    if (!find(i, 3,
              [this, bytes](size_t k) { return is_field(k, 2) && words_[k + 1] == 16 && words_[k + 2] + 1 == bytes; }))
      return fail("PyBytesObject is not found in _Py_DebugOffsets");
    out.bytes_length = words_[i + 1], out.bytes_data = words_[i + 2];

    const size_t text = basic_size(static_cast<Object*>(symbol("PyUnicode_Type")));
    if (!find(i, 4, [this, text](size_t k) { return words_[k] == text && is_field(k, 3); }))
      return fail("PyUnicodeObject is not found in _Py_DebugOffsets");
    out.text_state = words_[i + 1], out.text_length = words_[i + 2], out.ascii_text = words_[i + 3];
    // PyCompactUnicodeObject {PyASCIIObject, utf8_length, utf8}; in _Py_DebugOffsets since 3.15.
    out.other_text = out.ascii_text + 16;
    return has_text(out) || fail("a str is not what it should be");
  }

 private:
  static constexpr size_t kFixed = 10, kRuntimeSize = 3, kInterpreter = 6;
  static constexpr size_t kLargest = 1 << 20;  // bytes of a PyInterpreterState; 3.15 has 260,000

  static bool fail(const char* why) noexcept {
    snprintf(g_why_no_frames, sizeof(g_why_no_frames), "%s", why);
    return false;
  }

  // Moves `i` on to the next section that is like this and has `words` of them.
  template <class IsIt>
  bool find(size_t& i, size_t words, IsIt is_it) const noexcept {
    while (++i + words <= count_)
      if (is_it(i)) return true;
    return false;
  }

  // Whether the section at `i` says a size, and `fields` of them within it.
  bool is_field(size_t i, size_t fields) const noexcept {
    if (i + fields >= count_ || words_[i] == 0 || words_[i] > kLargest) return false;
    for (size_t k = i + 1; k <= i + fields; ++k)
      if (words_[k] >= words_[i]) return false;
    return true;
  }

  // thread_id and native_thread_id, which stand side by side, by what the calling thread's state has there.
  bool find_tid(size_t i, size_t& tid) const noexcept {
    const char* self = reinterpret_cast<const char*>(api().this_thread());
    constexpr size_t kMostFields = 24, kMostBytes = 16 << 10;
    const size_t size = words_[i];
    if (!self || size > kMostBytes || !Readable().bytes(self, size)) return false;
    const auto me = static_cast<uint64_t>(syscall(SYS_gettid));
    for (size_t k = i + 5; k + 1 < std::min(i + kMostFields, count_); ++k) {
      if (words_[k] + 8 > size || words_[k + 1] + 8 > size) continue;
      if (word_at<pthread_t>(self, words_[k]) != pthread_self() || word_at<uint64_t>(self, words_[k + 1]) != me)
        continue;
      tid = words_[k + 1];
      return true;
    }
    return false;
  }

  // Whether a text that is not ASCII is where it should be.
  static bool has_text(const FrameLayout& at) noexcept {
    constexpr size_t kLength = 3;
    const Ref text(api().string("\xc3\xa9t\xc3\xa9"));
    if (!text) return false;
    const void* object = text.get();
    if (!Readable().bytes(object, std::max({at.text_length + 8, at.text_state + 8, at.other_text + kLength})))
      return false;
    return word_at<uint64_t>(object, at.text_length) == kLength &&
           memcmp(static_cast<const char*>(object) + at.other_text, "\xe9t\xe9", kLength) == 0;
  }

  uint64_t words_[192] = {};
  size_t count_ = 0;
};

}  // namespace

void find_offsets() noexcept {
  const auto row = static_cast<size_t>(api().minor - kOldestMinor);
  if (row < std::size(kFrames)) {
    g_found = kFrames[row];
    g_layout_of_frames = &g_found;
    g_callbacks = {kCallbacks[row], kCallbacks[row] + sizeof(void*)};
    return;
  }
  DebugOffsets offsets;
  FrameLayout found{};
  CallbacksPlace callbacks{};
  if (!offsets.open() || !offsets.read(found, callbacks)) return;
  g_found = found;
  g_callbacks = callbacks;
  g_layout_of_frames = &g_found;
}

const FrameLayout* frame_layout() noexcept { return g_layout_of_frames; }
const char* why_no_frames() noexcept { return g_why_no_frames; }
CallbacksPlace callbacks_place() noexcept { return g_callbacks; }

const Layout* profile_layout() noexcept {
  const auto row = static_cast<size_t>(api().minor - kOldestMinor);
  return row < std::size(kProfile) ? &kProfile[row] : nullptr;
}

const char* check_objects() noexcept {
  const KeepError keep;
  const Api& a = api();
  static MethodDef definition = {"torchprof_check", reinterpret_cast<void*>(find_offsets), kMethNoArgs, nullptr};
  const Ref owner(a.tuple_new(0));
  const Ref function(a.function_new(&definition, owner.get(), nullptr));
  if (!function || type_of(function.get()) != a.function_type || function_def(function.get()) != &definition ||
      function_owner(function.get()) != owner.get() || a.function_pointer(function.get()) != definition.function)
    return "a built-in function is not what it should be";
  if (strcmp(type_name(a.function_type), "builtin_function_or_method") != 0) return "a type is not what it should be";
  const Ref method(a.get_attr(a.list_type, "append"));
  if (!method || type_of(method.get()) != a.method_descriptor_type || descriptor_owner(method.get()) != a.list_type ||
      strcmp(descriptor_def(method.get())->name, "append") != 0)
    return "a method of a built-in type is not what it should be";
  using Two = Object* (*)(Object*, Object*);
  using One = Object* (*)(Object*);
  using Numbers = Object* (*)(double, double);
  const auto bind = reinterpret_cast<Two>(symbol("PyMethod_New"));
  const auto new_cell = reinterpret_cast<One>(symbol("PyCell_New"));
  const auto new_complex = reinterpret_cast<Numbers>(symbol("PyComplex_FromDoubles"));
  if (!bind || !new_cell || !new_complex) return "it lacks functions to try";
  const Ref bound(bind(function.get(), owner.get())), cell(new_cell(owner.get())), number(new_complex(0.5, 0.25));
  if (!bound || type_of(bound.get()) != a.method_type || method_function(bound.get()) != function.get())
    return "a bound method is not what it should be";
  if (!cell || type_of(cell.get()) != a.cell_type || cell_value(cell.get()) != owner.get())
    return "a cell is not what it should be";
  if (!number || type_of(number.get()) != a.complex_type || word_at<double>(number.get(), kComplexValue) != 0.5 ||
      word_at<double>(number.get(), kComplexValue + sizeof(double)) != 0.25)
    return "a complex number is not what it should be";
  for (const long value : {0L, 7L, 0x2fedcba9L}) {
    const Ref integer(a.from_long(value));
    if (a.minor >= 12 && (!integer || small_int(integer.get()) != static_cast<uint32_t>(value)))
      return "an int is not what it should be";
  }
  return nullptr;
}

}  // namespace torchprof::python
