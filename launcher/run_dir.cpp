#include "launcher/run_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "formats/error.h"
#include "formats/format.h"
#include "formats/open_file.h"
#include "formats/output.h"
#include "formats/trace.h"
#include "launcher/run_json.h"
#include "launcher/say.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// An empty object where it cannot be read, or is nested as nothing that we write: what copies and writes it calls
// itself.
Json read_json(const fs::path& file, std::string* misfit = nullptr) {
  constexpr int kDeepest = 64;
  bool is_too_deep = false;
  const auto is_wanted = [&is_too_deep](int depth, Json::parse_event_t, const Json&) {
    is_too_deep = is_too_deep || depth > kDeepest;
    return !is_too_deep;
  };
  Json info = Json::parse(formats::read_file(file), is_wanted, /*allow_exceptions=*/false);
  if (is_too_deep || !info.is_object()) info = Json::object();
  const std::string first = drop_misfits(info);
  if (misfit != nullptr) *misfit = first;
  return info;
}

// Without a launcher (`run --dry-run`) the library makes the directory alone: spools and no run.json.
bool is_ours(const fs::path& path) {
  std::error_code error;
  return read_json(path / "run.json").contains("torchprof") ||
         (!fs::exists(path / "run.json", error) && fs::is_directory(path / "spool", error));
}

// Takes away what an earlier run wrote, by the names that its run.json lists: nothing that somebody else put beside it.
void remove_earlier_run(const fs::path& path) {
  const Json info = read_json(path / "run.json");
  std::error_code error;
  if (const auto files = info.find("files"); files != info.end() && files->is_array())
    for (const Json& file : *files)
      if (file.is_string()) fs::remove(path / fs::path(file.get<std::string>()).filename(), error);
  fs::remove_all(path / "spool", error);
  fs::remove(path / "run.json", error);
}

// For nobody else to read: commands, paths and shapes are their user's business. False: it is there already, or
// `error`.
bool make_private_directory(const fs::path& path, std::error_code& error) {
  const bool is_new = mkdir(path.c_str(), 0700) == 0;
  const int code = is_new ? 0 : errno;
  std::error_code ignored;
  const bool is_there = is_new || (code == EEXIST && fs::is_directory(path, ignored));
  error = is_there ? std::error_code{} : std::error_code(code, std::generic_category());
  return is_new;
}

// A directory that was there before us: whoever else may write to it could change what is recorded, and lead what is
// written elsewhere.
void make_private(int fd, const fs::path& path) {
  constexpr mode_t kOthersRead = S_IRWXG | S_IRWXO, kOthersWrite = S_IWGRP | S_IWOTH;
  const std::string way_out = "; name a directory that does not exist yet, as -o " + (path / "run").string();
  struct stat status {
  }, above{};
  if (fstat(fd, &status) != 0 || fstatat(fd, "..", &above, 0) != 0)
    throw Error(path.string() + ": " + std::strerror(errno));
  // Root writes into what another user mounted into its container, but not into what anybody may have left in /tmp.
  const bool is_trusted = geteuid() == 0 && (above.st_mode & kOthersWrite) == 0;
  if (status.st_uid != geteuid() && !is_trusted)
    throw Error(path.string() + ": belongs to another user (uid " + std::to_string(status.st_uid) + ")" + way_out);
  if ((status.st_mode & kOthersRead) == 0) return;
  // Where the file system has no modes, those who may read it still may.
  if (fchmod(fd, S_IRWXU) != 0 && (status.st_mode & kOthersWrite) != 0)
    throw Error(path.string() + ": others may write to it, and it cannot be made private (" + std::strerror(errno) +
                ")" + way_out);
}

}  // namespace

fs::path output_path(const Config& config) {
  char expanded[PATH_MAX];
  ErrorText error;
  if (!expand_output(config.output, expanded, sizeof(expanded), error)) throw Error(error.text);
  std::error_code code;
  fs::path path = fs::absolute(expanded, code).lexically_normal();
  if (code) throw Error("output '" + std::string(expanded) + "': the working directory: " + code.message());
  if (!path.has_filename()) path = path.parent_path();  // "name/"
  return path;
}

