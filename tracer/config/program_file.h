// Whether ld.so would load a preloaded library into a program, read from its file. Runs nothing.
//
// Any thread, also in a child between vfork and exec, or in a signal handler on a small stack: no allocation, no lock,
// a few hundred bytes of stack (the larger buffers are in the caller's ProgramWork). errno is kept.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>

namespace torchprof {

enum class Barrier : uint8_t {
  kNone,           // it would; also where it cannot be told: no ELF file, not there, not readable
  kMusl,           // its dynamic linker is musl's: with a library for glibc preloaded it would not even start
  kForeign,        // of another processor or word size
  kChangesRights,  // setuid, setgid or with capabilities: ld.so ignores LD_PRELOAD (secure execution)
  kStatic,         // statically linked: it has no dynamic linker that would read LD_PRELOAD
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

// `file`: open for reading, or -1. `path`: its name, by which ld.so itself is recognised.
Barrier barrier_of(int file, const char* path, ProgramWork& work) noexcept;

// True: the program uses the shared library of AddressSanitizer, which ends the program if another library was loaded
// before it. With kAsanOption in the variable kAsanOptions it does not; we replace no function that it intercepts.
// Source: sanitizer_common/asan_flags.inc of LLVM, verify_asan_link_order; libasan.so.N (gcc) or libclang_rt.asan*.so
// has to be the first that the program needs.
bool needs_asan(int file, ProgramWork& work) noexcept;
inline constexpr char kAsanOptions[] = "ASAN_OPTIONS";
inline constexpr char kAsanOption[] = "verify_asan_link_order=0";

// The first line of a script after "#!": the interpreter and its argument, as much of it as Linux reads. False: `file`
// is not a script.
inline constexpr size_t kScriptLine = 256;
bool script_line_of(int file, char (&out)[kScriptLine]) noexcept;

}  // namespace torchprof
