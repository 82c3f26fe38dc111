// Preloaded on both sides of a library, measures what that library's constructor costs: the loader runs constructors
// from the last preloaded object to the first. Built twice: with -DLATER for the object that is named first and so runs
// last.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

static long long now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

#ifdef LATER
__attribute__((constructor)) static void end(void) {
  const long long end_ns = now();
  const long long* begin_ns = dlsym(RTLD_DEFAULT, "torchprof_test_bracket_begin");
  if (begin_ns && *begin_ns) fprintf(stderr, "constructor ns: %lld\n", end_ns - *begin_ns);
}
#else
long long torchprof_test_bracket_begin;
__attribute__((constructor)) static void begin(void) { torchprof_test_bracket_begin = now(); }
#endif
