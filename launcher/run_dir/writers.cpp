#include "launcher/run_dir/writers.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <sstream>
#include <string_view>
#include <thread>

#include "formats/io/open_file.h"
#include "formats/io/process_files.h"
#include "tracer/spool/file_lock.h"
#include "tracer/spool/layout.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;

constexpr auto kLookAtEnding = std::chrono::milliseconds(1);
constexpr auto kLongestEnding = std::chrono::seconds(5);

// `behind`: what the kernel puts behind the name of the file. The number is compared, because a forked child maps its
// parent's spool, too.
fs::path mapped_spool(uint32_t pid, std::string_view behind) {
  const uint32_t number = own_number(pid);
  std::istringstream in(formats::read_process_file(pid, "maps"));
  for (std::string line; std::getline(in, line);) {
    const size_t path = line.find('/');
    if (path == std::string::npos || !line.ends_with(behind)) continue;
    fs::path file = line.substr(path, line.size() - path - behind.size());
    if (file.extension() == ".spool" && number_in(file) == number) return file;
  }
  return {};
}

}  // namespace

uint32_t own_number(uint32_t pid) {
  const std::string status = formats::read_process_file(pid, "status");
  const std::string_view numbers = formats::status_value(status, "NSpid");  // from the outermost namespace to its own
  const size_t last = numbers.find_last_of(" \t") + 1;
  const uint32_t own = formats::number_in_text(numbers.substr(last));
  return own != 0 ? own : pid;
}

bool is_this_host(std::string_view host) {
  char own[HOST_NAME_MAX + 1] = "";
  if (gethostname(own, sizeof(own) - 1) != 0 || *own == 0) return host == "localhost";
  return host == std::string_view(own) || host == std::string_view(own).substr(0, sizeof(FileHeader::host) - 1);
}

uint32_t number_in(const fs::path& spool) {
  const std::string name = spool.stem();  // HOST.PID.START
  const std::string_view rest = std::string_view(name).substr(0, name.rfind('.'));
  return formats::number_in_text(rest.substr(rest.rfind('.') + 1));
}

fs::path spool_of(uint32_t pid) { return mapped_spool(pid, ""); }

bool writes_removed_spool(uint32_t pid) { return !mapped_spool(pid, " (deleted)").empty(); }

std::vector<Recorded> recorded_processes() {
  std::vector<Recorded> out;
  std::error_code error;
  for (const uint32_t pid : formats::all_processes()) {
    fs::path spool = spool_of(pid);
    if (spool.empty()) continue;
    if (!fs::exists(spool, error)) spool = formats::process_path(pid, "root") + spool.string();
    if (fs::exists(spool, error)) out.push_back({pid, std::move(spool)});
  }
  std::ranges::sort(out, {}, &Recorded::pid);
  return out;
}

uint32_t Writers::writer_of(const fs::path& spool) {
  const uint32_t number = number_in(spool);
  const auto writes_it = [&spool](uint32_t pid) { return spool_of(pid).filename() == spool.filename(); };
  if (number == 0) return 0;
  if (writes_it(number)) return number;
  if (!renumbered_) {
    renumbered_.emplace();
    for (const uint32_t pid : formats::all_processes())
      if (const uint32_t own = own_number(pid); own != pid) renumbered_->emplace(own, pid);
  }
  const auto [first, last] = renumbered_->equal_range(number);
  const auto found = std::find_if(first, last, [&](const auto& pids) { return writes_it(pids.second); });
  return found == last ? 0 : found->second;
}

bool Writers::is_written(const fs::path& spool) {
  const uint32_t pid = number_in(spool);
  spool_lock::Writer writer{};
  // A process that ends releases its locks last: it seems to write while its memory is given back. Whether it ends is
  // looked at first: once it is over, its lock is no more.
  for (;;) {
    const bool ends = waited_ < kLongestEnding && formats::is_ending(pid);
    writer = spool_lock::look_for_writer(spool.c_str());
    if (!ends || writer != spool_lock::Writer::kLives) break;
    std::this_thread::sleep_for(kLookAtEnding);
    waited_ += kLookAtEnding;
  }
  return writer == spool_lock::Writer::kLives || (writer == spool_lock::Writer::kUnknown && writer_of(spool) != 0);
}

std::optional<Running> Writers::running(const fs::path& spool) {
  if (!is_written(spool)) return {};
  const uint32_t pid = writer_of(spool);
  return Running{pid != 0 ? pid : number_in(spool), pid != 0, spool.filename()};
}

std::vector<fs::path> written(const std::vector<fs::path>& spools) {
  Writers writers;
  std::vector<fs::path> out;
  for (const fs::path& spool : spools)
    if (writers.is_written(spool)) out.push_back(spool);
  return out;
}

Marks::Marks(const fs::path& output, const fs::path& library)
    : output_(std::string(1, '\0') + "TORCHPROF_OUTPUT=" + output.string() + '\0'), library_(library.string()) {}

// Numbers are given in order, so those of later processes lie between ours and the newest. Once they have come round
// that says nothing, but no machine starts so many processes in kShort (Linux has at least 32,768 numbers). Most
// commands of a script end before: there it saves an open() for each process of the machine.
std::vector<uint32_t> Marks::later(std::vector<uint32_t> pids) const {
  constexpr auto kShort = std::chrono::milliseconds(200);
  const auto own = static_cast<uint32_t>(getpid());
  std::error_code error;
  uint32_t newest = 0;
  // In another PID namespace's /proc we have another number.
  if (fs::read_symlink("/proc/self", error) == std::to_string(own)) {
    std::istringstream in(formats::read_file("/proc/loadavg"));  // 0.20 0.18 0.12 1/80 11206
    for (std::string word; in >> word;) newest = formats::number_in_text(word);
  }
  if (newest < own || std::chrono::steady_clock::now() - begin_ > kShort) return pids;
  std::erase_if(pids, [&](uint32_t pid) { return pid <= own || pid > newest; });
  return pids;
}

bool Marks::has(uint32_t pid) const {
  const std::string environment = '\0' + formats::read_process_file(pid, "environ") + '\0';
  return environment.find(output_) != std::string::npos && environment.find(library_) != std::string::npos;
}

std::vector<Running> processes_of_command(const std::vector<fs::path>& spools, const Marks& marks) {
  Writers writers;
  std::vector<Running> out;
  for (const fs::path& spool : spools)
    if (const std::optional<Running> writer = writers.running(spool)) out.push_back(*writer);
  const auto is_known = [&out](uint32_t pid) {
    return std::ranges::any_of(out, [pid](const Running& one) { return one.is_seen && one.pid == pid; });
  };
  const auto own = static_cast<uint32_t>(getpid());
  for (const uint32_t pid : marks.later(formats::all_processes()))
    if (pid != own && !is_known(pid) && marks.has(pid)) out.push_back({pid, true, ""});
  std::ranges::sort(out, {}, &Running::pid);
  return out;
}

size_t most_open_spools() {
  constexpr size_t kSpareFiles = 32;  // that may be open beside them
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  return limit.rlim_cur > kSpareFiles ? limit.rlim_cur - kSpareFiles : 1;
}

}  // namespace torchprof::launcher
