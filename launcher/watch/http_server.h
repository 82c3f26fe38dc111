// Answers requests over HTTP, each with what a handler makes of its head.
//
// No more of HTTP than that (RFC 9112): one request a connection, whose head may have kMostHead bytes; what follows it
// is not read. At most kMostConnections at a time: the next one takes the place of that which has waited longest for a
// request, and waits to be accepted where all have theirs. Each is closed after kPatience, or with wait_for_readers()
// after kPatience in which nobody has read anything.
// Nothing that comes in is ever shown or run.
//
// One thread, which calls serve() after poll() of fds(). The constructor throws Error, else nothing but for memory.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace torchprof::launcher {

struct HttpRequest {
  std::string_view method;
  std::string_view target;  // without what follows a question mark
  std::string_view host;    // empty: it names none, or several
};
// Of a request's head, up to its empty line. None: it is no request of HTTP/1.
std::optional<HttpRequest> request_of(std::string_view head);

inline constexpr std::string_view kPlainText = "text/plain; charset=utf-8";  // a type
// `fields`: of the head, each with its "\r\n". Without a body: for HEAD.
std::string http_answer(std::string_view status, std::string_view type, std::string_view body, bool has_body = true,
                        std::string_view fields = {});

class HttpServer {
 public:
  static constexpr size_t kMostHead = 8192, kMostConnections = 4;
  static constexpr std::chrono::seconds kPatience{10};

  // "127.0.0.1:9401", "[::1]:9401", "0.0.0.0:9401", or "9401" for this machine alone. Port 0: any that is free.
  // `option`: that named it, for errors: "metrics: --listen".
  HttpServer(const std::string& address, const std::string& option);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  const std::string& url() const { return url_; }  // "http://127.0.0.1:9401"
  std::vector<pollfd> fds() const;
  // When serve() has something to do in any case; the far future: never.
  std::chrono::steady_clock::time_point deadline() const;
  // Makes the answer to a request's head.
  using Handler = std::function<std::string(std::string_view head)>;
  // Does what can be done without waiting. Requests that are complete by now are answered.
  void serve(const Handler& handler);
  // For large answers: a connection stays as long as it is read from.
  void wait_for_readers() { waits_for_readers_ = true; }

 private:
  struct Connection {
    int fd;
    std::chrono::steady_clock::time_point until;
    std::string head{}, answer{};
    size_t sent = 0;
  };
  bool go_on(Connection& connection, const Handler& handler) const;
  std::list<Connection>::const_iterator first_without_request() const;  // end(): there is none
  bool has_room() const;
  void accept_some();

  bool waits_for_readers_ = false;
  std::chrono::steady_clock::time_point rests_until_{};  // nothing can be accepted: there are no descriptors
  int listener_ = -1;
  std::string url_;
  std::list<Connection> connections_;
};

}  // namespace torchprof::launcher
