// Who has begun the latest collective of a group: only ranks that are recorded to their end, or now, can be missing.
#include "formats/analysis/arrivals.h"

#include <doctest/doctest.h>

#include <deque>
#include <string>
#include <vector>

#include "tests/unit/support/collective_encoding.h"
#include "tests/unit/support/spool_builder.h"

namespace arrivals_test {

using namespace torchprof;
using namespace torchprof::formats;
using namespace torchprof::test;

namespace {

struct Rank {
  uint32_t number;
  uint64_t collectives;
  enum { kWhole, kOpen, kClosed } window = kWhole;
};

void fill(SpoolBuilder& b, const Rank& rank) {
  b.meta("distributed.rank", std::to_string(rank.number));
  b.meta("distributed.world_size", "3");
  b.on(b.thread(100 + rank.number));
  for (uint64_t n = 0; n < rank.collectives; ++n) {
    b.at(1'000 * (n + 1)).op(n + 1, "record_param_comms");
    collective(b, {.group = "0", .description = "default_pg", .ranks = {0, 1, 2}}, n);
    b.op_end(n + 1);
  }
  if (rank.window != Rank::kWhole) b.window(1, 0, 500, rank.window == Rank::kOpen ? 0 : 1'000 * rank.collectives + 500);
}

std::vector<std::string> texts(const std::vector<Rank>& ranks) {
  std::deque<SpoolBuilder> spools;
  std::vector<const SpoolBuilder*> all;
  for (const Rank& rank : ranks) {
    fill(spools.emplace_back(100 + rank.number), rank);
    all.push_back(&spools.back());
  }
  const LoadedTrace trace(all);
  std::vector<std::string> out;
  for (const GroupArrivals& group : arrivals(*trace))
    if (!group.have_all_arrived()) out.push_back(arrivals_text(group));
  return out;
}

}  // namespace

TEST_CASE("the rank that has not come is named") {
  CHECK(texts({{0, 5}, {1, 4}, {2, 5}}) ==
        std::vector<std::string>{"allreduce, number 4 of group 0 (default_pg): begun by ranks 0 and 2; not yet by rank "
                                 "1, which is at number 3"});
  CHECK(texts({{0, 5}, {1, 5}, {2, 5}}).empty());
  CHECK(texts({{0, 5}, {1, 5}}).empty());
}

TEST_CASE("of a rank whose window has closed nobody knows where it is") {
  CHECK(texts({{0, 5}, {1, 3, Rank::kClosed}, {2, 4}}) ==
        std::vector<std::string>{"allreduce, number 4 of group 0 (default_pg): begun by rank 0; not yet by rank 2, "
                                 "which is at number 3; not recorded any more: rank 1"});
  CHECK(texts({{0, 5, Rank::kClosed}, {1, 3, Rank::kClosed}, {2, 4}}).empty());  // one is left
  CHECK(texts({{0, 5}, {1, 3, Rank::kOpen}}).size() == 1);
}

}  // namespace arrivals_test
