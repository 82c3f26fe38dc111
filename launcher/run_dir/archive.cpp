#include "launcher/run_dir/archive.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/io/byte_stream.h"
#include "formats/io/error.h"
#include "formats/io/text.h"
#include "launcher/run_dir/our_files.h"
#include "tracer/spool/run_files.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;
using namespace std::string_view_literals;

constexpr size_t kTarBlock = 512;
constexpr size_t kMostOfNames = size_t{1} << 20;  // bytes of a long name or of a pax header; real ones have hundreds
constexpr size_t kMostParts = 64;                 // of a name
constexpr size_t kMostFiles = 100'000;            // with directories; a run has a few for each process
constexpr size_t kMostBehind = size_t{16} << 20;  // bytes that may follow the archive's end; tar fills up to 10 KiB

// Where its fields lie.
struct TarField {
  size_t at, size;
};
constexpr TarField kTarName{0, 100}, kTarSize{124, 12}, kTarSum{148, 8}, kTarMagic{257, 6}, kTarPrefix{345, 155};
constexpr size_t kTarKind = 156;
// Of GNU's sparse files: whether another block with pieces follows the head, or such a block.
constexpr size_t kSparseGoesOn = 482, kPiecesGoOn = 504;

// Up to the first NUL.
std::string_view text_at(std::string_view head, TarField field) {
  const std::string_view whole = head.substr(field.at, field.size);
  return whole.substr(0, whole.find('\0'));
}

