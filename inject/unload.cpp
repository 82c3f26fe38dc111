// dlclose is interposed because what threads know about the frames of an object must not outlive the object, and the
// loader tells nobody when it unloads one (its counters can only be read under its lock). Unlike dlopen, dlclose does
// not depend on its caller, so it can be interposed.
#include <dlfcn.h>

#include <atomic>

#include "tracer/native/stack.h"

extern "C" __attribute__((visibility("default"))) int dlclose(void* handle) {
  using Close = int (*)(void*);
  static constinit std::atomic<Close> found{nullptr};
  Close real = found.load(std::memory_order_relaxed);  // all threads find the same function
  if (!real) {
    real = reinterpret_cast<Close>(dlsym(RTLD_NEXT, "dlclose"));
    found.store(real, std::memory_order_relaxed);
  }
  torchprof::native::before_unload();
  const int result = real(handle);
  torchprof::native::after_unload();
  return result;
}
