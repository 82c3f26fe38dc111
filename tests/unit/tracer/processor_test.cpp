#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "tracer/processor/processor.h"
#include "tracer/processor/registers.h"
#include "tracer/processor/thunk.h"
#include "tracer/processor/vectors.h"

namespace processor_test {

using namespace torchprof;

namespace {

struct Inner {
  int value;
  // In another section: a jump within one could be a short one.
  [[gnu::noinline, gnu::noclone, gnu::section(".text.inner")]] int run(int more) { return value += more; }
};
// As compilers write them for use: not for a debugger, and without a sanitizer's checks.
#define AS_FOR_USE gnu::noinline, gnu::noclone, gnu::optimize("O2"), gnu::no_sanitize("address", "undefined", "thread")
struct Outer {
  Inner* inner;
  [[AS_FOR_USE]] int run(int more) { return inner->run(more); }
  [[AS_FOR_USE]] int run_later(int more) { return inner->run(more) + 1; }
};

// Of methods that are not virtual the compiler's pointer begins with their address.
template <class Method>
const unsigned char* code_of(Method method) {
  const unsigned char* code = nullptr;
  static_assert(sizeof(method) >= sizeof(code));
  std::memcpy(&code, &method, sizeof(code));
  return code;
}

}  // namespace

TEST_CASE("the counter counts") {
  const uint64_t before = processor::counter();
  for (int i = 0; i < 100'000'000 && processor::counter() == before; ++i) processor::relax();
  CHECK(processor::counter() > before);
}

TEST_CASE("a mask has the bits of each byte, the first one lowest") {
  for (unsigned i = 0; i <= 16; ++i) {
    processor::Bytes bytes{};
    for (unsigned k = 0; k < i; ++k) bytes[k] = 0xff;
    const uint64_t mask = processor::mask_of(bytes), each = processor::kEachByte;
    CHECK((i == 16 ? mask == each : mask < each && (mask & (mask + 1)) == 0));
    CHECK(static_cast<unsigned>(__builtin_popcountll(mask)) * 16 ==
          static_cast<unsigned>(__builtin_popcountll(each)) * i);
  }
  constexpr uint64_t kHigh = uint64_t{1} << 63;
  CHECK(processor::high_bits(processor::Words{kHigh - 1, kHigh - 1}) == 0);
  CHECK(processor::high_bits(processor::Words{kHigh, 1}) == 1);
  CHECK(processor::high_bits(processor::Words{1, ~uint64_t{0}}) == 2);
  CHECK(processor::high_bits(processor::Words{kHigh, kHigh}) == 3);
}

TEST_CASE("a method that only hands on leads to the other") {
  CHECK(processor::thunk_target(code_of(&Outer::run)) == reinterpret_cast<uintptr_t>(code_of(&Inner::run)));
  CHECK(processor::thunk_target(code_of(&Outer::run_later)) == 0);
  CHECK(processor::thunk_target(code_of(&Inner::run)) == 0);
  constexpr std::array<unsigned char, 16> kNothing{};
  CHECK(processor::thunk_target(kNothing.data()) == 0);
  Inner inner{1};
  Outer outer{&inner};
  CHECK(outer.run(2) + outer.run_later(3) == 3 + 6 + 1);
}

TEST_CASE("an address without a signature stays as it is") {
  const auto address = reinterpret_cast<uintptr_t>(code_of(&Inner::run));
  CHECK(processor::unsigned_address(address) == address);
  CHECK(processor::unsigned_address(0) == 0);
}

}  // namespace processor_test
