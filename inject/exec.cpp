// The interposed functions that start another program: exec*, posix_spawn*, and system and popen, whose shell glibc
// starts past every interposed name. Each does what libc's does, with the environment that exec_environment.h makes;
// the search of PATH, errno and cancellation stay with libc.
//
// A program that the library cannot get into (static, setuid, musl) is named in RUN/spool/untraced, a line "PID PATH:
// reason", which the launcher shows.
//
// They run in every process that has the library, also in a child between vfork and exec, which shares its parent's
// memory: no allocation (but in system and popen), no lock, nothing of ours is written.
#include "inject/exec.h"

#include <alloca.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "inject/exec_environment.h"
#include "tracer/diag.h"
#include "tracer/program_file.h"

namespace torchprof::inject {
namespace {

using Strings = char* const*;
using Actions = const posix_spawn_file_actions_t*;
using Attributes = const posix_spawnattr_t*;

// More than that on the stack of a thread, which may be small, is left alone: the child is then on its own.
constexpr size_t kMostRoom = size_t{48} * 1024;
constexpr off_t kMostNotes = off_t{64} * 1024;

struct Real {
  decltype(&execve) execve_ = nullptr;
  decltype(&execvpe) execvpe_ = nullptr;
  decltype(&fexecve) fexecve_ = nullptr;
  decltype(&execveat) execveat_ = nullptr;
  decltype(&posix_spawn) posix_spawn_ = nullptr;
  decltype(&posix_spawnp) posix_spawnp_ = nullptr;
  decltype(&system) system_ = nullptr;
  decltype(&popen) popen_ = nullptr;
};
Real g_real;

template <class F>
F* next(const char* name) noexcept {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

// Where the constructor has not been, or had nothing to do, each is looked up at its use.
#define TORCHPROF_REAL(name) (g_real.name##_ ? g_real.name##_ : next<decltype(name)>(#name))

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

void note_untraced(const char* path, Barrier barrier) noexcept {
  char name[PATH_MAX], line[PATH_MAX];
  if (!file_of_run("spool/untraced", name)) return;
  const File file(open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  struct stat status;
  if (file.get() < 0 || fstat(file.get(), &status) != 0 || status.st_size > kMostNotes) return;
  const int n = snprintf(line, sizeof(line), "%d %s: %s\n", static_cast<int>(getpid()), path, text_of(barrier));
  if (n <= 0 || static_cast<size_t>(n) >= sizeof(line)) return;
  // Beyond RLIMIT_FSIZE it would kill the program.
  rlimit size{};
  if (getrlimit(RLIMIT_FSIZE, &size) != 0 || static_cast<rlim_t>(status.st_size + n) > size.rlim_cur) return;
  [[maybe_unused]] const ssize_t written = write(file.get(), line, static_cast<size_t>(n));
}

Preload look_at_program(int file, const char* path) noexcept {
  const Barrier barrier = barrier_of(file, path);
  if (barrier != Barrier::kNone) note_untraced(path, barrier);
  // The children of what cannot be reached may be reachable.
  if (barrier == Barrier::kMusl) return Preload::kTakeOut;
  return barrier == Barrier::kNone && needs_asan(file) ? Preload::kPutBackWithAsan : Preload::kPutBack;
}

// `file`, or the program that runs it if it is a script.
Preload look_at(int file, const char* path) noexcept {
  char line[kScriptLine];
  if (!script_line_of(file, line)) return look_at_program(file, path);
  char* interpreter = line + strspn(line, " \t");
  interpreter[strcspn(interpreter, " \t")] = 0;
  return look_at_program(File(open(interpreter, kLook)).get(), interpreter);
}

Preload look_at_path(const char* path) noexcept { return look_at(File(open(path, kLook)).get(), path); }

// As execvp searches: the first on PATH that may be executed.
Preload look_on_path(const char* name) noexcept {
  const char* list = getenv("PATH");
  if (strchr(name, '/') || !list) return look_at_path(name);
  for (;; ++list) {
    const size_t length = strcspn(list, ":");
    char path[PATH_MAX];
    const int n = snprintf(path, sizeof(path), "%.*s%s%s", static_cast<int>(length), list, length ? "/" : "", name);
    if (n > 0 && static_cast<size_t>(n) < sizeof(path) && access(path, X_OK) == 0) return look_at_path(path);
    list += length;
    if (!*list) return Preload::kPutBack;
  }
}

// call(environment) with what the new program is to get; `look` tells what it is.
template <class Look, class Call>
[[gnu::always_inline]] inline int start(Strings environment, Look look, Call call) {
  if (!keeps_environment()) return call(environment);
  const int saved = errno;
  const Preload preload = look();
  const size_t room = room_for(environment, preload);
  if (room != 0 && has_changed_user())
    warn_once(Cause::kOutput, "process %d starts a program as another user: it is not profiled",
              static_cast<int>(getpid()));
  errno = saved;
  if (room == 0 || room > kMostRoom) return call(environment);
  return call(with_library(environment, preload, alloca(room)));
}

int start_path(const char* path, Strings arguments, Strings environment) {
  return start(
      environment, [&] { return look_at_path(path); },
      [&](Strings given) { return TORCHPROF_REAL(execve)(path, arguments, given); });
}

int start_name(const char* name, Strings arguments, Strings environment) {
  return start(
      environment, [&] { return look_on_path(name); },
      [&](Strings given) { return TORCHPROF_REAL(execvpe)(name, arguments, given); });
}

// The shell line that sets what this process has lost, or unsets what another user is not to have, before `command`.
// nullptr: there is nothing to set. To be freed.
char* restoring(const char* command) noexcept {
  const size_t room = keeps_environment() && command ? room_for(environ, Preload::kPutBack) : 0;
  if (room == 0 || room > kMostRoom) return nullptr;
  char** const first = with_library(environ, Preload::kPutBack, alloca(room));
  char** given = first;
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
  // The shell itself has the library and would put it back: glibc starts it with the environment of this process.
  if (has_changed_user()) fputs("TORCHPROF_DISABLE=1; export TORCHPROF_DISABLE; ", out);
  fputs(command, out);
  return fclose(out) == 0 ? text : nullptr;
}

}  // namespace

void prepare_exec() noexcept {
  Dl_info self;
  if (!dladdr(reinterpret_cast<const void*>(&prepare_exec), &self)) return;
  save_environment(self.dli_fname);
  if (!keeps_environment()) return;
  // Looked up now: the loader's lock may be held by a thread that a child between vfork and exec does not have.
  g_real = {TORCHPROF_REAL(execve),   TORCHPROF_REAL(execvpe),     TORCHPROF_REAL(fexecve),
            TORCHPROF_REAL(execveat), TORCHPROF_REAL(posix_spawn), TORCHPROF_REAL(posix_spawnp),
            TORCHPROF_REAL(system),   TORCHPROF_REAL(popen)};
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

// The arguments of execl and its like, with their final null pointer, as an array on the stack.
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
      envp, [&] { return look_at(file, "a file descriptor"); },
      [&](char* const* given) { return TORCHPROF_REAL(fexecve)(file, argv, given); });
}
TORCHPROF_EXPORT int execveat(int directory, const char* path, char* const argv[], char* const envp[],
                              int flags) noexcept {
  const auto look = [&] {
    if (*path || !(flags & AT_EMPTY_PATH)) return look_at(File(openat(directory, path, kLook)).get(), path);
    return look_at(directory, "a file descriptor");
  };
  return start(envp, look,
               [&](char* const* given) { return TORCHPROF_REAL(execveat)(directory, path, argv, given, flags); });
}

TORCHPROF_EXPORT int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                                 const posix_spawnattr_t* attributes, char* const argv[], char* const envp[]) {
  return start(
      envp, [&] { return look_at_path(path); },
      [&](char* const* given) { return TORCHPROF_REAL(posix_spawn)(pid, path, actions, attributes, argv, given); });
}
TORCHPROF_EXPORT int posix_spawnp(pid_t* pid, const char* name, const posix_spawn_file_actions_t* actions,
                                  const posix_spawnattr_t* attributes, char* const argv[], char* const envp[]) {
  return start(
      envp, [&] { return look_on_path(name); },
      [&](char* const* given) { return TORCHPROF_REAL(posix_spawnp)(pid, name, actions, attributes, argv, given); });
}

TORCHPROF_EXPORT int system(const char* command) {
  char* restored = restoring(command);
  const int status = TORCHPROF_REAL(system)(restored ? restored : command);
  const torchprof::KeepErrno keep;
  free(restored);
  return status;
}
TORCHPROF_EXPORT FILE* popen(const char* command, const char* mode) {
  char* restored = restoring(command);
  FILE* stream = TORCHPROF_REAL(popen)(restored ? restored : command, mode);
  const torchprof::KeepErrno keep;
  free(restored);
  return stream;
}
