// What run.json says. It is written when the run begins, so that a directory whose launcher was killed explains itself,
// and again at the end.
//
//   torchprof, command, directory, environment (every TORCHPROF_*, LD_PRELOAD, PYTHONPATH as the command got them),
//   host, kernel, cpus, launcher (pid), start, start_ns (since 1970) at the end: end, seconds, exit_status or signal
//   and signal_name, oom_kills (if there were any), still_running (still_running.h) after an export: exported (all of
//   it, and nothing still ran), files, took_ns (of our own phases: load, symbols, and each format), unreadable (file,
//   reason), processes (pid, parent_pid, host, command, role (formats/trace/roles.h), start, end, clean_exit, metadata,
//   sources (state, detail), events, lost, cut_short (captured_seconds, of_seconds, reason), dropped_bytes, trace;
//   open: of one that did not end in an orderly way) uncaptured (pid, parent_pid, time, command, reason),
//   uncaptured_more (how many besides): for want of room
// Times are UTC, ISO 8601.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "formats/trace/trace.h"
#include "launcher/run_dir/writers.h"

namespace torchprof::launcher {

using Info = nlohmann::ordered_json;

Info begin_info(const std::vector<std::string>& command, const std::vector<std::string>& environment);
// `oom_kills`: how many the kernel made while the command ran.
void add_end(Info& info, int wait_status, const std::vector<Running>& running, uint64_t oom_kills);
// How many processes of this machine the kernel has killed because memory ran out, by a cgroup's limit or altogether
// (oom_kill of /proc/vmstat, since Linux 4.13); 0 if it does not say.
uint64_t count_oom_kills();
// For people; empty if there were none, or if the command was not killed and each of its processes came to its exit
// handlers.
std::string oom_line(const Info& info);
// A process as run.json has it.
// `run_end`: 0 if it is not known.
Info process_info(const formats::Process& process, UnixNs run_end = {});
// "open": what every thread that had not ended was doing, and since when: seconds before the end, or before now.
void add_open(Info& info, const formats::Process& process, bool is_running);

// When the command ended, as add_end() had it; 0 if it is not known.
UnixNs run_end_of(const Info& info);
void add_processes(Info& info, const formats::Trace& trace);

const char* state_text(SourceState state);  // "on", "off", "failed"

}  // namespace torchprof::launcher