RunDir::RunDir(RunDir&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      is_live_(other.is_live_),
      was_replaced_(other.was_replaced_),
      made_here_(other.made_here_) {}

RunDir::~RunDir() {
  if (fd_ >= 0) close(fd_);
}

bool RunDir::lock() {
  fd_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd_ < 0) throw Error(path_.string() + ": " + std::strerror(errno));
  // A file system without locks: go on without.
  return flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

RunDir RunDir::create(const fs::path& path) {
  RunDir dir(path);
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status)) {
    if (!fs::is_directory(status))
      throw Error(path.string() + ": exists and is not a directory; choose another with -o");
    const bool is_empty = fs::is_empty(path, error);
    if (error) throw Error(path.string() + ": " + error.message());
    if (!is_empty && !is_ours(path))
      throw Error(path.string() + ": is not empty and no run directory of torchprof; choose another with -o");
    if (!dir.lock()) throw Error(path.string() + ": a torchprof run is writing into it; choose another with -o");
    make_private(dir.fd_, path);
    if (!is_empty) {
      if (!dir.spools().empty() && !read_json(path / "run.json").value("exported", false))
        throw Error(path.string() + ": holds an earlier run that was not exported (`torchprof export " + path.string() +
                    "`); choose another with -o");
      remove_earlier_run(path);
      dir.was_replaced_ = true;
    }
  } else {
    fs::create_directories(path.parent_path(), error);
    if (!error) dir.made_here_ = make_private_directory(path, error);
    if (error) throw Error(path.string() + ": cannot make the run directory: " + error.message());
    if (!dir.lock()) throw Error(path.string() + ": a torchprof run is writing into it; choose another with -o");
  }
  make_private_directory(dir.spool(), error);
  if (error) {
    dir.remove_if_unused();
    throw Error(path.string() + ": cannot write into the run directory: " + error.message());
  }
  return dir;
}

RunDir RunDir::open(const fs::path& path) {
  if (!is_ours(path)) throw Error(path.string() + ": is no run directory of torchprof: run.json is not ours");
  RunDir dir(path);
  dir.is_live_ = is_locked(path);
  return dir;
}

bool is_locked(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool locked = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(fd);
  return locked;
}

std::vector<fs::path> RunDir::spools() const {
  std::error_code error;
  return fs::is_directory(spool(), error) ? formats::find_spools(spool()) : std::vector<fs::path>{};
}

Json RunDir::read_info() const {
  std::string misfit;
  Json info = read_json(path_ / "run.json", &misfit);
  if (!misfit.empty()) complain((path_ / "run.json").string() + ": " + misfit + ": not read");
  return info;
}

void RunDir::write_info(const Json& info) const {
  formats::Output out(path_ / "run.json");
  // Commands and paths are bytes, JSON is UTF-8.
  out.write(info.dump(2, ' ', false, Json::error_handler_t::replace));
  out.write("\n");
  out.commit();
}

std::vector<RunDir::Untraced> RunDir::untraced() const {
  std::vector<Untraced> out;
  std::istringstream in(formats::read_file(spool() / "untraced"));
  for (std::string line; std::getline(in, line);) {
    // "PID PATH: REASON"; a path may hold what separates, a reason does not.
    const size_t path = line.find(' ') + 1, end = line.rfind(": ");
    if (path == 0 || end == std::string::npos || end < path) continue;
    const std::string program = line.substr(path, end - path);
    const auto known = std::ranges::find(out, program, &Untraced::program);
    if (known != out.end())
      ++known->times;
    else
      out.push_back({program, line.substr(end + 2), 1});
  }
  return out;
}

void RunDir::remove_spools() const noexcept {
  std::error_code error;
  fs::remove_all(spool(), error);
}

void RunDir::remove_temporaries() const noexcept {
  const auto is_ours_to_remove = [](const std::string& name) {
    return std::ranges::any_of(formats::all_formats(), [&](const formats::Format& format) {
      return name.ends_with(std::string(format.extension) + ".tmp");
    });
  };
  std::error_code error;
  for (fs::directory_iterator at(path_, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (is_ours_to_remove(at->path().filename())) fs::remove(at->path(), ignored);
  }
}

void RunDir::remove_if_unused() const noexcept {
  std::error_code error;
  fs::remove(path_ / "run.json", error);
  fs::remove(spool(), error);                // only if empty
  if (made_here_) fs::remove(path_, error);  // only if empty
}

}  // namespace torchprof::launcher
