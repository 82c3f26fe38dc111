// A line on a terminal that is overwritten by the next and wiped at the end. It never appears if all is done in a
// second, or stderr is no terminal.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <thread>

namespace torchprof::launcher {

class Progress {
 public:
  // `written`: bytes so far.
  explicit Progress(std::function<uintmax_t()> written);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void update();

 private:
  std::function<uintmax_t()> written_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  bool is_shown_;
  bool was_shown_ = false;
};

// The same from a thread of its own, for as long as it lives; `written` is called there.
class BackgroundProgress {
 public:
  explicit BackgroundProgress(std::function<uintmax_t()> written);
  ~BackgroundProgress();
  BackgroundProgress(const BackgroundProgress&) = delete;
  BackgroundProgress& operator=(const BackgroundProgress&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;
  std::thread thread_;
};

// Of the files that lie in the directory itself.
uintmax_t bytes_in(const std::filesystem::path& directory);

}  // namespace torchprof::launcher
