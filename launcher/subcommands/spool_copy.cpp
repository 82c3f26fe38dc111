#include "launcher/subcommands/spool_copy.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "formats/io/error.h"
#include "tracer/spool/layout.h"

namespace torchprof::launcher {
namespace {

constexpr uint64_t kPiecesOfCopy = kChunkSize / kPieceSize;  // with the chunk's own head

// Fields of a head that is bytes, not an object: it may be of any kind and damaged.
template <class T>
T field(const char* at, size_t offset) {
  T value;
  std::memcpy(&value, at + offset, sizeof(value));
  return value;
}
uint32_t magic_of(const char* head) { return field<uint32_t>(head, offsetof(ChunkHeader, magic)); }
ChunkKind kind_of(const char* head) { return field<ChunkKind>(head, offsetof(ChunkHeader, kind)); }
uint32_t committed_of(const char* head) { return field<uint32_t>(head, offsetof(ChunkHeader, committed)); }
uint32_t generation_of(const char* head) { return field<uint32_t>(head, offsetof(ChunkHeader, generation)); }
void set_committed(char* head, uint32_t bytes) {
  std::memcpy(head + offsetof(ChunkHeader, committed), &bytes, sizeof(bytes));
}
void set_unused(char* head) { std::memset(head + offsetof(ChunkHeader, magic), 0, sizeof(uint32_t)); }

}  // namespace

SpoolCopy::SpoolCopy(int fd, std::string name) : fd_(fd), name_(std::move(name)) {
  struct stat status {};
  if (fstat(fd_, &status) != 0) throw Error(name_ + ": " + std::strerror(errno));
  size_ = static_cast<uint64_t>(status.st_size);
  std::string head(kFileHeaderSize, '\0');
  read(0, head.data(), head.size());
  const auto page = field<uint32_t>(head.data(), offsetof(FileHeader, page_size));
  if (field<uint64_t>(head.data(), offsetof(FileHeader, magic)) != kSpoolMagic ||
      field<uint32_t>(head.data(), offsetof(FileHeader, chunk_size)) != kChunkSize || page > kLargestPage ||
      size_ < first_chunk(page))
    return;
  head.resize(first_chunk(page));
  head_ = std::move(head);
  for (uint64_t at = head_.size(); at < size_; at += kChunkSize) {
    bool has_pieces = false;
    chunks_.push_back(look(at, has_pieces));
    if (!has_pieces) continue;
    std::vector<Chunk>& pieces = pieces_[chunks_.size() - 1];
    for (uint64_t i = 1; i < kPiecesOfCopy; ++i) pieces.push_back(look(at + i * kPieceSize, has_pieces));
  }
}

void SpoolCopy::read(uint64_t at, char* to, size_t size) const {
  while (size > 0) {
    const ssize_t got = pread(fd_, to, size, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(name_ + ": cannot be read: " + std::strerror(errno));
    if (got == 0) return void(std::fill_n(to, size, 0));
    to += got;
    at += static_cast<uint64_t>(got);
    size -= static_cast<size_t>(got);
  }
}

SpoolCopy::Chunk SpoolCopy::look(uint64_t at, bool& has_pieces) const {
  char head[sizeof(ChunkHeader)];
  read(at, head, sizeof(head));
  has_pieces = magic_of(head) == kChunkMagic && kind_of(head) == ChunkKind::kPieces;
  return {magic_of(head) != 0, generation_of(head), committed_of(head)};
}

void SpoolCopy::copy_chunk(size_t index, uint64_t at, char* chunk) {
  const auto size = static_cast<size_t>(std::min<uint64_t>(kChunkSize, size_ - at));
  bool ignored = false;
  const Chunk before = look(at, ignored);
  read(at, chunk, size);
  if (size < sizeof(ChunkHeader) || magic_of(chunk) != kChunkMagic) {
    if (chunks_[index].is_there && magic_of(chunk) == 0) dropped_ += size;  // it is just being given to others
    return;
  }
  const ChunkKind kind = kind_of(chunk);
  if (kind != ChunkKind::kEvents && kind != ChunkKind::kPieces)  // never given to others
    return void(before.is_there ? set_committed(chunk, before.committed) : set_unused(chunk));
  const Chunk then = chunks_[index], after = look(at, ignored);
  if (!then.is_there) return set_unused(chunk);  // younger than the copy
  if (!after.is_there || after.generation != then.generation || generation_of(chunk) != then.generation) {
    dropped_ += size;
    return set_unused(chunk);
  }
  set_committed(chunk, then.committed);
  const auto pieces = pieces_.find(index);
  if (kind != ChunkKind::kPieces || pieces == pieces_.end()) return;
  for (size_t i = 0; i < pieces->second.size() && (i + 2) * kPieceSize <= size; ++i) {
    char* const piece = chunk + (i + 1) * kPieceSize;
    const Chunk& known = pieces->second[i];
    known.is_there ? set_committed(piece, known.committed) : set_unused(piece);
  }
}

void SpoolCopy::write(const std::function<void(std::string_view)>& sink) {
  // So much is read before any of it is given to the sink, which may be slow: a process that writes over its oldest
  // records goes around in that time.
  constexpr uint64_t kAhead = uint64_t{64} << 20;
  std::string part;
  part.reserve(std::min(size_, kAhead));
  part = head_;
  for (uint64_t at = head_.size(), index = 0; at < size_; ++index) {
    const auto size = static_cast<size_t>(std::min<uint64_t>(kChunkSize, size_ - at));
    if (part.size() + size > kAhead) {
      sink(part);
      part.clear();
    }
    part.resize(part.size() + size);
    char* const chunk = part.data() + part.size() - size;
    head_.empty() ? read(at, chunk, size) : copy_chunk(index, at, chunk);
    at += size;
  }
  sink(part);
}

}  // namespace torchprof::launcher
