#include "formats/analysis/tally.h"

#include "formats/io/sum.h"

namespace torchprof::formats {

CallTally& CallTally::operator+=(const CallTally& other) {
  add_to(self_ns, other.self_ns);
  add_to(total_ns, other.total_ns);
  calls += other.calls;
  return *this;
}

Tally& Tally::operator+=(const Tally& other) {
  CallTally::operator+=(other);
  add_self_bytes(other.cpu_bytes, true);
  add_self_bytes(other.device_bytes, false);
  add_total_bytes(other.cpu_total_bytes, true);
  add_total_bytes(other.device_total_bytes, false);
  flops += other.flops;
  add_to(gpu_self_ns, other.gpu_self_ns);
  add_to(gpu_total_ns, other.gpu_total_ns);
  add_to(first_ns, other.first_ns);
  add_to(initialises_ns, other.initialises_ns);
  add_to(loads_ns, other.loads_ns);
  return *this;
}

void Tally::add_self_bytes(int64_t bytes, bool is_cpu) {
  int64_t& sum = is_cpu ? cpu_bytes : device_bytes;
  __builtin_add_overflow(sum, bytes, &sum);
}

void Tally::add_total_bytes(int64_t bytes, bool is_cpu) {
  int64_t& sum = is_cpu ? cpu_total_bytes : device_total_bytes;
  __builtin_add_overflow(sum, bytes, &sum);
}

}  // namespace torchprof::formats
