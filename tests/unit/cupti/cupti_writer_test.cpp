// CUPTI's buffers into a spool: what is in them is there or counted, and fast enough.
#include "cupti/activity_writer.h"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <functional>
#include <map>
#include <vector>

#include "tests/cupti_sim/layouts.h"
#include "tracer/session.h"
#include "tracer/spool/reader.h"

namespace cupti_writer_test {

using namespace torchprof;
using namespace torchprof::cupti;
namespace fs = std::filesystem;
namespace sim = cupti_sim;

namespace {

constexpr uint32_t kVersion = 130100;

// As cuptiActivityGetNextRecord.
int next_record(uint8_t* buffer, size_t valid, std::byte** record) {
  auto* next = reinterpret_cast<std::byte*>(buffer);
  if (*record) {
    uint32_t kind = 0;
    std::memcpy(&kind, *record, sizeof(kind));
    next = *record + sim::size_of(kind, kVersion);
  }
  if (next + sizeof(uint32_t) > reinterpret_cast<std::byte*>(buffer) + valid) return 12;
  *record = next;
  return 0;
}

Api made_up_cupti() {
  Api api{};
  api.version = kVersion;
  api.next_record = next_record;
  api.dropped = [](void*, uint32_t, size_t* count) {
    *count = 0;
    return 0;
  };
  return api;
}

class Buffer {
 public:
  Buffer() { bytes_.reserve(ActivityBuffers::kSize); }
  template <class R>
  bool add(const R& record) {
    const auto* at = reinterpret_cast<const std::byte*>(&record);
    if (bytes_.size() + R::size(kVersion) > ActivityBuffers::kSize) return false;
    bytes_.insert(bytes_.end(), at, at + R::size(kVersion));
    return true;
  }
  cupti::Completed completed() { return {bytes_.data(), bytes_.size(), nullptr, 0}; }

