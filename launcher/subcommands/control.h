// A request to the window thread of a process (tracer/window_thread.h): `start`, `stop`, `status` or `stacks`, and its
// answer.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace torchprof::launcher {

class ControlRequest {
 public:
  // `pid`: in our namespace. `spool`: the name of the file that the process writes, if that is how it was found: no
  // other process obeys; otherwise empty. `patience`: a busy process may have to wait for Python's lock.
  ControlRequest(uint32_t pid, std::string_view command, const std::string& spool,
                 std::chrono::milliseconds patience = std::chrono::seconds(5));
  ~ControlRequest();
  ControlRequest(ControlRequest&& other) noexcept;
  ControlRequest& operator=(ControlRequest&&) = delete;

  uint32_t pid() const { return pid_; }
  int fd() const { return fd_; }  // becomes readable when there is more of the answer
  // Reads what is there, without waiting. True: answer() is whole, or no more of it will come.
  bool take();
  bool is_over() const { return is_over_; }
  // "ok: ..." or "error: ..."
  std::string answer() const;
  std::string wait();

 private:
  bool connect_to(uint32_t own_number) const;

  uint32_t pid_;
  int fd_;
  bool is_over_ = false;
  std::string text_;
  std::chrono::steady_clock::time_point deadline_;
};

}  // namespace torchprof::launcher