// Octal digits, or with the top bit set a number of base 256; none: it is neither, or no size that a file can have.
std::optional<uint64_t> number_at(std::string_view head, TarField field) {
  const std::string_view whole = head.substr(field.at, field.size);
  uint64_t number = 0;
  if (static_cast<unsigned char>(whole.front()) == 0x80) {
    for (size_t i = 1; i < whole.size(); ++i) {
      if (number >> 55 != 0) return std::nullopt;
      number = number << 8 | static_cast<unsigned char>(whole[i]);
    }
    return number;
  }
  std::string_view digits = text_at(head, field);
  while (digits.starts_with(' ')) digits.remove_prefix(1);
  while (digits.ends_with(' ')) digits.remove_suffix(1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number, 8);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

// Whether it is the head of an entry: it has the magic number, as all but tar's label have, and the sum of its bytes.
bool is_tar_head(std::string_view head) {
  if (head.size() < kTarBlock) return false;
  if (!head.substr(kTarMagic.at).starts_with("ustar") && head[kTarKind] != 'V') return false;
  uint64_t sum = 0;
  for (size_t i = 0; i < kTarBlock; ++i)
    sum += i - kTarSum.at < kTarSum.size ? ' ' : static_cast<unsigned char>(head[i]);
  return number_at(head, kTarSum) == sum;
}

bool is_zero(std::string_view data) {
  return std::ranges::all_of(data, [](char c) { return c == 0; });
}

// The parts of a name; none: the name leads out of the archive, or is no name.
std::optional<std::vector<std::string>> parts_of(std::string_view name) {
  std::vector<std::string> parts;
  if (name.starts_with('/') || name.find('\0') != name.npos) return std::nullopt;
  while (!name.empty()) {
    const size_t end = std::min(name.find('/'), name.size());
    const std::string_view part = name.substr(0, end);
    name.remove_prefix(std::min(end + 1, name.size()));
    if (part.empty() || part == ".") continue;
    if (part == "..") return std::nullopt;
    parts.emplace_back(part);
  }
  return parts;
}

bool is_too_long(const std::vector<std::string>& parts) {
  constexpr size_t kLongestPart = 255;
  return parts.size() > kMostParts ||
         std::ranges::any_of(parts, [](const std::string& part) { return part.size() > kLongestPart; });
}

bool is_wanted(const std::vector<std::string>& parts) {
  const std::string& name = parts.back();
  return name == "run.json" || name.ends_with(kSpoolEnd) || is_output_name(name) ||
         (parts.size() > 1 && parts[parts.size() - 2] == "spool");
}

// A file that is written from its beginning to its end. Blocks of zeros take no room.
class NewFile {
 public:
  explicit NewFile(const fs::path& path) {
    unlink(path.c_str());  // the same name twice: the later one holds, as for tar
    fd_ = Descriptor(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (fd_.get() < 0) fail();
  }
  void write(std::string_view data) {
    constexpr size_t kPage = 4096;
    while (!data.empty()) {
      const std::string_view page = data.substr(0, kPage);
      data.remove_prefix(page.size());
      if (!is_zero(page)) put(page);
      size_ += page.size();
    }
  }
  void end() {
    if (ftruncate(fd_.get(), static_cast<off_t>(size_)) != 0) fail();
  }

 private:
  [[noreturn]] static void fail() { throw Error(std::strerror(errno)); }
  void put(std::string_view data) {
    for (uint64_t at = size_; !data.empty();) {
      const ssize_t written = pwrite(fd_.get(), data.data(), data.size(), static_cast<off_t>(at));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) fail();
      data.remove_prefix(static_cast<size_t>(written));
      at += static_cast<uint64_t>(written);
    }
  }
  Descriptor fd_;
  uint64_t size_ = 0;
};

// The archive ends, or goes on with what is no archive: what comes before can be read.
struct ArchiveDamage {
  std::string what;
};

class Unpacker {
 public:
  Unpacker(const fs::path& archive, const fs::path& directory)
      : archive_(archive), in_(archive, "archive"), directory_(directory) {
    struct statvfs room {};
    if (statvfs(directory.c_str(), &room) == 0) room_ = uint64_t{room.f_bavail} * room.f_frsize;
  }

  // What is wrong with it; empty: nothing.
  std::string run() {
    try {
      while (entry()) {
      }
      return {};
    } catch (const ArchiveDamage& damage) {
      return damage.what;
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const { throw Error(archive_.string() + ": " + why); }

  // As many bytes as there are; fewer than asked for only at the end.
  std::string take(size_t size) {
    try {
      return in_.take(size);
    } catch (const Error& error) {  // what gzip says
      throw ArchiveDamage{error.what()};
    }
  }

  // Gives each piece of the next `size` bytes, and passes over what fills their last block.
  template <class Use>
  void content(const std::string& name, uint64_t size, Use use) {
    constexpr uint64_t kPiece = uint64_t{256} << 10;
    for (uint64_t at = 0; at < size;) {
      const std::string piece = take(static_cast<size_t>(std::min(kPiece, size - at)));
      if (piece.empty()) throw ArchiveDamage{archive_.string() + ": is cut off within " + name};
      use(std::string_view(piece));
      at += piece.size();
    }
    take(static_cast<size_t>((kTarBlock - size % kTarBlock) % kTarBlock));
  }

  std::string text(const std::string& name, uint64_t size) {
    if (size > kMostOfNames) throw ArchiveDamage{archive_.string() + ": has a name of " + formats::bytes_text(size)};
    std::string out;
    content(name, size, [&out](std::string_view piece) { out += piece; });
    return out;
  }

  // "LENGTH KEY=VALUE\n", again and again: https://pubs.opengroup.org/onlinepubs/9699919799/utilities/pax.html
  void take_pax(std::string_view records) {
    while (!records.empty()) {
      size_t length = 0;
      const auto [end, error] = std::from_chars(records.data(), records.data() + records.size(), length);
      const auto digits = static_cast<size_t>(end - records.data());
      if (error != std::errc{} || length <= digits + 1 || length > records.size())
        throw ArchiveDamage{archive_.string() + ": is damaged: a header is no pax"};
      const std::string_view record = records.substr(digits + 1, length - digits - 2);
      records.remove_prefix(length);
      const size_t equals = record.find('=');
      if (equals == record.npos) continue;
      const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
      if (key == "path") name_ = value;
      if (key == "size") {
        uint64_t size = 0;
        const auto [stop, wrong] = std::from_chars(value.data(), value.data() + value.size(), size);
        if (wrong != std::errc{} || stop != value.data() + value.size())
          throw ArchiveDamage{archive_.string() + ": is damaged: a size is no number"};
        size_ = size;
      }
      is_sparse_ = is_sparse_ || key.starts_with("GNU.sparse.");
    }
  }

  // Reads an entry; false: the archive has ended.
  bool entry() {
    const std::string head = take(kTarBlock);
    if (head.empty() || is_zero(head)) {
      for (size_t behind = 0; behind < kMostBehind && !take(kTarBlock).empty();)
        behind += kTarBlock;  // gzip's sum, too
      if (head.empty()) throw ArchiveDamage{archive_.string() + ": has no end, as if it were cut off"};
      return false;
    }
    if (head.size() < kTarBlock) throw ArchiveDamage{archive_.string() + ": is cut off"};
    const char kind = head[kTarKind];
    std::optional<uint64_t> size = kind == 'V' ? 0 : number_at(head, kTarSize);
    if (!is_tar_head(head) || !size) throw ArchiveDamage{archive_.string() + ": is damaged"};
    if (kind == 'x' || kind == 'L') {
      const std::string header = text("a header", *size);
      kind == 'x' ? take_pax(header) : void(name_ = header.substr(0, header.find('\0')));
      return true;
    }
    std::string name(text_at(head, kTarName));
    const bool is_posix = text_at(head, kTarMagic).size() == std::strlen("ustar");  // GNU's has spaces, and no prefix
    if (const std::string_view prefix = text_at(head, kTarPrefix); is_posix && !prefix.empty())
      name = std::string(prefix) + "/" + name;
    if (kind == 'S' && head[kSparseGoesOn] != 0)
      for (std::string pieces = take(kTarBlock); pieces.size() == kTarBlock && pieces[kPiecesGoOn] != 0;)
        pieces = take(kTarBlock);
    if (kind == 'g' || kind == 'K' || kind == 'V') {  // nothing that is needed
      content(name, *size, [](std::string_view) {});
      return true;
    }
    if (name_) name = *std::exchange(name_, std::nullopt);
    if (size_) size = *std::exchange(size_, std::nullopt);
    take_file(formats::printable(name), name, kind, *size);
    is_sparse_ = false;
    return true;
  }

  void take_file(const std::string& shown, const std::string& name, char kind, uint64_t size) {
    const auto parts = parts_of(name);
    if (!parts) refuse("has a name that leads out of it, so it is not read: " + shown);
    const bool is_file = kind == '0' || kind == '\0' || kind == '7';
    const bool is_needed = !parts->empty() && is_wanted(*parts);
    if (is_needed && is_too_long(*parts)) refuse("has a name that is too long: " + shown);
    if (is_needed && kind != '5' && (!is_file || is_sparse_))
      refuse((is_file || kind == 'S' ? "is packed as a sparse file: "
                                     : "has a link or a device in the place of a file: ") +
             shown + (is_file || kind == 'S' ? "; pack it without tar -S, or unpack it by hand" : ""));
    if (!is_needed || !is_file) {
      if (kind >= '1' && kind <= '6') size = 0;  // links, devices and directories have no content, whatever is said
      content(shown, size, [](std::string_view) {});
      return;
    }
    bytes_ += std::min(size, UINT64_MAX - bytes_);
    if (bytes_ > room_)
      refuse("needs more than the " + formats::bytes_text(room_) + " that are free in " +
             directory_.parent_path().string() + "; TMPDIR=DIRECTORY names another place");
    fs::path path = directory_;
    for (const std::string& part : *parts) path /= part;
    if (path.parent_path() != last_directory_) files_ += parts->size() - 1;
    last_directory_ = path.parent_path();
    if (++files_ > kMostFiles) refuse("has more than " + std::to_string(kMostFiles) + " files: that is no run");
    try {
      fs::create_directories(path.parent_path());
      NewFile file(path);
      try {
        content(shown, size, [&file](std::string_view piece) { file.write(piece); });
      } catch (const ArchiveDamage&) {
        file.end();
        throw;
      }
      file.end();
    } catch (const fs::filesystem_error& error) {
      refuse(shown + ": " + error.code().message());
    } catch (const Error& error) {
      refuse(shown + ": cannot be written in " + directory_.parent_path().string() + ": " + error.what());
    }
  }

  const fs::path archive_;
  formats::ByteStream in_;
  const fs::path directory_;
  uint64_t room_ = UINT64_MAX, bytes_ = 0;
  size_t files_ = 0;  // and directories, at most
  fs::path last_directory_{};
  std::optional<std::string> name_;  // of the next entry, where its head has no room for it
  std::optional<uint64_t> size_;
  bool is_sparse_ = false;
};

bool is_run(const fs::path& path) { return fs::exists(path / "run.json") || fs::is_directory(path / "spool"); }

// The directory with the run: the outermost that has a run.json, a spool/, or a file.
fs::path run_in(const fs::path& archive, fs::path at) {
  while (!is_run(at)) {
    std::vector<fs::path> directories;
    bool has_file = false;
    for (const fs::directory_entry& entry : fs::directory_iterator(at)) {
      if (entry.is_directory())
        directories.push_back(entry.path());
      else
        has_file = true;
    }
    if (has_file) break;
    if (directories.empty()) throw Error(archive.string() + ": is an archive that holds no run of torchprof");
    if (directories.size() > 1) {
      std::ranges::sort(directories);
      throw Error(archive.string() + ": holds " + std::to_string(directories.size()) + " runs, " +
                  formats::printable(directories[0].filename().string()) + ", " +
                  formats::printable(directories[1].filename().string()) + (directories.size() > 2 ? "..." : "") +
                  ": unpack it and name one of them");
    }
    at = directories.front();
  }
  return at;
}

}  // namespace

bool is_archive(const fs::path& file) {
  formats::ByteStream stream(file);
  return is_tar_head(stream.front());
}

std::string other_packing(const fs::path& file) {
  struct Packing {
    std::string_view magic, name, tool;
  };
  static constexpr std::array kPackings = {
      Packing{"\x28\xb5\x2f\xfd"sv, "zstd", "zstd -d"},
      Packing{"\xfd"
              "7zXZ\0"sv,
              "xz", "xz -d"},
      Packing{"BZh"sv, "bzip2", "bzip2 -d"},
      Packing{"PK\x03\x04"sv, "zip", "unzip"},
  };
  formats::ByteStream stream(file);
  for (const Packing& packing : kPackings)
    if (stream.front().starts_with(packing.magic))
      return "is packed by " + std::string(packing.name) + ", which is not read: `" + std::string(packing.tool) +
             "` first";
  return {};
}

fs::path unpack(const fs::path& archive, const fs::path& directory, std::string& damage) {
  damage = Unpacker(archive, directory).run();
  try {
    return run_in(archive, directory);
  } catch (const Error&) {
    if (damage.empty()) throw;
    throw Error(damage + ", and nothing of a run comes before");
  } catch (const fs::filesystem_error& error) {
    throw Error(archive.string() + ": " + error.code().message());
  }
}

}  // namespace torchprof::launcher
