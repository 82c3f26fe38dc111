#include "cupti/own_clock.h"

#include "tracer/session.h"
#include "tracer/spool/clock.h"

namespace torchprof::cupti {
namespace {
constinit ClockSample g_first{};
constinit clock::Converter g_converter{};
}  // namespace

void prepare_own_clock() noexcept { g_first = clock::sample(session::clock_source()); }

void begin_own_clock() noexcept {
  const ClockSource source = session::clock_source();
  g_converter = clock::Converter(source, g_first, clock::sample(source));
}

uint64_t own_clock() noexcept {
  constexpr int64_t kFrom = 1'000'000'000'000'000'000;
  return static_cast<uint64_t>(g_converter.to_unix(session::now()).value - kFrom);
}

}  // namespace torchprof::cupti
