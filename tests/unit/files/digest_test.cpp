// Digests of dumps (support/digest.h): whatever changes in a dump is in its digest, and the difference names it.
#include "tests/unit/support/digest.h"

#include <doctest/doctest.h>

#include <string>

namespace digest_test {

using namespace torchprof::test;

namespace {

const std::string kDump =
    "CUPTI version=18\n"
    "kernel duration=20 stream=7 _Z6matmulPfS_\n"
    "copy duration=5 bytes=4096\n"
    "kernel duration=30 stream=8 _Z6matmulPfS_\n"
    "kernel duration=10 stream=-1 void f<a = 1>(int)\n";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != text.npos);
  return text.replace(at, from.size(), to);
}

std::string difference(const std::string& now) { return difference_of_digests(digest_of(kDump), digest_of(now)); }

}  // namespace

TEST_CASE("a digest has a line for the whole and one for each kind") {
  // FNV-1a of 64 bits, by a program of its own in Python.
  CHECK(digest_of("") == "all lines=0 hash=cbf29ce484222325\n");
  CHECK(digest_of(kDump) ==
        "all lines=5 hash=872fbe0a3abaebb3\n"
        "CUPTI lines=1 hash=0f1ed0c09de68e38 version=18\n"
        "copy lines=1 hash=3f0dfb1f595f8da3 duration=5 bytes=4096\n"
        "kernel lines=3 hash=76a082c6684d7704 duration=60 stream=14 texts=2\n");
}

TEST_CASE("the difference names the kind and the field") {
  CHECK(difference(kDump).empty());
  CHECK(difference(replaced(kDump, "duration=30", "duration=31")) ==
        "all: as many lines, another text\nkernel: duration 60 -> 61\n");
  CHECK(difference(replaced(kDump, "copy duration=5 bytes=4096\n", "")) == "all: lines 5 -> 4\ncopy: gone, 1 lines\n");
  CHECK(difference(kDump + "kernel duration=1 stream=7 _Z1fv\n") ==
        "all: lines 5 -> 6\nkernel: duration 60 -> 61, lines 3 -> 4, stream 14 -> 21, texts 2 -> 3\n");
  CHECK(difference(replaced(kDump, "copy duration=5", "copy queued=2 duration=5")) ==
        "all: as many lines, another text\ncopy: queued nothing -> 2\n");
  CHECK(difference_of_digests("", digest_of("event stream=7\n")) == "all: new, 1 lines\nevent: new, 1 lines\n");
}

TEST_CASE("what no sum tells, the hash does") {
  const std::string same_sums = "kernel: the same sums; numbers have changed places, or texts differ\n";
  const std::string swapped = replaced(replaced(kDump, "duration=30", "duration=20"), "duration=20", "duration=30");
  CHECK(difference(swapped) == "all: as many lines, another text\n" + same_sums);
  const std::string renamed = replaced(kDump, "void f<a = 1>(int)", "void f<a = 2>(int)");
  CHECK(difference(renamed) == "all: as many lines, another text\n" + same_sums);
  // The order of kinds is in the hash of the whole alone.
  const std::string copy = "copy duration=5 bytes=4096\n";
  CHECK(difference(replaced(kDump, copy, "") + copy) == "all: as many lines, another text\n");
}

}  // namespace digest_test
