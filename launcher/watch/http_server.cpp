#include "launcher/watch/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>

#include "formats/io/error.h"

namespace torchprof::launcher {
namespace {

using std::chrono::steady_clock;

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
  std::string host;  // as in a URL
};

std::optional<Address> address_of(const std::string& text) {
  const size_t colon = text.rfind(':');
  std::string host = colon == std::string::npos ? "127.0.0.1" : text.substr(0, colon);
  const std::string_view port_text = std::string_view(text).substr(colon == std::string::npos ? 0 : colon + 1);
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(port_text.data(), port_text.data() + port_text.size(), port);
  if (port_text.empty() || error != std::errc{} || end != port_text.data() + port_text.size()) return {};
  Address address{.host = host};
  if (host == "localhost") host = "127.0.0.1";
  if (sockaddr_in v4{}; inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    std::memcpy(&address.storage, &v4, address.size = sizeof(v4));
    return address;
  }
  if (!host.starts_with('[') || !host.ends_with(']')) return {};
  sockaddr_in6 v6{};
  if (inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &v6.sin6_addr) != 1) return {};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  std::memcpy(&address.storage, &v6, address.size = sizeof(v6));
  return address;
}

uint16_t port_of(const sockaddr_storage& storage) {
  if (storage.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

// The place behind the empty line that ends a head; npos: it has not come yet.
size_t end_of_head(std::string_view bytes) {
  const size_t at = bytes.find("\r\n\r\n");
  return at == std::string_view::npos ? at : at + 4;
}

// Up to the first of these, and what is behind it.
std::string_view cut(std::string_view& text, std::string_view end) {
  const size_t at = std::min(text.find(end), text.size());
  const std::string_view front = text.substr(0, at);
  text.remove_prefix(std::min(text.size(), at + end.size()));
  return front;
}

bool is_name(std::string_view text, std::string_view lower_case) {
  return std::ranges::equal(text, lower_case, [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + 32 : a) == b; });
}

std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::optional<HttpRequest> request_of(std::string_view head) {
  const std::string_view line = cut(head, "\r\n");
  const size_t method_end = line.find(' '), target_end = line.rfind(' ');
  if (method_end == std::string_view::npos || target_end <= method_end + 1 ||
      !line.substr(target_end + 1).starts_with("HTTP/1."))
    return {};
  std::string_view target = line.substr(method_end + 1, target_end - method_end - 1);
  HttpRequest request{line.substr(0, method_end), target.substr(0, target.find('?')), {}};
  size_t hosts = 0;
  while (!head.empty()) {
    std::string_view field = cut(head, "\r\n");
    if (!is_name(cut(field, ":"), "host")) continue;
    request.host = without_blanks(field);
    ++hosts;
  }
  if (hosts > 1) request.host = {};
  return request;
}

std::string http_answer(std::string_view status, std::string_view type, std::string_view body, bool has_body,
                        std::string_view fields) {
  std::string out = "HTTP/1.1 ";
  out.append(status).append("\r\nContent-Type: ").append(type).append("\r\nContent-Length: ");
  out.append(std::to_string(body.size())).append("\r\n").append(fields).append("Connection: close\r\n\r\n");
  return has_body ? out.append(body) : out;
}

HttpServer::HttpServer(const std::string& text, const std::string& option) {
  std::optional<Address> address = address_of(text);
  if (!address)
    throw Error(option + " " + text + ": is no address of this machine with a port: 127.0.0.1:9401, [::1]:9401");
  const auto fail = [&](int error) {
    if (listener_ >= 0) close(listener_);
    throw Error(option.substr(0, option.find(':')) + ": cannot listen on " + text + ": " + std::strerror(error));
  };
  listener_ = socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener_ < 0) fail(errno);
  // So that the port can be had again at once after an end.
  const int yes = 1;
  setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (bind(listener_, reinterpret_cast<const sockaddr*>(&address->storage), address->size) != 0 ||
      listen(listener_, 16) != 0)
    fail(errno);
  socklen_t size = sizeof(address->storage);
  if (getsockname(listener_, reinterpret_cast<sockaddr*>(&address->storage), &size) != 0) fail(errno);
  url_ = "http://" + address->host + ":" + std::to_string(port_of(address->storage));
}

HttpServer::~HttpServer() {
  for (const Connection& connection : connections_) close(connection.fd);
  if (listener_ >= 0) close(listener_);
}

std::vector<pollfd> HttpServer::fds() const {
  std::vector<pollfd> out;
  for (const Connection& connection : connections_)
    out.push_back({connection.fd, static_cast<int16_t>(connection.answer.empty() ? POLLIN : POLLOUT), 0});
  if (has_room() && steady_clock::now() >= rests_until_) out.push_back({listener_, POLLIN, 0});
  return out;
}

steady_clock::time_point HttpServer::deadline() const {
  auto first = steady_clock::time_point::max();
  if (steady_clock::now() < rests_until_) first = rests_until_;
  for (const Connection& connection : connections_) first = std::min(first, connection.until);
  return first;
}

std::list<HttpServer::Connection>::const_iterator HttpServer::first_without_request() const {
  return std::ranges::find_if(connections_, [](const Connection& connection) { return connection.answer.empty(); });
}

bool HttpServer::has_room() const {
  return connections_.size() < kMostConnections || first_without_request() != connections_.end();
}

// Not so many at once that one of them could take the place of another.
void HttpServer::accept_some() {
  constexpr std::chrono::milliseconds kRest{100};
  for (size_t i = 0; i < kMostConnections && has_room(); ++i) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
        rests_until_ = steady_clock::now() + kRest;
      return;
    }
    if (connections_.size() == kMostConnections) {
      const auto oldest = first_without_request();
      close(oldest->fd);
      connections_.erase(oldest);
    }
    connections_.push_back({fd, steady_clock::now() + kPatience});
  }
}

void HttpServer::serve(const Handler& handler) {
  accept_some();
  connections_.remove_if([&](Connection& connection) {
    if (steady_clock::now() < connection.until && go_on(connection, handler)) return false;
    close(connection.fd);
    return true;
  });
}

// False: it is over.
bool HttpServer::go_on(Connection& connection, const Handler& handler) const {
  const auto is_not_yet = [] { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; };
  char bytes[kMostHead];
  while (connection.answer.empty()) {
    const ssize_t n = recv(connection.fd, bytes, kMostHead - connection.head.size(), 0);
    if (n < 0 && is_not_yet()) return true;
    if (n <= 0) return false;
    connection.head.append(bytes, static_cast<size_t>(n));
    if (const size_t end = end_of_head(connection.head); end != std::string::npos)
      connection.answer = handler(std::string_view(connection.head).substr(0, end));
    else if (connection.head.size() == kMostHead)
      connection.answer = http_answer("431 Request Header Fields Too Large", kPlainText, "this head is too long\n");
  }
  while (connection.sent < connection.answer.size()) {
    const ssize_t n = send(connection.fd, connection.answer.data() + connection.sent,
                           connection.answer.size() - connection.sent, MSG_NOSIGNAL);
    if (n < 0 && is_not_yet()) return true;
    if (n < 0) return false;
    connection.sent += static_cast<size_t>(n);
    if (waits_for_readers_) connection.until = steady_clock::now() + kPatience;
  }
  // What was sent and not read would make the kernel reset the connection and drop the answer.
  shutdown(connection.fd, SHUT_WR);
  for (int i = 0; i < 16 && recv(connection.fd, bytes, sizeof(bytes), 0) > 0; ++i) {
  }
  return false;
}

}  // namespace torchprof::launcher
