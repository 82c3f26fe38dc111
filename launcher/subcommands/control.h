// A request to the window thread of a process (tracer/window_thread.h): `start`, `stop`, `status` or `stacks`, and its
// answer.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace torchprof::launcher {

class ControlRequest {
 public:
  // `spool`: the file that the process writes; the door lies beside it, and no other process obeys. Empty: it has none
  // so far. `pid`: in our namespace, for a process whose door is no file (tracer/door_socket.h), and for people; 0: not
  // seen. `patience`: a busy process may have to wait for Python's lock.
  ControlRequest(uint32_t pid, std::string_view command, const std::filesystem::path& spool,
                 std::chrono::milliseconds patience = std::chrono::seconds(5));
  ~ControlRequest();
  ControlRequest(ControlRequest&& other) noexcept;
  ControlRequest& operator=(ControlRequest&&) = delete;

  // Whether somebody listens beside the spool, so on this machine, whatever it is called in its container.
  static bool is_reached(const std::filesystem::path& spool);

  uint32_t pid() const { return pid_; }
  int fd() const { return fd_; }  // becomes readable when there is more of the answer
  // Reads what is there, without waiting. True: answer() is whole, or no more of it will come.
  bool take();
  bool is_over() const { return is_over_; }
  // "ok: ..." or "error: ..."
  std::string answer() const;
  std::string wait();

 private:
  ControlRequest() = default;
  bool connect_beside(const std::filesystem::path& spool);
  bool connect_to(uint32_t own_number);
  void close_socket();

  uint32_t pid_ = 0;
  int fd_ = -1;
  bool is_over_ = false;
  std::string text_;
  std::chrono::steady_clock::time_point deadline_;
};

}  // namespace torchprof::launcher
