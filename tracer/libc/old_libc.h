// A release runs with glibc 2.28 and every later one, and is built against 2.31 (packaging/). Symbols that are newer
// than 2.28 and that linked-in code wants all the same are named here, and replaced by old_libc.cpp and old_libm.cpp,
// for us alone: the program's own stay as they are. An ordinary build, against a libc that has them, uses libc's.
//
//   symbol                  since  who wants it                        what it gets instead
//   exp                     2.29   sqlite                              libm's version before, which also sets errno
//   log                     2.29   sqlite, the analysis                likewise
//   pow                     2.29   sqlite                              likewise
//   __libc_single_threaded  2.32   libstdc++                           0: its reference counts are always atomic
//   _dl_find_object         2.35   libgcc's unwinder, native stacks    libc's; before 2.35 dl_iterate_phdr
//   arc4random              2.36   std::random_device, which is unused getrandom
//
// Not here: what our own code does without, such as sigabbrev_np (2.32) and sem_clockwait (2.30).
// tests/release/test_symbols.py reads this table: a release wants nothing newer that is missing in it, and what is in
// it is wanted. Source of the versions: sysdeps/unix/sysv/linux/x86_64/64/*.abilist of glibc 2.36.
#pragma once

#include <link.h>

#ifndef DLFO_STRUCT_HAS_EH_DBASE  // <link.h> before 2.35

// As <link.h> has it since.
struct dl_find_object {
  unsigned long long dlfo_flags;
  void* dlfo_map_start;
  void* dlfo_map_end;
  link_map* dlfo_link_map;
  void* dlfo_eh_frame;
  unsigned long long dlfo_reserved[7];
};
extern "C" int _dl_find_object(void* address, dl_find_object* result) noexcept;

#endif

namespace torchprof::libc {

// What _dl_find_object does, for every libc. Callers of that take for granted that an object has frames and a map, so
// one that has not is not found. Unlike libc's, this takes the lock under which the loader changes its list of objects
// (not the one that it holds while constructors run): it waits for another thread that is inside dl_iterate_phdr.
int find_object(void* address, dl_find_object* result) noexcept;

}  // namespace torchprof::libc
