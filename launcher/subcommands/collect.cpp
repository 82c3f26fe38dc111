// torchprof collect: the records of a run as a tar file, while they are written or afterwards.
//
// A spool is copied as it is at one moment (spool_copy.h), and reads like the spool of a process that was killed then.
// What a window has when it closes is whole before it counts as closed.
//
// Format: ustar, POSIX.1-1988; sizes from 8 GiB on as GNU tar has them (base 256).
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "formats/io/error.h"
#include "formats/io/gzip.h"
#include "formats/io/open_file.h"
#include "formats/io/output.h"
#include "formats/io/text.h"
#include "launcher/run_dir/archive.h"
#include "launcher/run_dir/input.h"
#include "launcher/run_dir/our_files.h"
#include "launcher/run_dir/run_dir.h"
#include "launcher/run_dir/writers.h"
#include "launcher/subcommands/control.h"
#include "launcher/subcommands/spool_copy.h"
#include "launcher/subcommands/subcommands.h"
#include "launcher/terminal/say.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;
using Sink = std::function<void(std::string_view)>;

class Tar {
 public:
  static constexpr size_t kBlock = 512;
  explicit Tar(Sink sink) : sink_(std::move(sink)) {}

  void directory(const std::string& name) { head("", name, '5', 0, 0755, time(nullptr)); }
  void file(const std::string& directory, const std::string& name, time_t time, SpoolCopy& content) {
    head(directory, name, '0', content.size(), 0644, time);
    content.write(sink_);
    if (const uint64_t rest = content.size() % kBlock; rest != 0) sink_(std::string(kBlock - rest, '\0'));
  }
  void end() { sink_(std::string(2 * kBlock, '\0')); }

 private:
  // As many digits as there is room for, and a NUL.
  template <size_t kSize>
  static void octal(char (&to)[kSize], uint64_t number) {
    to[kSize - 1] = 0;
    for (size_t i = kSize - 1; i-- > 0; number >>= 3) to[i] = static_cast<char>('0' + number % 8);
  }

  void head(const std::string& directory, const std::string& name, char kind, uint64_t size, unsigned mode,
            time_t time) {
    struct Head {
      char name[100], mode[8], owner[8], group[8], size[12], time[12], sum[8], kind, link[100], magic[6], version[2],
          user[32], users[32], major[8], minor[8], prefix[155], rest[12];
    };
    static_assert(sizeof(Head) == kBlock);
    Head h{};
    if (name.size() > sizeof(h.name) || directory.size() > sizeof(h.prefix))
      throw Error(directory + "/" + name + ": the name is too long for a tar file");
    name.copy(h.name, sizeof(h.name));
    directory.copy(h.prefix, sizeof(h.prefix));
    octal(h.mode, mode);
    octal(h.owner, 0);
    octal(h.group, 0);
    octal(h.time, static_cast<uint64_t>(std::max<time_t>(time, 0)));
    if (size < uint64_t{1} << 33) {
      octal(h.size, size);
    } else {
      h.size[0] = static_cast<char>(0x80);
      for (size_t i = 0; i < 8; ++i) h.size[sizeof(h.size) - 1 - i] = static_cast<char>(size >> (8 * i));
    }
    h.kind = kind;
    std::memcpy(h.magic, "ustar", sizeof(h.magic));
    std::memcpy(h.version, "00", sizeof(h.version));
    std::memset(h.sum, ' ', sizeof(h.sum));
    uint64_t sum = 0;
    for (const char c : std::string_view(reinterpret_cast<const char*>(&h), sizeof(h)))
      sum += static_cast<unsigned char>(c);
    char digits[sizeof(h.sum) - 1];
    octal(digits, sum);
    std::memcpy(h.sum, digits, sizeof(digits));  // with its NUL, then the space
    sink_({reinterpret_cast<const char*>(&h), sizeof(h)});
  }

  Sink sink_;
};

// "process 12, process 13": those that record just now, as far as they answer.
std::string recording_now(const std::vector<fs::path>& spools) {
  std::vector<ControlRequest> requests;
  Writers writers;
  for (const fs::path& spool : spools) {
    const uint32_t pid = writers.writer_of(spool);
    if (pid != 0 || ControlRequest::is_reached(spool)) requests.emplace_back(pid, "progress", spool);
  }
  std::string out;
  for (ControlRequest& request : requests)
    if (request.wait().find(" open ") != std::string::npos)
      out += (out.empty() ? "" : ", ") + ("process " + std::to_string(request.pid()));
  return out;
}

struct Packed {
  size_t processes = 0;
  uint64_t bytes = 0;
  uint64_t dropped = 0;  // of records that were written over while they were copied
};

