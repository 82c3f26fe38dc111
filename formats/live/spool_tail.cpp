#include "formats/live/spool_tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <tuple>
#include <utility>

#include "tracer/spool/reader.h"

namespace torchprof::formats {

struct SpoolTail::Wanted {
  uint32_t track;
  Chunk chunk;
  uint32_t to;     // bytes of its records that are there
  uint64_t until;  // ticks: when the next chunk of the thread began; of the last one the end of time
  bool is_next;    // in the order of sequences
  bool is_skipped = false;
  uint64_t order = 0;  // ticks: a chunk may begin a little before the one that it follows
};

std::unique_ptr<SpoolTail> SpoolTail::open(const std::filesystem::path& file, std::string& error) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) {
    const int code = errno;
    error = std::strerror(code);
    errno = code;
    return nullptr;
  }
  std::unique_ptr<SpoolTail> tail(new SpoolTail(fd));
  if (!tail->read_header(error)) return nullptr;
  return tail;
}

SpoolTail::~SpoolTail() { ::close(fd_); }

size_t SpoolTail::read(uint64_t at, void* out, size_t size) const {
  const ssize_t n = pread(fd_, out, size, static_cast<off_t>(at));
  return n < 0 ? 0 : static_cast<size_t>(n);
}

bool SpoolTail::read_header(std::string& error) {
  struct stat status {};
  if (fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) {
    error = "it is not a file";
    return false;
  }
  size_ = static_cast<uint64_t>(status.st_size);
  // SpoolReader knows what a header must be.
  alignas(8) std::byte bytes[kFileHeaderSize] = {};
  const size_t n = read(0, bytes, sizeof(bytes));
  if (!SpoolReader::from_bytes({bytes, n}, error)) return false;
  std::memcpy(header_, bytes, sizeof(header_));
  if (latest_.ticks == Ticks{}) latest_ = header().start;
  return true;
}

// What a writer changes in it: all before the host's name, and what stands at its end. False: it is not that file any
// more.
bool SpoolTail::read_header_again() {
  constexpr size_t kBegin = offsetof(FileHeader, host), kEnd = offsetof(FileHeader, stop_ticks);
  constexpr size_t kConstant = offsetof(FileHeader, clean_exit);  // before these
  struct stat status {};
  alignas(8) std::byte begin[kBegin];
  if (fstat(fd_, &status) != 0 || read(0, begin, kBegin) != kBegin) return false;
  if (std::memcmp(begin, header_, kConstant) != 0) return false;
  size_ = static_cast<uint64_t>(status.st_size);
  std::memcpy(header_, begin, kBegin);
  return read(kEnd, header_ + kEnd, sizeof(FileHeader) - kEnd) == sizeof(FileHeader) - kEnd;
}

// A chunk or piece of `size` bytes that is in use. False: it is not, or it is damaged.
bool SpoolTail::head_at(uint64_t at, uint64_t size, Found& found) const {
  alignas(ChunkHeader) std::byte bytes[sizeof(ChunkHeader)];
  if (read(at, bytes, sizeof(bytes)) != sizeof(bytes)) return false;
  const auto& head = *reinterpret_cast<const ChunkHeader*>(bytes);
  if (head.magic.load(std::memory_order_relaxed) != kChunkMagic) return false;
  const auto capacity = static_cast<uint32_t>(size - sizeof(ChunkHeader));
  found.kind = head.kind;
  found.track = head.track.value;
  found.committed = std::min(head.committed.load(std::memory_order_relaxed), capacity) / 8 * 8;
  found.chunk = {.at = at, .base = head.base, .capacity = capacity};
  found.chunk.generation = head.generation;
  found.chunk.sequence = head.sequence;
  if (head.kind == ChunkKind::kPieces) found.chunk.capacity = head.size_log2;
  return true;
}

void SpoolTail::find_chunks() {
  const uint64_t chunk_size = header().chunk_size;
  found_.clear();
  const uint64_t first = first_chunk(header());
  const uint64_t slots = size_ <= first ? 0 : (size_ - first + chunk_size - 1) / chunk_size;
  slots_.resize(std::max<size_t>(slots_.size(), slots));
  // Any chunk may have been recycled.
  const uint64_t recycled = header().recycled.load(std::memory_order_relaxed);
  const bool is_all = std::exchange(recycled_, recycled) != recycled;
  for (uint32_t slot = 0; slot < slots; ++slot)
    if (is_all || slots_[slot] == 0) find_in_slot(slot, first + slot * chunk_size);
  constexpr uint32_t kAllPieces = 16;  // looks
  const bool are_all_looked_at = looks_++ % kAllPieces == 0;
  uint64_t unused = UINT64_MAX;  // the slot of a piece that nobody uses
  std::erase_if(pieces_, [&](const Piece& piece) {
    Found found{};
    if (piece.slot == unused && !are_all_looked_at) return false;
    if (!head_at(piece.at, piece.size, found)) {
      unused = piece.slot;
      return false;
    }
    take(found);
    return true;
  });
}

