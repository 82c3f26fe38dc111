// Names of signals, as the kernel's headers have them.
//
// Instead of sigabbrev_np, which is newer than the oldest libc of a release.
#pragma once

namespace torchprof::formats {

// "SIGTERM"; null: none has this number, or it is a real-time signal.
const char* signal_name(int signal) noexcept;

}  // namespace torchprof::formats
