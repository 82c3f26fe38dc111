// How the processes of a run ended, for people.
//
// A process that reached its exit handlers says so in its spool. Its parent knows more: Python's multiprocessing and
// subprocess wait for their children, and the recorder keeps what they learn (the facts child.PID of
// tracer/python/workers.h). What nobody has said is not guessed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/trace/trace.h"

namespace torchprof::formats {

// From a fact of the parent; none: it is about something else, or is damaged.
std::optional<ChildEnd> child_end_of(std::string_view key, std::string_view value);

// Fills in Process::exit_status and Process::was_signalled. `processes` are sorted by start and have their roles.
void assign_endings(std::vector<Process>& processes);

//   clean                exit handlers ran, and the status is 0 or not known
//   ended                status 0 without exit handlers (os._exit, as multiprocessing ends what it forked); or a helper
//                        (Process::is_helper) that its parent ended by SIGTERM
//   exit 3               this status
//   SIGTERM by parent    its parent had sent it a signal, and it died of this one
//   killed by SIGKILL    it died of this signal
//   killed or replaced   no exit handler ran, and nobody said more: killed, _exit, exec, or still running
std::string ending_text(const Process& process);
// A status other than 0, or a signal that is not its usual end. False where nobody said how it ended.
bool has_failed(const Process& process);
// Process::group, or 0 for one that has failed: it stands on its own.
uint32_t shown_group(const Process& process);
// "clean" or "ended"
bool has_ended_well(const Process& process);

}  // namespace torchprof::formats
