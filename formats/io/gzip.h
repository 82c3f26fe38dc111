// A gzip member compressed by several threads.
//
// Data is cut into chunks, each compressed on its own with the end of the one before as its dictionary and ended at a
// byte (zlib's Z_SYNC_FLUSH), so that put together they are one deflate stream, as pigz does it: any reader of gzip
// reads it, and it is as small as otherwise but for five bytes a chunk.
//
// Threads: one at a time calls; as many as there are cores, at most kMostThreads, work until the object goes, with all
// signals blocked. None for less than two chunks; where none can be started the caller compresses, with one compressor.
// Memory: some 600 KiB for each of twice as many chunks. Throws Error where there is no memory, and what the sink
// throws.
#pragma once

#include <zlib.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

namespace torchprof::formats {

class Gzip {
 public:
  static constexpr size_t kChunk = size_t{256} * 1024;  // the most that add() takes
  static constexpr unsigned kMostThreads = 8;

  // `sink` takes what is compressed, in order, on the caller's thread.
  explicit Gzip(std::function<void(std::string_view)> sink);
  ~Gzip();
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

  void add(std::string_view data);
  void finish();  // then nothing can be added

 private:
  enum class State : uint8_t { kFree, kWaiting, kDone };
  struct Chunk {
    State state = State::kFree;
    bool is_last = false;
    std::vector<char> dictionary, data, compressed;
    size_t size = 0;  // of what is compressed
    uLong crc = 0;
  };
  class Deflater;

  void submit(std::string_view data, bool is_last);
  void start_threads();
  void work(Deflater& deflater);
  void write_oldest();

  const std::function<void(std::string_view)> sink_;
  std::vector<Chunk> ring_;
  size_t first_ = 0, count_ = 0;  // chunks in the ring that are not written
  uLong crc_ = 0;
  uint64_t size_ = 0;
  std::vector<std::unique_ptr<Deflater>> deflaters_;  // the first is the caller's, the others the threads'
  std::vector<std::thread> threads_;
  bool may_start_ = true;  // once
  std::mutex lock_;        // of what follows, and of states
  std::condition_variable has_work_, is_done_;
  size_t next_ = 0, waiting_ = 0;  // chunks that nobody has taken
  bool stops_ = false;
};

}  // namespace torchprof::formats
