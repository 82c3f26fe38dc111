// The run directory: its place, its lock, and what lies in it.
//
// A directory is ours if its run.json says so, or if it has a spool directory and no run.json: then the library made
// it, without a launcher. The launcher that fills one holds a lock on it (flock on the directory itself), which ends
// with the launcher in whatever way it ends: so a run that still goes on, one that was finished and one whose launcher
// died can be told apart.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tracer/config.h"

namespace torchprof::launcher {

// The configured run directory with its placeholders filled in, absolute. Throws Error.
std::filesystem::path output_path(const Config& config);

class RunDir {
 public:
  // Makes `path` (mode 0700, and what is above it) for a new run and locks it. An empty directory is taken; one of ours
  // is emptied of the earlier run's files, unless that run still goes on or left spools that were never exported.
  // Everything else that exists is refused: Error, and nothing was changed.
  static RunDir create(const std::filesystem::path& path);
  // One that is there, to be read. Throws Error if it is not one of ours.
  static RunDir open(const std::filesystem::path& path);

  RunDir(RunDir&& other) noexcept;
  RunDir& operator=(RunDir&&) = delete;
  ~RunDir();

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path spool() const { return path_ / "spool"; }
  bool is_live() const { return is_live_; }            // another launcher holds it
  bool was_replaced() const { return was_replaced_; }  // create() took an earlier run's files away

  std::vector<std::filesystem::path> spools() const;  // empty if there is no spool directory
  // Programs that the command started and the library could not get into, with the reason; each once, in the order in
  // which they were met.
  struct Untraced {
    std::string program;
    std::string reason;
    size_t times;
  };
  std::vector<Untraced> untraced() const;
  nlohmann::ordered_json read_info() const;  // run.json; an empty object if it cannot be read
  void write_info(const nlohmann::ordered_json& info) const;

  void remove_spools() const noexcept;
  void remove_temporaries() const noexcept;  // *.tmp of an export that was cut short
  void remove_if_unused() const noexcept;    // the command never started: leave nothing behind that create() made

 private:
  explicit RunDir(std::filesystem::path path) : path_(std::move(path)) {}
  bool lock();

  std::filesystem::path path_;
  int fd_ = -1;
  bool is_live_ = false;
  bool was_replaced_ = false;
  bool made_here_ = false;
};

// A lock is held on it: its launcher still runs. False if there is no such directory.
bool is_locked(const std::filesystem::path& path);

}  // namespace torchprof::launcher
