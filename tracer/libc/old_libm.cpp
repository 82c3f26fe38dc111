// Of the launcher alone; old_libc.h says why.
#include "tracer/processor/processor.h"

// `name` calls libm's first version of itself, which every later libm has, too.
#define TORCHPROF_OLD(name, parameters, arguments)                                                    \
  __asm__(".symver torchprof_old_" #name ", " #name "@" TORCHPROF_FIRST_GLIBC);                       \
  extern "C" double torchprof_old_##name parameters;                                                  \
  extern "C" __attribute__((visibility("hidden"))) double torchprof_##name parameters __asm__(#name); \
  double torchprof_##name parameters { return torchprof_old_##name arguments; }

TORCHPROF_OLD(exp, (double x), (x))
TORCHPROF_OLD(log, (double x), (x))
TORCHPROF_OLD(pow, (double x, double y), (x, y))
