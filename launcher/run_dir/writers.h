// Finds the processes that still write a spool, or may do so, from the spools and /proc.
//
// The writer of a spool holds a lock on it (tracer/spool/file_lock.h), which can be seen from all namespaces. On a file
// system without such locks, the writer is the process that has its own number in the spool's name and maps the spool.
// Nothing throws; what cannot be read counts as absent.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace torchprof::launcher {

// The spool that a process writes; empty if there is none, or it was removed since.
std::filesystem::path spool_of(uint32_t pid);
// Whether it writes a spool that was removed: nobody reaches it by that any more.
bool writes_removed_spool(uint32_t pid);

// The processes of this machine that write a spool, sorted by pid: as far as this user may see what they map, so of its
// own, and for root of all. A spool that lies in another mount namespace is named through /proc.
struct Recorded {
  uint32_t pid;  // in our namespace
  std::filesystem::path spool;
};
std::vector<Recorded> recorded_processes();

// The id of a process in its own PID namespace, which it puts into its spool's name.
uint32_t own_number(uint32_t pid);

// Whether a process that wrote this name of its host, in its spool or in run.json, ran on this machine; a container may
// have a name of its own.
bool is_this_host(std::string_view host);

// The process id in the name of a spool, HOST.PID.START.spool; 0: the name has another form.
uint32_t number_in(const std::filesystem::path& spool);

struct Running {
  uint32_t pid;       // in our namespace; its own number if we do not see it
  bool is_seen;       // `pid` is in our namespace
  std::string spool;  // file name; empty: it writes none
};

// Looks at the processes of this machine once, at the first call that needs it. A process that is ending is waited for,
// for some seconds at most in all.
class Writers {
 public:
  bool is_written(const std::filesystem::path& spool);
  // The process that writes it, in our namespace; 0 if we do not see it.
  uint32_t writer_of(const std::filesystem::path& spool);
  std::optional<Running> running(const std::filesystem::path& spool);  // its writer, seen or not

 private:
  std::optional<std::multimap<uint32_t, uint32_t>> renumbered_;
  std::chrono::milliseconds waited_{0};  // for processes that were ending
};

// The spools that a process still writes.
std::vector<std::filesystem::path> written(const std::vector<std::filesystem::path>& spools);

// How many spools may stay open. The limit that a shell sets is low for the sake of select(), which is not used here:
// the first call raises it for this process.
size_t most_open_spools();

// Recognises the processes of one command by their initial environment: the run directory and our library are in it,
// whether they are traced or not and whoever their parent is. Environments of other users' processes cannot be read.
//
// Made before the command starts.
class Marks {
 public:
  Marks(const std::filesystem::path& output, const std::filesystem::path& library);
  bool has(uint32_t pid) const;
  // Those of `pids` that began after this object was made; all of them where that is not known.
  std::vector<uint32_t> later(std::vector<uint32_t> pids) const;

 private:
  std::string output_, library_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// The processes that write the spools and those that have the marks, sorted by pid.
std::vector<Running> processes_of_command(const std::vector<std::filesystem::path>& spools, const Marks& marks);

}  // namespace torchprof::launcher
