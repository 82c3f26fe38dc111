#include "tracer/process/same_text.h"

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <string>

namespace same_text_test {

using torchprof::same_text;

TEST_CASE("texts of every length are the same as themselves and differ from any that has one other byte") {
  for (size_t length = 0; length < 70; ++length) {
    const std::string text(length, 'x');
    // What follows the NUL is not compared.
    const std::string once = text + '\0' + std::string(40, 'a'), again = text + '\0' + std::string(40, 'b');
    CHECK(same_text(once.c_str(), again.c_str()));
    CHECK(!same_text(once.c_str(), (text + 'x').c_str()));
    for (size_t i = 0; i < length; ++i) {
      std::string other = again;
      other[i] = 'y';
      CHECK(!same_text(once.c_str(), other.c_str()));
      other[i] = 0;
      CHECK(!same_text(once.c_str(), other.c_str()));
    }
  }
}

TEST_CASE("a text at the end of the last page that can be read is compared as any other") {
  constexpr size_t kPage = 4096;
  auto* pages =
      static_cast<char*>(mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(pages != MAP_FAILED);
  REQUIRE(mprotect(pages + kPage, kPage, PROT_NONE) == 0);
  for (size_t length = 0; length < 40; ++length) {
    const std::string text(length, 'x');
    char* at = pages + kPage - length - 1;
    memcpy(at, text.c_str(), length + 1);
    CHECK(same_text(at, text.c_str()));
    CHECK(same_text(text.c_str(), at));
    CHECK(!same_text(at, (text + 'x').c_str()));
  }
  munmap(pages, 2 * kPage);
}

}  // namespace same_text_test
