// A file that appears complete or not at all.
//
// Bytes go to a new file in the same directory, NAME.torchprof-PID.tmp, which commit() renames to NAME. A writer that
// fails (full disk, no permission) or is destroyed before commit() removes this temporary file and leaves NAME as it
// was. A writer that is killed leaves the temporary file, whose name only we use (is_temporary()).
// A name that ends in ".gz" is compressed by several threads to one gzip member (gzip.h). Something that exists and is
// not a file (/dev/stdout, a pipe) is written to directly; the reader of a FIFO is waited for, but not for long.
// Errors are thrown as Error with the name and the cause. One thread at a time.
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

// What to do if the name exists. kReplaced: a file is replaced, anything else is written to. kKept: Error. kOwn: a file
// is replaced, anything else is an Error, because nobody named it.
enum class Existing { kReplaced, kKept, kOwn };

class Output {
 public:
  explicit Output(const std::filesystem::path& file, Existing existing = Existing::kReplaced);
  explicit Output(std::string& memory);  // uncompressed, appended to `memory`; complete after commit()
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // For hot loops: room for `bytes` (at most kMaxReserve) at the returned place; advance() says how many were used.
  static constexpr size_t kMaxReserve = size_t{64} * 1024;
  char* reserve(size_t bytes) {
    if (static_cast<size_t>(end_ - at_) < bytes) [[unlikely]]
      flush();
    return at_;
  }
  void advance(char* to) { at_ = to; }
  void write(std::string_view text);

  // For a library that writes a file by its name: the path of the temporary file, which is empty and which commit()
  // renames; write() is not called then. An empty path where there is no such file: memory, a pipe, a compressed file.
  std::filesystem::path own_file() const { return gzip_ || temporary_ == file_ ? std::filesystem::path{} : temporary_; }

  void commit();
  const std::filesystem::path& file() const { return file_; }  // empty for memory
  // Where the bytes of `file` go while this process writes it.
  static std::filesystem::path temporary_of(const std::filesystem::path& file);
  static bool is_temporary(std::string_view name);  // of any process
  static int writer_of(std::string_view name);      // its process id; 0 if it is no temporary
  // Bytes given to write() so far, before compression; and those on the disk (complete after commit()).
  uint64_t bytes_in() const { return flushed_ + static_cast<uint64_t>(at_ - begin_); }
  uint64_t bytes_out() const { return written_; }

 private:
  void flush();
  void use(char* buffer);
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
  std::vector<char> buffer_;  // empty where the bytes are compressed: they are written to where that is done
  char* begin_ = nullptr;
  char* at_ = nullptr;
  char* end_ = nullptr;
  uint64_t flushed_ = 0;
  uint64_t written_ = 0;
};

}  // namespace torchprof::formats
