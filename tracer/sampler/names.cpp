// The names of what threads wait for: files, sockets by their address, children by their command.
#include <arpa/inet.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tracer/sampler/seen.h"
#include "tracer/session.h"

namespace torchprof::sampler {
namespace {

constexpr uint32_t kMostNames = 1000;
// The kernel's table of sockets may be long: it is read for so many of them, as far as this.
constexpr uint32_t kMostSockets = 64;
constexpr size_t kMostOfTable = size_t{256} << 10;  // bytes

// The next field of a line that is divided by blanks.
std::string_view next_field(std::string_view& line) noexcept {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  const std::string_view field = line.substr(0, line.find(' '));
  line.remove_prefix(field.size());
  return field;
}

uint32_t from_hex(std::string_view text) noexcept {
  uint32_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return value;
}

// "0100007F:1F90": words of the address as they lie in memory, and the port. Sixteen bytes are IPv6.
void put_address(std::string_view text, char* out, size_t size) noexcept {
  const size_t colon = text.find(':');
  const uint32_t port = colon == text.npos ? 0 : from_hex(text.substr(colon + 1));
  unsigned char bytes[16] = {};
  const size_t words = std::min<size_t>(4, std::min(colon, text.size()) / 8);
  for (size_t i = 0; i < words; ++i) {
    const uint32_t word = from_hex(text.substr(i * 8, 8));
    memcpy(bytes + i * 4, &word, sizeof(word));
  }
  const bool is_mapped = words == 4 && from_hex(text.substr(0, 8)) == 0 && from_hex(text.substr(8, 8)) == 0 &&
                         bytes[10] == 0xff && bytes[11] == 0xff;
  if (const unsigned char* v4 = is_mapped ? bytes + 12 : bytes; words == 1 || is_mapped) {
    snprintf(out, size, "%u.%u.%u.%u:%u", v4[0], v4[1], v4[2], v4[3], port);
    return;
  }
  char v6[INET6_ADDRSTRLEN] = "?";
  inet_ntop(AF_INET6, bytes, v6, sizeof(v6));
  snprintf(out, size, "[%s]:%u", v6, port);
}

// Whether the line is that of the socket; then its name is in `out`. proc(5): /proc/net/tcp, tcp6 and unix.
bool is_inet(std::string_view line, std::string_view inode, char* out, size_t size) noexcept {
  next_field(line);
  const std::string_view local = next_field(line), remote = next_field(line), state = next_field(line);
  for (int i = 0; i < 5; ++i) next_field(line);  // queues, timer, retransmits, uid, timeout
  if (next_field(line) != inode) return false;
  const bool listens = state == "0A";
  char address[80];
  put_address(listens ? local : remote, address, sizeof(address));
  snprintf(out, size, listens ? "socket listening at %s" : "socket %s", address);
  return true;
}
bool is_unix(std::string_view line, std::string_view inode, char* out, size_t size) noexcept {
  for (int i = 0; i < 6; ++i) next_field(line);  // number, references, protocol, flags, type, state
  if (next_field(line) != inode) return false;
  const std::string_view path = next_field(line);
  snprintf(out, size, "unix socket%s%.*s", path.empty() ? "" : " ", static_cast<int>(path.size()), path.data());
  return true;
}

using IsIt = bool (*)(std::string_view line, std::string_view inode, char* out, size_t size) noexcept;

bool find_in(const char* file, IsIt is_it, std::string_view inode, char* out, size_t size) noexcept {
  const int fd = open(file, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char text[8192];
  size_t held = 0;
  bool found = false;
  for (size_t all = 0; !found && all < kMostOfTable;) {
    const ssize_t n = read(fd, text + held, sizeof(text) - held);
    if (n <= 0) break;
    all += static_cast<size_t>(n);
    held += static_cast<size_t>(n);
    std::string_view rest(text, held);
    for (size_t end; !found && (end = rest.find('\n')) != rest.npos; rest.remove_prefix(end + 1))
      found = is_it(rest.substr(0, end), inode, out, size);
    if (rest.size() == sizeof(text)) break;  // no table has such lines
    held = rest.size();
    memmove(text, rest.data(), held);
  }
  close(fd);
  return found;
}

// Those that were looked up last.
struct KnownSocket {
  uint64_t inode;
  StringId name;
};
constinit KnownSocket g_sockets[16] = {};

StringId name_of_socket(std::string_view inode) noexcept {
  Sampling& s = g_sampling;
  uint64_t number = 0;
  std::from_chars(inode.data(), inode.data() + inode.size(), number);
  KnownSocket& known = g_sockets[number % std::size(g_sockets)];
  if (number != 0 && known.inode == number) return known.name;
  char name[256] = "socket";
  if (s.sockets < kMostSockets) {
    ++s.sockets;
    find_in("/proc/self/net/tcp", is_inet, inode, name, sizeof(name)) ||
        find_in("/proc/self/net/tcp6", is_inet, inode, name, sizeof(name)) ||
        find_in("/proc/self/net/unix", is_unix, inode, name, sizeof(name));
  }
  known = {number, session::intern(name)};
  return known.name;
}

}  // namespace

StringId name_of_descriptor(uint32_t fd) noexcept {
  Sampling& s = g_sampling;
  if (s.names >= kMostNames) return {};
  char target[512];
  const ssize_t n = readlinkat(AT_FDCWD, ProcPath("/proc/self/fd/", fd, "").get(), target, sizeof(target));
  if (n <= 0) return {};
  ++s.names;
  std::string_view name{target, static_cast<size_t>(n)};
  constexpr std::string_view kSocket = "socket:[";
  if (name.starts_with(kSocket) && name.ends_with(']'))
    return name_of_socket(name.substr(kSocket.size(), name.size() - kSocket.size() - 1));
  if (name[0] != '/') name = name.substr(0, name.find(':'));  // "pipe:[4711]", "anon_inode:[eventfd]"
  return session::intern(name);
}

StringId name_of_child(uint32_t pid) noexcept {
  Sampling& s = g_sampling;
  if (s.names >= kMostNames) return {};
  const int fd = open(ProcPath("/proc/", pid, "/cmdline").get(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  char text[120];
  const ssize_t n = read(fd, text, sizeof(text));
  close(fd);
  if (n <= 0) return {};  // it has ended
  ++s.names;
  std::string_view name(text, static_cast<size_t>(n));
  while (!name.empty() && name.back() == 0) name.remove_suffix(1);
  std::replace(text, text + name.size(), '\0', ' ');
  return session::intern(name);
}

void forget_names() noexcept {
  for (KnownSocket& k : g_sockets) k = {};
  g_sampling.names = g_sampling.sockets = 0;
}

}  // namespace torchprof::sampler
