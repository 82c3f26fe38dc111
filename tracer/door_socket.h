// The socket by which `torchprof ctl` and others reach this process: a file beside its spool, HOST.PID.START.ctl
// (spool/run_files.h), so that who finds the spool finds it, whatever PID or network namespace either is in. It goes
// with the process; one that was killed leaves it behind, and nobody listens there.
//
// As long as there is no spool, or where the file system takes no sockets, it is the name "torchprof.PID" of the
// abstract namespace, which is one for all processes of a network namespace.
//
// By the thread of ours, and before it starts (window_thread.h), but for end_door(). Errors: -1, or nothing happens.
#pragma once

namespace torchprof::window {

// Listens; the descriptor is far above the program's own.
int open_door_socket() noexcept;
// Whether the spool has come to be open since the socket was: then it is to be opened again.
bool door_is_elsewhere() noexcept;
// Nobody finds it any more. In a child after fork it is the parent's, and stays.
void remove_door_file() noexcept;
// The same at the end of the process, by the thread that ends it, while the thread of ours may be making one: no file
// stays, and none is made again.
void end_door() noexcept;
void forget_door_after_fork() noexcept;

}  // namespace torchprof::window