 private:
  std::vector<std::byte> bytes_;
};

// A buffer full of launches: a call and a kernel of one of 64 names each. The number of its records.
uint64_t fill(Buffer& buffer) {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> made;
    for (int i = 0; i < 64; ++i)
      made.emplace_back("_ZN2at6native29vectorized_elementwise_kernelILi").append(std::to_string(i));
    return made;
  }();
  sim::ApiRecord call;
  call.cbid = 211;
  sim::KernelRecord kernel;
  uint64_t records = 0;
  for (;; records += 2) {
    call.start = 1000 * records, call.end = call.start + 500;
    kernel.start = call.end, kernel.end = kernel.start + 400;
    kernel.correlation_id = call.correlation_id = static_cast<uint32_t>(records / 2 + 1);
    kernel.name = names[records / 2 % names.size()].c_str();
    if (!buffer.add(call)) return records;
    if (!buffer.add(kernel)) return records + 1;
  }
}

struct Result {
  Tally tally;
  double best = 1e9;        // seconds of processor time for a buffer
  double best_plain = 1e9;  // seconds for copy_and_hash() of one
  bool is_copied = true;    // each time
};

// `body` in a child with an armed session, which is one of a process; the spool is read by `check`.
Result in_session(const std::function<void(Result&)>& body, const std::function<void(const SpoolReader&)>& check) {
  char directory[] = "/tmp/torchprof-writer-XXXXXX";
  REQUIRE(mkdtemp(directory));
  void* shared = mmap(nullptr, sizeof(Result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(shared != MAP_FAILED);
  auto* result = new (shared) Result;
  const pid_t child = fork();
  if (child == 0) {
    session::arm(Config{}, directory);
    body(*result);
    session::finish();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  size_t spools = 0;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.path().extension() != ".spool") continue;
    ++spools;
    std::string error;
    const auto reader = SpoolReader::open(entry.path(), error);
    REQUIRE_MESSAGE(reader, error);
    check(*reader);
  }
  CHECK(spools == 1);
  fs::remove_all(directory);
  const Result copy = *result;
  munmap(shared, sizeof(Result));
  return copy;
}

std::map<Kind, uint64_t> kinds_of(const SpoolReader& reader) {
  std::map<Kind, uint64_t> found;
  for (const ChunkView& chunk : reader.chunks()) {
    RecordCursor cursor(chunk.records);
    RecordView record;
    while (cursor.next(record)) ++found[record.kind()];
  }
  return found;
}

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

TEST_CASE("what a buffer holds is written, or counted as unknown or malformed") {
  Buffer buffer;
  sim::ApiRecord call;
  call.kind = 5;
  buffer.add(call);
  buffer.add(sim::UnknownRecord{});
  buffer.add(sim::KernelRecord{});
  buffer.add(sim::SyncRecord{});
  buffer.add(sim::KernelRecord{});
  std::map<Kind, uint64_t> found;
  const Result result = in_session(
      [&](Result& r) {
        Devices devices;
        cupti::Completed cut = buffer.completed();
        cut.valid -= 100;
        write_buffer(made_up_cupti(), cut, r.tally, devices);
      },
      [&](const SpoolReader& reader) { found = kinds_of(reader); });
  CHECK((result.tally.written == 3 && result.tally.unknown == 1 && result.tally.malformed == 1));
  CHECK((result.tally.lost == 0 && result.tally.dropped == 0 && result.tally.buffers == 1));
  CHECK((found[Kind::GpuApi] == 1 && found[Kind::GpuKernel] == 1 && found[Kind::GpuSync] == 1));
  CHECK(found[Kind::GpuDropped] == 2);
}

// What this machine needs for something plain with as many bytes: a copy into new pages of a file, and a hash of it.
uint32_t copy_and_hash(const cupti::Completed& buffer) {
  const int file = memfd_create("copy", MFD_CLOEXEC);
  const bool has_room = file >= 0 && ftruncate(file, static_cast<off_t>(buffer.valid)) == 0;
  void* copy = has_room ? mmap(nullptr, buffer.valid, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  uint32_t hash = 2166136261U;  // FNV-1a: each byte waits for the one before
  if (copy != MAP_FAILED) {
    std::memcpy(copy, buffer.data, buffer.valid);
    for (size_t i = 0; i < buffer.valid; ++i) hash = (hash ^ static_cast<uint8_t*>(copy)[i]) * 16777619U;
    munmap(copy, buffer.valid);
  }
  close(file);
  return hash;
}

TEST_CASE("millions of records a second, from CUPTI's buffer to the spool") {
  constexpr int kRounds = 12, kBuffers = 8;
  Buffer buffer;
  const uint64_t records = fill(buffer);
  std::map<Kind, uint64_t> found;
  const Result result = in_session(
      [&](Result& r) {
        const Api api = made_up_cupti();
        Devices devices;
        const uint32_t hash = copy_and_hash(buffer.completed());
        for (int round = 0; round < kRounds; ++round) {
          const double begin = cpu_seconds();
          for (int i = 0; i < kBuffers; ++i) write_buffer(api, buffer.completed(), r.tally, devices);
          const double written = cpu_seconds();
          for (int i = 0; i < kBuffers; ++i) r.is_copied &= copy_and_hash(buffer.completed()) == hash;
          r.best = std::min(r.best, (written - begin) / kBuffers);
          r.best_plain = std::min(r.best_plain, (cpu_seconds() - written) / kBuffers);
        }
      },
      [&](const SpoolReader& reader) { found = kinds_of(reader); });
  CHECK(result.is_copied);
  CHECK(result.tally.written == records * kBuffers * kRounds);
  CHECK(found[Kind::GpuApi] + found[Kind::GpuKernel] == result.tally.written);
  MESSAGE("records a second: ", static_cast<double>(records) / result.best, "; ", result.best / result.best_plain,
          " of a copy and a hash");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  CHECK(result.best < 4 * result.best_plain);
#endif
}

}  // namespace cupti_writer_test
