#include "tracer/process/descriptors.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <initializer_list>

#include "tracer/process/lock.h"
#include "tracer/process/seal.h"

namespace torchprof::descriptors {
namespace {

constinit pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;  // held while a file is open

// While it lives, signals are blocked and the thread cannot be cancelled.
class Undisturbed {
 public:
  Undisturbed() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &signals_);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelling_);
  }
  ~Undisturbed() {
    pthread_setcancelstate(cancelling_, nullptr);
    pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
  }
  Undisturbed(const Undisturbed&) = delete;
  Undisturbed& operator=(const Undisturbed&) = delete;

 private:
  sigset_t signals_;
  int cancelling_ = 0;
};

struct Task {
  const char* path;
  int flags;
  detail::Use use;
  void* body;
  bool is_done = false;
  int error = 0;
};

// False: it could not be opened.
bool run(Task& task) noexcept {
  const int fd = open(task.path, task.flags | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd >= 0) task.is_done = task.use(task.body, fd);
  task.error = errno;
  if (fd >= 0) close(fd);
  return fd >= 0;
}

// Every descriptor below the limit is taken, or this process would not have been made: it gives up one of its copies.
int run_apart(void* task) noexcept {
  close(0);
  run(*static_cast<Task*>(task));
  return 0;
}

void run_in_a_process(Task& task) noexcept {
  constexpr size_t kStack = size_t{64} * 1024;
  void* stack = mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED) return;
  // Without CLONE_FILES it has descriptors of its own; without a signal in the flags its end raises none.
  const pid_t child = clone(run_apart, static_cast<std::byte*>(stack) + kStack, CLONE_VM | CLONE_VFORK, &task);
  if (child > 0) waitpid(child, nullptr, __WCLONE);  // because of CLONE_VFORK it has ended by now
  munmap(stack, kStack);
}

bool refuse() noexcept {
  errno = EPERM;
  return false;
}

}  // namespace

namespace detail {

bool with_file(const char* path, int flags, Use use, void* body) noexcept {
  const seal::Calls calls;
  if (!calls) return refuse();
  Task task{path, flags, use, body};
  {
    const Undisturbed undisturbed;
    const Lock lock(g_lock);
    if (!run(task) && task.error == EMFILE) run_in_a_process(task);
  }
  errno = task.error;
  return task.is_done;
}

bool with_open(int fd, Use use, void* body) noexcept {
  const seal::Calls calls;
  if (!calls) return refuse();
  const Undisturbed undisturbed;
  const Lock lock(g_lock);
  return use(body, fd);
}

}  // namespace detail

int move_away(int fd) noexcept {
  for (const int least : {1000, 200, 50}) {
    const int moved = fcntl(fd, F_DUPFD_CLOEXEC, least);
    if (moved < 0) continue;
    close(fd);
    return moved;
  }
  return fd;
}

void before_fork() noexcept { pthread_mutex_lock(&g_lock); }
void after_fork_in_parent() noexcept { pthread_mutex_unlock(&g_lock); }
void after_fork_in_child() noexcept { g_lock = PTHREAD_MUTEX_INITIALIZER; }

}  // namespace torchprof::descriptors
