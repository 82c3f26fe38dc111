// CUPTI with two clients: to whom a record belongs, whatever its time and order; and times of another client's clock.
#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "cupti/cupti_clock.h"
#include "cupti/other_client.h"
#include "cupti/wishes.h"
#include "tests/cupti_sim/layouts.h"

namespace cupti_sharing_test {

using namespace torchprof::cupti;
namespace sim = cupti_sim;

namespace {

constexpr uint32_t kKernel = 10, kSync = 38, kApi = 5, kIdentifier = 39;
constexpr uint64_t kAll = kind_bit(kKernel) | kind_bit(kSync) | kind_bit(kApi);

Brief call(uint64_t start, uint32_t correlation) { return {kApi, correlation, start, true, false}; }
Brief kernel(uint64_t start, uint32_t correlation) { return {kKernel, correlation, start, false, true}; }
Brief sync(uint64_t start) { return {kSync, 0, start, false, false}; }

}  // namespace

TEST_CASE("what the processor does belongs to those who wanted it when it began") {
  Wishes wishes;
  CHECK(wishes.parties(sync(5)) == kOurs);  // nobody has asked
  wishes.change(kOurs, kAll, 100);
  wishes.change(kTheirs, kind_bit(kSync), 200);
  wishes.change(kOurs, 0, 300);
  wishes.change(kTheirs, 0, 400);
  CHECK(wishes.parties(sync(150)) == kOurs);
  CHECK(wishes.parties(sync(200)) == (kOurs | kTheirs));
  CHECK(wishes.parties(sync(350)) == kTheirs);
  CHECK(wishes.parties(sync(400)) == 0);
  CHECK(wishes.parties(call(250, 1)) == kOurs);
}

TEST_CASE("what a device does belongs to those who wanted it when it was launched, however late it ran") {
  Wishes wishes;
  wishes.change(kOurs, kAll, 100);
  wishes.change(kTheirs, kAll, 200);
  wishes.change(kTheirs, 0, 300);
  for (const auto& [start, correlation] : {std::pair{110, 1u}, {190, 5u}, {210, 6u}, {290, 9u}, {310, 10u}})
    wishes.saw(call(static_cast<uint64_t>(start), correlation));
  CHECK(wishes.parties(kernel(250, 5)) == kOurs);  // launched before, and run within
  CHECK(wishes.parties(kernel(250, 6)) == (kOurs | kTheirs));
  CHECK(wishes.parties(kernel(900, 9)) == (kOurs | kTheirs));  // run after it
  CHECK(wishes.parties(kernel(0, 7)) == (kOurs | kTheirs));    // without a time
  CHECK(wishes.parties(kernel(900, 10)) == kOurs);
}

TEST_CASE("where the launching call has not been seen, the time at which it ran decides") {
  Wishes wishes;
  wishes.change(kOurs, kind_bit(kKernel), 100);
  wishes.change(kTheirs, kind_bit(kKernel), 200);
  CHECK(wishes.parties(kernel(150, 3)) == kOurs);
  CHECK(wishes.parties(kernel(250, 4)) == (kOurs | kTheirs));
  wishes.saw(call(150, 7));
  CHECK(wishes.parties(kernel(250, 6)) == kOurs);  // before a call of the first turn
  CHECK(wishes.parties(kernel(250, 9)) == (kOurs | kTheirs));
  wishes.saw(call(220, 0xffffffff));  // and correlations may begin anew
  wishes.saw(call(230, 1));
  CHECK(wishes.parties(kernel(900, 0)) == (kOurs | kTheirs));
}

TEST_CASE("nothing was launched in a turn that shows calls and has none") {
  Wishes wishes;
  wishes.change(kOurs, kAll, 100);
  wishes.change(kTheirs, kind_bit(kKernel), 200);  // one kind after the other
  wishes.change(kTheirs, kAll, 210);
  wishes.saw(call(150, 4));
  wishes.saw(call(220, 6));
  CHECK(wishes.parties(kernel(250, 5)) == kOurs);
  CHECK(wishes.parties(kernel(205, 5)) == kOurs);
  CHECK(wishes.parties(kernel(250, 6)) == (kOurs | kTheirs));
}

TEST_CASE("a kind without a time belongs to whoever ever wanted it") {
  Wishes wishes;
  wishes.change(kOurs, kAll, 100);
  wishes.change(kTheirs, kind_bit(kIdentifier), 200);
  wishes.change(kTheirs, 0, 300);
  CHECK(wishes.parties({kIdentifier, 0, 0, false, false}) == kTheirs);
  CHECK((wishes.was_wanted(kIdentifier) && !wishes.was_wanted(77)));
  CHECK(wishes.of(kOurs) == kAll);
}

TEST_CASE("a thousand windows: the latest are known") {
  Wishes wishes;
  for (uint64_t i = 1; i <= 1000; ++i) wishes.change(kOurs, i % 2 == 1 ? kAll : 0, i * 100);
  CHECK(wishes.parties(sync(99'950)) == kOurs);
  CHECK(wishes.parties(sync(99'850)) == 0);
  CHECK(wishes.parties(sync(200'000)) == 0);
}

TEST_CASE("what is needed of a record stands where CUPTI has it, and a cut record has none of it") {
  sim::KernelRecord a;
  a.start = 70, a.correlation_id = 8;
  sim::ApiRecord b;
  b.start = 60, b.correlation_id = 8;
  const auto* at = reinterpret_cast<const std::byte*>(&a);
  Brief what = brief(at, sizeof(a));
  CHECK((what.kind == kKernel && what.start == 70 && what.correlation == 8 && what.is_launched && !what.is_call));
  what = brief(reinterpret_cast<const std::byte*>(&b), sizeof(b));
  CHECK((what.kind == kApi && what.start == 60 && what.correlation == 8 && what.is_call && !what.is_launched));
  what = brief(at, 8);
  CHECK((what.kind == kKernel && what.start == 0 && what.correlation == 0));
  CHECK(brief(at, 3).kind == 0);
}

TEST_CASE("times of the processor's counter become CUPTI's own, those of before stay") {
  Clock clock;
  constexpr uint64_t kOwn = 1'795'000'000'000'000'000, kTicks = 5'000'000'000'000;
  CHECK(clock.own(kOwn) == kOwn);
  clock.gets(kOwn, kTicks);
  clock.reads(kOwn + 2'000'000'000, kTicks + 5'000'000'000);
  CHECK(clock.own(kTicks + 2'500'000'000) == kOwn + 1'000'000'000);
  CHECK(clock.own(kTicks + 7'500'000'000) == kOwn + 3'000'000'000);
  CHECK(clock.own(kOwn - 77) == kOwn - 77);
  CHECK(clock.own(0) == 0);
  clock.gets(kOwn + 2'000'000'001, kTicks + 5'000'000'002);  // the same clock once more
  CHECK(clock.own(kTicks + 2'500'000'000) == kOwn + 1'000'000'000);
}

TEST_CASE("a clock of theirs that is set moves only what lies between two readings, and no duration") {
  constexpr uint64_t kOwn = 1'000'000'000'000'000'000, kWall = 1'795'000'000'000'000'000, kEvery = 100'000'000;
  for (const int64_t by : {int64_t{3'900'000'000}, int64_t{-7'000'000'000}, int64_t{50'000'000}})
    for (const int set_at : {1, 5, 40}) {
      CAPTURE(by);
      CAPTURE(set_at);
      Clock clock;
      clock.gets(kOwn, kWall);
      for (int i = 1; i < 100; ++i) {
        const uint64_t own = kOwn + i * kEvery;
        const uint64_t wall = kWall + i * kEvery + static_cast<uint64_t>(i >= set_at ? by : 0) + (i % 3) * 1000;
        clock.reads(own, wall);
        const int since = i - set_at;
        if (since >= 0 && since < 4) continue;  // after one reading; four where the rate was read across the jump
        const uint64_t start = clock.own(wall - 30'000'000), end = clock.own(wall - 20'000'000);
        CHECK(std::abs(static_cast<int64_t>(start - (own - 30'000'000))) < 10'000);
        CHECK(std::abs(static_cast<int64_t>(end - start) - 10'000'000) < 1'000);
      }
    }
}

TEST_CASE("the processor's counter is converted, however soon it is read again and however late a reading comes") {
  constexpr uint64_t kOwn = 1'000'000'000'000'000'000, kTicks = 5'000'000'000'000;
  const auto ticks = [](uint64_t ns) { return kTicks + ns * 5 / 2; };
  for (const uint64_t first : {500, 5'000, 500'000, 20'000'000})
    for (const int64_t late : {-900'000, -100'000, 0, 100'000, 900'000}) {
      CAPTURE(first);
      CAPTURE(late);
      if (static_cast<int64_t>(first) + late <= 0) continue;
      Clock clock;
      clock.gets(kOwn, kTicks);
      clock.reads(kOwn + first + static_cast<uint64_t>(late), ticks(first));
      uint64_t ns = first;
      for (const uint64_t passed : {30'000'000, 700'000'000, 100'000'000, 100'000'000}) {
        ns += passed;
        clock.reads(kOwn + ns, ticks(ns));
        CHECK(std::abs(static_cast<int64_t>(clock.own(ticks(ns - 10'000'000)) - (kOwn + ns - 10'000'000))) < 1'000);
      }
    }
}

TEST_CASE("a clock of theirs that is slewed, and readings that came late, bend nothing") {
  constexpr uint64_t kOwn = 1'000'000'000'000'000'000, kWall = 1'795'000'000'000'000'000, kEvery = 100'000'000;
  Clock clock;
  clock.gets(kOwn, kWall);
  uint64_t wall = kWall;
  for (int i = 1; i < 1000; ++i) {
    const uint64_t own = kOwn + i * kEvery;
    wall += kEvery + (i > 300 ? 50'000 : 0);  // 500 ppm, as adjtime does
    clock.reads(own, wall + (i == 200 ? 3'000'000 : 0));
    if (i == 200 || i == 201) continue;
    const uint64_t start = clock.own(wall - 30'000'000);
    CHECK(std::abs(static_cast<int64_t>(start - (own - 30'000'000))) < 25'000);
  }
}

namespace {

struct TheirBuffers {
  size_t size = 0;
  int out = 0;
  std::vector<size_t> valid;
  std::vector<uint8_t> bytes;
} g_theirs;

void request(uint8_t** buffer, size_t* size, size_t* most) {
  *size = g_theirs.size;
  *buffer = g_theirs.size != 0 ? new uint8_t[g_theirs.size] : nullptr;
  *most = 0;
  g_theirs.out += *buffer != nullptr;
}

void completed(void*, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  g_theirs.valid.push_back(valid);
  g_theirs.bytes.insert(g_theirs.bytes.end(), buffer, buffer + valid);
  delete[] buffer;
  --g_theirs.out;
}

int next_record(uint8_t* buffer, size_t valid, std::byte** record) {
  auto* next = reinterpret_cast<std::byte*>(buffer);
  if (*record) {
    uint32_t kind = 0;
    std::memcpy(&kind, *record, sizeof(kind));
    next = *record + sim::size_of(kind, 22);
  }
  if (next + sizeof(uint32_t) > reinterpret_cast<std::byte*>(buffer) + valid) return 12;
  *record = next;
  return 0;
}

// Kernels and calls alternate; the other client asked for the calls only. What that client got.
void pour(size_t size, int records) {
  g_theirs = {};
  g_theirs.size = size;
  std::vector<std::byte> bytes;
  for (int i = 0; i < records; ++i) {
    sim::ApiRecord api;
    api.start = 1000, api.correlation_id = static_cast<uint32_t>(i);
    sim::KernelRecord work;
    work.start = 1000, work.correlation_id = static_cast<uint32_t>(i);
    const auto add = [&bytes](const auto& record) {
      const auto* at = reinterpret_cast<const std::byte*>(&record);
      bytes.insert(bytes.end(), at, at + record.size(22));
    };
    add(api);
    add(work);
  }
  Api api{};
  api.next_record = next_record;
  Wishes wishes;
  wishes.change(kOurs, kAll, 1);
  wishes.change(kTheirs, kind_bit(kApi), 2);
  const Clock clock;
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  const auto client = std::make_unique<OtherClient>();
  client->registers(request, completed);
  REQUIRE(client->begin());
  CHECK(!client->begin());  // the client's function calls us again
  client->pour(api, {&lock, &wishes, &clock, false}, {bytes.data(), bytes.size(), nullptr, 0});
  client->hand_over();
  client->end();
}

}  // namespace

TEST_CASE("another client is given what he wanted, in order, in buffers of his, whatever their size") {
  for (const size_t size : {40ul, 41ul, 400ul, 1ul << 20}) {
    pour(size, 50);
    REQUIRE((g_theirs.bytes.size() == 50 * 40 && g_theirs.out == 0));
    for (uint32_t i = 0; i < 50; ++i) {
      uint32_t correlation = 0;
      std::memcpy(&correlation, g_theirs.bytes.data() + i * 40 + 32, sizeof(correlation));
      CHECK(correlation == i);
    }
    for (const size_t valid : g_theirs.valid) CHECK(valid <= size);
  }
}

TEST_CASE("a client that refuses a buffer, or has one too small, loses his records alone") {
  pour(0, 5);
  CHECK((g_theirs.bytes.empty() && g_theirs.valid.empty()));
  pour(39, 5);
  CHECK((g_theirs.bytes.empty() && g_theirs.out == 0));
}

}  // namespace cupti_sharing_test
