// A file that appears complete or not at all.
//
// Bytes go to a new file in the same directory, NAME.torchprof-PID.tmp, which commit() renames to NAME. A writer that
// fails (full disk, no permission) or is destroyed before commit() removes the temporary and leaves NAME as it was; one
// that is killed leaves a name that is nobody else's (is_temporary()). Names that end in ".gz" are compressed, by
// several threads: one gzip member (formats/io/gzip.h). What exists and is no file (/dev/stdout, a pipe) is written to as
// it is; a FIFO that nobody reads is waited for, but not for long. Errors are thrown as Error with the name and the
// cause. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace torchprof::formats {

class Gzip;

// Of that name. kKept: then it is an Error. kOwn: a file is replaced, and what is none is an Error: nobody asked for
// it.
enum class Existing { kReplaced, kKept, kOwn };

class Output {
 public:
  explicit Output(const std::filesystem::path& file, Existing existing = Existing::kReplaced);
  explicit Output(std::string& memory);  // uncompressed, appended to `memory`; commit() brings the last of it
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // Room for `bytes` (at most kMaxReserve) at the returned place; advance() says how many were used. The way of the hot
  // loops.
  static constexpr size_t kMaxReserve = size_t{64} * 1024;
  char* reserve(size_t bytes) {
    if (static_cast<size_t>(end_ - at_) < bytes) [[unlikely]]
      flush();
    return at_;
  }
  void advance(char* to) { at_ = to; }
  void write(std::string_view text);

  // For what insists on writing a file by its name: the temporary one, empty, which commit() renames; nothing is given
  // to write() then. Empty where there is none: memory, a pipe, a compressed file.
  std::filesystem::path own_file() const { return gzip_ || temporary_ == file_ ? std::filesystem::path{} : temporary_; }

  void commit();
  const std::filesystem::path& file() const { return file_; }  // empty for memory
  // Where the bytes of `file` go while this process writes it.
  static std::filesystem::path temporary_of(const std::filesystem::path& file);
  static bool is_temporary(std::string_view name);  // of any process
  static int writer_of(std::string_view name);      // its process id; 0 if it is no temporary
  // Bytes given to write() so far, before compression; and on the disk (complete after commit()).
  uint64_t bytes_in() const { return flushed_ + static_cast<uint64_t>(at_ - buffer_.data()); }
  uint64_t bytes_out() const { return written_; }

 private:
  void flush();
  void sink(const char* data, size_t size);
  void write_all(const char* data, size_t size);
  [[noreturn]] void fail(const std::string& what, int error);
  [[noreturn]] void fail_for_existing();
  void discard() noexcept;
  void remove_temporary() noexcept;

  std::filesystem::path file_;
  std::filesystem::path temporary_;
  Existing existing_ = Existing::kReplaced;
  std::string* memory_ = nullptr;
  int fd_ = -1;
  std::unique_ptr<Gzip> gzip_;
  std::vector<char> buffer_;
  char* at_ = nullptr;
  char* end_ = nullptr;
  uint64_t flushed_ = 0;
  uint64_t written_ = 0;
};

}  // namespace torchprof::formats
