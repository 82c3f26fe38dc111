// Leaves a spool while the process goes on: what is mapped of it is replaced, at the same addresses, by memory of the
// process alone, with the headers that were there. A thread that is in the midst of an event then writes to memory that
// nobody reads, and the file, its lock and its blocks are free.
//
// Any thread, by one at a time; no allocation. Errors: what cannot be replaced stays mapped.
#pragma once

namespace torchprof::left_file {

// `name`: of the file, without its folder; no other file that is mapped has it.
void leave(const char* name) noexcept;

}  // namespace torchprof::left_file
