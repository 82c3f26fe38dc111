#include "launcher/attach/rights.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string_view>

#include "formats/io/open_file.h"
#include "formats/io/process_files.h"
#include "launcher/attach/stopped_thread.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;

std::string link_text(const fs::path& path) {
  std::error_code error;
  return fs::read_symlink(path, error).string();
}

bool is_other(uint32_t pid, const char* file) {
  const std::string theirs = link_text(formats::process_path(pid, file)),
                    ours = link_text(fs::path("/proc/self") / file);
  return !theirs.empty() && theirs != ours;
}

bool has_ptrace_right() {
  constexpr int kSysPtrace = 19;  // CAP_SYS_PTRACE, linux/capability.h
  const std::string status = formats::read_file("/proc/self/status");
  const std::string bits(formats::status_value(status, "CapEff"));
  return (std::strtoull(bits.c_str(), nullptr, 16) >> kSysPtrace & 1) != 0;
}

// What keeps us from its memory: the rules of ptrace(2), in the order in which they are asked.
std::string why_refused(uint32_t pid, const std::string& status) {
  const uid_t theirs = formats::status_number(status, "Uid");
  const bool may_trace = has_ptrace_right();
  constexpr const char* kCapability = "run torchprof as root with CAP_SYS_PTRACE (docker run --cap-add SYS_PTRACE)";
  if (theirs != geteuid() && !may_trace)
    return "it belongs to user " + std::to_string(theirs) + ": attach as that user, or " + kCapability;
  struct stat owner {};
  if (!may_trace && stat(formats::process_path(pid).c_str(), &owner) == 0 && owner.st_uid != theirs)
    return std::string("it is not dumpable (it changed its user, or asked for that with prctl): ") + kCapability;
  const std::string yama = formats::read_file("/proc/sys/kernel/yama/ptrace_scope").substr(0, 1);
  if (yama == "3") return "kernel.yama.ptrace_scope is 3: nobody may trace here until the machine is started again";
  if ((yama == "1" || yama == "2") && !may_trace)
    return "kernel.yama.ptrace_scope is " + yama + ", so only " +
           (yama == "1" ? "its ancestors may trace it" : "CAP_SYS_PTRACE may") +
           ": sudo torchprof attach ..., or sysctl kernel.yama.ptrace_scope=0, or start it with `torchprof run`";
  if (is_other(pid, "ns/user") && !may_trace)
    return std::string("it is in another user namespace: ") + kCapability + " on the host";
  return "the kernel refuses it (it has capabilities that we have not, or a security module forbids it): " +
         std::string(kCapability);
}

// The first version of which something is exported that the one before does not have.
uint32_t minor_of(const Image& image) {
  if (const Symbol version = image.symbol("", "Py_Version"); version.address != 0)  // since 3.11
    return static_cast<uint32_t>(image.value<uint64_t>(version.address) >> 16 & 0xff);
  return image.symbol("", "Py_Is").address != 0 ? 10 : 0;
}

}  // namespace

AttachTarget look_at_target_process(const Image& image) {
  AttachTarget target;
  const uint32_t pid = target.pid = image.pid();
  const std::string status = formats::read_process_file(pid, "status");
  target.is_there = !status.empty();
  if (!target.is_there) return target;
  const std::string_view state = formats::status_value(status, "State");
  target.state = state.empty() ? '?' : state[0];
  target.tracer = formats::status_number(status, "TracerPid");
  target.seccomp = formats::status_number(status, "Seccomp");
  std::istringstream command(formats::read_process_file(pid, "cmdline"));
  for (std::string argument; std::getline(command, argument, '\0');) target.command.push_back(argument);
  uint64_t word = 0;
  const bool may_read = image.is_there() && image.read(image.maps().front().begin, &word, sizeof(word));
  if (!may_read && target.state != 'Z') target.refused = why_refused(pid, status);
  if (!may_read) return target;
  target.minor = minor_of(image);
  target.has_torch = !image.object("libtorch_cpu.so").empty();
  target.is_elsewhere = is_other(pid, "ns/mnt") || is_other(pid, "root");
  target.has_other_net = is_other(pid, "ns/net");
  return target;
}

std::string why_not(const AttachTarget& target) {
  if (!target.is_there) return "there is no such process";
  if (target.state == 'Z' || formats::has_ended(target.pid)) return "it has ended";
  if (!target.refused.empty()) return target.refused;
  if (target.minor == 0) return "it runs no Python of 3.10 or later";
  if (target.tracer != 0 && target.minor < 14)
    return "process " + std::to_string(target.tracer) + " traces it (gdb, strace): let that one go first";
  if (target.state == 'T' || target.state == 't')
    return "it is stopped (SIGSTOP): kill -CONT " + std::to_string(target.pid);
  if (target.seccomp == 1) return "it is in the strict mode of seccomp: any system call of ours would kill it";
  if (!StoppedThread::is_supported() && (target.minor < 14 || target.is_elsewhere))
    return "on AArch64 only Python 3.14 and later can be attached to, outside of containers";
  return "";
}

}  // namespace torchprof::launcher
