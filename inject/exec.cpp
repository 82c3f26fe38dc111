// The interposed functions that start another program: exec*, posix_spawn*, and also system and popen, because glibc
// starts their shell without calling any interposed function. Each does what libc's does, with the environment that
// exec_environment.h makes; the search of PATH, errno and cancellation are libc's.
//
// A program that the library cannot get into (static, setuid, musl, in another root) is named in RUN/spool/untraced, a
// line "PID PATH: reason", which the launcher shows.
//
// They run in every process that has the library, also in a child between vfork and exec, which shares its parent's
// memory, and in a signal handler on an alternate stack of 8 KiB, of which libc's functions leave little. So: no
// allocation (except in system and popen), no lock, less than 1 KiB of stack. Larger buffers are in an ExecMemory.
// Nothing here uses printf or looks a symbol up, both of which need 2 KiB. A test of test_tree.py measures it.
#include "inject/exec.h"

#include <alloca.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "inject/exec_environment.h"
#include "inject/exec_memory.h"
#include "inject/imports.h"
#include "inject/late/replaced.h"
#include "inject/preload.h"
#include "inject/seccomp_entry.h"
#include "tracer/config/program_file.h"
#include "tracer/process/diag.h"
#include "tracer/process/readable.h"
#include "tracer/spool/run_files.h"

// Of glibc 2.34 and later, whose headers say the same.
extern "C" int execveat(int directory, const char* path, char* const argv[], char* const envp[], int flags) noexcept;

namespace torchprof::inject {
namespace {

using Strings = char* const*;
using Actions = const posix_spawn_file_actions_t*;
using Attributes = const posix_spawnattr_t*;

constexpr off_t kMostNotes = off_t{64} * 1024;
constexpr char kShell[] = "/bin/sh";  // the one that libc's system and popen start
constexpr char kOutOfSight[] = "is started where libtorchprof.so is not (another root or mount namespace)";

struct RealExec {
  decltype(&execve) execve_ = nullptr;
  decltype(&execvpe) execvpe_ = nullptr;
  decltype(&fexecve) fexecve_ = nullptr;
  decltype(&execveat) execveat_ = nullptr;
  decltype(&posix_spawn) posix_spawn_ = nullptr;
  decltype(&posix_spawnp) posix_spawnp_ = nullptr;
  decltype(&system) system_ = nullptr;
  decltype(&popen) popen_ = nullptr;
};
RealExec g_real_exec;

// A library that came late stands behind all others: what somebody else has preloaded is in the way of the program's
// calls, and of ours.
void* find_next(const char* name) noexcept { return dlsym(is_late() ? RTLD_DEFAULT : RTLD_NEXT, name); }

template <class F>
F* next(const char* name) noexcept {
  return reinterpret_cast<F*>(find_next(name));
}

// With an older libc a program that looks for the function finds ours, so it has to work. Later libcs make the bare
// call, too: sysdeps/unix/sysv/linux/execveat.c.
int bare_execveat(int directory, const char* path, char* const argv[], char* const envp[], int flags) noexcept {
  return static_cast<int>(syscall(SYS_execveat, directory, path, argv, envp, flags));
}
template <>
decltype(&execveat) next<decltype(execveat)>(const char* name) noexcept {
  auto* const found = reinterpret_cast<decltype(&execveat)>(dlsym(RTLD_NEXT, name));  // not our own
  return found ? found : bare_execveat;
}

// Where the constructor has not run, each is looked up when it is used.
#define TORCHPROF_REAL(name) (g_real_exec.name##_ ? g_real_exec.name##_ : next<decltype(name)>(#name))

class File {
 public:
  explicit File(int descriptor) noexcept : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const noexcept { return descriptor_; }

