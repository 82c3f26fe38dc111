// The processes of a job that runs, look after look: from its spools and /proc, without a word to the program.
//
// Not thread-safe. The constructor throws Error for what is no run or has left nothing to look at.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "formats/live/live_process.h"
#include "launcher/run_dir/run_dir.h"
#include "launcher/run_dir/writers.h"
#include "launcher/watch/top_picture.h"

namespace torchprof::launcher {

class LiveJob {
 public:
  // `target`: as of `top`. `seconds`: how long something counts where there are no windows.
  LiveJob(const std::string& target, size_t seconds, formats::LiveSteps steps);

  void look();  // reads what is new
  // No process of it lives, and none will come.
  bool has_ended() const;
  TopState state() const;

  struct Live {
    uint32_t pid;
    std::filesystem::path spool;
  };
  std::vector<Live> live_here() const;  // those of this machine that we see

 private:
  struct Watched {
    std::filesystem::path spool;
    std::unique_ptr<formats::LiveProcess> process;  // null: it has ended, `shown` stays as it is
    TopProcess shown;
  };

  std::vector<std::filesystem::path> spools() const;
  bool is_missing(const TopProcess& process) const;
  bool has_ended_run() const;
  bool open(const std::filesystem::path& spool, bool is_live);
  static void look_at(Watched& one, uint64_t bytes);
  void forget_ended();

  const std::string target_;
  const int64_t last_ns_;
  const formats::LiveSteps steps_;
  std::filesystem::path file_;  // empty: a directory
  std::optional<RunDir> run_;
  std::set<std::filesystem::path> known_;
  std::vector<Watched> watched_;
  const size_t most_open_ = most_open_spools();
  size_t unreadable_ = 0, unwatched_ = 0, forgotten_ranks_ = 0;
  bool has_looked_ = false;
};

}  // namespace torchprof::launcher
