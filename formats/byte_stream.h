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
#include <utility>

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
  // What was read and not taken yet, or the next block; empty at the end. Its bytes are taken, and stay until the next
  // call.
  std::string_view take_block() {
    if (at_ == size_ && !fill()) return {};
    return std::string_view(buffer_.data(), size_).substr(std::exchange(at_, size_));
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
  explicit ByteIterator(ByteStream& stream) : stream_(&stream) { next_block(); }
  char operator*() const { return *at_; }
  ByteIterator& operator++() {
    if (++at_ == end_) next_block();
    return *this;
  }
  // Of the same stream, or the end.
  friend bool operator==(const ByteIterator& a, const ByteIterator& b) { return a.at_ == b.at_; }

 private:
  void next_block() {
    const std::string_view block = stream_->take_block();
    at_ = block.empty() ? nullptr : block.data();
    end_ = at_ + block.size();
  }

  ByteStream* stream_ = nullptr;
  const char* at_ = nullptr;  // null: the end
  const char* end_ = nullptr;
};

}  // namespace torchprof::formats
