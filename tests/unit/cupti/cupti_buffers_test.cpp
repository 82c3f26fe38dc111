// The pool between CUPTI and the thread that decodes.
#include "cupti/activity_buffers.h"

#include <doctest/doctest.h>

#include <memory>
#include <vector>

namespace cupti_buffers_test {

using namespace torchprof::cupti;

TEST_CASE("buffers come back in the order in which CUPTI filled them, and are used again") {
  const auto pool = std::make_unique<ActivityBuffers>();
  std::byte* first = pool->request(false);
  std::byte* second = pool->request(false);
  REQUIRE((first && second && first != second));
  CHECK(pool->completed({second, 64, nullptr, 0}));
  CHECK(pool->completed({first, 128, nullptr, 7}));
  Completed taken;
  REQUIRE(pool->take(taken));
  CHECK((taken.data == second && taken.valid == 64));
  pool->give_back(taken.data, taken.valid);
  CHECK(pool->request(false) == second);
  REQUIRE(pool->take(taken));
  CHECK((taken.data == first && taken.valid == 128 && taken.stream == 7));
  CHECK(!pool->take(taken));
  CHECK(pool->most() == 2);
}

TEST_CASE("an empty buffer goes back at once, somebody else's is left alone") {
  const auto pool = std::make_unique<ActivityBuffers>();
  std::byte* ours = pool->request(false);
  std::byte other[8];
  Completed taken;
  CHECK(!pool->completed({other, 8, nullptr, 0}));
  CHECK(pool->completed({ours, 0, nullptr, 0}));
  CHECK(!pool->take(taken));
  CHECK(pool->request(false) == ours);
}

TEST_CASE("at the bound it refuses and counts, and goes on when one comes back") {
  const auto pool = std::make_unique<ActivityBuffers>();
  std::vector<std::byte*> out;
  for (size_t i = 0; i < ActivityBuffers::kMost; ++i) out.push_back(pool->request(false));
  CHECK(pool->request(false) == nullptr);
  CHECK(pool->refused() == 1);
  CHECK(pool->request(true) != nullptr);  // where CUPTI cannot bear a refusal
  pool->give_back(out.back(), 0);
  CHECK(pool->request(false) == out.back());
  CHECK(pool->most() == ActivityBuffers::kMost + 1);
}

}  // namespace cupti_buffers_test
