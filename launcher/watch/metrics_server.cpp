#include "launcher/watch/metrics_server.h"

#include <optional>

namespace torchprof::launcher {

std::string answer_to(std::string_view head, std::string_view text) {
  constexpr std::string_view kText = "text/plain; version=0.0.4; charset=utf-8";
  const std::optional<HttpRequest> request = request_of(head);
  if (!request) return http_answer("400 Bad Request", kPlainText, "this is no request of HTTP/1\n");
  if (request->method != "GET" && request->method != "HEAD")
    return http_answer("405 Method Not Allowed", kPlainText, "GET /metrics\n");
  const bool has_body = request->method == "GET";
  if (request->target != "/metrics") return http_answer("404 Not Found", kPlainText, "GET /metrics\n", has_body);
  return http_answer("200 OK", kText, text, has_body);
}

}  // namespace torchprof::launcher
