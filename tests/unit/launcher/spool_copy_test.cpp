// SpoolCopy: the copy has what was whole at one moment, whatever the process does to the file afterwards.
#include "launcher/subcommands/spool_copy.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>

#include "tracer/spool/layout.h"

namespace spool_copy_test {

using namespace torchprof;
using namespace torchprof::launcher;

namespace {

// A file with chunks whose heads are set by hand.
class MadeSpool {
 public:
  MadeSpool() : file_(std::tmpfile()) {
    header_.magic = kSpoolMagic;
    header_.chunk_size = kChunkSize;
    put(0, &header_, sizeof(header_));
  }
  ~MadeSpool() { std::fclose(file_); }
  int fd() const { return fileno(file_); }
  void put(uint64_t at, const void* data, size_t size) {
    REQUIRE(pwrite(fd(), data, size, static_cast<off_t>(at)) == static_cast<ssize_t>(size));
  }
  static uint64_t place(uint64_t chunk, uint64_t piece = 0) {
    return kFileHeaderSize + chunk * kChunkSize + piece * kPieceSize;
  }
  void chunk(uint64_t at, ChunkKind kind, uint32_t committed, uint32_t generation, char fill,
             uint32_t size = kChunkSize) {
    const std::string content(size - sizeof(ChunkHeader), fill);
    ChunkHeader head{};
    head.magic.store(kChunkMagic, std::memory_order_relaxed);
    head.kind = kind;
    head.committed.store(committed, std::memory_order_relaxed);
    head.generation = generation;
    put(at, &head, sizeof(head));
    put(at + sizeof(head), content.data(), content.size());
  }
  std::string copied(SpoolCopy& copy) const {
    std::string out;
    copy.write([&out](std::string_view part) { out += part; });
    return out;
  }

 private:
  std::FILE* file_;
  FileHeader header_{};
};

uint32_t at(const std::string& copy, uint64_t place, size_t offset) {
  uint32_t value = 0;
  std::memcpy(&value, copy.data() + place + offset, sizeof(value));
  return value;
}
uint32_t magic(const std::string& copy, uint64_t place) { return at(copy, place, offsetof(ChunkHeader, magic)); }
uint32_t committed(const std::string& copy, uint64_t place) {
  return at(copy, place, offsetof(ChunkHeader, committed));
}

TEST_CASE("a spool that nobody writes is copied byte for byte") {
  MadeSpool spool;
  spool.chunk(MadeSpool::place(0), ChunkKind::kDefinitions, 100, 0, 'd');
  spool.chunk(MadeSpool::place(1), ChunkKind::kEvents, 200, 3, 'e');
  spool.chunk(MadeSpool::place(2), ChunkKind::kPieces, 1, 0, 'p');
  spool.chunk(MadeSpool::place(2, 1), ChunkKind::kEvents, 70, 0, 'q', kPieceSize);
  spool.put(MadeSpool::place(4) - 1, "", 1);  // one that nobody has claimed
  SpoolCopy copy(spool.fd(), "spool");
  const std::string copied = spool.copied(copy);
  std::string file(copied.size(), '\0');
  REQUIRE(pread(spool.fd(), file.data(), file.size(), 0) == static_cast<ssize_t>(file.size()));
  CHECK(copied.size() == MadeSpool::place(4));
  CHECK((copied == file));
  CHECK(copy.dropped_bytes() == 0);
}

TEST_CASE("what is recorded after the copy began is not in it, and what is written over is left out") {
  MadeSpool spool;
  spool.chunk(MadeSpool::place(0), ChunkKind::kDefinitions, 100, 0, 'd');
  spool.chunk(MadeSpool::place(1), ChunkKind::kEvents, 200, 3, 'e');  // goes on
  spool.chunk(MadeSpool::place(2), ChunkKind::kEvents, 300, 3, 'f');  // is given to others
  spool.chunk(MadeSpool::place(3), ChunkKind::kEvents, 300, 3, 'g');  // is just being given to others
  spool.chunk(MadeSpool::place(4), ChunkKind::kPieces, 1, 0, 'p');    // of its pieces one goes on, another begins
  spool.chunk(MadeSpool::place(4, 1), ChunkKind::kEvents, 70, 0, 'q', kPieceSize);
  spool.put(MadeSpool::place(4, 2), "\0\0\0", 4);
  spool.put(MadeSpool::place(6) - 1, "", 1);
  SpoolCopy copy(spool.fd(), "spool");
  spool.chunk(MadeSpool::place(0), ChunkKind::kDefinitions, 150, 0, 'd');
  spool.chunk(MadeSpool::place(1), ChunkKind::kEvents, 250, 3, 'e');
  spool.chunk(MadeSpool::place(2), ChunkKind::kEvents, 10, 4, 'F');
  spool.put(MadeSpool::place(3), "\0\0\0", 4);
  spool.chunk(MadeSpool::place(4, 1), ChunkKind::kEvents, 90, 0, 'q', kPieceSize);
  spool.chunk(MadeSpool::place(4, 2), ChunkKind::kEvents, 80, 0, 'r', kPieceSize);
  spool.chunk(MadeSpool::place(5), ChunkKind::kEvents, 10, 0, 'n');
  const std::string copied = spool.copied(copy);
  CHECK(committed(copied, MadeSpool::place(0)) == 150);  // names that events have are there
  CHECK(magic(copied, MadeSpool::place(1)) == kChunkMagic);
  CHECK(committed(copied, MadeSpool::place(1)) == 200);
  CHECK(magic(copied, MadeSpool::place(2)) == 0);
  CHECK(magic(copied, MadeSpool::place(3)) == 0);
  CHECK(committed(copied, MadeSpool::place(4, 1)) == 70);
  CHECK(magic(copied, MadeSpool::place(4, 2)) == 0);
  CHECK(magic(copied, MadeSpool::place(5)) == 0);
  CHECK(copy.dropped_bytes() == 2 * kChunkSize);
}

TEST_CASE("a file that is no spool is copied as it is, also where it has become shorter") {
  std::FILE* const file = std::tmpfile();
  const std::string text(100'000, 'x');
  REQUIRE(pwrite(fileno(file), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  SpoolCopy copy(fileno(file), "file");
  REQUIRE(ftruncate(fileno(file), 99'000) == 0);
  std::string copied;
  copy.write([&copied](std::string_view part) { copied += part; });
  CHECK((copied == text.substr(0, 99'000) + std::string(1000, '\0')));
  std::fclose(file);
}

}  // namespace
}  // namespace spool_copy_test
