#include "tracer/processor/call_sites.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

using namespace torchprof::processor;

namespace call_sites {
namespace {

using Bytes = std::vector<unsigned char>;

bool is_null_check(Bytes code) {
  code.resize(std::max<size_t>(code.size(), 64), 0x90);
  return is_compared_with_null(code.data(), code.size());
}

#if defined(__x86_64__)

// mov 0x8(%rsp),%rdi; mov -0xa8(%rbp),%rdi; mov 0x28(%rbx),%r12
const Bytes kLoads[] = {
    {0x48, 0x8b, 0x7c, 0x24, 0x08}, {0x48, 0x8b, 0xbd, 0x58, 0xff, 0xff, 0xff}, {0x4c, 0x8b, 0x63, 0x28}};
const Bytes kTest = {0x48, 0x85, 0xc0};
const Bytes kBranches[] = {{0x74, 0x39}, {0x75, 0x10}, {0x0f, 0x84, 0x75, 0x07, 0, 0}, {0x0f, 0x85, 1, 0, 0, 0}};

Bytes joined(const std::vector<Bytes>& parts) {
  Bytes all;
  for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

TEST_CASE("a pointer that is compared with nullptr, behind any loads of other registers") {
  for (const Bytes& branch : kBranches) {
    CHECK(is_null_check(joined({kTest, branch})));
    for (const Bytes& load : kLoads) {
      CHECK(is_null_check(joined({load, kTest, branch})));
      CHECK(is_null_check(joined({load, kLoads[0], kTest, branch})));
    }
  }
}

TEST_CASE("a pointer that is kept, used or lost is another use") {
  const Bytes kOthers[] = {
      {0x48, 0x89, 0xc3},              // mov %rax,%rbx
      {0x48, 0x8b, 0x38},              // mov (%rax),%rdi
      {0x48, 0x8b, 0x44, 0x24, 0x08},  // mov 0x8(%rsp),%rax
      {0x48, 0x8b, 0x3c, 0x04},        // mov (%rsp,%rax,1),%rdi
      {0x48, 0x8b, 0x3d, 1, 0, 0, 0},  // mov 0x1(%rip),%rdi
      {0xff, 0x10},                    // call *(%rax)
      {0xc3},                          // ret
      {0x85, 0xc0},                    // test %eax,%eax
  };
  for (const Bytes& other : kOthers) {
    CHECK_FALSE(is_null_check(joined({other, kTest, kBranches[0]})));
    CHECK_FALSE(is_null_check(joined({kLoads[0], other, kTest, kBranches[0]})));
  }
  CHECK_FALSE(is_null_check(joined({kTest, {0x0f, 0x95, 0xc0}})));  // setne %al
}

TEST_CASE("nothing is read beyond the end of the code") {
  std::mt19937 random(1);
  for (size_t size = 0; size < 40; ++size) {
    for (int i = 0; i < 200; ++i) {
      Bytes code = joined({kLoads[random() % 3], kLoads[random() % 3], kTest, kBranches[random() % 4]});
      code.resize(size, static_cast<unsigned char>(random()));
      code.shrink_to_fit();  // AddressSanitizer watches its end
      is_compared_with_null(code.data(), code.size());
    }
  }
}

#else

TEST_CASE("of another processor's code nothing is known") {
  CHECK_FALSE(is_null_check({0x48, 0x85, 0xc0, 0x74, 0x00}));
}

#endif

#if defined(__x86_64__)
TEST_CASE("calls by a stub, by its slot, and by a jump") {
  unsigned char code[128] = {};
  const void* slots[] = {&code[120]};  // where the GOT would be
  const auto put = [&code](size_t at, Bytes bytes) { std::copy(bytes.begin(), bytes.end(), code + at); };
  const auto to = [](size_t target, size_t next) { return static_cast<unsigned char>(target - next); };
  put(0, {0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, to(120, 10), 0, 0, 0});  // the stub: endbr64; jmp *120
  put(20, {0xff, 0x15, to(120, 26), 0, 0, 0, 0x48, 0x85, 0xc0, 0x74, 0x01});
  const auto look = [&] { return only_compares_with_null(std::span<const Code>({Code{code, code + 110}}), slots); };
  CHECK_FALSE(look());  // one call is too few
  put(50, {0xe8, to(0, 55), 0xff, 0xff, 0xff, 0x48, 0x85, 0xc0, 0x75, 0x01});
  CHECK(look());
  put(70, {0xe9, to(0, 75), 0xff, 0xff, 0xff});  // its caller has the answer
  CHECK_FALSE(look());
  put(70, {0xe8, to(4, 75), 0xff, 0xff, 0xff, 0x48, 0x89, 0xc3});  // mov %rax,%rbx
  CHECK_FALSE(look());
}
#endif

}  // namespace
}  // namespace call_sites
