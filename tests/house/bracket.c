// Preloaded on both sides of a library, measures what that library's constructor costs: the loader runs constructors
// from the last preloaded object to the first. Built twice: with -DLATER for the object that is named first and so runs
// last. It says how long the constructor took and how many pages it touched first, and how long as many of that cost
// here: there are machines on which a page costs thirty times as much as on others.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

struct Reading {
  long long ns;
  long faults;
};

static struct Reading read_both(void) {
  struct timespec t;
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (struct Reading){t.tv_sec * 1000000000LL + t.tv_nsec, usage.ru_minflt};
}

#ifdef LATER
__attribute__((constructor)) static void end(void) {
  const struct Reading end = read_both();
  const struct Reading* begin = dlsym(RTLD_DEFAULT, "torchprof_test_bracket_begin");
  if (!begin || begin->ns == 0) return;
  enum { kPages = 64 };
  const long size = sysconf(_SC_PAGESIZE);
  char* pages = mmap(NULL, kPages * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return;
  const struct Reading before = read_both();
  for (int i = 0; i < kPages; ++i) ((volatile char*)pages)[i * size] = 1;
  const struct Reading after = read_both();
  fprintf(stderr, "constructor: %lld ns, %ld pages; a page: %lld ns\n", end.ns - begin->ns, end.faults - begin->faults,
          (after.ns - before.ns) / kPages);
}
#else
struct Reading torchprof_test_bracket_begin;
__attribute__((constructor)) static void begin(void) { torchprof_test_bracket_begin = read_both(); }
#endif
