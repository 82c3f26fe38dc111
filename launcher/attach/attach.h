// Brings libtorchprof.so into a process that runs Python, and has it armed (inject/late/attach.h). In this order:
//
//   3.14 and later   a script, by PEP 768 (remote_script.h): nothing is stopped
//   others           one thread is stopped for less than a millisecond and calls Py_AddPendingCall() (stopped_thread.h)
//                    with a stub that loads the library at the main thread's next safe point, with the GIL: there no
//                    lock of malloc or of the loader can be held
//   both come to nothing while the main thread waits (a lock, join, sleep: a hang). Then, after a tenth of a second, a
//                    thread is looked for that rests in a system call and holds no such lock; it loads the library,
//                    which starts a thread that waits for the GIL
//
// Never is anything loaded in a thread that was stopped just anywhere: of seven programs four broke by that, since the
// thread may hold the locks of malloc or of the loader.
//
// Where the library's file cannot be seen by the process (a container), it gets it as a memfd.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "launcher/attach/image.h"
#include "launcher/attach/rights.h"

namespace torchprof::launcher {

struct AttachWish {
  std::filesystem::path library;  // libtorchprof.so, as we see it
  std::string settings;           // lines "TORCHPROF_xyz=VALUE"
  std::chrono::milliseconds patience{10'000};
};

struct Attached {
  std::string way;    // for people
  std::string lines;  // that the library has to say, each with its newline
  std::chrono::microseconds stopped{0};
};

// Throws Error, in words that follow "process 12: "; then nothing will happen in the process any more.
Attached attach_library(Image& image, const AttachTarget& target, const AttachWish& wish);

}  // namespace torchprof::launcher
