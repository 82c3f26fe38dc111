#include "launcher/subcommands/attachment.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "formats/io/error.h"
#include "formats/trace/trace.h"
#include "launcher/run_dir/run_dir.h"
#include "launcher/run_dir/writers.h"
#include "launcher/subcommands/control.h"
#include "launcher/terminal/say.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;

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
  const std::string process = "/proc/" + std::to_string(pid);
  if (stat(process.c_str(), &owner) != 0 || owner.st_uid == geteuid()) return;
  if (chown(directory.c_str(), owner.st_uid, owner.st_gid) != 0)
    throw Error(directory.string() + " cannot be given to its user: " + std::strerror(errno));
}

// A `torchprof attach` that was killed has not made it leave, nor what it has started.
void leave_orphan(uint32_t pid) {
  const fs::path spool = spool_of(pid), run = spool.parent_path().parent_path();
  std::error_code error;
  if (spool.empty() || !fs::exists(run / "run.json", error) || is_locked(run)) return;
  try {
    if (!RunDir::open(run).read_info().contains("attached")) return;
    ControlRequest(pid, "detach", spool).wait();
    Writers writers;
    for (const fs::path& file : formats::find_spools(spool.parent_path()))
      if (const uint32_t other = writers.writer_of(file); other != 0) ControlRequest(other, "detach", file).wait();
  } catch (const Error&) {  // somebody else's directory
  }
}

}  // namespace

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
    how_ = attach_library(image, target_, {library.preload, settings_text(library, config, output_)});
  } catch (const Error& error) {
    if (place_fd_ >= 0) close(place_fd_);
    throw Error(name_of(pid) + error.what());
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
    place_ = run_ / "spool";
    return;
  }
  const std::string root = "/proc/" + std::to_string(pid_) + "/root";
  std::string made = root + "/tmp/torchprof-attach-XXXXXX";
  if (!mkdtemp(made.data())) throw Error("nothing can be written into its /tmp: " + std::string(std::strerror(errno)));
  const fs::path spools = made + "/spool";
  fs::create_directory(spools);
  give_to(pid_, made);
  give_to(pid_, spools);
  output_ = made.substr(root.size());
  place_fd_ = open(made.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  place_ = fs::path("/proc/self/fd") / std::to_string(place_fd_) / "spool";
}

std::vector<fs::path> Attachment::spools() const { return formats::find_spools(place_); }

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
  std::error_code error;
  Writers writers;
  // What leaves another process of the run asks all that write there.
  if (const fs::path file = spool(); !file.empty() && writers.writer_of(file) == pid_) {
    const std::string answer = ask(pid_, "detach", file, 10);
    if (answer.starts_with("error: no answer"))
      why = "is still attached: Python's lock is held for long; it is left when the lock is free";
    else if (!answer.starts_with("ok: "))
      why = answer.substr(answer.starts_with("error: ") ? 7 : 0);
  }
  if (!fs::exists("/proc/" + std::to_string(pid_), error)) why.clear();
  for (const fs::path& file : formats::find_spools(place_))
    if (const uint32_t child = writers.writer_of(file); child != 0 && child != pid_) ask(child, "detach", file, 2);
  if (place_fd_ >= 0) fetch_spools();
  if (!why.empty()) throw Error(name_of(pid_) + why);
}

void Attachment::fetch_spools() {
  std::error_code error;
  for (const fs::path& file : formats::find_spools(place_))
    fs::copy_file(file, run_ / "spool" / file.filename(), error);
  fs::remove_all(place_, error);
  fs::remove_all("/proc/" + std::to_string(pid_) + "/root" + output_, error);
}

}  // namespace torchprof::launcher
