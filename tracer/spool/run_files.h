// Every name that the library writes into RUN/spool: one list for those who write them, and for the launcher, which
// removes what is ours and nothing else (launcher/run_dir/our_files.h). A name that is written and not listed makes its
// directory one that no later run can use.
//
//     HOST.PID.START.spool            a process (layout.h); START in ns since 1970
//     HOST.PID.START.ctl              a socket, by which `torchprof ctl` reaches the process (tracer/door_socket.h)
//     untraced                        programs into which the library could not get (inject/exec.cpp)
//     used                            what all processes have used of --max-run-size (run_budget.h)
//     uncaptured                      processes that could not be recorded (layout.h)
//     said                            lines that one process has said for all (process/diag.h)
//     control                         what `torchprof ctl`, which writes it, asks of all processes (control_file.h)
//     windows.HOST.PORT.PARENT.JOB    what the ranks of a job agree on (tracer/run_windows.h)
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "tracer/spool/layout.h"

namespace torchprof {

inline constexpr const char* kSpoolEnd = ".spool";
inline constexpr const char* kUntracedOfRun = "spool/untraced";  // from RUN on
inline constexpr const char* kUntracedName = kUntracedOfRun + std::string_view("spool/").size();
inline constexpr const char* kUsedName = "used";
inline constexpr const char* kSaidName = "said";
inline constexpr const char* kControlName = "control";
inline constexpr const char* kWindowsBegin = "windows.";

// Those whose whole name is known.
inline constexpr std::array<const char*, 5> kLists{kUntracedName, kUsedName, kUncapturedName, kSaidName, kControlName};

// The socket beside a spool: the name of the spool with another end. The kernel takes short names alone, so of a long
// one its last bytes, which have the numbers in them.
inline constexpr std::string_view kDoorEnd = ".ctl";
inline constexpr size_t kLongestDoor = 72;  // of a name, with its end
using DoorName = std::array<char, kLongestDoor + 1>;
inline DoorName door_of(std::string_view spool) noexcept {
  DoorName name{};
  std::string_view stem = spool.substr(0, spool.size() - std::min(spool.size(), std::string_view(kSpoolEnd).size()));
  if (const size_t most = kLongestDoor - kDoorEnd.size(); stem.size() > most) stem.remove_prefix(stem.size() - most);
  stem.copy(name.data(), stem.size());
  kDoorEnd.copy(name.data() + stem.size(), kDoorEnd.size());
  return name;
}

// How many whole numbers a name ends with, after HOST.
inline constexpr int kNumbersOfSpool = 2;    // PID.START, before kSpoolEnd
inline constexpr int kNumbersOfWindows = 3;  // PORT.PARENT.JOB

}  // namespace torchprof
