#include "tracer/run_windows.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <climits>
#include <cstdio>

#include "tracer/config/config.h"
#include "tracer/process/descriptors.h"
#include "tracer/process/seal.h"
#include "tracer/spool/fault.h"
#include "tracer/spool/run_files.h"

namespace torchprof::window {
namespace {

constinit SharedPlan g_own{};
constinit SharedPlan* g_plan = &g_own;

// nullptr: there is none to be had.
SharedPlan* map_plan(const char* path) noexcept {
  void* memory = MAP_FAILED;
  descriptors::with_file(path, O_RDWR | O_CREAT, [&](int fd) {
    // Reserved, so that no write to the mapping can fail on a full disk. Where one can all the same, each rank plans
    // for itself.
    if (spool_fault::is_possible(fd)) return false;
    if (posix_fallocate(fd, 0, sizeof(SharedPlan)) != 0) return false;
    memory = mmap(nullptr, sizeof(SharedPlan), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory != MAP_FAILED;
  });
  return memory == MAP_FAILED ? nullptr : static_cast<SharedPlan*>(memory);
}

}  // namespace

SharedPlan& shared_plan() noexcept { return *g_plan; }

SharedPlan& join_shared_plan(const char* directory, int64_t began, int64_t now) noexcept {
  const char* const port = number_variable("MASTER_PORT");
  const seal::Calls calls;
  if (!port || !calls || g_plan != &g_own) return *g_plan;
  char host[64] = "";
  if (gethostname(host, sizeof(host) - 1) != 0) return *g_plan;
  constexpr int kMostJobs = 100;
  for (int job = 0; job < kMostJobs; ++job) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s/%s%s.%s.%d.%d", directory, kWindowsBegin, host, port,
                 static_cast<int>(getppid()), job) >= static_cast<int>(sizeof(path)))
      break;
    SharedPlan* const plan = map_plan(path);
    if (!plan) break;
    int64_t joined = 0;
    if (plan->joined.compare_exchange_strong(joined, now, std::memory_order_relaxed) || joined >= began) {
      g_plan = plan;
      break;
    }
    munmap(plan, sizeof(SharedPlan));
  }
  return *g_plan;
}

SharedPlan& forget_shared_plan() noexcept {
  // The parent's mapping stays: unmapping is a system call that a sealed process may not make, and it is one page.
  for (std::atomic<uint64_t>& place : g_own.places) place.store(0, std::memory_order_relaxed);
  for (std::atomic<uint64_t>& floor : g_own.floors) floor.store(0, std::memory_order_relaxed);
  g_own.distance.store(0, std::memory_order_relaxed);
  g_own.start.store(0, std::memory_order_relaxed);
  g_own.last_steps.store(0, std::memory_order_relaxed);
  g_plan = &g_own;
  return *g_plan;
}

}  // namespace torchprof::window
