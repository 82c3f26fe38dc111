#include "tracer/native/script.h"

#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <iterator>
#include <string_view>

#include "tracer/process/diag.h"
#include "tracer/processor/thunk.h"
#include "tracer/session.h"

namespace torchprof::torch {
namespace {

using detail::ScriptApi;
using detail::Vector;

constexpr size_t kNewString = 32, kOldString = 8;  // sizeof(std::string): C++11 ABI; old ABI, copied on write
constexpr size_t kLongest = kMaxString;            // name of a file or function
constexpr size_t kMostEntries = 4096;

ScriptApi g_api;
std::atomic<bool> g_is_on{false};
std::atomic<uintptr_t> g_run_begin{0}, g_run_size{0};
// Bytes of a StackEntry (96 in 1.13 and 2.6, 104 in 2.14: the iterator of its file grew); 0: not known yet.
std::atomic<size_t> g_entry_size{0};

[[gnu::noinline, gnu::cold]] void stop(const char* found) noexcept {
  if (!g_is_on.exchange(false, std::memory_order_relaxed)) return;
  g_run_size.store(0, std::memory_order_relaxed);
  session::note_source("torchscript lines", SourceState::kFailed, found);
  tell_once_a_run(Cause::kScript, About::kLoss, "lines of TorchScript are no longer recorded: %s", found);
}

// ---- classes of the standard library --------------------------------------------------------------------------------

// libstdc++, basic_string.h: {char*, size, capacity or 16 bytes of text}; cow_string.h: a char* to the text, which
// comes after {size, capacity, int references - 1}.
struct String {
  static constexpr size_t kHead = 24;

  explicit String(const char* where) : at(where), text(field_at<const char*>(where, 0)) {}

  bool is_local() const { return text == at + 16; }
  size_t size() const {
    return g_api.string == kNewString ? field_at<size_t>(at, 8) : field_at<size_t>(text - kHead, 0);
  }
  size_t room() const {
    if (g_api.string == kOldString) return field_at<size_t>(text - kHead, 8);
    return is_local() ? 15 : field_at<size_t>(at, 16);
  }
  bool looks_right() const {
    return reinterpret_cast<uintptr_t>(text) > 4096 && size() <= room() && room() <= kLongest && text[size()] == 0;
  }
  std::string_view view() const { return {text, size()}; }
  void release() const {
    if (g_api.string == kNewString) {
      if (!is_local()) g_api.free(const_cast<char*>(text));
    } else if (room() > 0) {  // the empty one is static
      auto* references = reinterpret_cast<int*>(const_cast<char*>(text) - 8);
      // Pairs with the same in libstdc++, for the other owners: all are done with the text before it is freed.
      if (__atomic_fetch_sub(references, 1, __ATOMIC_ACQ_REL) <= 0) g_api.free(const_cast<char*>(text) - kHead);
    }
  }

  const char* at;
  const char* text;
};

// std::shared_ptr's count of owners, after its vptr (shared_ptr_base.h).
int* owners_of(const char* shared) {
  auto* const block = field_at<char*>(shared, 8);
  return block ? reinterpret_cast<int*>(block + 8) : nullptr;
}

// The graph that the interpreter runs is one of the owners, so we are never the last.
bool is_shared(const char* shared) {
  constexpr int kMostOwners = 1 << 28;
  const int* const owners = owners_of(shared);
  return !owners || (*owners > 1 && *owners < kMostOwners);
}

// ---- torch's answers ------------------------------------------------------------------------------------------------

size_t bytes(const Vector& vector) { return static_cast<size_t>(vector.end - vector.begin); }

// StackEntry: {std::string function; SourceRange: {std::shared_ptr<Source> ...}}
class Entries {
 public:
  explicit Entries(const Vector& vector) : vector_(vector) {}

  // Learns the size of an entry from the first answer that shows it: one with a single entry, or with as many entries
  // as lines (an entry without a file has no line). False: the answer is not as expected.
  bool learn_size(const class Lines& lines) const;
  bool look_right() const {
    const size_t size = g_entry_size.load(std::memory_order_relaxed);
    if (bytes(vector_) % size != 0 || bytes(vector_) / size > kMostEntries) return false;
    for (const char* at = vector_.begin; at != vector_.end; at += size)
      if (!String(at).looks_right() || !is_shared(at + g_api.string)) return false;
    return true;
  }
  void release() const {
    const size_t size = g_entry_size.load(std::memory_order_relaxed);
    for (const char* at = vector_.begin; at != vector_.end; at += size) {
      // Pairs with libstdc++'s own decrement by the last owner, which then deletes the object: we are done with it.
      if (int* const owners = owners_of(at + g_api.string)) __atomic_fetch_sub(owners, 1, __ATOMIC_ACQ_REL);
      String(at).release();
    }
    g_api.free(vector_.begin);
  }