// RUN/run.json and RUN/spool: what the library writes, and nothing else that may lie there.
Packed pack(const fs::path& run, const std::string& name, Tar& tar) {
  Packed packed;
  const Descriptor directory = open_directory(AT_FDCWD, run);
  const Descriptor spools = open_directory(directory.get(), "spool");
  if (spools.get() < 0 && errno != ENOENT && errno != ENOTDIR) throw Error(run.string() + ": " + std::strerror(errno));
  if (spools.get() < 0) throw Error(run.string() + ": has no spool/: its records are gone, or it is no run directory");
  const auto add = [&](int from, const fs::path& directory_of_it, const std::string& where, const std::string& file) {
    const Descriptor in(openat(from, file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat status {};
    const std::string path = directory_of_it / file;
    if (in.get() < 0 || fstat(in.get(), &status) != 0) throw Error(path + ": " + std::strerror(errno));
    SpoolCopy copy(in.get(), path);
    tar.file(where, file, status.st_mtime, copy);
    packed.bytes += copy.size();
    packed.dropped += copy.dropped_bytes();
  };
  tar.directory(name + "/");
  tar.directory(name + "/spool/");
  if (is_regular(directory.get(), "run.json")) add(directory.get(), run, name, "run.json");
  for (const std::string& file : names_in(spools.get())) {
    if (!is_regular(spools.get(), file) || !is_ours_in_spool(spools.get(), file)) continue;
    add(spools.get(), run / "spool", name + "/spool", file);
    if (file.ends_with(kSpoolEnd)) ++packed.processes;
  }
  return packed;
}

void write_to_stdout(std::string_view data) {
  while (!data.empty()) {
    const ssize_t written = write(STDOUT_FILENO, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw Error(std::string("stdout cannot be written: ") + std::strerror(errno));
    data.remove_prefix(static_cast<size_t>(written));
  }
}

// Into the file, or compressed to stdout.
Packed write_tar(const fs::path& run, const std::string& name, const fs::path& output) {
  Packed packed;
  if (output != kStdout) {
    formats::Output out(output);
    Tar tar([&out](std::string_view data) {
      for (; !data.empty(); data.remove_prefix(std::min(data.size(), formats::Output::kMaxReserve)))
        out.write(data.substr(0, formats::Output::kMaxReserve));
    });
    packed = pack(run, name, tar);
    tar.end();
    out.commit();
    return packed;
  }
  if (isatty(STDOUT_FILENO)) throw Error("collect: stdout is a terminal: `> FILE.tar.gz`, or -o FILE.tar.gz");
  formats::Gzip gzip(write_to_stdout);
  Tar tar([&gzip](std::string_view data) {
    while (!data.empty()) {
      const size_t size = std::min(data.size(), formats::Gzip::kChunk);
      std::memcpy(gzip.room(), data.data(), size);
      gzip.add(size);
      data.remove_prefix(size);
    }
  });
  packed = pack(run, name, tar);
  tar.end();
  gzip.finish();
  return packed;
}

}  // namespace

int collect(const Arguments& arguments) {
  const CollectOptions options = parse_collect(arguments);
  const fs::path run = without_launcher(options.run);
  std::error_code error;
  if (!fs::is_directory(run, error))
    throw Error(run.string() + (fs::is_regular_file(run, error) && is_archive(run)
                                    ? ": is the archive of a run: `torchprof report` and `export` read it as it is"
                                    : ": is not a run directory"));
  std::string name = fs::canonical(run, error).filename();
  constexpr size_t kMostOfName = 90;
  name.resize(formats::front_of(name, kMostOfName).size());
  if (name.empty() || name == "/") name = "run";
  const fs::path output = options.output.empty() ? fs::path(name + ".tar.gz") : options.output;
  const fs::path spools = run / "spool";
  if (fs::equivalent(output, run / "run.json", error) ||
      fs::equivalent(formats::absolute_path(output).parent_path(), spools, error))
    throw Error(output.string() + ": is a place of the run that is read; choose another with -o");
  const std::string recording = fs::is_directory(spools, error) ? recording_now(formats::find_spools(spools)) : "";
  const Packed packed = write_tar(run, name, output);
  say(std::to_string(packed.processes) + (packed.processes == 1 ? " process, " : " processes, ") +
      formats::bytes_text(packed.bytes) + " of records" +
      (output == kStdout ? "" : ": " + output.string() + ", which holds " + name + "/"));
  if (!recording.empty()) say("just being recorded: " + recording + "; of that window there is what it had");
  if (packed.dropped != 0)
    say(formats::bytes_text(packed.dropped) +
        " of the oldest records were written over while they were copied, and are missing");
  if (packed.processes == 0) complain("no process has recorded anything there");
  return packed.processes == 0 ? 1 : 0;
}

}  // namespace torchprof::launcher
