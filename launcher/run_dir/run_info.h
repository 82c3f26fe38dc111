// The content of run.json. It is written when the run begins, so that a directory whose launcher was killed explains
// itself, and again at the end.
//
//   always
//     version           of this file (run_json.h)
//   at the begin
//     torchprof, command, directory, host, kernel, cpus, launcher (pid), start, start_ns (since 1970)
//     step, align       of these options, if they were given
//     environment       every TORCHPROF_*, LD_PRELOAD and PYTHONPATH, as the command got them
//     attached          by `torchprof attach`: [pid], and command is that of the first; the end is when it was left
//   at the end
//     end, seconds, exit_status; or signal and signal_name
//     oom_kills         if there were any
//     still_running     see still_running.h
//   after an export
//     exported          true: everything was written, and no process still ran
//     files             the files that are ours
//     took_ns           of our own phases: load, symbols, and each format
//     unreadable        [file, reason]
//     untraced          [program, reason, times]
//     processes         [pid, parent_pid, host, machine (in `machines`; none:
//                       the first), command, role and group (formats/trace/roles.h), start, end,
//                       clean_exit, ended (formats/trace/endings.h, if it is known), metadata, sources (state, detail),
//                       events, lost, cut_short (captured_seconds, of_seconds, reason), windows (number, begin, end,
//                       step, closed; reason: why -w auto opened it), blind (by, times, seconds), recycled_bytes,
//                       doubtful_chunks, dropped_bytes, trace; open, and stuck_gpu (hang_info.h): only of one that did
//                       not end in an orderly way]
//     collectives       see hang_info.h; only if a process did not end in an orderly way
//     machines          if there are several: [host, reference (its place in this list); if its clock was put to that
//                       one's: ahead_ns, drift_ppm, error_ns, collectives (formats/trace/machine_clock.h)]
//     uncaptured        [pid, parent_pid, time, command, reason]: processes for which there was no room
//     uncaptured_more   the number of others
//
// Times are UTC, ISO 8601.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "formats/trace/python_stacks.h"
#include "formats/trace/trace.h"
#include "launcher/run_dir/writers.h"

namespace torchprof::launcher {

using Info = nlohmann::ordered_json;

Info begin_info(const std::vector<std::string>& command, const std::vector<std::string>& environment);
// `oom_kills_before`: count_oom_kills() when it started.
void add_end(Info& info, int wait_status, const std::vector<Running>& running,
             std::optional<uint64_t> oom_kills_before);
// How many processes of this machine the kernel has killed because memory ran out, in a cgroup or on the whole machine
// (oom_kill in /proc/vmstat, since Linux 4.13); nothing if it does not say.
std::optional<uint64_t> count_oom_kills();
// A line for people about oom_kills. Empty if there were none, or if the command was not killed and each of its
// processes reached its exit handlers.
std::string oom_line(const Info& info);
// A process as in run.json. `run_end`: 0 if it is not known.
Info process_info(const formats::Process& process, UnixNs run_end = {});
// Adds "open": for every thread that had not ended, what it was doing and since when, in seconds before the end or
// before now, and the lines of `stacks`: [tid, name, last (none: it has no event), stack (when its Python stack was
// so), deeper, spans [name, seconds (none: not known), line]].
void add_open(Info& info, const formats::Process& process, const std::vector<formats::ThreadLines>& stacks,
              bool is_running);

// When the command ended, from what add_end() wrote; 0 if it is not known.
UnixNs run_end_of(const Info& info);
void add_processes(Info& info, const formats::Trace& trace);

const char* state_text(SourceState state);  // "on", "off", "failed"

}  // namespace torchprof::launcher
