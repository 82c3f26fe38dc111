// The bytes of a file, decompressed where it is gzip's, and the input iterator over them that a parser takes.
//
// Errors are thrown as Error: "cannot read the trace FILE: cause". One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>

struct gzFile_s;

namespace torchprof::formats {

class ByteStream {
 public:
  explicit ByteStream(const std::filesystem::path& path);

  int get() {
    if (at_ == size_ && !fill()) return -1;
    return static_cast<unsigned char>(buffer_[at_++]);
  }
  // The first bytes of the file, as many as were read at once. Before get().
  std::string_view front() {
    if (size_ == 0) fill();
    return {buffer_.data(), size_};
  }
  // `size` bytes, or as many as there are.
  std::string take(size_t size);
  bool is_compressed() const;  // after front()
  // All that follows the document, which the parser leaves unread: a gzip file that is cut off there is cut off as
  // well.
  void drain() {
    while (fill()) {
    }
  }
  [[noreturn]] void fail(const std::string& why) const;

 private:
  bool fill();

  struct Close {
    void operator()(gzFile_s* file) const;
  };
  std::filesystem::path path_;
  std::unique_ptr<gzFile_s, Close> file_;
  std::array<char, size_t{64} * 1024> buffer_;
  size_t at_ = 0;
  size_t size_ = 0;
};

class ByteIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  ByteIterator() = default;
  explicit ByteIterator(ByteStream& stream) : stream_(&stream) { ++*this; }
  char operator*() const { return static_cast<char>(byte_); }
  ByteIterator& operator++() {
    byte_ = stream_->get();
    return *this;
  }
  friend bool operator==(const ByteIterator& a, const ByteIterator& b) { return a.byte_ == b.byte_; }

 private:
  ByteStream* stream_ = nullptr;
  int byte_ = -1;  // -1: the end
};

}  // namespace torchprof::formats
