// Serves one page to the browsers of this machine, at an address that nobody can guess.
//
// It listens on 127.0.0.1 alone, on a port that is free. The address has a token of 128 random bits, so that neither
// other users of the machine nor pages of the web can read the page. A request is answered if it is GET or HEAD, names
// this machine as its host (a page of the web that makes its own name an address of this machine does not), and has the
// token, which is compared in constant time. Whoever sees the address may read the page: a browser that is started with
// it has it among its arguments, which other users see where /proc is not mounted with hidepid.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "launcher/watch/http_server.h"

namespace torchprof::launcher {

// What is sent back for a request's head. `token`: of the only address.
std::string page_answer(std::string_view head, std::string_view token, std::string_view page);

class PageServer {
 public:
  // Throws Error.
  PageServer();
  std::string url() const { return server_.url() + "/" + token_ + "/"; }
  int port() const;
  // Until `stop` can be read from.
  void serve(std::string_view page, int stop);

 private:
  HttpServer server_;
  std::string token_;
};

}  // namespace torchprof::launcher
