#include "tracer/spool/reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <tuple>

namespace torchprof {
namespace {

constexpr uint64_t kMinChunkSize = 4096;
constexpr uint64_t kMinPieceSize = 256;
constexpr uint64_t kMaxChunkSize = uint64_t{64} << 20;

std::string_view until_nul(const char* text, size_t capacity) { return {text, strnlen(text, capacity)}; }

bool all_zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

Damage& Damage::operator+=(const Damage& other) {
  chunks += other.chunks;
  bytes += other.bytes;
  records += other.records;
  return *this;
}

std::unique_ptr<const SpoolReader> SpoolReader::open(const std::filesystem::path& file, std::string& error) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) {
    error = std::strerror(errno);
    return nullptr;
  }
  std::unique_ptr<SpoolReader> reader(new SpoolReader);
  struct stat status {};
  void* mapped = MAP_FAILED;
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    error = "it is not a file";
  } else if (status.st_size == 0) {
    error = "it is empty";
  } else {
    mapped = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) error = std::strerror(errno);
  }
  ::close(fd);
  if (mapped == MAP_FAILED) return nullptr;
  reader->bytes_ = {static_cast<const std::byte*>(mapped), static_cast<size_t>(status.st_size)};
  reader->mapped_ = true;
  // With huge pages in the page cache, a look at one byte would map 2 MiB, in each of thousands of files.
  madvise(mapped, static_cast<size_t>(status.st_size), MADV_NOHUGEPAGE);
  if (!reader->parse(error)) return nullptr;
  reader->release();  // looking at the headers of all chunks, used or not, has brought most of the file into memory
  return reader;
}

std::unique_ptr<const SpoolReader> SpoolReader::from_bytes(std::span<const std::byte> bytes, std::string& error) {
  std::unique_ptr<SpoolReader> reader(new SpoolReader);
  reader->bytes_ = bytes;
  if (!reader->parse(error)) return nullptr;
  return reader;
}

