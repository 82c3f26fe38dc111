// The run directory: its place, its lock, and what lies in it.
//
// One is ours by its run.json, which names the very directory that it was written into (`inode`): a copy, or a
// run.json that somebody put elsewhere, is not. Without a launcher the library makes directories with a spool and no
// run.json; those, copies and the runs of older versions can be read, but are never written over.
// Removed is only what we made: files that run.json lists, spools that begin as one does, temporaries by a name that is
// ours; regular files directly in the directory or in its spool/, through descriptors, and no link is followed. A
// directory that was there keeps its mode, and what else lies in it.
// The launcher that fills one holds a lock on it (flock on the directory itself), which ends with the launcher in
// whatever way it ends: so a run that still goes on, one that was finished and one whose launcher died can be told
// apart.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "launcher/run_dir/our_files.h"
#include "tracer/config/config.h"

namespace torchprof::launcher {

// The configured run directory with its placeholders filled in, absolute. Throws Error.
std::filesystem::path output_path(const Config& config);

class RunDir {
 public:
  // Makes `path` (mode 0700, and what is above it) for a new run and locks it. An empty directory is taken, and one of
  // ours, unless that run still goes on or left spools that were never exported. Everything else that exists is
  // refused, as is one into which other users could put something: Error, and nothing was changed.
  static RunDir create(const std::filesystem::path& path);
  // One that is there, to be read; where its run.json is damaged, without it. Throws Error if it is not one of ours.
  static RunDir open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path spool() const { return path_ / "spool"; }
  bool is_live() const { return is_live_; }            // another launcher holds it
  bool was_replaced() const { return was_replaced_; }  // create() found an earlier run

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

  // Before the command starts: its processes would take the earlier run's lists for their own.
  void set_lists_aside() const noexcept;
  // The files of the earlier run that create() found; until then they stay. The command has started.
  void remove_earlier() const noexcept;
  void remove_spools() const noexcept;
  void remove_temporaries() const noexcept;  // of an export that was cut short
  // The command never started: all is as create() found it.
  void remove_if_unused() const noexcept;

 private:
  explicit RunDir(std::filesystem::path path) : path_(std::move(path)) {}
  void lock() const;
  void find_earlier_run();
  void make_spool();

  std::filesystem::path path_;
  Descriptor fd_;
  bool is_live_ = false;
  bool was_replaced_ = false;
  bool made_spool_ = false;
  std::vector<std::filesystem::path> made_;  // directories, from above
  std::vector<std::string> earlier_;         // files of the earlier run, and in its spool/
  std::vector<std::string> earlier_spools_;
  std::string earlier_info_;  // its run.json
};

// The files of a run directory that are ours: "files" of its run.json.
std::vector<std::string> own_files(const nlohmann::ordered_json& info);

// A lock is held on it: its launcher still runs. False if there is no such directory.
bool is_locked(const std::filesystem::path& path);

}  // namespace torchprof::launcher
