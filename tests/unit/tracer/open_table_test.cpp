#include "tracer/process/open_table.h"

#include <doctest/doctest.h>

#include <map>
#include <random>

namespace torchprof {
namespace {

struct Entry {
  uint64_t key;
  uint64_t value;  // 0: dead

  uint64_t hash() const noexcept { return key * 8; }  // badly spread: entries of many keys want the same place
  bool is_free() const noexcept { return key == 0; }
  bool is_dead() const noexcept { return value == 0; }
};

}  // namespace

TEST_CASE("a table has what was added and has not died, whatever it was made anew for") {
  OpenTable<Entry> table;
  std::map<uint64_t, uint64_t> all;
  const auto place_of = [&](uint64_t key) { return table.find(key * 8, [&](const Entry& e) { return e.key == key; }); };
  CHECK(place_of(1) == nullptr);
  std::minstd_rand random(7);
  for (int i = 0; i < 200'000; ++i) {
    const uint64_t key = random() % 20'000 + 1;
    Entry* known = place_of(key);
    const bool dies = random() % 3 == 0;
    if (known)
      known->value = dies ? 0 : uint64_t{random()} + 1;
    else
      known = table.add({key, uint64_t{random()} + 1});
    REQUIRE(known);
    all[key] = known->value;
  }
  for (const auto& [key, value] : all) {
    const Entry* known = place_of(key);
    CHECK((known ? known->value : 0) == value);
  }
  table.clear();
  CHECK(place_of(all.begin()->first) == nullptr);
}

TEST_CASE("a table whose entries die as fast as they come stays as small as those that live") {
  OpenTable<Entry> table;
  for (uint64_t key = 1; key <= 1'000'000; ++key) {
    if (Entry* last = table.find((key - 1) * 8, [&](const Entry& e) { return e.key + 1 == key; })) last->value = 0;
    REQUIRE(table.add({key, 1}));
  }
  int there = 0;
  for (uint64_t key = 1; key <= 1'000'000; key += 1000)
    there += table.find(key * 8, [&](const Entry& e) { return e.key == key; }) != nullptr;
  CHECK(there < 10);  // of the dead those that came since it was made anew
}

TEST_CASE("after the seal there is no memory, and what was there stays") {
  OpenTable<Entry> table;
  REQUIRE(table.add({1, 1}));
  seal::seal();
  uint64_t key = 2;
  while (table.add({key, 1})) ++key;
  CHECK(key == 513);  // half of the first 1024 places
  CHECK(table.find(8, [](const Entry& e) { return e.key == 1; }) != nullptr);
  seal::unseal();
  CHECK(table.add({key, 1}) != nullptr);
}

}  // namespace torchprof
