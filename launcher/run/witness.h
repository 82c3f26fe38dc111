// A process of ours in the command's process group that tells whether a signal went to the whole group.
//
// The launcher and its command are in one group. A signal to the group (killpg(), `kill 0`, timeout(1), a terminal)
// reaches both, and must not be forwarded: the program would get it twice. A signal to the launcher alone must be. The
// kernel tells neither. The witness blocks all signals and does nothing: what is pending there went to the group, or to
// each process of a job. It is younger than the launcher, so that the kernel, which signals the members of a group
// youngest first (attach_pid() in kernel/pid.c), has signalled it before. It has no arguments and a name of its own, so
// that nobody who looks for torchprof or the command by name finds it (pkill).
//
// Where it cannot be started nothing is known of groups. It ends with the launcher. One thread.
#pragma once

#include <sys/types.h>

namespace torchprof::launcher {

class Witness {
 public:
  Witness() = default;
  ~Witness() { end(); }
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;

  // Once, when the command has been started: so the launcher's first child is the command.
  void start();
  // Whether the group got this signal since the last call that said so.
  bool saw(int signal);
  // A child has ended and was waited for: it may have been the witness.
  void reaped(pid_t pid) {
    if (pid == pid_) pid_ = -1;
  }

 private:
  void end();

  pid_t pid_ = -1;
};

}  // namespace torchprof::launcher
