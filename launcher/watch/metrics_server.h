// Answers GET /metrics over HTTP with a text, for whoever scrapes it (Prometheus, an agent, curl).
//
// No more of HTTP than that (RFC 9112): one request a connection, whose head may have kMostHead bytes; what follows it
// is not read. At most kMostConnections at a time, the next ones wait to be accepted; each is closed after kPatience.
// Nothing that comes in is ever shown or run.
//
// One thread, which calls serve() after poll() of fds(). The constructor throws Error, else nothing but for memory.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace torchprof::launcher {

// What is sent back for a request's head, up to its empty line.
std::string answer_to(std::string_view head, std::string_view text);

class MetricsServer {
 public:
  static constexpr size_t kMostHead = 8192, kMostConnections = 4;
  static constexpr std::chrono::seconds kPatience{10};

  // "127.0.0.1:9401", "[::1]:9401", "0.0.0.0:9401", or "9401" for this machine alone. Port 0: any that is free.
  explicit MetricsServer(const std::string& address);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  const std::string& url() const { return url_; }  // "http://127.0.0.1:9401/metrics"
  std::vector<pollfd> fds() const;
  // When the next connection is to be closed; the far future: there is none.
  std::chrono::steady_clock::time_point deadline() const;
  // Does what can be done without waiting. Requests that are complete by now are answered with `text`.
  void serve(std::string_view text);

 private:
  struct Connection {
    int fd;
    std::chrono::steady_clock::time_point until;
    std::string head{}, answer{};
    size_t sent = 0;
  };
  bool go_on(Connection& connection, std::string_view text) const;
  void accept_all();

  int listener_ = -1;
  std::string url_;
  std::list<Connection> connections_;
};

}  // namespace torchprof::launcher