void SpoolTail::find_in_slot(uint32_t slot, uint64_t at) {
  Found found{};
  const uint64_t chunk_size = header().chunk_size;
  if (!head_at(at, chunk_size, found) || slots_[slot] == found.chunk.generation + 1) return;
  const bool was_used = std::exchange(slots_[slot], found.chunk.generation + 1) != 0;
  if (was_used)  // only then it may have pieces: looking for them each time takes long in a file of many chunks
    std::erase_if(pieces_, [slot](const Piece& piece) { return piece.slot == slot; });
  if (found.kind != ChunkKind::kPieces) return take(found);
  constexpr uint32_t kSmallest = 8, kLargest = 31;  // powers of two
  const uint32_t log2 = found.chunk.capacity;
  if (log2 < kSmallest || log2 > kLargest || (uint64_t{1} << log2) > chunk_size / 2) return;
  const uint32_t size = uint32_t{1} << log2;
  for (uint64_t piece = size; piece + size <= chunk_size; piece += size) pieces_.push_back({at + piece, size, slot});
}

void SpoolTail::take(Found found) {
  const bool is_event = found.kind == ChunkKind::kEvents && found.track != 0;
  if (is_event || found.kind == ChunkKind::kDefinitions || found.kind == ChunkKind::kSteps) found_.push_back(found);
}

std::span<const std::byte> SpoolTail::records(const Chunk& chunk, uint32_t from, uint32_t to) {
  buffer_.resize(std::max<size_t>(buffer_.size(), to - from));
  const size_t n = read(chunk.at + sizeof(ChunkHeader) + from, buffer_.data(), to - from) / 8 * 8;
  // If it was recycled meanwhile, these bytes are not what its header said.
  Found now{};
  const bool is_same = head_at(chunk.at, chunk.capacity + sizeof(ChunkHeader), now) &&
                       now.chunk.generation == chunk.generation && now.chunk.sequence == chunk.sequence;
  return {buffer_.data(), is_same ? n : 0};
}

void SpoolTail::look(const Look& look) {
  std::string ignored;
  read_bytes_ = skipped_bytes_ = 0;
  if (is_first_ ? !read_header(ignored) : !read_header_again()) return;
  find_chunks();
  for (const Found& found : found_)
    if (found.chunk.base.ticks > latest_.ticks && found.chunk.base.monotonic > latest_.monotonic)
      latest_ = found.chunk.base;
  // What an event names was committed before it: so what events there are is found out before definitions are read.
  std::vector<Wanted> all = wanted();
  read_definitions(look);
  read_steps(look);
  read_events(look, std::move(all));
  is_first_ = false;
}

std::vector<SpoolTail::Wanted> SpoolTail::wanted() {
  std::ranges::sort(found_, {}, [](const Found& f) { return std::tuple(f.kind, f.track, f.chunk.sequence); });
  std::vector<Wanted> all;
  const auto add = [&all](uint32_t track, const Chunk& chunk, uint32_t to) {
    const bool has_before = !all.empty() && all.back().track == track;
    if (has_before) all.back().until = chunk.base.ticks.value;
    const bool is_next = has_before ? all.back().chunk.sequence + 1 == chunk.sequence : chunk.read > 0;
    all.push_back({track, chunk, to, UINT64_MAX, is_next});
  };
  // Of each thread the chunk that it wrote last, then those that came.
  auto next = found_.begin();
  while (next != found_.end() && next->kind != ChunkKind::kEvents) ++next;
  const auto add_found = [&](uint32_t track) {
    for (; next != found_.end() && next->kind == ChunkKind::kEvents && next->track == track; ++next)
      add(track, next->chunk, next->committed);
  };
  std::vector<uint32_t> tracks;
  for (const auto& [track, chunk] : threads_) tracks.push_back(track);
  for (auto it = next; it != found_.end() && it->kind == ChunkKind::kEvents; ++it)
    if (tracks.empty() || tracks.back() != it->track) tracks.push_back(it->track);
  std::ranges::sort(tracks);
  tracks.erase(std::unique(tracks.begin(), tracks.end()), tracks.end());
  for (const uint32_t track : tracks) {
    if (const auto it = threads_.find(track); it != threads_.end()) {
      const Chunk& chunk = it->second;
      Found now{};
      const bool is_same = head_at(chunk.at, chunk.capacity + sizeof(ChunkHeader), now) &&
                           now.chunk.generation == chunk.generation && now.chunk.sequence == chunk.sequence;
      add(track, chunk, is_same ? std::max(now.committed, chunk.read) : chunk.read);
      if (!is_same) all.back().chunk.is_lost = true;
    }
    add_found(track);
  }
  return all;
}

