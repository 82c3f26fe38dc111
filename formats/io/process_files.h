// What the kernel says of processes and their threads: /proc, proc(5). A process may end at any moment, also between
// the opening of a file of it and the reading, which fails with ESRCH then. Whatever cannot be read is empty, and
// nothing is thrown (streams must not be used for it: an std::istreambuf_iterator throws if reading fails).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace torchprof::formats {

// The number that all of `text` is; 0: it is none.
uint32_t number_in_text(std::string_view text);

// "/proc/PID", and that of a file in it: "status", "task/TID/comm".
std::string process_path(uint32_t pid);
std::string process_path(uint32_t pid, std::string_view file);

std::string read_process_file(uint32_t pid, std::string_view file);
std::string read_thread_file(uint32_t pid, uint32_t tid, std::string_view file);

// What a line of "status" has behind "NAME:" and its blanks, in the text of that file; empty if there is no such line.
std::string_view status_value(std::string_view status, std::string_view name);
uint32_t status_number(std::string_view status, std::string_view name);  // the first one there; 0 if there is none

// What /proc/PROCESS/stat, of "7", "self" or "7/task/8", has behind the name, which may hold anything, even
// parentheses: from the third field of proc_pid_stat(5) on. Empty: there is no such process.
std::string stat_behind_name(const std::string& process);

// Whether it is on its way from its last instruction to being a zombie: all its threads are, and not all of them are
// through. Its files are closed by the last one, which may be any; the others, the main thread too, are zombies by
// then.
bool is_ending(uint32_t pid);
// Whether no thread of it will run any more: it is on that way, a zombie, or not there.
bool has_ended(uint32_t pid);

// Numbers, ascending as far as the kernel lists them so.
std::vector<uint32_t> all_processes();
std::vector<uint32_t> threads_of_process(uint32_t pid);

}  // namespace torchprof::formats
