// A gzip member compressed by several threads.
//
// Data is cut into chunks, as pigz does it. Each chunk is compressed on its own, with the end of the one before as its
// dictionary, and ends at a byte (deflate.h). Put together the chunks are one deflate stream that any reader of gzip
// reads, and that is only five bytes a chunk longer. However many threads compress, the bytes are the same.
//
// Threads: one thread at a time calls. Threads of its own, thread_count() of them (parallel.h), compress until the
// object is destroyed, with all signals blocked; they start with the second chunk. Where none can be started, and
// within in_order(), the caller compresses.
// Memory: some 550 KiB a chunk, for two chunks a thread, and a Deflate a thread.
// Errors: throws what the sink throws, and std::bad_alloc.
#pragma once

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

class Deflate;

class Gzip {
 public:
  static constexpr size_t kChunk = size_t{256} * 1024;

  // `sink` takes what is compressed, in order, on the caller's thread.
  explicit Gzip(std::function<void(std::string_view)> sink);
  ~Gzip();
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

  // Where the next kChunk bytes, or fewer, may be written; then add() says how many were. May wait for the oldest chunk
  // and give it to the sink.
  char* room();
  void add(size_t size);
  void finish();  // then nothing can be added

 private:
  enum class State : uint8_t { kFree, kWaiting, kDone };
  struct Chunk {
    State state = State::kFree;
    bool is_last = false;
    std::vector<char> text;           // the dictionary, then the data
    size_t dictionary = 0, data = 0;  // their sizes
    std::vector<char> compressed;
    size_t size = 0;  // of the compressed data
    uint32_t crc = 0;
  };

  void submit(size_t size, bool is_last);
  void start_threads();
  static void compress(Chunk& chunk, Deflate& deflate);
  void work(Deflate& deflater);
  void write_oldest();

  const std::function<void(std::string_view)> sink_;
  std::vector<Chunk> ring_;
  size_t first_ = 0, count_ = 0;  // chunks in the ring that are not written yet
  uint32_t crc_ = 0;
  uint64_t size_ = 0;
  std::vector<std::unique_ptr<Deflate>> deflaters_;  // the first is the caller's, the others the threads'
  std::vector<std::thread> threads_;
  bool may_start_ = true;  // they are started once
  std::mutex lock_;        // for what follows, and for the chunks' states
  std::condition_variable has_work_, is_done_;
  size_t next_ = 0, waiting_ = 0;  // chunks that no thread has taken
  bool stops_ = false;
};

}  // namespace torchprof::formats
