// PEP 768: CPython 3.14 and later run a script that somebody asks for, at the next safe point of a thread, without
// being stopped. The request is written into the thread's state in its memory, as sys.remote_exec() does, which wants a
// caller of the same version; we need none.
//
// A thread that waits for long comes to no safe point. So the thread that holds the GIL is asked where the main thread
// does not run. It may end between our look and our write, and CPython has no guard against that: the main thread,
// whose state is never freed, is asked first.
//
// Source: Include/internal/pycore_debug_offsets.h and Python/remote_debugging.c of 3.14.0; measured on 3.14 and 3.15.
// The table has a row for each version; another one is refused.
#pragma once

#include <string>

#include "launcher/attach/image.h"

namespace torchprof::launcher {

class RemoteScript {
 public:
  // Looks at the interpreter. why() says what is in the way.
  explicit RemoteScript(const Image& image);

  // Empty: a script can be asked for.
  const std::string& why() const { return why_; }
  // `path`: as the process sees it. False: it has gone, or the path is too long.
  bool ask_main(const std::string& path);
  // The same of the thread that holds the GIL. False: also where none holds it.
  bool ask_holder(const std::string& path);
  // What was asked for and has not begun will not begin.
  void cancel();

 private:
  bool ask(uint64_t thread, const std::string& path);
  uint64_t offset(uint64_t at) const { return image_.value<uint64_t>(runtime_ + at); }

  const Image& image_;
  std::string why_;
  uint64_t runtime_ = 0;         // _PyRuntime, which begins with the table of offsets
  uint64_t support_ = 0;         // in the table: those of the debugger's
  uint64_t interpreter_ = 0;     // the first one
  std::vector<uint64_t> asked_;  // states of threads
};

}  // namespace torchprof::launcher
