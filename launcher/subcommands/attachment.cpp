#include "launcher/subcommands/attachment.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>
#include <utility>

#include "formats/io/error.h"
#include "formats/io/process_files.h"
#include "formats/trace/trace.h"
#include "launcher/run_dir/run_dir.h"
#include "launcher/run_dir/writers.h"
#include "launcher/subcommands/control.h"
#include "launcher/terminal/say.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds, std::chrono::seconds, std::chrono::steady_clock;

constexpr std::string_view kIsRecorded =
    "it is being recorded already";  // the library says so (inject/late/attach.cpp)

std::string name_of(uint32_t pid) { return "process " + std::to_string(pid) + ": "; }

std::string settings_text(const Library& library, const Config& config, const std::string& output) {
  std::string out;
  for (const std::string& variable : variables({}, library, config, output))
    if (variable.starts_with("TORCHPROF_")) out += variable + "\n";
  return out;
}

// So that the process may write there, whoever we are.
void give_to(uint32_t pid, const fs::path& directory) {
  struct stat owner {};
  const std::string process = formats::process_path(pid);
  if (stat(process.c_str(), &owner) != 0 || owner.st_uid == geteuid()) return;
  if (chown(directory.c_str(), owner.st_uid, owner.st_gid) != 0)
    throw Error(directory.string() + " cannot be given to its user: " + std::strerror(errno));
}

// Whether it does not write to any spool any more, by now or soon.
bool leaves_by_itself(uint32_t pid) {
  constexpr seconds kPatience{8};  // it looks once a second, and may have to wait for Python's lock
  constexpr milliseconds kLook{20};
  const auto until = steady_clock::now() + kPatience;
  while (!spool_of(pid).empty() || writes_removed_spool(pid)) {
    if (steady_clock::now() > until) return false;
    std::this_thread::sleep_for(kLook);
  }
  return true;
}

// A `torchprof attach` or `where` that was killed has not made it leave, nor what it has started. Each of them leaves
// by itself, sooner if it is asked to.
void leave_orphan(uint32_t pid) {
  const fs::path spool = spool_of(pid), run = spool.parent_path().parent_path();
  if (spool.empty()) {
    if (writes_removed_spool(pid)) leaves_by_itself(pid);
    return;
  }
  if (is_locked(run)) return;
  try {
    if (!RunDir::open(run).read_info().contains("attached")) return;
    ControlRequest(pid, "detach", spool).wait();
    Writers writers;
    for (const fs::path& file : formats::find_spools(spool.parent_path()))
      if (const uint32_t other = writers.writer_of(file); other != 0) ControlRequest(other, "detach", file).wait();
    leaves_by_itself(pid);
  } catch (const Error&) {  // somebody else's directory
  }
}

// A child that a process forked while that was attached to has no spool until it records something, and nobody knows of
// it: it leaves by itself.
Attached attach_once_free(Image& image, const AttachTarget& target, const AttachWish& wish) {
  constexpr int kMostTries = 5;
  for (int tries = 1;; ++tries) {
    try {
      return attach_library(image, target, wish);
    } catch (const Error& error) {
      if (tries == kMostTries || std::string_view(error.what()) != kIsRecorded) throw;
    }
    std::this_thread::sleep_for(seconds(1));
  }
}

}  // namespace

