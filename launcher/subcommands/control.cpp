#include "launcher/subcommands/control.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <utility>

#include "formats/io/process_files.h"
#include "launcher/run_dir/our_files.h"
#include "launcher/run_dir/writers.h"
#include "tracer/spool/run_files.h"

namespace torchprof::launcher {

using namespace std::chrono;

namespace {

constexpr int kSocketKind = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

// In the network namespace of the process, where its socket's name is, if we may; otherwise in ours.
int socket_beside(uint32_t pid) {
  const std::string theirs = formats::process_path(pid, "ns/net");
  struct stat a {
  }, b{};
  const bool is_other = stat(theirs.c_str(), &a) == 0 && stat("/proc/self/ns/net", &b) == 0 && a.st_ino != b.st_ino;
  if (!is_other) return socket(AF_UNIX, kSocketKind, 0);
  const int there = open(theirs.c_str(), O_RDONLY | O_CLOEXEC), here = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  const bool has_moved = there >= 0 && here >= 0 && setns(there, CLONE_NEWNET) == 0;
  const int fd = socket(AF_UNIX, kSocketKind, 0);
  if (has_moved) setns(here, CLONE_NEWNET);
  for (const int each : {there, here})
    if (each >= 0) close(each);
  return fd;
}

}  // namespace

ControlRequest::ControlRequest(uint32_t pid, std::string_view command, const std::filesystem::path& spool,
                               milliseconds patience)
    : pid_(pid), deadline_(steady_clock::now() + patience) {
  const bool is_there = (!spool.empty() && connect_beside(spool)) ||
                        (pid != 0 && connect_to(spool.empty() ? own_number(pid) : number_in(spool)));
  if (!is_there) {
    text_ =
        "error: it does not listen: `ctl` is for windows of time, `signal`, `manual` and, once a long run has windows, "
        "`auto`; until then everything is recorded";
    is_over_ = true;
    return;
  }
  std::string line(command);
  if (!spool.empty()) line.append(" ").append(spool.filename());
  line += '\n';
  if (send(fd_, line.data(), line.size(), MSG_NOSIGNAL) >= 0) return;
  text_ = "error: it has gone";
  is_over_ = true;
}

ControlRequest::~ControlRequest() { close_socket(); }

ControlRequest::ControlRequest(ControlRequest&& other) noexcept
    : pid_(other.pid_),
      fd_(std::exchange(other.fd_, -1)),
      is_over_(other.is_over_),
      text_(std::move(other.text_)),
      deadline_(other.deadline_) {}

bool ControlRequest::is_reached(const std::filesystem::path& spool) { return ControlRequest().connect_beside(spool); }

// The kernel takes short paths alone, so the directory is a descriptor. Who may write there is the program's user.
bool ControlRequest::connect_beside(const std::filesystem::path& spool) {
  const Descriptor directory(open(spool.parent_path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const DoorName name = door_of(spool.filename().native());
  if (directory.get() < 0 || !is_door(directory.get(), name.data())) return false;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", directory.get(), name.data());
  fd_ = socket(AF_UNIX, kSocketKind, 0);
  if (fd_ >= 0 && connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return true;
  close_socket();
  return false;
}

bool ControlRequest::connect_to(uint32_t own_number) {
  fd_ = socket_beside(pid_);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const int length = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "torchprof.%u", own_number);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
  // Anybody may use this socket name, so the peer's pid is checked.
  ucred peer{};
  socklen_t peer_size = sizeof(peer);
  if (connect(fd_, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
      getsockopt(fd_, SOL_SOCKET, SO_PEERCRED, &peer, &peer_size) == 0 && peer.pid == static_cast<pid_t>(pid_))
    return true;
  close_socket();
  return false;
}

void ControlRequest::close_socket() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

bool ControlRequest::take() {
  while (!is_over_) {
    char text[512];
    const ssize_t n = read(fd_, text, sizeof(text));
    if (n > 0)
      text_.append(text, static_cast<size_t>(n));
    else if (n < 0 && errno == EAGAIN && steady_clock::now() < deadline_)
      return false;
    else
      is_over_ = true;
  }
  return true;
}

std::string ControlRequest::answer() const {
  if (text_.empty()) return "error: no answer within 5 s; it is another user's, or Python's lock is held for long";
  return text_.substr(0, text_.find('\n'));
}

std::string ControlRequest::wait() {
  while (!take()) {
    const auto left = ceil<milliseconds>(deadline_ - steady_clock::now()).count();
    pollfd ready{fd_, POLLIN, 0};
    poll(&ready, 1, static_cast<int>(left > 0 ? left : 0));
  }
  return answer();
}

}  // namespace torchprof::launcher
