#include "formats/io/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <exception>

#include "formats/io/deflate.h"
#include "formats/io/parallel.h"

namespace torchprof::formats {
namespace {

// Where others work beside us already, the caller compresses.
size_t threads_of_one() { return is_parallel() ? 0 : thread_count(); }

}  // namespace

void Gzip::compress(Chunk& chunk, Deflate& deflate) {
  const std::string_view text(chunk.text.data(), chunk.dictionary + chunk.data);
  chunk.size = deflate.run(text, chunk.dictionary, chunk.is_last, chunk.compressed.data());
  chunk.crc = static_cast<uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(chunk.text.data() + chunk.dictionary), chunk.data));
}

Gzip::Gzip(std::function<void(std::string_view)> sink) : sink_(std::move(sink)), ring_(2 * threads_of_one() + 1) {
  deflaters_.reserve(1 + threads_of_one());  // push_back() after a thread began must not fail
  threads_.reserve(threads_of_one());
  deflaters_.push_back(std::make_unique<Deflate>());
  sink_(std::string_view("\x1f\x8b\x08\0\0\0\0\0\x04\xff", 10));  // RFC 1952: no name, no time, the fastest, any system
}

Gzip::~Gzip() {
  {
    const std::lock_guard lock(lock_);
    stops_ = true;
  }
  has_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Gzip::start_threads() {
  may_start_ = false;
  const detail::BlockSignals blocked;
  try {
    while (threads_.size() < threads_of_one()) {
      auto deflater = std::make_unique<Deflate>();
      threads_.emplace_back(&Gzip::work, this, std::ref(*deflater));
      deflaters_.push_back(std::move(deflater));
    }
  } catch (const std::exception&) {  // no thread or no memory: those that have started compress, or else the caller
  }
}

void Gzip::work(Deflate& deflater) {
  std::unique_lock lock(lock_);
  for (;;) {
    has_work_.wait(lock, [this] { return stops_ || waiting_ > 0; });
    if (stops_) return;
    Chunk& chunk = ring_[next_];
    next_ = (next_ + 1) % ring_.size();
    --waiting_;
    lock.unlock();
    compress(chunk, deflater);
    lock.lock();
    chunk.state = State::kDone;
    is_done_.notify_one();
  }
}

char* Gzip::room() {
  if (count_ == ring_.size()) write_oldest();
  const size_t place = (first_ + count_) % ring_.size();
  Chunk& chunk = ring_[place];
  const Chunk& before = ring_[(place + ring_.size() - 1) % ring_.size()];
  const size_t before_end = before.dictionary + before.data;
  chunk.dictionary = std::min(before_end, Deflate::kWindow);
  chunk.text.resize(Deflate::kWindow + kChunk + Deflate::kPadding);
  chunk.compressed.resize(Deflate::bound(kChunk));
  std::copy_n(before.text.begin() + static_cast<ptrdiff_t>(before_end - chunk.dictionary), chunk.dictionary,
              chunk.text.begin());
  return chunk.text.data() + chunk.dictionary;
}

void Gzip::submit(size_t size, bool is_last) {
  const size_t place = (first_ + count_) % ring_.size();
  Chunk& chunk = ring_[place];
  chunk.data = size;
  chunk.is_last = is_last;
  if (size_ > 0 && may_start_) start_threads();
  size_ += size;
  ++count_;
  const std::lock_guard lock(lock_);
  if (threads_.empty()) {
    compress(chunk, *deflaters_.front());
    chunk.state = State::kDone;
    return;
  }
  if (waiting_ == 0) next_ = place;
  chunk.state = State::kWaiting;
  ++waiting_;
  has_work_.notify_one();
}

void Gzip::write_oldest() {
  Chunk& chunk = ring_[first_];
  {
    std::unique_lock lock(lock_);
    is_done_.wait(lock, [&chunk] { return chunk.state == State::kDone; });
    chunk.state = State::kFree;
  }
  first_ = (first_ + 1) % ring_.size();
  --count_;
  crc_ = static_cast<uint32_t>(crc32_combine(crc_, chunk.crc, static_cast<z_off_t>(chunk.data)));
  sink_({chunk.compressed.data(), chunk.size});
}

void Gzip::add(size_t size) {
  if (size > 0) submit(size, false);
}

void Gzip::finish() {
  room();
  submit(0, true);
  while (count_ > 0) write_oldest();
  char trailer[8];
  for (int i = 0; i < 4; ++i) {
    trailer[i] = static_cast<char>(crc_ >> 8 * i);
    trailer[4 + i] = static_cast<char>(size_ >> 8 * i);
  }
  sink_({trailer, sizeof(trailer)});
}

}  // namespace torchprof::formats