Holding::Holding(const fs::path& run) : fd_(open((run / "spool").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  constexpr int kMostTries = 100;  // a process that looks holds it for some microseconds
  for (int i = 0; fd_ >= 0 && flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK && i < kMostTries; ++i)
    std::this_thread::sleep_for(milliseconds(1));
}

void Holding::let_go() {
  if (const int fd = std::exchange(fd_, -1); fd >= 0) close(fd);
}

Attachment::Attachment(uint32_t pid, const Library& library, const Config& config, const fs::path& run)
    : pid_(pid), run_(run) {
  try {
    Image image(pid);
    target_ = look_at_target_process(image);
    if (const std::string why = why_not(target_); !why.empty()) throw Error(why);
    leave_orphan(pid);
    if (const fs::path spool = spool_of(pid); !spool.empty())
      throw Error("is being profiled already, into " + spool.parent_path().parent_path().string() + ": torchprof ctl " +
                  std::to_string(pid) + " start");
    make_place(config);
    how_ = attach_once_free(image, target_, {library.preload, settings_text(library, config, output_)});
  } catch (const std::exception& error) {
    if (place_fd_ >= 0) close(place_fd_);
    // What it was refused by may be its end, which comes at any moment.
    throw Error(name_of(pid) + (formats::has_ended(pid) ? "it has ended" : reason_of(error)));
  }
}

Attachment::~Attachment() {
  try {
    leave();
  } catch (const std::exception& error) {
    complain(error.what());
  }
  if (place_fd_ >= 0) close(place_fd_);
}

void Attachment::make_place(const Config&) {
  if (!target_.is_elsewhere) {
    give_to(pid_, run_);
    give_to(pid_, run_ / "spool");
    output_ = run_.string();
    open_place(run_);
    return;
  }
  const std::string root = formats::process_path(pid_, "root");
  std::string made = root + "/tmp/torchprof-attach-XXXXXX";
  if (!mkdtemp(made.data())) throw Error("nothing can be written into its /tmp: " + std::string(std::strerror(errno)));
  const fs::path spools = made + "/spool";
  fs::create_directory(spools);
  give_to(pid_, made);
  give_to(pid_, spools);
  output_ = made.substr(root.size());
  open_place(made);
}

void Attachment::open_place(const fs::path& directory) {
  place_fd_ = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (place_fd_ < 0) throw Error(directory.string() + ": " + std::strerror(errno));
  place_ = fs::path("/proc/self/fd") / std::to_string(place_fd_) / "spool";
}

std::vector<fs::path> Attachment::spools() const {
  std::error_code error;
  return fs::exists(place_, error) ? formats::find_spools(place_) : std::vector<fs::path>{};
}

fs::path Attachment::spool() const {
  for (const fs::path& spool : spools())
    if (number_in(spool) == own_number(pid_)) return spool;
  return {};
}

std::string Attachment::ask(uint32_t pid, const char* command, const fs::path& spool, int seconds) const {
  return ControlRequest(pid, command, spool, std::chrono::seconds(seconds)).wait();
}

Attachment::Progress Attachment::progress() const {
  Progress progress;
  const fs::path file = spool();
  if (file.empty()) return progress;
  const std::string answer = ask(pid_, "progress", file, 5);
  char state[8] = "";
  unsigned window = 0;
  unsigned long long steps = 0;
  if (sscanf(answer.c_str(), "ok: %u %7s %llu", &window, state, &steps) != 3) {
    progress.is_there = answer.starts_with("error: no answer");  // it is busy
    return progress;
  }
  return {true, std::strcmp(state, "open") == 0, window, steps};
}

void Attachment::leave() {
  if (std::exchange(has_left_, true)) return;
  std::string why;
  Writers writers;
  // What leaves another process of the run asks all that write there.
  if (const fs::path file = spool(); !file.empty() && writers.writer_of(file) == pid_) {
    const std::string answer = ask(pid_, "detach", file, 10);
    if (answer.starts_with("error: no answer"))
      why = "is still attached: Python's lock is held for long; it is left when the lock is free";
    else if (!answer.starts_with("ok: "))
      why = answer.substr(answer.starts_with("error: ") ? 7 : 0);
  }
  // Its end, or its own leaving, may have come first. Where nobody could ask, that is waited for.
  if (spool_of(pid_).empty()) why.clear();
  if (writes_removed_spool(pid_) && !leaves_by_itself(pid_)) why = "is still attached: Python's lock is held for long";
  for (const fs::path& file : spools())
    if (const uint32_t child = writers.writer_of(file); child != 0 && child != pid_) ask(child, "detach", file, 2);
  if (target_.is_elsewhere) fetch_spools();
  if (!why.empty()) throw Error(name_of(pid_) + why);
}

void Attachment::fetch_spools() {
  std::error_code error;
  for (const fs::path& file : spools()) fs::copy_file(file, run_ / "spool" / file.filename(), error);
  fs::remove_all(place_, error);
  fs::remove_all(formats::process_path(pid_, "root") + output_, error);
}

}  // namespace torchprof::launcher
