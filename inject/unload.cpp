// dlclose is interposed because what threads know of the frames of an object must not outlive it, and the loader tells
// nobody when one goes: its counters are under its lock. Unlike dlopen it does not look at who calls it.
#include <dlfcn.h>

#include <atomic>

#include "tracer/native/stack.h"

extern "C" __attribute__((visibility("default"))) int dlclose(void* handle) {
  using Close = int (*)(void*);
  static constinit std::atomic<Close> found{nullptr};
  Close real = found.load(std::memory_order_relaxed);  // whoever looks finds the same
  if (!real) {
    real = reinterpret_cast<Close>(dlsym(RTLD_NEXT, "dlclose"));
    found.store(real, std::memory_order_relaxed);
  }
  torchprof::native::before_unload();
  const int result = real(handle);
  torchprof::native::after_unload();
  return result;
}
