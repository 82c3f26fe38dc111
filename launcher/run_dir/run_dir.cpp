#include "launcher/run_dir/run_dir.h"

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

#include "formats/io/error.h"
#include "formats/io/open_file.h"
#include "formats/io/output.h"
#include "formats/report/page.h"
#include "formats/trace/trace.h"
#include "formats/write/format.h"
#include "launcher/run_dir/run_json.h"
#include "launcher/run_dir/writers.h"
#include "launcher/terminal/say.h"
#include "tracer/config/run_directory.h"
#include "tracer/spool/reader.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr size_t kMostInfo = size_t{256} << 20;  // most bytes of run.json that are read
constexpr const char* kChoose = "; choose another with -o";
constexpr const char* kInfo = "run.json";
constexpr const char* kSpool = "spool";
constexpr const char* kEarlier = "earlier-run";
constexpr const char* kLastGood = "last-good-run";

// Gives an empty object if the text cannot be read, or is nested deeper than anything we write: copying and writing it
// are recursive. Of a newer version it gives nothing but the two versions.
Json parse_info(const std::string& text, std::string* misfit = nullptr) {
  constexpr int kDeepest = 64;
  bool is_too_deep = false;
  const auto is_wanted = [&is_too_deep](int depth, Json::parse_event_t, const Json&) {
    is_too_deep = is_too_deep || depth > kDeepest;
    return !is_too_deep;
  };
  Json info = Json::parse(text, is_wanted, /*allow_exceptions=*/false);
  if (is_too_deep || !info.is_object()) info = Json::object();
  const std::string first = drop_misfits(info);
  const bool is_newer = !newer_version(info).empty();
  if (misfit != nullptr && !is_newer) *misfit = first;
  if (!is_newer) return info;
  Json versions = {{"version", info["version"]}};
  if (info.contains("torchprof")) versions["torchprof"] = info["torchprof"];
  return versions;
}

// Whether run.json is no JSON at all but lies beside spools of ours, as a loss of power may leave it.
bool is_cut_short(int fd) {
  const Descriptor spool = open_directory(fd, "spool");
  return is_regular(fd, "run.json") && !Json::accept(text_in(fd, "run.json", kMostInfo)) &&
         std::ranges::any_of(names_in(spool.get()), [&spool](const std::string& name) {
           return name.ends_with(".spool") && is_ours_in_spool(spool.get(), name);
         });
}

