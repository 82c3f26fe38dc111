// The bytes of a file, decompressed if it is a gzip file.
//
// A file of a few megabytes may decompress to a text of any length. So one value in it (a string, a number) may have at
// most kLongestValue bytes; in real traces it has a few kilobytes. Packets have a limit of their own (read_packets).
//
// Errors are thrown as Error: "cannot read the trace FILE: cause". One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

struct gzFile_s;

namespace torchprof::formats {

class ByteStream {
 public:
  static constexpr size_t kLongestValue = size_t{64} << 20;

  // `what` it is, for errors.
  explicit ByteStream(const std::filesystem::path& path, const char* what = "trace");

  int get() {
    if (at_ == size_ && !fill()) return -1;
    return static_cast<unsigned char>(buffer_[at_++]);
  }
  // The first bytes of the file, as many as were read at once. Before get().
  std::string_view front() {
    if (size_ == 0) fill();
    return {buffer_.data(), size_};
  }
  // The bytes that were read and not taken yet, or else the next block; empty at the end. They count as taken, and stay
  // valid until the next call.
  std::string_view take_block() {
    if (at_ == size_ && !fill()) return {};
    if ((in_value_ += size_ - at_) > kLongestValue) fail_too_long();
    return std::string_view(buffer_.data(), size_).substr(std::exchange(at_, size_));
  }
  // The parser has seen the end of a value: what comes next is another one.
  void value_ends() { in_value_ = 0; }
  // `size` bytes, or as many as there are.
  std::string take(size_t size);
  bool is_compressed() const;  // after front()
  // Reads what follows the document, where the parser stops: a gzip file that is cut off there is an error, too.
  void drain() {
    while (fill()) {
    }
  }
  [[noreturn]] void fail(const std::string& why) const;

 private:
  bool fill();
  [[noreturn]] void fail_too_long() const;

  struct Close {
    void operator()(gzFile_s* file) const;
  };
  std::filesystem::path path_;
  const char* what_;
  std::unique_ptr<gzFile_s, Close> file_;
  std::array<char, size_t{64} * 1024> buffer_;
  size_t at_ = 0;
  size_t size_ = 0;
  size_t in_value_ = 0;  // bytes in blocks since the last value_ends()
};

}  // namespace torchprof::formats
