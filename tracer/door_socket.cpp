#include "tracer/door_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

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

constinit char g_file[PATH_MAX] = "";  // empty: there is none
constinit pid_t g_pid = 0;             // that made it
constinit bool g_was_tried = false;    // the spool was open when the socket was

int new_socket() noexcept { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

bool listen_at(int fd, const sockaddr_un& address, size_t length) noexcept {
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  return bind(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0 && listen(fd, 4) == 0;
}

// The kernel takes 107 bytes of a path, so the directory is one of this thread's descriptors.
bool listen_beside(int fd, const char* spool) noexcept {
  const DoorName name = door_of(spool);
  g_pid = getpid();
  const char* directory = session::spool_directory();
  if (snprintf(g_file, sizeof(g_file), "%s/%s", directory, name.data()) >= static_cast<int>(sizeof(g_file)))
    return false;
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

}  // namespace

int open_door_socket() noexcept {
  session::SpoolName spool;
  g_was_tried = session::copy_spool_name(spool);
  for (const bool is_file : {true, false}) {
    if (is_file && !g_was_tried) continue;
    const int fd = new_socket();
    if (fd < 0) return -1;
    if (is_file ? listen_beside(fd, spool) : listen_in_abstract(fd)) return descriptors::move_away(fd);
    close(fd);
    g_file[0] = 0;
  }
  return -1;
}

bool door_is_elsewhere() noexcept {
  session::SpoolName spool;
  return !g_was_tried && session::copy_spool_name(spool);
}

void remove_door_file() noexcept {
  const KeepErrno keep;
  const seal::Calls calls;
  if (calls && *g_file && g_pid == getpid()) unlink(g_file);
  forget_door_after_fork();
}

void forget_door_after_fork() noexcept {
  g_file[0] = 0;
  g_was_tried = false;
}

}  // namespace torchprof::window
