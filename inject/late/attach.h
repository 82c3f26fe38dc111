// Capture of a process that runs already, by somebody who has brought the library into it (launcher/attach/).
//
// The session is armed for a while, with settings that come as text and not by the environment, and disarmed again by
// the command `detach` of the window's thread (tracer/window_thread.h), any number of times. After that the program is
// as it was: its calls, methods and imports are its own, threads and descriptors of ours are gone. The library stays
// mapped, since threads may be in the midst of a call that goes through it. A process whose launcher is gone without
// that, killed for instance, is left all the same, by itself and within three seconds: it sees that nobody holds the
// lock any more by which is_attach_over() tells (tracer/config/run_directory.h).
//
// What cannot be had late is noted as a source of the trace that is off.
#pragma once

#include <climits>

#include "tracer/config/config.h"
#include "tracer/python/abi.h"

namespace torchprof::inject {

// For a process that one that is attached to has started: it is left with that one. `output`: the run directory.
void leave_on_command(const char* output) noexcept;

// torchprof_attach(), for what runs in the program itself. Returns the answer's text; nullptr: it was passed over.
const char* attach_from_program(const char* settings) noexcept;
// The settings as attaching takes them, lines "TORCHPROF_xyz=VALUE", and the run directory that they name. False:
// `error` says what is wrong.
bool read_settings(const char* text, Config& config, char (&output)[PATH_MAX], ErrorText& error) noexcept;

}  // namespace torchprof::inject

extern "C" {

// What became of the last request. Read from another process: `serial` is written last.
struct TorchprofAnswer {
  uint64_t serial;
  char text[1024];     // "ok" or "error: WHY", then lines that the library would have said
  uint64_t cancelled;  // written by the other process: requests up to this one are not wanted any more
};
extern __attribute__((visibility("default"))) TorchprofAnswer torchprof_answer;

// `settings`: a line with the serial number of the request, in decimal, then lines "TORCHPROF_xyz=VALUE". Numbers grow;
// a request that comes twice, or after a later one, is passed over. Without a number it has the next one. With the GIL
// held, while Python runs a function on the calling thread. The answer is there when it returns.
__attribute__((visibility("default"))) void torchprof_attach(const char* settings);
// The same on any thread that could call malloc(): a thread of ours takes the GIL for it, however long that takes.
__attribute__((visibility("default"))) void torchprof_attach_soon(const char* settings);
}