 private:
  int descriptor_;
};

constexpr int kLook = O_RDONLY | O_CLOEXEC | O_NONBLOCK;

// Puts pieces of text one after another; fits() is false if there was not enough room.
class Text {
 public:
  explicit Text(char (&out)[PATH_MAX]) noexcept : begin_(out), at_(out) { *out = 0; }
  Text& add(const char* piece, size_t size) noexcept {
    fits_ = fits_ && size < PATH_MAX - this->size();
    if (!fits_) return *this;
    memcpy(at_, piece, size);
    at_ += size;
    *at_ = 0;
    return *this;
  }
  Text& add(const char* piece) noexcept { return add(piece, strlen(piece)); }
  Text& add(pid_t number) noexcept {
    char digits[12];
    size_t first = sizeof(digits);
    for (; first == sizeof(digits) || number != 0; number /= 10) digits[--first] = static_cast<char>('0' + number % 10);
    return add(digits + first, sizeof(digits) - first);
  }
  bool fits() const noexcept { return fits_; }
  size_t size() const noexcept { return static_cast<size_t>(at_ - begin_); }

 private:
  char* begin_;
  char* at_;
  bool fits_ = true;
};

[[gnu::noinline]] void note_untraced(const char* path, const char* reason, ExecMemory& memory) noexcept {
  if (!file_of_run(kUntracedOfRun, memory.name)) return;
  const File file(open(memory.name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  struct stat status;
  if (file.get() < 0 || fstat(file.get(), &status) != 0 || status.st_size > kMostNotes) return;
  Text line(memory.line);
  line.add(getpid()).add(" ").add(path).add(": ").add(reason).add("\n");
  if (!line.fits()) return;
  // A write beyond RLIMIT_FSIZE would kill the program.
  rlimit size{};
  if (getrlimit(RLIMIT_FSIZE, &size) != 0 || static_cast<rlim_t>(status.st_size) + line.size() > size.rlim_cur) return;
  [[maybe_unused]] const ssize_t written = write(file.get(), memory.line, line.size());
}

Preload look_at_program(int file, const char* path, ExecMemory& memory) noexcept {
  const Barrier barrier = barrier_of(file, path, memory.program);
  const bool has_library = has_library_file();
  if (barrier != Barrier::kNone)
    note_untraced(path, text_of(barrier), memory);
  else if (!has_library && file >= 0)
    note_untraced(path, kOutOfSight, memory);
  if (!has_library) return Preload::kTakeAllOut;
  // We may be able to get into the children of a program that we cannot get into: its environment is kept complete.
  if (barrier == Barrier::kMusl) return Preload::kTakeOut;
  return barrier == Barrier::kNone && needs_asan(file, memory.program) ? Preload::kPutBackWithAsan : Preload::kPutBack;
}

// `file`, or the program that runs it if it is a script.
Preload look_at(int file, const char* path, ExecMemory& memory) noexcept {
  if (!script_line_of(file, memory.script)) return look_at_program(file, path, memory);
  char* interpreter = memory.script + strspn(memory.script, " \t");
  interpreter[strcspn(interpreter, " \t")] = 0;
  return look_at_program(File(open(interpreter, kLook)).get(), interpreter, memory);
}

Preload look_at_path(const char* path, ExecMemory& memory) noexcept {
  return look_at(File(open(path, kLook)).get(), path, memory);
}

// Searches as execvp does: the first file on PATH that may be executed.
Preload look_on_path(const char* name, ExecMemory& memory) noexcept {
  if (!Readable().text(name)) return Preload::kPutBack;
  const char* list = getenv("PATH");
  if (strchr(name, '/') || !list) return look_at_path(name, memory);
  for (;; ++list) {
    const size_t length = strcspn(list, ":");
    Text path(memory.path);
    path.add(list, length).add(length ? "/" : "").add(name);
    if (path.fits() && access(memory.path, X_OK) == 0) return look_at_path(memory.path, memory);
    list += length;
    if (!*list) return Preload::kPutBack;
  }
}

// The environment for the new program, in `memory`; `environment` itself if nothing is to be changed.
Strings change(Strings environment, Preload preload, ExecMemory& memory) noexcept {
  const size_t room = room_for(environment, preload);
  if (room == 0) return environment;
  if (has_changed_user())
    say_once(Cause::kOutput, "torchprof: a process starts a program as another user: it is not profiled\n");
  return room > sizeof(memory.environment) ? environment : with_library(environment, preload, memory.environment);
}

// The same; `look` finds out what the program is. Not inlined, so that its stack is free when the program is started.
template <class Look>
[[gnu::noinline]] Strings prepare(Strings environment, Look look, ExecMemory& memory) noexcept {
  const int saved = errno;
  // One that cannot be read is left to the kernel, which refuses it.
  const Strings given = Readable().texts(environment) ? change(environment, look(memory), memory) : environment;
  errno = saved;
  return given;
}

// The same without a system call: only a search and a copy, which trust the program's pointers.
[[gnu::noinline]] Strings prepare_sealed(Strings environment, ExecMemory& memory) noexcept {
  return with_us_disabled(environment, memory.environment, sizeof(memory.environment));
}

// Calls call(environment) with the environment for the new program; with the caller's own if there is no memory.
template <class Look, class Call>
[[gnu::always_inline]] inline int start(Strings environment, Look look, Call call) {
  const bool is_quiet = must_be_quiet();
  ExecMemory* const memory = is_quiet ? ExecMemory::take_quietly() : keeps_environment() ? ExecMemory::take() : nullptr;
  if (!memory) return call(environment);
  const int result = call(is_quiet ? prepare_sealed(environment, *memory) : prepare(environment, look, *memory));
  memory->give_back();
  return result;
}

int start_path(const char* path, Strings arguments, Strings environment) {
  return start(
      environment, [&](ExecMemory& memory) { return look_at_path(path, memory); },
      [&](Strings given) { return TORCHPROF_REAL(execve)(path, arguments, given); });
}

int start_name(const char* name, Strings arguments, Strings environment) {
  return start(
      environment, [&](ExecMemory& memory) { return look_on_path(name, memory); },
      [&](Strings given) { return TORCHPROF_REAL(execvpe)(name, arguments, given); });
}

// `command` with shell commands before it that set the variables which this process has lost, or unset those that
// another user must not have. nullptr: there is nothing to do. The caller frees it.
char* restoring_line(const char* command, ExecMemory& memory) noexcept {
  if (!Readable().texts(environ)) return nullptr;
  char* const* const first = change(environ, Preload::kPutBack, memory);
  if (first == environ) return nullptr;
  char* const* given = first;
  char* text = nullptr;
  size_t size = 0;
  FILE* out = open_memstream(&text, &size);
  if (!out) return nullptr;
  for (; *given; ++given) {
    bool is_old = false;
    for (char** old = environ; old && *old; ++old) is_old = is_old || *old == *given;
    if (is_old) continue;
    const size_t name = strcspn(*given, "=");
    fprintf(out, "%.*s='", static_cast<int>(name), *given);
    for (const char* c = *given + name + 1; *c; ++c) *c == '\'' ? fputs("'\\''", out) : fputc(*c, out);
    fprintf(out, "'; export %.*s; ", static_cast<int>(name), *given);
  }
  for (char** old = environ; old && *old; ++old) {
    const int name = static_cast<int>(strcspn(*old, "="));
    bool stays = false;
    for (given = first; *given; ++given) stays = stays || strncmp(*given, *old, static_cast<size_t>(name) + 1) == 0;
    if (!stays) fprintf(out, "unset %.*s; ", name, *old);
  }
  // glibc starts the shell with the environment of this process, so the shell has the library and would put it back.
  if (has_changed_user()) fputs("TORCHPROF_DISABLE=1; export TORCHPROF_DISABLE; ", out);
  fputs(command, out);
  return fclose(out) == 0 ? text : nullptr;
}

char* restoring(const char* command) noexcept {
  if (must_be_quiet()) return nullptr;
  ExecMemory* const memory = keeps_environment() && command ? ExecMemory::take() : nullptr;
  if (!memory) return nullptr;
  const torchprof::KeepErrno keep;
  char* const line = has_library_file() ? restoring_line(command, *memory) : nullptr;
  memory->give_back();
  return line;
}

// libc starts a shell with `environ`. While this lives, `environ` is the environment for a program that must not have
// the library: it is under a seccomp filter, or in a root where the library is not.
class ShellEnviron {
 public:
  ShellEnviron() noexcept : before_(environ) {
    if (must_be_quiet()) {
      memory_ = ExecMemory::take_quietly();
      if (memory_) environ = const_cast<char**>(prepare_sealed(environ, *memory_));
    } else if (is_out_of_sight()) {
      memory_ = ExecMemory::take();
      const auto look = [](ExecMemory& memory) { return look_at_path(kShell, memory); };
      if (memory_) environ = const_cast<char**>(prepare(environ, look, *memory_));
    }
  }
  ~ShellEnviron() {
    if (!memory_) return;
    environ = before_;
    memory_->give_back();
  }
  ShellEnviron(const ShellEnviron&) = delete;
  ShellEnviron& operator=(const ShellEnviron&) = delete;

 private:
  static bool is_out_of_sight() noexcept {
    const torchprof::KeepErrno keep;
    return keeps_environment() && !has_library_file();
  }

  ExecMemory* memory_ = nullptr;
  char** before_;
};

}  // namespace

void find_exec() noexcept {
  g_real_exec = {TORCHPROF_REAL(execve),   TORCHPROF_REAL(execvpe),     TORCHPROF_REAL(fexecve),
                 TORCHPROF_REAL(execveat), TORCHPROF_REAL(posix_spawn), TORCHPROF_REAL(posix_spawnp),
                 TORCHPROF_REAL(system),   TORCHPROF_REAL(popen)};
}

void prepare_exec() noexcept {
  Dl_info self;
  if (dladdr(reinterpret_cast<const void*>(&prepare_exec), &self)) save_environment(self.dli_fname);
}

}  // namespace torchprof::inject

using namespace torchprof::inject;

#define TORCHPROF_EXPORT extern "C" __attribute__((visibility("default")))

TORCHPROF_EXPORT int execve(const char* path, char* const argv[], char* const envp[]) noexcept {
  return start_path(path, argv, envp);
}
TORCHPROF_EXPORT int execv(const char* path, char* const argv[]) noexcept { return start_path(path, argv, environ); }
TORCHPROF_EXPORT int execvp(const char* name, char* const argv[]) noexcept { return start_name(name, argv, environ); }
TORCHPROF_EXPORT int execvpe(const char* name, char* const argv[], char* const envp[]) noexcept {
  return start_name(name, argv, envp);
}

// The arguments of execl, execlp and execle, with the final null pointer, as an array on the stack.
#define TORCHPROF_ARGUMENTS(first)                                        \
  va_list list;                                                           \
  va_start(list, first);                                                  \
  size_t count = 1;                                                       \
  while (va_arg(list, const char*)) ++count;                              \
  va_end(list);                                                           \
  auto** argv = static_cast<char**>(alloca((count + 1) * sizeof(char*))); \
  argv[0] = const_cast<char*>(first);                                     \
  va_start(list, first);                                                  \
  for (size_t i = 1; i <= count; ++i) argv[i] = va_arg(list, char*);

TORCHPROF_EXPORT int execl(const char* path, const char* first, ...) noexcept {
  TORCHPROF_ARGUMENTS(first)
  va_end(list);
  return start_path(path, argv, environ);
}
TORCHPROF_EXPORT int execlp(const char* name, const char* first, ...) noexcept {
  TORCHPROF_ARGUMENTS(first)
  va_end(list);
  return start_name(name, argv, environ);
}
TORCHPROF_EXPORT int execle(const char* path, const char* first, ...) noexcept {
  TORCHPROF_ARGUMENTS(first)
  char** envp = va_arg(list, char**);
  va_end(list);
  return start_path(path, argv, envp);
}

TORCHPROF_EXPORT int fexecve(int file, char* const argv[], char* const envp[]) noexcept {
  return start(
      envp, [&](ExecMemory& memory) { return look_at(file, "a file descriptor", memory); },
      [&](char* const* given) { return TORCHPROF_REAL(fexecve)(file, argv, given); });
}
TORCHPROF_EXPORT int execveat(int directory, const char* path, char* const argv[], char* const envp[],
                              int flags) noexcept {
  const auto look = [&](ExecMemory& memory) {
    if (!(flags & AT_EMPTY_PATH) || (torchprof::Readable().text(path) && *path))
      return look_at(File(openat(directory, path, kLook)).get(), path, memory);
    return look_at(directory, "a file descriptor", memory);  // also with no path at all, since Linux 6.11
  };
  return start(envp, look,
               [&](char* const* given) { return TORCHPROF_REAL(execveat)(directory, path, argv, given, flags); });
}

TORCHPROF_EXPORT int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                                 const posix_spawnattr_t* attributes, char* const argv[], char* const envp[]) {
  return start(
      envp, [&](ExecMemory& memory) { return look_at_path(path, memory); },
      [&](char* const* given) { return TORCHPROF_REAL(posix_spawn)(pid, path, actions, attributes, argv, given); });
}
TORCHPROF_EXPORT int posix_spawnp(pid_t* pid, const char* name, const posix_spawn_file_actions_t* actions,
                                  const posix_spawnattr_t* attributes, char* const argv[], char* const envp[]) {
  return start(
      envp, [&](ExecMemory& memory) { return look_on_path(name, memory); },
      [&](char* const* given) { return TORCHPROF_REAL(posix_spawnp)(pid, name, actions, attributes, argv, given); });
}

TORCHPROF_EXPORT int system(const char* command) {
  char* restored = restoring(command);
  const ShellEnviron shell;
  const int status = TORCHPROF_REAL(system)(restored ? restored : command);
  const torchprof::KeepErrno keep;
  free(restored);
  return status;
}
TORCHPROF_EXPORT FILE* popen(const char* command, const char* mode) {
  char* restored = restoring(command);
  const ShellEnviron shell;
  FILE* stream = TORCHPROF_REAL(popen)(restored ? restored : command, mode);
  const torchprof::KeepErrno keep;
  free(restored);
  return stream;
}

// ---- where the library came late ------------------------------------------------------------------------------------

// Our own functions by names that no other object has: an exported name stands for the first one that the loader finds.
#define TORCHPROF_STARTS(f)                                                                                  \
  f(execl) f(execle) f(execlp) f(execv) f(execve) f(execvp) f(execvpe) f(execveat) f(fexecve) f(posix_spawn) \
      f(posix_spawnp) f(system) f(popen)
#define TORCHPROF_OWN(name) \
  extern "C" __attribute__((alias(#name), copy(name), visibility("hidden"))) decltype(name) torchprof_own_##name;
TORCHPROF_STARTS(TORCHPROF_OWN)

namespace torchprof::inject {
namespace {

constinit Visited g_visited_starters;

}  // namespace

bool prepare_exec_late(const char* variables) noexcept {
  Dl_info self;
  g_visited_starters = {};
  if (!is_late() || !dladdr(reinterpret_cast<const void*>(&prepare_exec_late), &self) ||
      !save_variables(self.dli_fname, variables))
    return false;
  reach_exec();
  return true;
}

void reach_exec() noexcept {
  if (!is_late() || !keeps_environment()) return;
#define TORCHPROF_REDIRECT(name) {#name, reinterpret_cast<void*>(torchprof_own_##name)},
  const Redirect redirects[] = {TORCHPROF_STARTS(TORCHPROF_REDIRECT)};
#undef TORCHPROF_REDIRECT
  for (const Redirect& each : redirects) note_import(each.replacement, find_next(each.symbol));
  redirect_imports_of_all(redirects, std::size(redirects), g_visited_starters);
}

}  // namespace torchprof::inject
