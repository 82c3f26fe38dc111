// The processes that still write, or may still: asked of the spools and of /proc.
//
// A spool is asked for its writer's lock (tracer/spool/file_lock.h), whatever namespaces that writer lives in. Where the
// file system keeps no such lock, its writer is the process whose own number is in the spool's name and that maps it.
// Nothing throws; what cannot be read is not there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace torchprof::launcher {

// The spool of a process, empty if it has none.
std::filesystem::path spool_of(uint32_t pid);

// The number that a process has in its own PID namespace: there it gave its spool the name.
uint32_t own_number(uint32_t pid);

// That in the name of a spool, HOST.PID.START.spool; 0: it is named otherwise.
uint32_t number_in(const std::filesystem::path& spool);

struct Running {
  uint32_t pid;       // here; its own number where it cannot be seen from here
  bool is_seen;       // `pid` is its number here
  std::string spool;  // file name; empty: it writes none
};

// One look at the processes of this machine, made at the first question that needs it.
class Writers {
 public:
  bool is_written(const std::filesystem::path& spool);
  // Who writes it, by its number here; 0 if it cannot be seen from here.
  uint32_t writer_of(const std::filesystem::path& spool);
  std::optional<Running> running(const std::filesystem::path& spool);  // who writes it, seen or not

 private:
  std::optional<std::multimap<uint32_t, uint32_t>> renumbered_;
};

// Those of them that a process still writes.
std::vector<std::filesystem::path> written(const std::vector<std::filesystem::path>& spools);

// What only the processes of one command have in the environment that they were started with: where their records go,
// and our library. Traced or not, and whoever their parent is now; other users' cannot be read.
class Marks {
 public:
  Marks(const std::filesystem::path& output, const std::filesystem::path& library);
  bool has(uint32_t pid) const;

 private:
  std::string output_, library_;
};

// Those that write the spools, and those that bear the marks; by pid.
std::vector<Running> processes_of_command(const std::vector<std::filesystem::path>& spools, const Marks& marks);

}  // namespace torchprof::launcher
