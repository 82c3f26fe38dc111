// Layout of a spool: the file into which one process writes while it runs.
//
//     spool := FileHeader chunk*               the header fills one page of the machine that wrote it; a chunk has
//                                              FileHeader::chunk_size bytes and is aligned to that size, counted from
//                                              the end of the first page
//     chunk := ChunkHeader record* zeros
//
// A chunk of kind kPieces is split, so that a short thread costs little: its header fills one piece, and after it come
// pieces of the same size, each a chunk of its own. Such a header is written before any piece is given away; a piece
// that nobody used is skipped like an unused chunk. A thread's first chunk is a piece, its later ones are whole. A
// piece is unmapped when its thread is done; where a page is larger than a piece (AArch64 has pages of 16 and 64 KiB,
// too), all of them are when the last thread is.
//
// Chunk n lies at first_chunk() + n * chunk_size. The file is reserved ahead with fallocate, so its end may hold
// chunks that nobody claimed: all zeros. Every process has a spool of its own; a forked child opens its own at its next
// event, and begins it with a copy of its parent's definitions.
//
// Who writes what, and when:
//   FileHeader    the process, once, before the first chunk; `lost` and `last_*` later, by any thread (relaxed: each
//                 stands for itself); `clean_exit` from the library's destructor.
//   ChunkHeader   the thread that claimed the chunk, before its first record; `magic` last (release), so a chunk
//                 without it was claimed and never used. `committed` (release) after each whole record: pairs with the
//                 reader's acquire. Once the process is dead it pairs with nothing and needs nothing: the page cache
//                 holds the bytes in any case.
//   records       the owner of the chunk alone.
//
// The times of steps lie in chunks of their own (kSteps), with the memory and the processor's time that the process
// had: they are kept for the whole run, and a forked child does not have its parent's.
//
// With --keep last a full spool gives the event chunk that was completed first to the thread that needs one: `magic` is
// cleared before anything else is written. The chunks of a track may then begin anywhere and have gaps; each begins
// with what was open (record.h, Restate). Definitions are never recycled.
//
// With `-w auto` each chunk of events belongs to one window. A window that is given up is defined as such first
// (record.h, WindowDef); from then on a reader passes over its chunks, and they are given to later windows.
//
// Crash safety: the mapping is MAP_SHARED over reserved blocks. A process that dies in any way leaves whole records up
// to `committed` in every chunk. Pages can be lost only if the machine itself goes down.
//
// Beside the spools lies the file `uncaptured`: the processes that could not be recorded because there was no room.
//
//     uncaptured := line* more*
//     line       := "\n" PID "\t" PARENT "\t" TIME "\t" CAUSE "\t" ERROR "\t" FORKED "\t" COMMAND
//     more       := kUncapturedMore                    one more process, for which there was no room here either
//
// TIME is when its capture would have begun, in ns since 1970; CAUSE a LossCause; ERROR an errno or 0; FORKED is 1 if a
// process forked it whose capture had ended for that cause, otherwise 0; COMMAND its arguments, cut, without control
// characters. A line may be cut off where the disk was full.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tracer/spool/ids.h"

