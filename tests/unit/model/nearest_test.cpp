#include "formats/io/nearest.h"

#include <doctest/doctest.h>

#include <vector>

namespace nearest_test {

using namespace torchprof::formats;

TEST_CASE("a mistyped name is known by its letters") {
  const std::vector<std::string> names{"ops", "kernels", "modules", "memory", "python", "steps", "processes"};
  CHECK(nearest("step", names) == "steps");
  CHECK(nearest("kernel", names) == "kernels");
  CHECK(nearest("pyhton", names) == "python");  // two letters swapped are one mistake
  CHECK(nearest("Memroy", names) == "memory");
  CHECK(nearest("proceses", names) == "processes");
  CHECK(nearest("op", names) == "ops");
  CHECK(did_you_mean("moduls", names) == " (did you mean 'modules'?)");
}

TEST_CASE("the beginning of one name means it, that of several none") {
  const std::vector<std::string> names{"ops", "kernels", "modules", "memory", "python", "processes", "profiler"};
  for (const std::string& name : names)
    for (size_t length = 3; length < name.size(); ++length)
      if (name.substr(0, length) != "pro") CHECK(nearest(name.substr(0, length), names) == name);
  CHECK(nearest("mo", names) == "modules");
  CHECK(nearest("MEM", names) == "memory");
  CHECK(nearest("pro", names).empty());
  CHECK(nearest("m", names).empty());
}

TEST_CASE("what is like nothing is not guessed at") {
  const std::vector<std::string> names{"ops", "kernels", "", "-s"};
  for (const char* wrong : {"", "colours", "xyz", "-t", "k"}) CHECK(did_you_mean(wrong, names).empty());
  CHECK(nearest(std::string(1'000'000, 'k'), names).empty());
  CHECK(nearest("k", std::vector{std::string(1'000'000, 'k')}).empty());
}

}  // namespace nearest_test
