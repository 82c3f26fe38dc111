#include "tracer/door_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "tracer/process/descriptors.h"
#include "tracer/process/diag.h"
#include "tracer/process/seal.h"
#include "tracer/session.h"
#include "tracer/spool/run_files.h"

namespace torchprof::window {
namespace {

constinit char g_file[PATH_MAX] = "";
constinit pid_t g_pid = 0;           // that made it
constinit bool g_was_tried = false;  // the spool was open when the socket was
// Of what ends the process and what makes a file meanwhile one sees the other: each writes its own flag and then reads
// the other one, in the one order that all sequentially consistent operations have.
std::atomic<bool> g_has_file{false};  // g_file and g_pid are known
std::atomic<bool> g_is_over{false};

int new_socket() noexcept { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

bool listen_at(int fd, const sockaddr_un& address, size_t length) noexcept {
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  return bind(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0 && listen(fd, 4) == 0;
}

// The kernel takes 107 bytes of a path, so the directory is one of this thread's descriptors.
bool listen_beside(int fd, const char* spool) noexcept {
  const DoorName name = door_of(spool);
  // Before g_file is written anew.
  g_has_file.store(false, std::memory_order_relaxed);
  const char* directory = session::spool_directory();
  if (snprintf(g_file, sizeof(g_file), "%s/%s", directory, name.data()) >= static_cast<int>(sizeof(g_file)))
    return false;
  g_pid = getpid();
  g_has_file.store(true, std::memory_order_seq_cst);  // pairs with the load in unlink_file()
  return descriptors::with_file(directory, O_PATH | O_DIRECTORY, [&](int at) noexcept {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const int length =
        snprintf(address.sun_path, sizeof(address.sun_path), "/proc/thread-self/fd/%d/%s", at, name.data());
    return length > 0 && static_cast<size_t>(length) < sizeof(address.sun_path) &&
           listen_at(fd, address, static_cast<size_t>(length) + 1);
  });
}

bool listen_in_abstract(int fd) noexcept {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const int length = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "torchprof.%d", getpid());
  return listen_at(fd, address, 1 + static_cast<size_t>(length));
}

void unlink_file() noexcept {
  const KeepErrno keep;
  const seal::Calls calls;
  // Pairs with the store in listen_beside().
  if (calls && g_has_file.load(std::memory_order_seq_cst) && g_pid == getpid()) unlink(g_file);
}

void forget() noexcept {
  g_has_file.store(false, std::memory_order_relaxed);  // by the thread that makes files
  g_was_tried = false;
}

}  // namespace

int open_door_socket() noexcept {
  session::SpoolName spool;
  g_was_tried = session::copy_spool_name(spool);
  for (const bool is_file : {true, false}) {
    if (is_file && !g_was_tried) continue;
    const int fd = new_socket();
    if (fd < 0) return -1;
    const bool listens = is_file ? listen_beside(fd, spool) : listen_in_abstract(fd);
    // Pairs with the store in end_door().
    const bool is_over = g_is_over.load(std::memory_order_seq_cst);
    if (listens && !is_over) return descriptors::move_away(fd);
    close(fd);
    if (is_over) {
      unlink_file();
      return -1;
    }
    g_has_file.store(false, std::memory_order_relaxed);  // it was this thread's own
  }
  return -1;
}

bool door_is_elsewhere() noexcept {
  session::SpoolName spool;
  // Relaxed: what comes between this and the file's making is found there.
  return !g_is_over.load(std::memory_order_relaxed) && !g_was_tried && session::copy_spool_name(spool);
}

void remove_door_file() noexcept {
  unlink_file();
  forget();
}

void end_door() noexcept {
  g_is_over.store(true, std::memory_order_seq_cst);  // pairs with the load in open_door_socket()
  unlink_file();
}

void forget_door_after_fork() noexcept {
  forget();
  g_is_over.store(false, std::memory_order_relaxed);  // by the only thread of a new child
}

}  // namespace torchprof::window