SpoolReader::~SpoolReader() {
  if (mapped_) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

std::string_view SpoolReader::host() const { return until_nul(header().host, sizeof(header().host)); }

std::string_view SpoolReader::forked_from() const {
  return until_nul(header().forked_from, sizeof(header().forked_from));
}

std::vector<std::string_view> SpoolReader::command() const {
  std::string_view rest(header().command, std::min<size_t>(header().command_size, sizeof(header().command)));
  std::vector<std::string_view> argv;
  while (!rest.empty()) {
    const size_t end = rest.find('\0');
    argv.push_back(rest.substr(0, end));
    rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
  }
  return argv;
}

ClockSource SpoolReader::clock() const {
  return header().clock == ClockSource::kCounter ? ClockSource::kCounter : ClockSource::kMonotonic;
}

bool SpoolReader::plausible(const ClockSample& sample) const {
  // Wide enough for every machine, narrow enough that no arithmetic on what passes can overflow.
  constexpr double kSlack = 1e9, kLongest = 2e17;  // ns, ticks or ns: a second; a year of a 6 GHz counter
  const ClockSample& start = header().start;
  const auto ticks = static_cast<double>(static_cast<int64_t>(sample.ticks.value - start.ticks.value));
  const auto ns = static_cast<double>(sample.monotonic) - static_cast<double>(start.monotonic);
  if (std::abs(ticks) > kLongest || std::abs(ns) > kLongest) return false;
  if (clock() == ClockSource::kMonotonic) return std::abs(ticks - ns) <= kSlack;
  const auto [least, most] = std::minmax({ticks / kMaxTicksPerNs, ticks * kMaxTicksPerNs});
  return ns >= least - kSlack && ns <= most + kSlack;
}

bool SpoolReader::parse(std::string& error) {
  if (bytes_.size() < kFileHeaderSize) {
    error = "it ends within its header";
    return false;
  }
  std::memcpy(header_.data(), bytes_.data(), header_.size());
  // Pairs with SpoolWriter::finish(): where it says that the process has ended, all chunks are seen as they were then.
  std::atomic_thread_fence(std::memory_order_acquire);
  const FileHeader& h = header();
  if (h.magic == 0 && all_zero(bytes_.first(kFileHeaderSize))) {
    error = "its header was never written: the process died while it began";
    return false;
  }
  if (h.magic != kSpoolMagic) {
    error = "it is not a spool of torchprof";
    return false;
  }
  if (h.version == 0 || h.version > kSpoolVersion) {
    error = "it is of version " + std::to_string(h.version) + ", this torchprof reads versions up to " +
            std::to_string(kSpoolVersion);
    return false;
  }
  if (h.chunk_size < kMinChunkSize || h.chunk_size > kMaxChunkSize || h.chunk_size % 8 != 0) {
    error = "its header is damaged: a chunk size of " + std::to_string(h.chunk_size) + " bytes";
    return false;
  }
  if (h.page_size > kLargestPage || (h.page_size & (h.page_size - 1)) != 0) {
    error = "its header is damaged: a page of " + std::to_string(h.page_size) + " bytes";
    return false;
  }
  // Event chunks before definitions: in a process that still runs, what an event names was then committed before we
  // look for it.
  collect_chunks(ChunkKind::kEvents);
  collect_chunks(ChunkKind::kSteps);
  collect_chunks(ChunkKind::kDefinitions);
  std::ranges::stable_sort(chunks_, {}, [](const ChunkView& c) {
    return std::tuple(c.kind != ChunkKind::kDefinitions, c.track, c.sequence);
  });
  mend_times();
  return true;
}

void SpoolReader::mend_times() {
  const ChunkView* before = nullptr;
  for (ChunkView& chunk : chunks_) {
    if (!plausible(chunk.base)) {
      doubtful_chunks_ += chunk.kind == ChunkKind::kEvents;
      const bool is_same_track = before && before->kind == chunk.kind && before->track == chunk.track;
      chunk.base = is_same_track ? before->base : header().start;
    }
    before = &chunk;
  }
}

void SpoolReader::collect_chunks(ChunkKind wanted) {
  const uint64_t chunk_size = header().chunk_size;
  for (uint64_t offset = first_chunk(header()); offset < bytes_.size(); offset += chunk_size)
    collect_chunk(wanted, bytes_.subspan(offset, std::min<uint64_t>(chunk_size, bytes_.size() - offset)), chunk_size);
}

// `all`: the bytes of a chunk or piece that the file has; `size`: how many it should have.
void SpoolReader::collect_chunk(ChunkKind wanted, std::span<const std::byte> all, uint64_t size) {
  const bool first_pass = wanted == ChunkKind::kEvents;
  if (all.size() < sizeof(ChunkHeader)) {
    if (first_pass && !all_zero(all)) ++damage_.chunks;
    return;
  }
  const auto& chunk = *reinterpret_cast<const ChunkHeader*>(all.data());
  // Pairs with the release in SpoolWriter::claim() and split_chunk(): the rest of the header is written.
  const uint32_t magic = chunk.magic.load(std::memory_order_acquire);
  if (magic == 0) return;  // never claimed, or claimed and never used
  const bool is_whole = size == header().chunk_size;
  if (magic == kChunkMagic && is_whole && chunk.kind == ChunkKind::kPieces)
    return collect_pieces(wanted, all, chunk.size_log2);
  const bool has_track = chunk.kind == ChunkKind::kEvents;
  const bool known = has_track || chunk.kind == ChunkKind::kDefinitions || chunk.kind == ChunkKind::kSteps;
  const bool usable = magic == kChunkMagic && known && (!has_track || chunk.track);
  if (!usable) {
    if (first_pass) ++damage_.chunks;
    return;
  }
  if (chunk.kind != wanted) return;
  // Pairs with the release in ThreadBuffer::commit() and commit_definition(): so many bytes of records are written.
  const uint64_t committed = chunk.committed.load(std::memory_order_acquire);
  const uint64_t capacity = size - sizeof(ChunkHeader);
  const uint64_t present = all.size() - sizeof(ChunkHeader);
  // An impossible `committed` is no reason to lose the records: they are read as long as they make sense.
  const uint64_t claimed = std::min(committed, capacity);
  const uint64_t readable = std::min(claimed, present) / 8 * 8;
  damage_.bytes += claimed - readable;
  if (wanted == ChunkKind::kDefinitions) definition_bytes_ += readable;
  chunks_.push_back({wanted, has_track ? chunk.track : TrackId{}, chunk.sequence, chunk.base,
                     all.subspan(sizeof(ChunkHeader), readable), chunk.window});
}

void SpoolReader::collect_pieces(ChunkKind wanted, std::span<const std::byte> all, uint8_t size_log2) {
  const uint64_t size = uint64_t{1} << std::min<uint8_t>(size_log2, 63);
  if (size < kMinPieceSize || size > header().chunk_size / 2) {
    damage_.chunks += wanted == ChunkKind::kEvents;
    return;
  }
  for (uint64_t at = size; at < all.size(); at += size)
    collect_chunk(wanted, all.subspan(at, std::min<uint64_t>(size, all.size() - at)), size);
}

void SpoolReader::release(const ChunkView& chunk) const {
  if (!mapped_) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  // All of the chunk, not only its records: the kernel maps pages around those that are read.
  const auto first = reinterpret_cast<uintptr_t>(bytes_.data());
  const auto begin = (reinterpret_cast<uintptr_t>(chunk.records.data()) - sizeof(ChunkHeader)) / page * page;
  const auto end = std::min<uintptr_t>(begin + header().chunk_size, first + bytes_.size() / page * page);
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

void SpoolReader::release() const {
  if (mapped_) madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_DONTNEED);
}

}  // namespace torchprof