namespace torchprof {

inline constexpr uint64_t kSpoolMagic = 0x4c4f4f5053505454;  // "TTPSPOOL"
inline constexpr uint32_t kChunkMagic = 0x4b4e4843;          // "CHNK"
inline constexpr uint64_t kFileHeaderSize = 4096;            // and more, where a page is larger: first_chunk()
inline constexpr uint64_t kLargestPage = uint64_t{64} << 10;
inline constexpr uint32_t kChunkSize = 64 * 1024;
inline constexpr uint32_t kPieceSize = 4096;

// One moment on three clocks. Samples of a spool tie the recording clock to the wall (clock.h).
struct ClockSample {
  Ticks ticks;
  int64_t monotonic;  // ns, CLOCK_MONOTONIC
  UnixNs realtime;    // CLOCK_REALTIME
};

enum class ClockSource : uint8_t {
  kMonotonic = 1,
  kCounter = 2
};  // a tick is a nanosecond, or one of the processor's counts

// All but kReentry end the capture of their process for good: they count attempts, not what is missing.
enum class LossCause : uint8_t {
  kSizeLimit,  // --max-size was reached
  kDiskFull,   // the file could not grow
  kNoMemory,   // a mapping was refused
  kReentry,    // an event inside our own callback
  kRunSize,    // --max-run-size was reached
  kSeccomp,    // the process is sealed (process/seal.h) and what was mapped is full
  kFileSize,   // the limit of file sizes (RLIMIT_FSIZE) was reached
  kCount
};

struct FileHeader {
  uint64_t magic;  // written last, release
  uint32_t version;
  uint32_t chunk_size;
  uint32_t pid;
  uint32_t parent_pid;
  ClockSample start;  // when the spool was opened
  ClockSource clock;
  std::atomic<uint8_t> clean_exit;  // 1: exit handlers ran to our destructor; 0: still running, _exit, exec or killed
  std::atomic<uint8_t> is_locked;   // 1: the writer holds a lock that ends with it (file_lock.h); 0: there is no lock
  uint8_t pad[5];
  std::atomic<uint64_t> lost[8];     // events not recorded, by LossCause
  std::atomic<uint64_t> last_ticks;  // time of the clean exit, 0 otherwise
  std::atomic<int64_t> last_monotonic;
  std::atomic<int64_t> last_realtime;
  char host[64];       // NUL-terminated, cut if longer
  char command[1024];  // argv joined by NUL, cut if longer; length below
  uint32_t command_size;
  uint32_t page_size;     // of the machine, a power of two; 0: 4096
  char forked_from[256];  // file name of the parent's spool, empty if this process was not forked from a traced one
  // When capture stopped for good (size limit, full disk): what was open ends there. 0: it did not stop.
  std::atomic<uint64_t> stop_ticks;
  std::atomic<uint64_t> recycled;  // chunks of events whose room was given to later ones (--keep last)
};
static_assert(sizeof(FileHeader) <= kFileHeaderSize);
// Where the first chunk begins. Chunks are mapped, and only whole pages can be.
inline uint64_t first_chunk(uint64_t page_size) { return page_size < kFileHeaderSize ? kFileHeaderSize : page_size; }
inline uint64_t first_chunk(const FileHeader& header) { return first_chunk(uint64_t{header.page_size}); }
static_assert(static_cast<size_t>(LossCause::kCount) <= 8);

enum class ChunkKind : uint8_t { kEvents = 1, kDefinitions = 2, kPieces = 3, kSteps = 4 };

struct ChunkHeader {
  std::atomic<uint32_t> magic;
  ChunkKind kind;
  uint8_t size_log2;                // of a piece, and of the pieces in a chunk that is split; 0: the chunk is whole
  uint16_t window;                  // the window its events lie in (-w auto); 0: any
  TrackId track;                    // none for definitions and steps
  uint32_t sequence;                // chunks of a track, of the definitions and of the steps count from 0 in time order
  std::atomic<uint32_t> committed;  // bytes of whole records after this header; of kPieces: pieces that are complete
  uint32_t generation;              // times that these bytes were recycled (--keep last)
  ClockSample base;                 // record times count from base.ticks
  uint64_t offset;                  // of this chunk in the file
  uint64_t previous;                // offset of the chunk before it of this track (or of the definitions); 0: none
};
static_assert(sizeof(ChunkHeader) == 64);
static_assert(std::is_standard_layout_v<FileHeader> && std::is_standard_layout_v<ChunkHeader>);
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

inline constexpr const char* kUncapturedName = "uncaptured";
inline constexpr uint64_t kUncapturedRoom = uint64_t{64} << 10;   // of the file
inline constexpr uint64_t kUncapturedLines = uint64_t{60} << 10;  // of it for lines
inline constexpr char kUncapturedMore = '\1';

inline constexpr uint32_t kChunkCapacity = kChunkSize - sizeof(ChunkHeader);
inline uint32_t size_of(const ChunkHeader& chunk) { return chunk.size_log2 == 0 ? kChunkSize : kPieceSize; }

}  // namespace torchprof
