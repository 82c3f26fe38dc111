#include "inject/late/late_memory.h"

#include <iterator>

#include "inject/imports.h"
#include "inject/interpose.h"
#include "inject/late/replaced.h"
#include "inject/preload.h"
#include "tracer/session.h"

namespace torchprof::inject {
namespace {

constexpr char kAllocators[] = "libc10.so";
Visited g_visited_users;
bool g_has_library = false;

}  // namespace

void reach_allocators() noexcept {
  if (!is_late() || session::config().memory == MemoryMode::kOff) return;
  const Redirect redirects[] = {
#define TORCHPROF_REDIRECT(name) {#name, reinterpret_cast<void*>(name)}
      TORCHPROF_REDIRECT(_ZN3c1022memoryProfilingEnabledEv),
      TORCHPROF_REDIRECT(_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm),
      TORCHPROF_REDIRECT(_ZN3c1025ProfiledCPUMemoryReporter11OutOfMemoryEm),
      TORCHPROF_REDIRECT(_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv),
      TORCHPROF_REDIRECT(_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE),
      TORCHPROF_REDIRECT(_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE),
      TORCHPROF_REDIRECT(_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE),
      TORCHPROF_REDIRECT(_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE),
#undef TORCHPROF_REDIRECT
  };
  if (!g_has_library) {
    if (!is_loaded(kAllocators)) return;
    const bool is_found = redirect_imports_of(kAllocators, redirects, std::size(redirects)) > 0;
    g_has_library = true;
    if (!is_found)
      session::note_source("memory", SourceState::kFailed, "libc10 does not call its reports in a way that is known");
    for (const Redirect& each : redirects) note_import(each.replacement, find_symbol(kAllocators, each.symbol));
  }
  redirect_imports_of_users(kAllocators, redirects, std::size(redirects), g_visited_users);
}

void forget_allocators() noexcept {
  g_visited_users = {};
  g_has_library = false;
}

}  // namespace torchprof::inject
