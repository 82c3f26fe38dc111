#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>

#include "tracer/config/config.h"

namespace torchprof {
namespace {

constinit char g_nvtx_entry[PATH_MAX + 64] = "";

}  // namespace

bool offer_nvtx(const char* library) noexcept {
  static char** room = nullptr;
  static size_t most = 0;
  if (nvtx_injection()) return false;
  size_t count = 0;
  while (environ && environ[count]) ++count;
  // setenv() would free or move what another thread reads. Ours is used again, and never freed.
  if (environ != room || count + 2 > most) {
    auto** const larger = static_cast<char**>(malloc((2 * count + 2) * sizeof(char*)));
    if (!larger) return false;
    most = 2 * count + 2;
    for (size_t i = 0; i < count; ++i) larger[i] = environ[i];
    room = larger;
  }
  snprintf(g_nvtx_entry, sizeof(g_nvtx_entry), "%s=%s", kNvtxInjection, library);
  room[count + 1] = nullptr;
  // Pair with what other threads' getenv() loads: it follows the pointers, and finds whole entries behind them.
  __atomic_store_n(&room[count], +g_nvtx_entry, __ATOMIC_RELEASE);
  __atomic_store_n(&environ, room, __ATOMIC_RELEASE);
  return true;
}

void withdraw_nvtx() noexcept {
  for (char** entry = environ; entry && *entry; ++entry) {
    if (*entry != g_nvtx_entry) continue;
    // Pairs with other threads' getenv(), as above.
    for (; *entry; ++entry) __atomic_store_n(&entry[0], entry[1], __ATOMIC_RELEASE);
    return;
  }
}

}  // namespace torchprof
