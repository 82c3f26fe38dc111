#include "inject/blocks/cpu_blocks.h"

#include <doctest/doctest.h>

#include <atomic>
#include <map>
#include <random>
#include <thread>
#include <vector>

namespace torchprof::inject {
namespace {

const void* address_of(uint64_t block) { return reinterpret_cast<const void*>(uintptr_t{0x7f0000000000} + block * 64); }

}  // namespace

TEST_CASE("a block is freed once, with its size, also where far more of them live than the first table holds") {
  std::map<uint64_t, int64_t> live;
  std::minstd_rand random(7);
  const uint64_t before = total_of_blocks();
  uint64_t expected = before;
  for (int i = 0; i < 600'000; ++i) {
    const uint64_t block = random() % 200'000;
    if (const auto known = live.find(block); known != live.end()) {
      expected -= static_cast<uint64_t>(known->second);
      REQUIRE(free_block(address_of(block), 1) == known->second);
      live.erase(known);
    } else {
      REQUIRE(free_block(address_of(block), 1) == 0);
      live[block] = i + 1;
      add_block(address_of(block), i + 1, 1);
      expected += static_cast<uint64_t>(i + 1);
    }
    REQUIRE(total_of_blocks() == expected);
  }
  REQUIRE(live.size() > 80'000);
  for (const auto& [block, bytes] : live) REQUIRE(free_block(address_of(block), 1) == bytes);
  CHECK(total_of_blocks() == before);
}

TEST_CASE("a window knows no block of the one before it, and has their places") {
  for (uint64_t block = 0; block < 100'000; ++block) add_block(address_of(block), 8, 2);
  for (uint64_t block = 0; block < 100'000; block += 2) add_block(address_of(block), 24, 3);
  for (uint64_t block = 0; block < 100'000; ++block)
    REQUIRE(free_block(address_of(block), 3) == (block % 2 == 0 ? 24 : 0));
}

TEST_CASE("an address that comes again without its end has its new size, once") {
  add_block(address_of(5), 100, 4);
  add_block(address_of(5), 200, 4);
  CHECK(free_block(address_of(5), 4) == 200);
  CHECK(free_block(address_of(5), 4) == 0);
}

TEST_CASE("threads that allocate and free at the same time lose no block, and one may free what another allocated") {
  constexpr uint64_t kEach = 30'000;
  const uint64_t before = total_of_blocks();
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (uint64_t i = 0; i < kEach; ++i) {
        const void* own = address_of(t * kEach + i);
        add_block(own, 16, 5);
        if (i % 2 == 0) CHECK(free_block(own, 5) == 16);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (uint64_t block = 0; block < 4 * kEach; ++block) CHECK(free_block(address_of(block), 5) == (block % 2) * 16);
  CHECK(total_of_blocks() == before);
}

TEST_CASE("the total is right with more threads than have a place of their own, also when they have ended") {
  const uint64_t before = total_of_blocks();
  uint64_t expected = before;
  std::atomic<uint64_t> block{0};
  for (int round = 0; round < 10; ++round) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 40; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 100; ++i) {
          const void* address = address_of(block.fetch_add(1));
          add_block(address, 16, 6);
          if (i < 90) free_block(address, 6);
        }
      });
    for (std::thread& thread : threads) thread.join();
    expected += 40 * 10 * 16;
    CHECK(total_of_blocks() == expected);
  }
  for (uint64_t i = 0; i < block; ++i) free_block(address_of(i), 6);
  CHECK(total_of_blocks() == before);
}

}  // namespace torchprof::inject