// Chunks that lie in one order for the whole process. What was written to `latest` since the last look, and the chunks
// that came after it.
void SpoolTail::read_stream(ChunkKind kind, Chunk& latest, const std::function<void(const Portion&)>& take,
                            uint64_t since) {
  const auto read_rest = [&](uint32_t to) {
    if (latest.at == 0 || to <= latest.read) return;
    const std::span<const std::byte> bytes = records(latest, latest.read, to);
    if (kind == ChunkKind::kDefinitions) definition_bytes_ += bytes.size();
    take({{}, latest.base, bytes, latest.at + sizeof(ChunkHeader) + latest.read, {}, true});
    latest.read = to;
  };
  const auto read_all = [&] {
    Found now{};
    if (latest.at != 0 && head_at(latest.at, latest.capacity + sizeof(ChunkHeader), now)) read_rest(now.committed);
  };
  for (const Found& found : found_) {
    if (found.kind != kind) continue;
    if (latest.at == 0 || found.chunk.base.ticks.value >= since) read_all();
    latest = found.chunk;
  }
  read_all();
}

void SpoolTail::read_definitions(const Look& look) {
  read_stream(ChunkKind::kDefinitions, definitions_, look.definitions, 0);
}

// Of the first look a chunk is passed over if the one after it began before the time that is asked for.
void SpoolTail::read_steps(const Look& look) {
  read_stream(ChunkKind::kSteps, steps_, look.steps, is_first_ ? look.steps_since() : 0);
}

void SpoolTail::read_events(const Look& look, std::vector<Wanted> all) {
  std::vector<Wanted*> order;
  for (Wanted& one : all) order.push_back(&one);
  for (size_t i = 0; i < all.size(); ++i) {
    const bool follows = i > 0 && all[i].track == all[i - 1].track;
    all[i].order = std::max(all[i].chunk.base.ticks.value, follows ? all[i - 1].order : 0);
  }
  // Of a thread the newest come first, too.
  std::ranges::stable_sort(order, [](const Wanted* a, const Wanted* b) {
    return std::tuple(a->until, a->order) > std::tuple(b->until, b->order);
  });
  const uint64_t since = is_first_ ? look.events_since() : 0;
  for (Wanted* one : order) {
    const uint64_t bytes = one->to - one->chunk.read;
    const bool is_old = one->until < since;
    one->is_skipped = is_old || one->chunk.is_lost || read_bytes_ + bytes > look.event_bytes;
    if (!one->is_skipped) read_bytes_ += bytes;
    if (one->is_skipped && !is_old) skipped_bytes_ += bytes;
  }
  for (size_t i = 1; i < all.size(); ++i)  // what follows on something that is not read
    if (all[i].track == all[i - 1].track && all[i - 1].is_skipped && all[i - 1].to > all[i - 1].chunk.read)
      all[i].is_next = false;
  std::ranges::stable_sort(order, {}, [](const Wanted* one) { return std::tuple(one->order, one); });
  for (Wanted* one : order) {
    Chunk& chunk = one->chunk;
    if (one->is_skipped) {
      chunk.is_lost = chunk.is_lost || one->to > chunk.read;
      chunk.read = one->to;
    } else if (one->to > chunk.read) {
      const std::span<const std::byte> bytes = records(chunk, chunk.read, one->to);
      chunk.last_op = look.events({{one->track},
                                   chunk.base,
                                   bytes,
                                   chunk.at + sizeof(ChunkHeader) + chunk.read,
                                   chunk.last_op,
                                   one->is_next && bytes.size() == one->to - chunk.read});
      chunk.read = one->to;
    }
  }
  for (size_t i = 0; i < all.size(); ++i)
    if (i + 1 == all.size() || all[i + 1].track != all[i].track) threads_[all[i].track] = all[i].chunk;
  for (const uint32_t track : std::exchange(forgotten_, {})) threads_.erase(track);
}

}  // namespace torchprof::formats
