// The run directory: its place, its lock, and its content.
//
// A directory is ours if its run.json names the directory's own inode: a copy, or a run.json that somebody put
// elsewhere, does not make one ours. Without a launcher the library makes directories with a spool and no run.json.
// Those, copies, and runs of versions whose run.json this one does not know can be read, but are never written to.
//
// Only files that we made are removed: files that run.json lists, what tracer/spool/run_files.h names, temporary files
// with a name of ours. They must be regular files directly in the directory or in its spool/; they are reached through
// descriptors, and no link is followed. A directory that existed before keeps its mode and its other files.
//
// An earlier run is replaced by one that recorded something and whose command did not fail, and by no other. Until then
// it lies in RUN/earlier-run, as it was but for its place: a run directory of its own, which can be read. A launcher
// that is killed leaves it there, and the next one puts it back if the run in between recorded nothing.
//
// Where the command failed and recorded something, RUN has that, and RUN/last-good-run the latest run before it that
// did not fail. A later run takes both as the earlier one.
//
// The launcher that writes a run holds a lock on the directory (flock). The lock ends with the launcher, however that
// ends. So one can tell whether a run still goes on, was finished, or lost its launcher.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "launcher/run_dir/our_files.h"
#include "tracer/config/config.h"

namespace torchprof::launcher {

// The configured run directory as an absolute path with its placeholders filled in. Throws Error.
std::filesystem::path output_path(const Config& config);

class RunDir {
 public:
  // Makes `path` (with mode 0700) and the directories above it for a new run, and locks it. If it exists, it must be
  // empty, or one of ours whose run has ended and was exported. Anything else, and a directory to which other users may
  // write, is refused: throws Error, and changes nothing.
  static RunDir create(const std::filesystem::path& path);
  // Opens an existing one to read it; a damaged run.json is ignored. Throws Error if it is not one of ours.
  static RunDir open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path spool() const { return path_ / "spool"; }
  std::filesystem::path earlier() const;     // where the run before it lies until it is over
  std::filesystem::path last_good() const;   // where that lies afterwards, if this one failed
  bool is_live() const { return is_live_; }  // a launcher holds its lock
  bool is_copy() const;                      // it was not recorded in this directory
  // Of its run.json, which then is not read and must not be written (run_json.h); empty: it is of no newer version.
  const std::string& newer_version() const { return newer_version_; }

  std::vector<std::filesystem::path> spools() const;  // empty if there is no spool directory
  // For a directory that this object has made for a run: an empty text, or for people what has become of it or of its
  // spool/ since, so that nothing of the run is to be found at path().
  std::string what_befell() const;
  // Whether any of its processes has recorded an event by now. Outside of windows nothing is.
  bool has_recorded() const;
  // Programs started by the command into which the library could not get, with the reason; each once, in the order in
  // which they came.
  struct Untraced {
    std::string program;
    std::string reason;
    size_t times;
  };
  std::vector<Untraced> untraced() const;
  nlohmann::ordered_json read_info() const;  // run.json; an empty object if it cannot be read
  void write_info(const nlohmann::ordered_json& info) const;

  // Moves the earlier run that create() found, if any, to earlier() and makes the new one's spool/. Call it before
  // anything of the new run is written. Throws Error, with everything as it was, if that cannot be done.
  void begin();
  bool has_earlier() const { return has_earlier_; }  // one lies there
  // Whether it has to be kept until has_recorded(): it has recorded something itself.
  bool is_earlier_worth() const { return is_earlier_worth_; }
  void remove_earlier();  // the new run replaces it
  // The new run is there and failed: moves the latest good one before it to last_good() and removes the others.
  // False: there is none. Throws Error, with all of them where they were.
  bool keep_last_good();
  // The other way round: removes what the new run has written and restores everything as create() found it.
  void give_up();
  void remove_spools() const noexcept;
  // Sockets of processes that were killed: who copies the directory would stumble over them.
  void remove_dead_doors() const;
  void remove_temporaries() const noexcept;  // those of an export that was interrupted

 private:
  explicit RunDir(std::filesystem::path path) : path_(std::move(path)) {}
  void lock() const;
  void find_earlier_run();
  void demand_replaceable(const nlohmann::ordered_json& info) const;
  void recover();
  void set_earlier_aside();
  bool put_earlier_back() noexcept;
  void make_spool();

  std::filesystem::path path_;
  Descriptor fd_;
  bool is_live_ = false;
  bool has_earlier_ = false;
  bool is_earlier_worth_ = false;
  bool has_begun_ = false;
  bool made_spool_ = false;
  std::vector<std::filesystem::path> made_;  // directories that were made, outermost first
  std::vector<std::string> earlier_;         // names of the earlier run in the directory, run.json first
  std::string newer_version_;
};

// Whether a launcher holds its lock, and so still runs. False if there is no such directory.
bool is_locked(const std::filesystem::path& path);

}  // namespace torchprof::launcher
