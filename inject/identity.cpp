// The interposed functions after which the recorder could not open its file by its path any more: those that change the
// program's user or group, its root, or its mounts. Each first makes the session keep the file open (session.h), then
// calls libc's function. To a process with several threads the kernel refuses some of what unshare() and setns() do
// (unshare(2), setns(2)): our own threads end before it, and start again.
//
// They run in every process that has the library, also in a child between fork or vfork and exec, and in a signal
// handler: the constructor looks libc's functions up, and nothing here takes a lock.
#include "inject/identity.h"

#include <dlfcn.h>
#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <string_view>

#include "tracer/process/own_thread.h"
#include "tracer/session.h"

// X(name, parameters, arguments, exceptions): each returns an int, 0 or -1 with errno. `exceptions`: as glibc declares
// it.
#define TORCHPROF_IDENTITY(X)                                                                                 \
  X(setuid, (uid_t user), (user), noexcept)                                                                   \
  X(seteuid, (uid_t user), (user), noexcept)                                                                  \
  X(setreuid, (uid_t real, uid_t effective), (real, effective), noexcept)                                     \
  X(setresuid, (uid_t real, uid_t effective, uid_t saved), (real, effective, saved), noexcept)                \
  X(setgid, (gid_t group), (group), noexcept)                                                                 \
  X(setegid, (gid_t group), (group), noexcept)                                                                \
  X(setregid, (gid_t real, gid_t effective), (real, effective), noexcept)                                     \
  X(setresgid, (gid_t real, gid_t effective, gid_t saved), (real, effective, saved), noexcept)                \
  X(setgroups, (size_t count, const gid_t* groups), (count, groups), noexcept)                                \
  X(initgroups, (const char* user, gid_t group), (user, group), )                                             \
  X(chroot, (const char* path), (path), noexcept)                                                             \
  X(unshare, (int flags), (flags), noexcept)                                                                  \
  X(setns, (int fd, int type), (fd, type), noexcept)                                                          \
  X(mount, (const char* source, const char* target, const char* type, unsigned long flags, const void* data), \
    (source, target, type, flags, data), noexcept)                                                            \
  X(umount, (const char* target), (target), noexcept)                                                         \
  X(umount2, (const char* target, int flags), (target, flags), noexcept)

namespace torchprof::inject {
namespace {

struct RealIdentity {
#define X(name, parameters, arguments, exceptions) int(*name##_) parameters = nullptr;
  TORCHPROF_IDENTITY(X)
#undef X
};
constinit RealIdentity g_real_identity;

// While it exists no thread of ours runs: one with descriptors of its own does not have the one that is kept open, and
// asks for it when it starts again. It keeps errno.
class WithoutThreads {
 public:
  explicit WithoutThreads(std::string_view function) noexcept
      : is_wanted_(function == "unshare" || function == "setns" || !session::holds_file()) {
    const KeepErrno keep;
    if (is_wanted_) OwnThread::end_all();
  }
  ~WithoutThreads() {
    const KeepErrno keep;
    if (is_wanted_) OwnThread::start_again();
  }
  WithoutThreads(const WithoutThreads&) = delete;
  WithoutThreads& operator=(const WithoutThreads&) = delete;

 private:
  const bool is_wanted_;
};

}  // namespace

void prepare_identity() noexcept {
#define X(name, parameters, arguments, exceptions) \
  g_real_identity.name##_ = reinterpret_cast<decltype(g_real_identity.name##_)>(dlsym(RTLD_NEXT, #name));
  TORCHPROF_IDENTITY(X)
#undef X
}

}  // namespace torchprof::inject

// If another library's constructor calls one before ours has run, libc's functions are looked up here.
#define X(name, parameters, arguments, exceptions)                                   \
  extern "C" __attribute__((visibility("default"))) int name parameters exceptions { \
    using namespace torchprof;                                                       \
    if (!inject::g_real_identity.name##_) inject::prepare_identity();                \
    const inject::WithoutThreads alone(#name);                                       \
    session::keep_file();                                                            \
    return inject::g_real_identity.name##_ arguments;                                \
  }
TORCHPROF_IDENTITY(X)
#undef X
