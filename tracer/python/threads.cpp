#include "tracer/python/threads.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <iterator>
#include <string_view>

#include "tracer/process/descriptors.h"
#include "tracer/process/diag.h"
#include "tracer/process/lock.h"
#include "tracer/process/readable.h"
#include "tracer/process/seal.h"
#include "tracer/python/code.h"
#include "tracer/python/events.h"
#include "tracer/python/frames.h"
#include "tracer/python/modules.h"
#include "tracer/python/offsets.h"
#include "tracer/session.h"
#include "tracer/spool/python_stack.h"
#include "tracer/window.h"

namespace torchprof::python {
namespace {

bool is_thread(Object* object) noexcept {
  Object* threading = api().dict_get(api().modules(), "threading");  // borrowed
  const Ref type(threading ? api().get_attr(threading, "Thread") : static_cast<Object*>(nullptr));
  return type && api().is_subtype(type_of(object), type.get()) != 0;
}

// Whether this is threading's first frame of a new thread, whose native id is not set yet.
bool is_bootstrap(Frame* frame) noexcept {
  const Ref code(api().frame_code(frame));
  const Ref name(api().get_attr(code.get(), "co_name"));
  const char* text = name ? api().utf8(name.get(), nullptr) : nullptr;
  return text && strcmp(text, "_bootstrap_inner") == 0;
}

void define_name(ThreadBuffer& buffer, uint32_t tid, std::string_view text) noexcept {
  const StringId name = session::intern(text);
  if (tid != buffer.tid) return session::define_thread_name({}, tid, name);
  OnThread& thread = on_thread(buffer);
  if (name != thread.name) session::define_thread_name(buffer.track, tid, name);
  thread.name = name;
}

// ---- stacks ---------------------------------------------------------------------------------------------------------

constexpr size_t kMostThreads = 512;
constexpr const char* kMemory = "/proc/self/mem";

constinit InterpreterDef g_interpreter{};

// What one reading needs. Only the pages that are used take memory. state_all_stacks() says who uses it.
struct Reading {
  PythonThread threads[kMostThreads];
  PythonStack stack;
  PythonCode code;
  StackFrame frames[PythonStack::kMost];
};
constinit Reading g_reading{};

// What was stated last of each thread: nothing is written twice.
struct Stated {
  uint32_t tid;
  uint32_t beyond;
  uint64_t hash;  // of the frames; 0: nothing
};
constinit Stated g_stated[2 * kMostThreads] = {};
// Functions that were defined here, since their code carries no mark. Emptied where it is full.
struct Defined {
  uint64_t code;
  StringId file, name;
  uint32_t line;
  FunctionId id;
};
constexpr size_t kMostDefined = 2048;
constinit Defined g_defined[2 * kMostDefined] = {};
size_t g_defined_count = 0;
pid_t g_pid = 0;  // of the process that stated and defined it

static_assert(PythonStack::kMost == session::kMostFrames);

void hash_in(uint64_t& hash, uint64_t value) noexcept { hash = (hash ^ value) * 0x9e3779b97f4a7c15u; }

// Of two threads of ours. No fork waits for it: in a child it is free again (begin_defining).
constinit pthread_mutex_t g_defining = PTHREAD_MUTEX_INITIALIZER;

// With the lock. A forked child has neither the parent's statements nor, where it was armed anew, its definitions.
void begin_defining() noexcept {
  const pid_t pid = getpid();
  if (pid == g_pid) return;
  for (Stated& s : g_stated) s = {};
  for (Defined& d : g_defined) d = {};
  g_defined_count = 0;
  g_pid = pid;
}

FunctionId define_once(uint64_t code, const PythonCode& says) noexcept {
  const StringId file = session::intern(says.file()), name = session::intern(says.name());
  if (!file || !name) return {};
  if (g_defined_count == kMostDefined) {
    for (Defined& d : g_defined) d = {};
    g_defined_count = 0;
  }
  uint64_t hash = code;
  hash_in(hash, uint64_t{file.value} << 32 | name.value);
  for (size_t i = hash >> 40;; ++i) {
    Defined& d = g_defined[i % std::size(g_defined)];
    if (d.code == code && d.file == file && d.name == name && d.line == says.first_line()) return d.id;
    if (d.code != 0) continue;
    FunctionDef definition{};
    definition.file = file;
    definition.qualname = name;
    const std::string_view whole = says.name();
    definition.name = session::intern(whole.substr(whole.rfind('.') + 1));  // all of it where there is no dot
    definition.line = says.first_line();
    const FunctionId id = session::define_function(definition);
    if (!id) return {};
    d = {code, file, name, says.first_line(), id};
    ++g_defined_count;
    return id;
  }
}

void resolve(const ProcessMemory& memory, const PythonStack& stack) noexcept {
  Reading& r = g_reading;
  for (size_t i = 0; i < stack.size(); ++i) {
    r.frames[i] = {};
    if (!r.code.read(memory, g_interpreter, stack[i].code)) continue;
    const FunctionId marked = marked_function(memory, stack[i].code);
    if (!r.code.is_same(memory, g_interpreter, stack[i].code)) continue;
    const FunctionId function = define_code(stack[i].code, r.code, marked);
    r.frames[i] = {function, r.code.line(stack[i].offset)};
  }
}

Stated& stated(uint32_t tid) noexcept {
  Stated* free = nullptr;
  for (size_t i = 0; i < std::size(g_stated); ++i) {
    Stated& s = g_stated[(tid + i) % std::size(g_stated)];
    if (s.tid == tid) return s;
    if (s.tid == 0) {
      free = &s;
      break;
    }
  }
  if (!free) {  // of many threads that came and went
    for (Stated& s : g_stated) s = {};
    free = &g_stated[tid % std::size(g_stated)];
  }
  free->tid = tid;
  return *free;
}

void put(uint32_t tid, const PythonStack& stack) noexcept {
  const StackFrame* frames = g_reading.frames + stack.cut();
  size_t count = 0;
  uint64_t hash = stack.beyond() + 1;
  StackFrame* out = g_reading.frames;
  for (size_t i = 0; i < stack.size(); ++i) {
    if (!frames[i].function) continue;
    out[count] = frames[i];
    hash_in(hash, uint64_t{out[count].function.value} << 32 | out[count].line);
    ++count;
  }
  if (count == 0) return;
  Stated& before = stated(tid);
  ThreadStack record{};
  record.tid = tid;
  record.is_same = before.hash == hash;
  record.count = record.is_same ? uint16_t{0} : static_cast<uint16_t>(count);
  record.beyond = stack.beyond();
  record.window = window::is_open() ? window::number() : 0;
  if (session::record_stack(record, out, session::now())) before.hash = hash;
}

// Whether what we read of the calling thread is what the API says. With the GIL held.
bool is_right(const ProcessMemory& memory, Frame* frame) noexcept {
  const Api& a = api();
  Reading& r = g_reading;
  const auto self = static_cast<uint32_t>(syscall(SYS_gettid));
  size_t i = 0;
  const size_t count = find_python_threads(memory, g_interpreter, r.threads, kMostThreads);
  while (i < count && r.threads[i].tid != self) ++i;
  if (i == count || !r.stack.read(memory, g_interpreter, r.threads[i], [](const PythonStack&) {})) return false;
  const Ref code(a.frame_code(frame));
  const Ref file(a.get_attr(code.get(), "co_filename")), name(a.get_attr(code.get(), "co_qualname"));
  const char* file_text = file ? a.utf8(file.get(), nullptr) : nullptr;
  const char* name_text = name ? a.utf8(name.get(), nullptr) : nullptr;
  a.error_clear();
  const PythonPlace& here = r.stack[0];
  return file_text && name_text && here.code == reinterpret_cast<uintptr_t>(code.get()) &&
         r.code.read(memory, g_interpreter, here.code) && r.code.file() == file_text && r.code.name() == name_text &&
         r.code.line(here.offset) == static_cast<uint32_t>(a.frame_line(frame));
}

// With the GIL held: the struct says that the calling thread has it.
bool is_gil(uint64_t address) noexcept {
  uint64_t words[3] = {};
  if (address == 0 || !Readable().bytes(reinterpret_cast<const void*>(address), kBytesOfGil)) return false;
  memcpy(words, reinterpret_cast<const void*>(address), sizeof(words));
  return words[kGilHolder / 8] == reinterpret_cast<uintptr_t>(api().this_thread()) &&
         static_cast<uint32_t>(words[kGilIsLocked / 8]) == 1;
}

}  // namespace

bool is_ending() noexcept { return !api().is_finalizing || api().is_finalizing(); }

uint64_t find_gil() noexcept {
  constexpr size_t kInRuntime = 360;              // _PyRuntimeState.ceval.gil of 3.11
  constexpr size_t kInInterpreter[] = {384, 16};  // PyInterpreterState.ceval.gil, a pointer: 3.12; 3.13 to 3.15
  for (const size_t offset : kInInterpreter) {
    uint64_t address = 0;
    const auto* place = reinterpret_cast<const char*>(g_interpreter.interpreter) + offset;
    if (!Readable().bytes(place, sizeof(address))) continue;
    memcpy(&address, place, sizeof(address));
    if (is_gil(address)) return address;
  }
  const auto runtime = reinterpret_cast<uintptr_t>(symbol("_PyRuntime"));
  return runtime != 0 && is_gil(runtime + kInRuntime) ? runtime + kInRuntime : 0;
}

void name_thread(Frame* frame) noexcept {
  const KeepError keep;
  ThreadBuffer* buffer = session::current_buffer();
  Object* self = buffer ? self_in(frame) : nullptr;
  if (self && is_thread(self)) {
    const Ref name(own_attribute(self, "_name"));
    const Ref native_id(own_attribute(self, "_native_id"));  // None until the thread has begun
    Size size = 0;
    const char* text = name ? api().utf8(name.get(), &size) : nullptr;
    const bool is_known = native_id && native_id.get() != api().none;
    const uint32_t tid = is_bootstrap(frame) ? buffer->tid
                         : is_known          ? static_cast<uint32_t>(api().as_long(native_id.get()))
                                             : 0;
    if (text && tid != 0) define_name(*buffer, tid, {text, static_cast<size_t>(size)});
  }
  api().error_clear();
}

const char* prepare_stacks() noexcept {
  const seal::Calls calls;
  if (!calls) return "its memory may not be read";
  const FrameLayout* at = frame_layout();
  if (!at) return why_no_frames();
  if (at->threads == 0) return nullptr;  // 3.10
  g_interpreter = describe_stacks();
  Frame* frame = api().current_frame();
  bool is_open = false;
  const auto is_right_here = [&](int fd) {
    is_open = true;
    return is_right(ProcessMemory(fd), frame);
  };
  if (frame && descriptors::with_file(kMemory, O_RDONLY, is_right_here)) {
    session::note_interpreter(g_interpreter);
    static bool follows_forks = false;
    if (!std::exchange(follows_forks, true))
      pthread_atfork(nullptr, nullptr, []() { g_defining = PTHREAD_MUTEX_INITIALIZER; });
    return nullptr;
  }
  g_interpreter = {};
  return !frame    ? "no function of Python runs"
         : is_open ? "its threads and frames are not where they should be"
                   : "its memory may not be read";
}

InterpreterDef described_stacks() noexcept { return g_interpreter; }

FunctionId marked_function(const ProcessMemory& memory, uint64_t code) noexcept {
  uint64_t extra = 0, mark = 0;
  Size size = 0;
  const bool has = detail::g_extra_offset != 0 && memory.get(code + detail::g_extra_offset, extra) && extra != 0 &&
                   memory.get(extra, size) && detail::g_extra >= 0 && detail::g_extra < size &&
                   memory.get(extra + sizeof(Size) + static_cast<uint64_t>(detail::g_extra) * sizeof(mark), mark);
  return has && mark > Function::kNoId ? Function{mark}.id() : FunctionId{};
}

FunctionId define_code(uint64_t code, const PythonCode& says, FunctionId marked) noexcept {
  const Lock lock(g_defining);
  begin_defining();
  return marked ? marked : define_once(code, says);
}

void state_all_stacks() noexcept {
  const seal::Calls calls;
  if (!calls || g_interpreter.interpreter == 0) return;
  const KeepErrno keep;
  {
    const Lock lock(g_defining);
    begin_defining();
  }
  // Not by with_file(): that holds up forks, and a fork holds the lock by which we define names.
  const int opened = open(kMemory, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (opened < 0) return;
  const int fd = descriptors::move_away(opened);
  const ProcessMemory memory(fd);
  const auto self = static_cast<uint32_t>(syscall(SYS_gettid));
  Reading& r = g_reading;
  const size_t count = find_python_threads(memory, g_interpreter, r.threads, kMostThreads);
  for (size_t i = 0; i < count; ++i) {
    if (r.threads[i].tid == self) continue;
    if (r.stack.read(memory, g_interpreter, r.threads[i], [&](const PythonStack& s) { resolve(memory, s); }))
      put(r.threads[i].tid, r.stack);
  }
  close(fd);
}

}  // namespace torchprof::python
