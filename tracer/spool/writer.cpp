#include "tracer/spool/writer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <new>

#include "tracer/process/descriptors.h"
#include "tracer/process/diag.h"
#include "tracer/process/lock.h"
#include "tracer/process/seal.h"
#include "tracer/spool/directory.h"
#include "tracer/spool/fault.h"
#include "tracer/spool/file_lock.h"
#include "tracer/spool/left_file.h"
#include "tracer/spool/record.h"
#include "tracer/spool/run_files.h"

namespace torchprof {
namespace {

constexpr uint8_t kPieceLog2 = std::bit_width(kPieceSize) - 1;
constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint32_t kPiecesOfChunk = kChunkSize / kPieceSize - 1;

// How often the chunk was recycled; a new one is all zeros.
uint32_t generation_at(const std::byte* memory, uint64_t offset) noexcept {
  const auto* chunk = reinterpret_cast<const ChunkHeader*>(memory);
  return chunk->offset == offset ? chunk->generation + 1 : 0;
}

bool is_no_space(int error) noexcept { return error == ENOSPC || error == EDQUOT; }

// The command line, as /proc shows it.
uint32_t read_command(char* out, size_t size) noexcept {
  ssize_t n = 0;
  descriptors::with_file("/proc/self/cmdline", O_RDONLY, [&](int fd) { return (n = read(fd, out, size)) > 0; });
  return n > 0 ? static_cast<uint32_t>(n) : 0;
}

// Beyond RLIMIT_FSIZE the kernel would kill the program with SIGXFSZ. It may have been lowered since the file was
// opened.
uint64_t file_limit() noexcept {
  rlimit size{};
  return getrlimit(RLIMIT_FSIZE, &size) == 0 ? size.rlim_cur : RLIM_INFINITY;
}

}  // namespace

bool SpoolWriter::open(const char* directory, MissingDirectory missing, SizeLimits limits, Recycling recycling,
                       ClockSource clock, const char* forked_from) noexcept {
  clock_ = clock;
  page_size_ = page_size();
  const ClockSample start = clock::sample(clock);
  HostName host = "";
  if (gethostname(host, sizeof(host) - 1) != 0 || !*host) strcpy(host, "localhost");
  char path[PATH_MAX];
  if (!choose_name(directory, host, start, path) || !look_for_directory(directory, missing, path)) return false;
  if (!file_.create(path)) return cannot_write(path);
  set_limits(directory, limits, recycling);
  const uint64_t first = first_chunk(page_size_);
  void* page = reserve(first) ? file_.map_new(0, first) : nullptr;
  if (!page) {
    cannot_write(path);
    unlink(path);
    return false;
  }
  if (file_.may_fault()) spool_fault::guard(name_);
  header_ = new (page) FileHeader{};
  is_closed_.store(false, std::memory_order_relaxed);
  fill_header(host, start, forked_from);
  header_->is_locked.store(spool_lock::hold(path), std::memory_order_relaxed);
  return true;
}

bool SpoolWriter::choose_name(const char* directory, const HostName& host, const ClockSample& start,
                              char (&path)[PATH_MAX]) noexcept {
  snprintf(name_, sizeof(name_), "%s.%d.%lld%s", host, static_cast<int>(getpid()),
           static_cast<long long>(start.realtime.value), kSpoolEnd);
  if (snprintf(path, sizeof(path), "%s/%s", directory, name_) < static_cast<int>(sizeof(path))) return true;
  warn_once(Cause::kOutput, "the name of the output directory is too long: nothing is recorded");
  return false;
}

bool SpoolWriter::look_for_directory(const char* directory, MissingDirectory missing, const char* path) noexcept {
  if (file_limit() < first_chunk(page_size_) + kChunkSize) {
    errno = EFBIG;
    return cannot_write(path);
  }
  if (missing == MissingDirectory::kIsMade) return make_spool_directory(directory) || cannot_write(path);
  if (find_spool_directory(directory)) return true;
  if (errno != ENOENT) return cannot_write(path);
  open_error_ = errno;
  warn_once(Cause::kOutput,
            "%s is not there for process %d (in another root or mount namespace?): nothing of it is recorded, the "
            "program goes on",
            directory, static_cast<int>(getpid()));
  return false;
}

bool SpoolWriter::cannot_write(const char* path) noexcept {
  open_error_ = errno;
  warn_once(Cause::kOutput, "cannot write to %s: %s; nothing is recorded, the program goes on (see --output)", path,
            strerror(errno));
  return false;
}

void SpoolWriter::set_limits(const char* directory, SizeLimits limits, Recycling recycling) noexcept {
  max_size_ = limits.process;
  budget_.open(directory, limits.run);
  // If all threads hold a chunk, the spool may grow beyond its limit; chunks that do not fit in here are never
  // recycled.
  const uint64_t chunks = max_size_ / kChunkSize + 1024;
  const bool can_recycle = recycling == Recycling::kOldest    ? completed_.prepare(chunks)
                           : recycling == Recycling::kWindows ? windows_.prepare(chunks)
                                                              : true;
  recycling_ = can_recycle ? recycling : Recycling::kNone;
  next_.store(first_chunk(page_size_), std::memory_order_relaxed);
}

void SpoolWriter::fill_header(const HostName& host, const ClockSample& start, const char* forked_from) noexcept {
  header_->version = kSpoolVersion;
  header_->chunk_size = kChunkSize;
  header_->page_size = page_size_ == kFileHeaderSize ? 0 : static_cast<uint32_t>(page_size_);
  header_->pid = static_cast<uint32_t>(getpid());
  header_->parent_pid = static_cast<uint32_t>(getppid());
  header_->start = start;
  header_->clock = clock_;
  static_assert(sizeof(header_->host) == sizeof(host));
  memcpy(header_->host, host, sizeof(host));
  header_->command_size = read_command(header_->command, sizeof(header_->command));
  snprintf(header_->forked_from, sizeof(header_->forked_from), "%s", forked_from);
  // Pairs with the read of the magic in SpoolReader::parse(), in another process: the header is written.
  __atomic_store_n(&header_->magic, kSpoolMagic, __ATOMIC_RELEASE);
}

bool SpoolWriter::reserve(uint64_t end) noexcept {
  return file_.reserve(end, limit(), !budget_.is_limited());  // the budget does not count what is reserved ahead
}

uint64_t SpoolWriter::limit() const noexcept { return std::min<uint64_t>(max_size_, file_limit()); }

uint64_t SpoolWriter::take(uint64_t size, uint64_t limit) noexcept {
  uint64_t offset = next_.load(std::memory_order_relaxed);
  do {
    if (offset + size > limit) return 0;
  } while (!next_.compare_exchange_weak(offset, offset + size, std::memory_order_relaxed));
  return offset;
}

bool SpoolWriter::map_run(ChunkRun& run, uint32_t wanted) noexcept {
  if (file_.may_fault()) spool_fault::guard(name_);
  if (recycling_ == Recycling::kWindows && recycle(run, wanted)) return true;
  bool is_run_full = false;
  for (uint32_t chunks = wanted; chunks > 0; chunks /= 2) {
    const uint64_t size = uint64_t{chunks} * kChunkSize;
    is_run_full = next_.load(std::memory_order_relaxed) + size <= limit() && !budget_.take(chunks);
    if (is_run_full) continue;
    if (const uint64_t offset = take(size, limit())) return map_at(run, offset, chunks);
  }
  if (recycling_ == Recycling::kOldest) {
    retire_pieces();
    if (recycle(run, wanted)) return true;
    // Every chunk belongs to a thread that still writes to it: a thread that has none goes beyond the limit.
    if (const uint64_t offset = take(kChunkSize, file_limit())) return map_at(run, offset, 1);
  }
  say_full(is_run_full);
  return false;
}

void SpoolWriter::say_full(bool is_run_full) noexcept {
  const uint64_t bytes = is_run_full ? budget_.bytes() : limit();
  const bool is_file_full = !is_run_full && bytes < max_size_;
  lost(is_run_full ? LossCause::kRunSize : is_file_full ? LossCause::kFileSize : LossCause::kSizeLimit);
  // A process that finds the run full at its start says nothing: the processes before it have said so.
  if (is_run_full && next_.load(std::memory_order_relaxed) == first_chunk(page_size_)) return;
  const bool is_small = bytes < kMiB;
  warn_once(Cause::kSizeLimit, "process %d reached %s (%llu %s): capture stops here, what was recorded is kept",
            static_cast<int>(getpid()),
            is_run_full    ? "--max-run-size"
            : is_file_full ? "the limit of file sizes, ulimit -f"
                           : "--max-size",
            static_cast<unsigned long long>(bytes >> (is_small ? 10 : 20)), is_small ? "KiB" : "MiB");
}

bool SpoolWriter::map_at(ChunkRun& run, uint64_t offset, uint32_t chunks) noexcept {
  const uint64_t size = uint64_t{chunks} * kChunkSize;
  const bool is_reserved = reserve(offset + size);
  void* memory = is_reserved ? file_.map_new(offset, size) : nullptr;
  if (memory) {
    run = {static_cast<std::byte*>(memory), offset, chunks};
    return true;
  }
  const bool is_full = !is_reserved || is_no_space(errno);
  // Before the loss is counted: if there is no room for that either, the line is written all the same.
  if (is_full)
    warn_once(Cause::kDiskFull,
              "cannot grow the spool: %s; capture stops here, what was recorded is kept (free space, or use --output)",
              strerror(errno));
  else
    warn_once(Cause::kMapping, "cannot write to the spool: %s; capture stops here, what was recorded is kept",
              strerror(errno));
  lost(is_full ? LossCause::kDiskFull : LossCause::kNoMemory);
  return false;
}

bool SpoolWriter::recycle(ChunkRun& run, uint32_t wanted) noexcept {
  uint64_t offset = 0;
  const uint32_t chunks =
      recycling_ == Recycling::kWindows ? windows_.pop(offset, wanted) : completed_.pop(offset, wanted);
  if (chunks == 0) return false;
  void* memory = file_.map(offset, uint64_t{chunks} * kChunkSize);
  if (!memory) return false;
  run = {static_cast<std::byte*>(memory), offset, chunks};
  // First of all: from here on a reader skips them, whenever we die.
  for (uint32_t i = 0; i < chunks; ++i)
    reinterpret_cast<ChunkHeader*>(run.at + uint64_t{i} * kChunkSize)->magic.store(0, std::memory_order_relaxed);
  // Pairs with no other fence: it keeps the compiler and the processor from moving later stores to these chunks before
  // the ones above. A reader, of a process that was killed or still runs, then sees the magic cleared before anything
  // else.
  std::atomic_thread_fence(std::memory_order_release);
  header_->recycled.fetch_add(chunks, std::memory_order_relaxed);
  return true;
}

// The header is written first: from then on a reader looks for pieces.
bool SpoolWriter::split_chunk(uint16_t window) noexcept {
  ChunkRun run;
  if (!map_run(run, 1)) return false;
  for (uint32_t i = 1; i <= kPiecesOfChunk; ++i)  // of a chunk that was recycled
    reinterpret_cast<ChunkHeader*>(run.at + size_t{i} * kPieceSize)->magic.store(0, std::memory_order_relaxed);
  const uint32_t generation = generation_at(run.at, run.offset);
  auto* head = new (run.at) ChunkHeader{};
  head->kind = ChunkKind::kPieces;
  head->size_log2 = kPieceLog2;
  head->window = window;
  head->generation = generation;
  head->offset = run.offset;
  // Pairs with the load in SpoolReader::collect_chunk(): the rest of the header is written.
  head->magic.store(kChunkMagic, std::memory_order_release);
  pieces_ = {run.at + kPieceSize, run.offset + kPieceSize, kPiecesOfChunk};
  return true;
}

// A chunk has pieces of one window alone.
bool SpoolWriter::take_piece(ChunkRun& piece, uint16_t window) noexcept {
  const Lock lock(pieces_lock_);
  if (pieces_.left > 0 && head_of_pieces()->window != window) retire_pieces_locked();
  if (pieces_.left == 0 && !split_chunk(window)) return false;
  piece = pieces_;
  pieces_ = {pieces_.at + kPieceSize, pieces_.offset + kPieceSize, pieces_.left - 1};
  return true;
}

void SpoolWriter::release_piece(ChunkHeader* piece) noexcept {
  const uint64_t before = (piece->offset - first_chunk(page_size_)) % kChunkSize;
  auto* head = reinterpret_cast<ChunkHeader*>(reinterpret_cast<std::byte*>(piece) - before);
  if (is_piece_a_page()) seal::unmap(piece, kPieceSize);
  complete_pieces(head, 1);
}

void SpoolWriter::complete_pieces(ChunkHeader* head, uint32_t count) noexcept {
  // Pairs with itself on other threads: what they did with their pieces happens before the chunk is given away.
  if (head->committed.fetch_add(count, std::memory_order_acq_rel) + count < kPiecesOfChunk) return;
  keep_for_later(head->offset, head->window);
  seal::unmap(head, is_piece_a_page() ? kPieceSize : kChunkSize);
}

void SpoolWriter::keep_for_later(uint64_t offset, uint16_t window) noexcept {
  if (recycling_ == Recycling::kOldest) completed_.push(offset);
  if (recycling_ == Recycling::kWindows) windows_.push(offset, window);
}

ChunkHeader* SpoolWriter::head_of_pieces() const noexcept {
  return reinterpret_cast<ChunkHeader*>(pieces_.at - size_t{1 + kPiecesOfChunk - pieces_.left} * kPieceSize);
}

// Gives up the unused pieces of the chunk that was split last, so that the chunk can be recycled once the threads that
// have the other pieces are done. Does nothing while a thread takes a piece or splits a chunk.
void SpoolWriter::retire_pieces() noexcept {
  if (pthread_mutex_trylock(&pieces_lock_) != 0) return;
  retire_pieces_locked();
  pthread_mutex_unlock(&pieces_lock_);
}

void SpoolWriter::retire_pieces_locked() noexcept {
  if (pieces_.left == 0) return;
  ChunkHeader* const head = head_of_pieces();
  if (is_piece_a_page()) seal::unmap(pieces_.at, size_t{pieces_.left} * kPieceSize);
  complete_pieces(head, pieces_.left);
  pieces_ = {};
}

ChunkHeader* SpoolWriter::claim(ChunkKind kind, TrackId track, uint32_t sequence, Ticks now, ChunkHeader* previous,
                                ChunkRun& run, uint16_t window) noexcept {
  // The first thread of a process rarely has only few events.
  const bool begins_small = kind == ChunkKind::kEvents && track.value > 1;
  const bool is_piece = begins_small && sequence == 0;
  const bool is_busy = kind == ChunkKind::kEvents && sequence > begins_small;
  ChunkRun place;
  if (is_piece || run.left == 0) {
    const seal::Calls calls;
    if (!calls) lost(LossCause::kSeccomp);
    if (!calls || !(is_piece ? take_piece(place, window) : map_run(run, is_busy ? kRunChunks : 1))) return nullptr;
  }
  if (!is_piece) {
    place = run;
    run = {run.at + kChunkSize, run.offset + kChunkSize, run.left - 1};
  }
  std::byte* memory = place.at;
  const uint64_t offset = place.offset;
  const uint32_t generation = is_piece ? 0 : generation_at(memory, offset);
  auto* chunk = new (memory) ChunkHeader{};
  chunk->generation = generation;
  chunk->kind = kind;
  chunk->size_log2 = is_piece ? kPieceLog2 : 0;
  chunk->window = window;
  chunk->track = track;
  chunk->sequence = sequence;
  chunk->offset = offset;
  chunk->base = clock::sample(clock_);
  if (now.value < chunk->base.ticks.value) {
    // The record for which the chunk is claimed is older than the sample: the sample is moved back to the record's
    // time, by the rate since the spool's start.
    const ClockSample& start = header_->start;
    const auto behind = static_cast<double>(chunk->base.ticks.value - now.value);
    const auto ticks = static_cast<double>(chunk->base.ticks.value - start.ticks.value);
    const double rate = ticks > 0 ? static_cast<double>(chunk->base.monotonic - start.monotonic) / ticks : 0;
    const auto back = static_cast<int64_t>(behind * rate);
    chunk->base = {now, chunk->base.monotonic - back, {chunk->base.realtime.value - back}};
  }
  if (previous) {
    chunk->previous = previous->offset;
    release(previous);
  }
  // Pairs with the load in SpoolReader::collect_chunk(): the rest of the header is written.
  chunk->magic.store(kChunkMagic, std::memory_order_release);
  return chunk;
}

void SpoolWriter::map_ahead(ChunkRun& run, uint32_t chunks) noexcept {
  if (run.left == 0) map_run(run, chunks);
}

void SpoolWriter::release(ChunkHeader* chunk) noexcept {
  if (chunk->size_log2 != 0) return release_piece(chunk);
  if (chunk->kind == ChunkKind::kEvents) keep_for_later(chunk->offset, chunk->window);
  seal::unmap(chunk, kChunkSize);
}

void SpoolWriter::release(ChunkRun& run) noexcept {
  if (run.left > 0) seal::unmap(run.at, uint64_t{run.left} * kChunkSize);
  for (uint32_t i = 0; i < run.left; ++i) {
    const uint64_t offset = run.offset + uint64_t{i} * kChunkSize;
    if (recycling_ == Recycling::kWindows)
      windows_.push_free(offset);
    else
      keep_for_later(offset, 0);
  }
  run = {};
}

void SpoolWriter::stop(Ticks now) noexcept {
  uint64_t none = 0;
  header_->stop_ticks.compare_exchange_strong(none, now.value, std::memory_order_relaxed);
}

void SpoolWriter::close() noexcept {
  is_closed_.store(true, std::memory_order_relaxed);
  left_file::leave(name_);
  const Lock lock(pieces_lock_);
  pieces_ = {};
  completed_.abandon();
  windows_.abandon();
  file_.let_go();
}

LossCause SpoolWriter::stop_cause() const noexcept {
  for (const LossCause cause :
       {LossCause::kSizeLimit, LossCause::kDiskFull, LossCause::kNoMemory, LossCause::kRunSize, LossCause::kFileSize})
    if (header_->lost[static_cast<size_t>(cause)].load(std::memory_order_relaxed) != 0) return cause;
  return LossCause::kDiskFull;
}

void SpoolWriter::finish() noexcept {
  const ClockSample last = clock::sample(clock_);
  header_->last_monotonic.store(last.monotonic, std::memory_order_relaxed);
  header_->last_realtime.store(last.realtime.value, std::memory_order_relaxed);
  header_->last_ticks.store(last.ticks.value, std::memory_order_relaxed);
  // Pairs with the load of clean_exit in formats/trace/trace.cpp, which comes after the end of the process: the times
  // above are set.
  // Pairs with the reader's load (formats/trace/trace.cpp): then the last times are there as well.
  header_->clean_exit.store(1, std::memory_order_release);
}

}  // namespace torchprof