 private:
  const Vector& vector_;
};

// FileLineFunc: {std::string file; size_t line; std::string function}
class Lines {
 public:
  explicit Lines(const Vector& vector) : vector_(vector) {}

  size_t count() const { return bytes(vector_) / size(); }
  String file(size_t i) const { return String(vector_.begin + i * size()); }
  size_t line(size_t i) const { return field_at<size_t>(vector_.begin + i * size(), g_api.string); }
  String function(size_t i) const { return String(vector_.begin + i * size() + g_api.string + sizeof(size_t)); }
  bool look_right() const {
    if (bytes(vector_) % size() != 0 || count() > kMostEntries) return false;
    for (size_t i = 0; i < count(); ++i)
      if (!file(i).looks_right() || !function(i).looks_right() || line(i) > INT32_MAX) return false;
    return true;
  }
  void release() const {
    for (size_t i = 0; i < count(); ++i) {
      file(i).release();
      function(i).release();
    }
    if (vector_.begin) g_api.free(vector_.begin);
  }

 private:
  static size_t size() { return 2 * g_api.string + sizeof(size_t); }
  const Vector& vector_;
};

bool Entries::learn_size(const Lines& lines) const {
  if (g_entry_size.load(std::memory_order_relaxed) != 0) return true;
  const size_t smallest = g_api.string + 64;  // 1.13's
  const size_t count = bytes(vector_) < 2 * smallest ? 1 : lines.count();
  const size_t size = count ? bytes(vector_) / count : 0;
  if (size < smallest || size >= 2 * smallest || bytes(vector_) != size * count) return false;
  for (size_t i = 0; i < count; ++i) {
    const String name(vector_.begin + i * size);
    if (!name.looks_right() || (i < lines.count() && name.view() != lines.function(i).view())) return false;
  }
  g_entry_size.store(size, std::memory_order_relaxed);
  return true;
}

// ---- functions ------------------------------------------------------------------------------------------------------

struct Known {
  std::atomic<uint64_t> key;  // file and name; 0: free
  std::atomic<uint32_t> id;   // 0: not yet
};
Known g_known[4096];  // functions that do not fit are left out

// Two threads may define the same function twice, which does no harm.
FunctionId function_of(std::string_view file, std::string_view name) noexcept {
  const StringId file_id = session::intern(file), name_id = session::intern(name);
  if (!file_id || !name_id) return {};
  const uint64_t key = uint64_t{file_id.value} << 32 | name_id.value;
  for (uint64_t i = key * 0x9e3779b97f4a7c15u >> 40, tries = 0; tries < 16; ++i, ++tries) {
    Known& known = g_known[i % std::size(g_known)];
    uint64_t found = known.key.load(std::memory_order_relaxed);
    if (found == 0 && known.key.compare_exchange_strong(found, key, std::memory_order_relaxed)) found = key;
    if (found != key) continue;
    if (const uint32_t id = known.id.load(std::memory_order_relaxed)) return {id};
    FunctionDef definition{};
    definition.name = name_id;
    definition.file = file_id;
    definition.kind = FunctionKind::kScript;
    const FunctionId id = session::define_function(definition);
    known.id.store(id.value, std::memory_order_relaxed);
    return id;
  }
  return {};
}

const char* find_all(const Api& api) noexcept {
  if (!api.row) return "this torch's strings are not known";
  void* const library = api.symbols;
  if (!library) return "libtorch_cpu cannot be found";
  const auto find_in = [library](const char* name) {
    void* const found = dlsym(RTLD_DEFAULT, name);  // what is preloaded comes first, for torch too
    return found ? found : dlsym(library, name);
  };
  void* const run = find_in("_ZN5torch3jit16InterpreterState3runERSt6vectorIN3c106IValueESaIS4_EE");
  ScriptApi found;
  found.current = reinterpret_cast<decltype(found.current)>(find_in("_ZN5torch3jit16currentCallstackEv"));
  found.prepare = reinterpret_cast<decltype(found.prepare)>(
      find_in("_ZN5torch8profiler4impl16prepareCallstackERKSt6vectorINS_3jit10StackEntryESaIS4_EE"));
  found.free = reinterpret_cast<decltype(found.free)>(find_in("_ZdlPv"));
  found.string = api.row->string;
  if (!run || !found.current || !found.prepare || !found.free)
    return "this torch does not export the functions that tell them";
  // InterpreterState::run(), which is exported, only jumps to InterpreterStateImpl::run(), which is not; or the
  // compiler has put that into it (PyPI's 2.1, 2.4, 2.11, 2.13 and 2.15). Either way one frame of the stack is what
  // runs the loop.
  const uintptr_t jumps_to = processor::thunk_target(static_cast<const unsigned char*>(run));
  const uintptr_t begin = jumps_to ? jumps_to : reinterpret_cast<uintptr_t>(run);
  const native::CodeRange range = native::function_at(begin + 1);
  if (range.begin != begin || range.size == 0) return "the interpreter of this torch is not where it should be";
  detail::use_script(found);
  g_run_begin.store(range.begin, std::memory_order_relaxed);
  g_run_size.store(range.size, std::memory_order_relaxed);
  return nullptr;
}

}  // namespace

void detail::use_script(const ScriptApi& api) noexcept {
  g_api = api;
  g_entry_size.store(0, std::memory_order_relaxed);
  g_is_on.store(true, std::memory_order_release);  // pairs with the load in script_lines(): g_api is written
}

void find_script(const Api& api) noexcept {
  const char* const why = find_all(api);
  session::note_source("torchscript lines", why ? SourceState::kFailed : SourceState::kOn,
                       why ? why : "torch::jit::currentCallstack");
}

native::CodeRange script_run() noexcept {
  return {g_run_begin.load(std::memory_order_relaxed), g_run_size.load(std::memory_order_relaxed)};
}

bool is_script_loop(uintptr_t run, uintptr_t inner) noexcept {
  constexpr unsigned char kCall = 0xe8;
  const auto* const call = reinterpret_cast<const unsigned char*>(run) - 5;
  if (inner == 0 || *call != kCall) return false;
  const uintptr_t called = run + static_cast<uintptr_t>(field_at<int32_t>(call, 1));
  // There are two such functions at most, so those that were found first are kept for good.
  struct Known {
    std::atomic<uintptr_t> begin{0}, size{0};
  };
  static Known known[4];
  static std::atomic<size_t> taken{0};
  for (const Known& k : known)
    if (k.begin.load(std::memory_order_acquire) == called)  // pairs with the store below: the size belongs to it
      return inner - called < k.size.load(std::memory_order_relaxed);
  const native::CodeRange range = native::function_at(called + 1);
  const uintptr_t size = range.begin == called ? range.size : 0;
  if (taken.load(std::memory_order_relaxed) < std::size(known)) {
    if (const size_t i = taken.fetch_add(1, std::memory_order_relaxed); i < std::size(known)) {
      known[i].size.store(size, std::memory_order_relaxed);
      known[i].begin.store(called, std::memory_order_release);  // pairs with the load above
    }
  }
  return inner - called < size;
}

size_t script_lines(ScriptLine* lines, size_t room) noexcept {
  if (!g_is_on.load(std::memory_order_acquire)) return 0;  // pairs with the store in use_script(): g_api is read below
  const KeepErrno keep;
  const Vector entries = g_api.current();
  if (!entries.begin) return 0;
  const Vector prepared = g_api.prepare(entries);
  const Lines found(prepared);
  const Entries of_torch(entries);
  // What is not released here leaks, a few times at most.
  static std::atomic<int> attempts{8};
  if (!found.look_right() ||
      (of_torch.learn_size(found) ? !of_torch.look_right() : attempts.fetch_sub(1, std::memory_order_relaxed) <= 0)) {
    stop("torch's answer is not as expected");
    return 0;
  }
  if (g_entry_size.load(std::memory_order_relaxed) == 0) return 0;
  size_t count = 0;
  for (size_t i = 0; i < found.count() && count < room; ++i)
    if (const FunctionId id = function_of(found.file(i).view(), found.function(i).view()); id)
      lines[count++] = {id, static_cast<uint32_t>(found.line(i))};
  found.release();
  of_torch.release();
  return count;
}

}  // namespace torchprof::torch