uint64_t inode_of(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

// Whether it is the run.json of a run that was recorded in this directory.
bool is_of(const Json& info, int directory) {
  return info.contains("torchprof") && info.value("inode", Json()) == inode_of(directory);
}

bool may_others_write(const struct stat& status) {
  // A group with the user's own number has only this user: distributions with a umask of 002 make such groups.
  const bool is_own_group = status.st_gid == getegid() && geteuid() == getegid();
  return (status.st_mode & (is_own_group ? S_IWOTH : S_IWGRP | S_IWOTH)) != 0;
}

// For a directory that existed before: anybody else who may write to it could change what is recorded, or redirect what
// is written.
void demand_private(int fd, const fs::path& path) {
  const std::string way_out = "; name a directory that does not exist yet, as -o " + (path / "run").string();
  struct stat status {
  }, above{};
  if (fstat(fd, &status) != 0 || fstatat(fd, "..", &above, 0) != 0)
    throw Error(path.string() + ": " + std::strerror(errno));
  // Root may use a directory that another user has mounted into root's container, but not one that anybody may have
  // left in /tmp.
  const bool is_trusted = geteuid() == 0 && above.st_uid == 0 && (above.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  if (status.st_uid != geteuid() && !is_trusted)
    throw Error(path.string() + ": belongs to another user (uid " + std::to_string(status.st_uid) + ")" + way_out);
  // In a sticky directory nobody else can remove or rename our files.
  if (may_others_write(status) && (status.st_mode & S_ISVTX) == 0)
    throw Error(path.string() + ": other users may write to it" + way_out);
}

// Opens the directory above `path`, and makes it if it does not exist. In a directory where anybody may make links, a
// link is followed only if it is ours or root's. For root the same holds in any other user's directory.
Descriptor open_above(const fs::path& path, std::vector<fs::path>& made) {
  const auto fail = [&path](const std::string& why) -> Descriptor {
    throw Error(path.string() + ": cannot make the run directory: " + why);
  };
  constexpr int kFlags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  Descriptor at(::open("/", kFlags));
  if (at.get() < 0) return fail(std::strerror(errno));
  fs::path so_far = "/";
  for (const fs::path& part : path.parent_path().relative_path()) {
    so_far /= part;
    struct stat above {
    }, status{};
    int fd = openat(at.get(), part.c_str(), kFlags | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT) {
      if (mkdirat(at.get(), part.c_str(), 0777) == 0)
        made.push_back(so_far);
      else if (errno != EEXIST)
        return fail(std::strerror(errno));
      fd = openat(at.get(), part.c_str(), kFlags | O_NOFOLLOW);
    } else if (fd < 0 && fstatat(at.get(), part.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
               S_ISLNK(status.st_mode)) {
      const bool is_known = status.st_uid == 0 || status.st_uid == geteuid();
      if (fstat(at.get(), &above) != 0 ||
          (!is_known && ((above.st_mode & S_IWOTH) != 0 || (geteuid() == 0 && above.st_uid != 0))))
        return fail(so_far.string() + " is another user's link");
      fd = openat(at.get(), part.c_str(), kFlags);
    }
    if (fd < 0) return fail(std::strerror(errno));
    at = Descriptor(fd);
  }
  return at;
}

enum class Content : uint8_t { kNothing, kEvents, kUnknown };

// Nothing: no event or step, or its process died before it had written the header.
Content content_of(const fs::path& spool) {
  std::string ignored;
  if (const auto reader = SpoolReader::open(spool, ignored)) {
    const bool has_events = std::ranges::any_of(reader->chunks(), [](const ChunkView& chunk) {
      return chunk.kind != ChunkKind::kDefinitions && !chunk.records.empty();
    });
    return has_events ? Content::kEvents : Content::kNothing;
  }
  const std::string begin = text_in(AT_FDCWD, spool, sizeof(kSpoolMagic));
  return std::ranges::all_of(begin, [](char c) { return c == 0; }) ? Content::kNothing : Content::kUnknown;
}

bool holds_something(const std::vector<fs::path>& spools) {
  return std::ranges::any_of(spools, [](const fs::path& spool) { return content_of(spool) != Content::kNothing; });
}

void remove_spools_in(int run) noexcept {
  {
    const Descriptor spool = open_directory(run, kSpool);
    for (const std::string& name : names_in(spool.get()))
      if (is_ours_in_spool(spool.get(), name)) remove_file(spool.get(), name);
  }
  unlinkat(run, kSpool, AT_REMOVEDIR);  // only if empty
}

// Those of an export that was interrupted.
void remove_temporaries_in(int run) noexcept {
  for (const std::string& name : names_in(run))
    if (formats::Output::is_temporary(name)) remove_file(run, name);
}

// What its run.json names, and the page of the run, which is written later and by others.
std::vector<std::string> own_files_in(int run, const Json& info) {
  std::vector<std::string> names = own_files(info);
  if (is_page(run, formats::kPageOfRun)) names.emplace_back(formats::kPageOfRun);
  return names;
}

// All files of the run in a directory; run.json last, which says which they are.
void remove_own_in(int run) {
  for (const std::string& name : own_files_in(run, parse_info(text_in(run, kInfo, kMostInfo)))) remove_file(run, name);
  remove_temporaries_in(run);
  remove_spools_in(run);
  remove_file(run, kInfo);
}

// A run that lies in a directory under another name.
void remove_run(int at, const char* name) {
  if (const Descriptor run = open_directory(at, name); run.get() >= 0) remove_own_in(run.get());
  unlinkat(at, name, AT_REMOVEDIR);  // only if empty
}

// As far as it says so.
bool has_failed(int run) {
  const Json info = parse_info(text_in(run, kInfo, kMostInfo));
  return info.contains("signal") || info.value("exit_status", Json(0)) != Json(0);
}

Error not_ours(const fs::path& path, const std::string& what) { return Error(path.string() + ": " + what + kChoose); }

}  // namespace

fs::path output_path(const Config& config) {
  char expanded[PATH_MAX];
  ErrorText error;
  if (!expand_output(config.output, expanded, sizeof(expanded), error)) throw Error(error.text);
  fs::path path = formats::absolute_path(expanded);
  if (!path.has_filename()) path = path.parent_path();  // "name/"
  return path;
}

RunDir RunDir::create(const fs::path& path) {
  RunDir dir(path);
  std::vector<fs::path> made;
  const Descriptor above = open_above(path, made);
  const std::string name = path.has_filename() ? path.filename().string() : ".";
  const bool is_new = mkdirat(above.get(), name.c_str(), 0700) == 0;
  if (!is_new && errno != EEXIST)
    throw Error(path.string() + ": cannot make the run directory: " + std::strerror(errno));
  dir.made_ = std::move(made);
  if (is_new) dir.made_.push_back(path);
  dir.fd_ = open_directory(above.get(), name);
  if (dir.fd_.get() < 0) {
    const int error = errno;
    struct stat status {};
    if (fstatat(above.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 || S_ISDIR(status.st_mode))
      throw Error(path.string() + ": " + std::strerror(error));
    throw not_ours(path, S_ISLNK(status.st_mode) ? "is a symbolic link" : "exists and is not a directory");
  }
  dir.lock();
  // Another launcher may have made a run in it between our mkdir() and the lock.
  if (!is_new || !names_in(dir.fd_.get()).empty()) dir.find_earlier_run();
  return dir;
}

// Comes before any look at the content: files that another launcher is writing are no earlier run. On a file system
// without locks it goes on without one.
void RunDir::lock() const {
  if (flock(fd_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw not_ours(path_, "a torchprof run is writing into it");
}

bool RunDir::is_copy() const {
  const Descriptor directory = open_directory(AT_FDCWD, path_);
  return !is_of(read_info(), directory.get());
}

// For a directory that existed before. Changes nothing, unless a launcher was killed before it could put things right.
void RunDir::find_earlier_run() {
  const int fd = fd_.get();
  recover();
  const std::vector<std::string> names = names_in(fd);
  const auto has = [&names](const std::string& name) { return std::ranges::binary_search(names, name); };
  const Json info = parse_info(text_in(fd, kInfo, kMostInfo));
  if (!names.empty() && !is_of(info, fd)) {
    if (info.contains("torchprof"))
      throw not_ours(path_, "its run.json was written by another version or in another directory");
    throw not_ours(path_, "is not empty and not a run directory of torchprof");
  }
  demand_private(fd, path_);
  if (names.empty()) return;
  demand_replaceable(info);
  is_earlier_worth_ = spools().empty() ? !own_files(info).empty() : holds_something(spools());
  earlier_ = {kInfo};
  for (const std::string& name : own_files_in(fd, info)) earlier_.push_back(name);
  for (const formats::Format& format : formats::all_formats())
    if (const std::string name = formats::run_file(format); has(name) && !std::ranges::count(earlier_, name))
      throw not_ours(path_ / name, "is not of the earlier run, and would be replaced");
  for (const std::string& name : names)
    if (formats::Output::is_temporary(name)) earlier_.push_back(name);
  if (const Descriptor good = open_directory(fd, kLastGood);
      good.get() >= 0 && is_of(parse_info(text_in(good.get(), kInfo, kMostInfo)), fd))
    earlier_.emplace_back(kLastGood);
  if (!has(kSpool)) return;
  const Descriptor spool = open_directory(fd, kSpool);
  if (spool.get() < 0) throw not_ours(path_ / kSpool, "is not of the earlier run");
  for (const std::string& name : names_in(spool.get()))
    if (!is_ours_in_spool(spool.get(), name)) throw not_ours(this->spool() / name, "is not of the earlier run");
  earlier_.emplace_back(kSpool);
}

// Throws Error where an earlier run would be lost.
void RunDir::demand_replaceable(const Json& info) const {
  const bool is_exported = info.value("exported", Json()) == Json(true);
  if (!is_exported && holds_something(spools()))
    throw Error(path_.string() + ": holds an earlier run that was not exported (`torchprof export " + path_.string() +
                "`)" + kChoose);
  if (!written(spools()).empty()) throw not_ours(path_, "a process of the earlier run still writes into it");
}

// What a launcher that was killed has set aside: it goes back to its place if the run after it has recorded nothing.
void RunDir::recover() {
  const int fd = fd_.get();
  const Descriptor aside = open_directory(fd, kEarlier);
  if (aside.get() < 0) return;
  const Json info = parse_info(text_in(fd, kInfo, kMostInfo));
  const Json earlier = parse_info(text_in(aside.get(), kInfo, kMostInfo));
  if (!is_of(earlier, fd) && !is_of(earlier, aside.get())) {
    if (!names_in(aside.get()).empty()) throw not_ours(this->earlier(), "is not of the earlier run");
    unlinkat(fd, kEarlier, AT_REMOVEDIR);
    return;
  }
  has_earlier_ = true;
  const bool was_half_moved = !is_regular(fd, kInfo);  // it is moved first, and back last
  if (!was_half_moved && (!is_of(info, fd) || !written(spools()).empty())) return;
  demand_private(fd, path_);
  if (!was_half_moved && has_recorded()) return void(keep_last_good());
  if (!was_half_moved) remove_own_in(fd);
  if (!put_earlier_back()) throw Error(this->earlier().string() + ": cannot be put back: " + std::strerror(errno));
}

void RunDir::begin() {
  if (!earlier_.empty()) set_earlier_aside();
  has_begun_ = true;
  make_spool();
}

void RunDir::set_earlier_aside() {
  const auto fail = [this] {
    const std::string why = std::strerror(errno);
    put_earlier_back();
    throw Error(path_.string() + ": cannot set the earlier run in it aside: " + why + kChoose);
  };
  if (mkdirat(fd_.get(), kEarlier, 0700) != 0) fail();
  has_earlier_ = true;
  const Descriptor aside = open_directory(fd_.get(), kEarlier);
  for (const std::string& name : earlier_)
    if ((name == kSpool || name == kLastGood || is_regular(fd_.get(), name)) && !move_to(fd_.get(), name, aside.get()))
      fail();
}

void RunDir::make_spool() {
  made_spool_ = mkdirat(fd_.get(), kSpool, 0700) == 0;
  if (!made_spool_ && errno != EEXIST) {
    const std::string why = std::strerror(errno);
    give_up();
    throw Error(path_.string() + ": cannot write into the run directory: " + why);
  }
  const Descriptor spool = open_directory(fd_.get(), kSpool);
  if (spool.get() < 0) throw Error(this->spool().string() + ": " + std::strerror(errno));
  if (!made_spool_) demand_private(spool.get(), this->spool());
}

RunDir RunDir::open(const fs::path& path) {
  RunDir dir(path);
  errno = 0;
  dir.fd_ = Descriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  std::error_code error;
  const Json info = parse_info(text_in(dir.fd_.get(), "run.json", kMostInfo));
  if (errno == EMFILE || errno == ENFILE) throw Error(path.string() + ": " + std::strerror(errno));
  if (dir.newer_version_ = launcher::newer_version(info); !dir.newer_version_.empty())
    complain((path / "run.json").string() + ": " + dir.newer_version_ + ": its facts about the run are missing");
  if (!info.contains("torchprof")) {
    const bool is_there = fs::exists(fs::symlink_status(path / "run.json", error));
    if (is_there && !is_cut_short(dir.fd_.get()))
      throw Error(path.string() + ": is not a run directory of torchprof: run.json is not ours" +
                  (fs::is_directory(path / "spool", error) ? "; move it away to read the spool" : ""));
    if (!is_there && !fs::is_directory(path / "spool", error))
      throw Error(path.string() + ": is not a run directory of torchprof");
    if (is_there) complain((path / "run.json").string() + ": damaged, so its facts about the run are missing");
  }
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

fs::path RunDir::earlier() const { return path_ / kEarlier; }
fs::path RunDir::last_good() const { return path_ / kLastGood; }

std::vector<fs::path> RunDir::spools() const {
  std::error_code error;
  return fs::is_directory(spool(), error) ? formats::find_spools(spool()) : std::vector<fs::path>{};
}

Json RunDir::read_info() const {
  std::string misfit;
  Json info = parse_info(text_in(fd_.get(), "run.json", kMostInfo), &misfit);
  if (!misfit.empty()) complain((path_ / "run.json").string() + ": " + misfit + ": not read");
  return info;
}

void RunDir::write_info(const Json& info) const {
  Json marked = info;
  marked["version"] = kRunVersion;
  marked["inode"] = inode_of(fd_.get());
  formats::Output out(path_ / "run.json");
  // Commands and paths may be any bytes, but JSON is UTF-8.
  out.write(marked.dump(2, ' ', false, Json::error_handler_t::replace));
  out.write("\n");
  out.commit();
}

namespace {

// Programs of libc itself, which are static wherever they are and hold nothing that could be recorded: Python's
// ctypes.util and Triton ask ldconfig where libraries lie. Ubuntu's is a shell script around ldconfig.real.
bool is_of_libc(const fs::path& program) {
  const std::string name = program.filename().string();
  return name == "ldconfig" || name == "ldconfig.real";
}

}  // namespace

std::vector<RunDir::Untraced> RunDir::untraced() const {
  std::vector<Untraced> out;
  std::istringstream in(formats::read_file(spool() / kUntracedName));
  for (std::string line; std::getline(in, line);) {
    // "PID PATH: REASON". A path may hold the separator ": ", a reason does not.
    const size_t path = line.find(' ') + 1, end = line.rfind(": ");
    if (path == 0 || end == std::string::npos || end < path) continue;
    const std::string program = line.substr(path, end - path);
    if (is_of_libc(program)) continue;
    const auto known = std::ranges::find(out, program, &Untraced::program);
    if (known != out.end())
      ++known->times;
    else
      out.push_back({program, line.substr(end + 2), 1});
  }
  return out;
}

std::string RunDir::what_befell() const {
  struct stat here {
  }, there{};
  if (fstat(fd_.get(), &here) != 0) return {};
  if (lstat(path_.c_str(), &there) == 0 && here.st_ino == there.st_ino && here.st_dev == there.st_dev)
    return is_directory(fd_.get(), kSpool)
               ? std::string{}
               : spool().string() + " was removed while the command ran, with all that was recorded";
  std::error_code error;
  const fs::path now = fs::read_symlink("/proc/self/fd/" + std::to_string(fd_.get()), error);
  if (!error && now != path_ && lstat(now.c_str(), &there) == 0 && here.st_ino == there.st_ino &&
      here.st_dev == there.st_dev)
    return path_.string() + " was moved to " + now.string() + " while the command ran: `torchprof export " +
           now.string() + "` writes what was recorded until then";
  return path_.string() + " was removed while the command ran, with all that was recorded";
}

bool RunDir::has_recorded() const {
  return std::ranges::any_of(spools(), [](const fs::path& p) { return content_of(p) == Content::kEvents; });
}

void RunDir::remove_earlier() {
  if (const Descriptor aside = open_directory(fd_.get(), kEarlier); aside.get() >= 0)
    remove_run(aside.get(), kLastGood);
  remove_run(fd_.get(), kEarlier);
  has_earlier_ = false;
}

bool RunDir::keep_last_good() {
  const Descriptor aside = open_directory(fd_.get(), kEarlier);
  const bool is_of_before = has_failed(aside.get());
  const bool is_there = !is_of_before || is_directory(aside.get(), kLastGood);
  if (is_there && !(is_of_before ? move_to(aside.get(), kLastGood, fd_.get())
                                 : renameat(fd_.get(), kEarlier, fd_.get(), kLastGood) == 0))
    throw Error(earlier().string() + ": cannot be moved to " + last_good().string() + ": " + std::strerror(errno));
  remove_earlier();
  return is_there;
}

// run.json last: until then what is left is known as ours.
bool RunDir::put_earlier_back() noexcept {
  const Descriptor aside = open_directory(fd_.get(), kEarlier);
  if (aside.get() < 0) return true;
  if (is_directory(aside.get(), kSpool)) unlinkat(fd_.get(), kSpool, AT_REMOVEDIR);  // the new one, if empty
  for (const std::string& name : names_in(aside.get()))
    if (name != kInfo && !move_to(aside.get(), name, fd_.get())) return false;
  if (is_regular(aside.get(), kInfo) && !move_to(aside.get(), kInfo, fd_.get())) return false;
  has_earlier_ = unlinkat(fd_.get(), kEarlier, AT_REMOVEDIR) != 0;
  return !has_earlier_;
}

void RunDir::remove_spools() const noexcept { remove_spools_in(fd_.get()); }

void RunDir::remove_dead_doors() const {
  const Descriptor spool = open_directory(fd_.get(), kSpool);
  std::vector<std::string> alive;
  for (const fs::path& written : written(spools())) alive.emplace_back(door_of(written.filename().native()).data());
  for (const std::string& name : names_in(spool.get()))
    if (is_door(spool.get(), name) && !std::ranges::count(alive, name)) remove_file(spool.get(), name);
}

void RunDir::remove_temporaries() const noexcept { remove_temporaries_in(fd_.get()); }

void RunDir::give_up() {
  if (has_begun_) {
    remove_own_in(fd_.get());
    put_earlier_back();
  }
  for (auto path = made_.rbegin(); path != made_.rend(); ++path) rmdir(path->c_str());  // only if empty
}

}  // namespace torchprof::launcher
