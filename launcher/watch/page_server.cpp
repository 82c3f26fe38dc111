#include "launcher/watch/page_server.h"

#include <poll.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <vector>

#include "formats/io/error.h"

namespace torchprof::launcher {
namespace {

std::string random_token() {
  std::array<unsigned char, 16> bytes{};
  ssize_t n = 0;
  do n = getrandom(bytes.data(), bytes.size(), 0);
  while (n < 0 && errno == EINTR);
  if (n != static_cast<ssize_t>(bytes.size()))
    throw Error(std::string("--serve: there are no random numbers for its address: ") + std::strerror(errno));
  std::string token;
  for (const unsigned char byte : bytes)
    token.append(1, "0123456789abcdef"[byte >> 4]).append(1, "0123456789abcdef"[byte & 15]);
  return token;
}

// Takes as long wherever the first difference is.
bool is_same(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned>(static_cast<unsigned char>(b[i]));
  return difference == 0;
}

// With any port, as it may be that of a tunnel (ssh -L).
bool is_this_machine(std::string_view host) {
  const std::string_view name = host.substr(0, host.rfind(':'));
  return name == "127.0.0.1" || name == "localhost";
}

constexpr std::string_view kFields =
    "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\nContent-Security-Policy: default-src 'none'; style-src "
    "'unsafe-inline'; script-src 'unsafe-inline'; frame-ancestors 'none'\r\n";

}  // namespace

std::string page_answer(std::string_view head, std::string_view token, std::string_view page) {
  const std::optional<HttpRequest> request = request_of(head);
  if (!request) return http_answer("400 Bad Request", kPlainText, "this is no request of HTTP/1\n");
  if (request->method != "GET" && request->method != "HEAD")
    return http_answer("405 Method Not Allowed", kPlainText, "GET\n", true, "Allow: GET, HEAD\r\n");
  const bool has_body = request->method == "GET";
  if (!is_this_machine(request->host))
    return http_answer("421 Misdirected Request", kPlainText, "this page is for this machine alone\n", has_body);
  const std::string wanted = "/" + std::string(token) + "/";
  if (!is_same(request->target, wanted)) return http_answer("404 Not Found", kPlainText, "not found\n", has_body);
  return http_answer("200 OK", "text/html; charset=utf-8", page, has_body, kFields);
}

PageServer::PageServer() : server_("127.0.0.1:0", "report: --serve"), token_(random_token()) {
  server_.wait_for_readers();
}

int PageServer::port() const { return std::stoi(server_.url().substr(server_.url().rfind(':') + 1)); }

void PageServer::serve(std::string_view page, int stop) {
  using std::chrono::steady_clock;
  while (true) {
    std::vector<pollfd> fds = server_.fds();
    fds.push_back({stop, POLLIN, 0});
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(server_.deadline() - steady_clock::now()).count();
    poll(fds.data(), fds.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000)));
    if (fds.back().revents != 0) return;
    server_.serve([&](std::string_view head) { return page_answer(head, token_, page); });
  }
}

}  // namespace torchprof::launcher
