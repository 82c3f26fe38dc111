// Answers GET /metrics over HTTP with a text, for whoever scrapes it (Prometheus, an agent, curl).
#pragma once

#include <string>
#include <string_view>

#include "launcher/watch/http_server.h"

namespace torchprof::launcher {

// What is sent back for a request's head, up to its empty line.
std::string answer_to(std::string_view head, std::string_view text);

class MetricsServer : public HttpServer {
 public:
  explicit MetricsServer(const std::string& address) : HttpServer(address, "metrics: --listen") {}
  std::string url() const { return HttpServer::url() + "/metrics"; }
  void serve(std::string_view text) {
    HttpServer::serve([text](std::string_view head) { return answer_to(head, text); });
  }
};

}  // namespace torchprof::launcher
