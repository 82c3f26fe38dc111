// Whether ld.so would load a preloaded library into a program, read from its file. Runs nothing.
//
// Any thread, also in a child between vfork and exec or in a signal's handler on a small stack: no allocation, no lock,
// some hundred bytes of stack (what takes more lies in the caller's ProgramWork), errno is kept.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>

namespace torchprof {

enum class Barrier : uint8_t {
  kNone,           // it would, or it is none of our business: no ELF file, not there, not readable
  kMusl,           // its dynamic linker is musl's: with a library for glibc preloaded it would not even start
  kForeign,        // of another processor or word size
  kChangesRights,  // setuid, setgid or with capabilities: ld.so ignores LD_PRELOAD (secure execution)
  kStatic,         // nobody reads LD_PRELOAD in it
};

// What is read of a program's file. The caller gives the memory; what is in it before and after means nothing.
struct ProgramWork {
  Elf64_Ehdr header;
  size_t count;  // of the segments
  Elf64_Phdr segments[64];
  Elf64_Dyn dynamic[64];
  char linker[256];
  char needed[32];
};

// "is statically linked, so nothing can be preloaded into it"; for kNone the empty string.
const char* text_of(Barrier barrier) noexcept;

// `file`: open for reading, -1 if it is not; `path`: its name, for what ld.so is by itself.
Barrier barrier_of(int file, const char* path, ProgramWork& work) noexcept;

// Its runtime of AddressSanitizer is a library, which ends the program where another one was preloaded before it. With
// kAsanOption in kAsanOptions it does not: we stand in front of nothing that it wants to catch.
// Source: sanitizer_common/asan_flags.inc of LLVM, verify_asan_link_order; libasan.so.N (gcc) or libclang_rt.asan*.so
// has to be the first that the program needs.
bool needs_asan(int file, ProgramWork& work) noexcept;
inline constexpr char kAsanOptions[] = "ASAN_OPTIONS";
inline constexpr char kAsanOption[] = "verify_asan_link_order=0";

// What a script's first line says after "#!": the interpreter, its argument. As much of it as Linux reads. False:
// `file` is no script.
inline constexpr size_t kScriptLine = 256;
bool script_line_of(int file, char (&out)[kScriptLine]) noexcept;

}  // namespace torchprof
