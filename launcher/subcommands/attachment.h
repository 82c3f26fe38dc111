// One process to which we attach: from the library's arrival (launcher/attach/attach.h) until it has left.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "launcher/attach/attach.h"
#include "launcher/run/environment.h"
#include "tracer/config/config.h"

namespace torchprof::launcher {

// By this lock programs that are started see that they belong to the run, and those that were attached to that somebody
// will leave them (is_attach_over() in run_directory.h). It is given back before any process is left. Where the file
// system has no locks, they do not.
class Holding {
 public:
  explicit Holding(const std::filesystem::path& run);
  ~Holding() { let_go(); }
  Holding(const Holding&) = delete;
  Holding& operator=(const Holding&) = delete;
  void let_go();

 private:
  int fd_;
};

class Attachment {
 public:
  // Attaches. `run`: the run directory, which has its spool/ by now, and may be moved or removed from now on. Throws
  // Error that names the process.
  Attachment(uint32_t pid, const Library& library, const Config& config, const std::filesystem::path& run);
  // Leaves it, if that has not happened.
  ~Attachment();
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;

  uint32_t pid() const { return pid_; }
  const AttachTarget& target() const { return target_; }
  const Attached& how() const { return how_; }
  // That it has made, and what it has forked; none where they were removed.
  std::vector<std::filesystem::path> spools() const;

  struct Progress {
    bool is_there = false;  // the process runs, and answers
    bool is_open = false;
    uint32_t window = 0;  // of the latest window; 0: none so far
    uint64_t steps = 0;   // that have ended
  };
  Progress progress() const;

  // Closes the window and leaves the process, and then the children that it has forked meanwhile. Where the run
  // directory was moved or removed it is waited until they have left by themselves. Throws Error.
  void leave();

 private:
  void make_place(const Config& config);
  void open_place(const std::filesystem::path& directory);
  std::filesystem::path spool() const;
  std::string ask(uint32_t pid, const char* command, const std::filesystem::path& spool, int seconds) const;
  void fetch_spools();

  uint32_t pid_;
  std::filesystem::path run_;
  AttachTarget target_;
  Attached how_;
  std::filesystem::path place_;  // where its spools are, as we see it, whatever becomes of names
  std::string output_;           // the run directory, as the process sees it
  int place_fd_ = -1;            // of the directory above `place_`
  bool has_left_ = false;
};

}  // namespace torchprof::launcher
