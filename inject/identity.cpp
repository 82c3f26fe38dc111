// The interposed functions after which the recorder could not open its file again by its path: those that change the
// program's user or group, its root, or its mounts. Each first has the file kept open (session.h); then it is libc's.
//
// They run in every process that has the library, also in a child between fork or vfork and exec and in a signal's
// handler: libc's are looked up by the constructor, and nothing here takes a lock.
#include "inject/identity.h"

#include <dlfcn.h>
#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include "tracer/session.h"

// X(name, parameters, arguments): each returns an int, 0 or -1 with errno.
#define TORCHPROF_IDENTITY(X)                                                                                 \
  X(setuid, (uid_t user), (user))                                                                             \
  X(seteuid, (uid_t user), (user))                                                                            \
  X(setreuid, (uid_t real, uid_t effective), (real, effective))                                               \
  X(setresuid, (uid_t real, uid_t effective, uid_t saved), (real, effective, saved))                          \
  X(setgid, (gid_t group), (group))                                                                           \
  X(setegid, (gid_t group), (group))                                                                          \
  X(setregid, (gid_t real, gid_t effective), (real, effective))                                               \
  X(setresgid, (gid_t real, gid_t effective, gid_t saved), (real, effective, saved))                          \
  X(setgroups, (size_t count, const gid_t* groups), (count, groups))                                          \
  X(initgroups, (const char* user, gid_t group), (user, group))                                               \
  X(chroot, (const char* path), (path))                                                                       \
  X(unshare, (int flags), (flags))                                                                            \
  X(setns, (int fd, int type), (fd, type))                                                                    \
  X(mount, (const char* source, const char* target, const char* type, unsigned long flags, const void* data), \
    (source, target, type, flags, data))                                                                      \
  X(umount, (const char* target), (target))                                                                   \
  X(umount2, (const char* target, int flags), (target, flags))

namespace torchprof::inject {
namespace {

struct Real {
#define X(name, parameters, arguments) int(*name##_) parameters = nullptr;
  TORCHPROF_IDENTITY(X)
#undef X
};
constinit Real g_real;

}  // namespace

void prepare_identity() noexcept {
#define X(name, parameters, arguments) \
  g_real.name##_ = reinterpret_cast<decltype(g_real.name##_)>(dlsym(RTLD_NEXT, #name));
  TORCHPROF_IDENTITY(X)
#undef X
}

}  // namespace torchprof::inject

// A caller that comes before the constructor, from another library's, has nothing recorded yet.
#define X(name, parameters, arguments)                                             \
  extern "C" __attribute__((visibility("default"))) int name parameters noexcept { \
    using namespace torchprof;                                                     \
    if (!inject::g_real.name##_) inject::prepare_identity();                       \
    session::keep_file();                                                          \
    return inject::g_real.name##_ arguments;                                       \
  }
TORCHPROF_IDENTITY(X)
#undef X
