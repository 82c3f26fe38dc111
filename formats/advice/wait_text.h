// What findings say of a thread that waits: for what, by the looks at it (timeline/thread_looks.h), and what helps.
#pragma once

#include <optional>
#include <string>

#include "formats/timeline/thread_looks.h"

namespace torchprof::formats {

struct WaitText {
  std::string does;  // continues "throttle ": "sleeps", "waits for socket 10.0.0.7:443"
  std::string todo;  // a sentence
  WaitsFor most;
};

// Nothing: there are too few looks, or less than two thirds is waiting of the time in which it had what it needed of
// processors.
std::optional<WaitText> wait_text(const Timeline& timeline, const ThreadAccount& account);

// "By 31 looks the thread waited 93 % of that time (sleep 80 %, lock 13 %), ran 5 % and was ready without a processor
// 2 %." Empty: there are too few looks.
std::string account_text(const Timeline& timeline, const ThreadAccount& account);

}  // namespace torchprof::formats
