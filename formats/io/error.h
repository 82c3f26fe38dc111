// The one exception type of formats/ and launcher/. It is caught once, in main, which prints what() as one line and
// ends with `status`.
#pragma once

#include <stdexcept>
#include <string>

namespace torchprof {

struct Error : std::runtime_error {
  explicit Error(const std::string& what, int exit_status = 125) : std::runtime_error(what), status(exit_status) {}
  int status;  // 125: our own failure; 126 and 127 as `env` and `timeout` use them
};

}  // namespace torchprof
