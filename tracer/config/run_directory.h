// The name of the run directory: as the user writes it, with placeholders, and as a launcher that has made it hands it
// on to the program.
//
// No exceptions, no allocation: used in somebody else's process as well.
#pragma once

#include <climits>
#include <cstddef>

#include "tracer/config/config.h"

namespace torchprof {

// Replaces %h host, %j job, %p process id, %t time (YYYYmmdd-HHMMSS), %u user id, %q{NAME} variable, %q{NAME:-INSTEAD}
// what stands there if it is unset or empty, %% percent. False: unknown placeholder, unset variable or too long,
// `error` says which.
//
// The job is what Slurm, PBS, Ray or torchrun call it; a pod, where none of them does; otherwise the machine since it
// was started. It is one name: what it must not hold is replaced.
bool expand_output(const char* pattern, char* out, size_t size, ErrorText& error) noexcept;

// Whether all processes that are given this pattern have one directory, or one for each host, job or user. False: each
// would have its own, or it cannot be read; `error` says which. No variable is looked at.
bool is_shared_output(const char* pattern, ErrorText& error) noexcept;

// A launcher made the run directory `output` on this host before it started the program, and said so in the
// environment, as HOST:OUTPUT: one that is not there is out of sight. A run that the environment alone asks for makes
// its own.
inline constexpr const char* kLaunched = "TORCHPROF_LAUNCHED";
// No launcher has started this process: the environment alone asks for the run.
bool is_armed_by_environment() noexcept;
// The variable with its value, NAME=HOST:OUTPUT, as the environment has it. `output` is absolute, shorter than
// PATH_MAX.
void write_launched(const char* output, char (&entry)[PATH_MAX + 256]) noexcept;
// False as well for an `output` of another run, within this one, and where this host is not the launcher's or is a
// container with a name of its own: there the launcher made nothing.
bool made_by_launcher(const char* output) noexcept;

// Somebody who attached to a process has started the run, and that process this one: it belongs to the run for as long
// as he holds a lock on RUN/spool, and writes nothing afterwards. The variable names that run: another one within it
// (torchprof run) is its own.
inline constexpr const char* kAttached = "TORCHPROF_ATTACHED";
bool is_started_by_attached(const char* output) noexcept;
bool is_attach_over(const char* output) noexcept;
// The same for who was held before and asks again and again: true only if that is certain, not where no descriptor can
// be had, for instance.
bool is_attach_certainly_over(const char* output) noexcept;

}  // namespace torchprof
