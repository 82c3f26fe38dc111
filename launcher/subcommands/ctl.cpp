// torchprof ctl: opens and closes the windows of running programs. Each process listens on a socket of its own
// (tracer/window_thread.h).
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <cstdio>
#include <string_view>

#include "formats/io/error.h"
#include "formats/trace/trace.h"
#include "launcher/run_dir/input.h"
#include "launcher/subcommands/subcommands.h"
#include "launcher/terminal/say.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;

constexpr int kPatienceMs = 5000;  // a busy process may have to wait for Python's lock

class Socket {
 public:
  Socket() : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  ~Socket() { close(fd_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

bool connect_to(const Socket& socket, uint32_t pid) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const int length = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "torchprof.%u", pid);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
  if (connect(socket.fd(), reinterpret_cast<sockaddr*>(&address), size) != 0) return false;
  // Anybody may use this socket name, so the peer's pid is checked.
  ucred peer{};
  socklen_t peer_size = sizeof(peer);
  return getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &peer, &peer_size) == 0 &&
         peer.pid == static_cast<pid_t>(pid);
}

// "ok: ..." or "error: ..."
std::string ask(uint32_t pid, std::string_view command) {
  const Socket socket;
  if (!connect_to(socket, pid))
    return "error: it does not listen: `ctl` is for windows of time, `signal`, `manual` and, once a long run has windows, `auto`; "
           "a program that is short so far is recorded whole";
  std::string line(command);
  line += '\n';
  if (send(socket.fd(), line.data(), line.size(), MSG_NOSIGNAL) < 0) return "error: it has gone";
  std::string answer;
  pollfd ready{socket.fd(), POLLIN, 0};
  while (poll(&ready, 1, kPatienceMs) == 1) {
    char text[512];
    const ssize_t n = read(socket.fd(), text, sizeof(text));
    if (n <= 0) break;
    answer.append(text, static_cast<size_t>(n));
  }
  if (answer.empty()) return "error: no answer within 5 s; it is another user's, or Python's lock is held for long";
  return answer.substr(0, answer.find('\n'));
}

bool is_alive(uint32_t pid) {
  std::error_code ignored;
  return fs::exists("/proc/" + std::to_string(pid), ignored);
}

std::vector<uint32_t> processes_of(const std::string& target) {
  uint32_t pid = 0;
  std::error_code ignored;
  const auto [end, error] = std::from_chars(target.data(), target.data() + target.size(), pid);
  if (error == std::errc{} && *end == 0 && !fs::exists(target, ignored)) {
    if (!is_alive(pid)) throw Error("there is no process " + target);
    return {pid};
  }
  std::vector<uint32_t> pids;
  const Input input = find_input(target);
  demand_trace(input, target);
  const formats::Trace trace = formats::load(input.spools, formats::Contents::kDefinitions);
  for (const formats::Process& process : trace.processes)
    if (is_alive(process.pid)) pids.push_back(process.pid);
  if (pids.empty()) throw Error(target + ": none of its processes runs any more");
  return pids;
}

}  // namespace

int ctl(const Arguments& arguments) {
  const CtlOptions options = parse_ctl(arguments);
  int status = 0;
  for (const uint32_t pid : processes_of(options.target)) {
    const std::string answer = ask(pid, options.command);
    const std::string name = "process " + std::to_string(pid);
    if (answer.starts_with("ok: ")) {
      print(name + ": " + answer.substr(4) + "\n");
    } else {
      complain(name + ": " + (answer.starts_with("error: ") ? answer.substr(7) : answer));
      status = 1;
    }
  }
  return status;
}

}  // namespace torchprof::launcher
