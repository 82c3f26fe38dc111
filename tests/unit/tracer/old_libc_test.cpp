// What replaces a symbol that the oldest libc of a release has not.
#include "tracer/libc/old_libc.h"

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>

namespace {

int thrown_and_caught(int depth) {
  if (depth == 0) throw std::runtime_error("from far below");
  return thrown_and_caught(depth - 1) + 1;
}

int answer() { return 42; }

}  // namespace

TEST_CASE("an object is found by any address in it, as the loader has it") {
  const std::array<void*, 4> addresses = {reinterpret_cast<void*>(&answer), reinterpret_cast<void*>(&getenv),
                                          reinterpret_cast<void*>(&dl_iterate_phdr), dlsym(RTLD_DEFAULT, "cos")};
  for (void* address : addresses) {
    dl_find_object found{}, libcs{};
    REQUIRE(torchprof::libc::find_object(address, &found) == 0);
    Dl_info info;
    void* map = nullptr;
    REQUIRE(dladdr1(address, &info, &map, RTLD_DL_LINKMAP) != 0);
    CHECK(found.dlfo_map_start == info.dli_fbase);
    CHECK(found.dlfo_link_map == map);
    // Since glibc 2.35 this is libc's own.
    REQUIRE(_dl_find_object(address, &libcs) == 0);
    CHECK(found.dlfo_map_start == libcs.dlfo_map_start);
    CHECK(found.dlfo_map_end == libcs.dlfo_map_end);
    CHECK(found.dlfo_link_map == libcs.dlfo_link_map);
    CHECK(found.dlfo_eh_frame == libcs.dlfo_eh_frame);
    // At its first byte and its last.
    CHECK(torchprof::libc::find_object(libcs.dlfo_map_start, &found) == 0);
    CHECK(found.dlfo_link_map == map);
    CHECK(torchprof::libc::find_object(static_cast<char*>(libcs.dlfo_map_end) - 1, &found) == 0);
    CHECK(found.dlfo_link_map == map);
  }
}

TEST_CASE("what is in no object is not found") {
  const int here = 0;
  dl_find_object found{};
  CHECK(torchprof::libc::find_object(nullptr, &found) == -1);
  CHECK(torchprof::libc::find_object(const_cast<int*>(&here), &found) == -1);
}

TEST_CASE("exceptions find their way") { CHECK_THROWS_WITH(thrown_and_caught(100), "from far below"); }

TEST_CASE("the first versions of libm's functions are there") {
  volatile double one = 1, two = 2;
  CHECK(std::exp(one) == doctest::Approx(2.718281828459045));
  CHECK(std::log(two) == doctest::Approx(0.6931471805599453));
  CHECK(std::pow(two, 10 * one) == 1024);
}
