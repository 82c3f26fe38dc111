// The progress of what takes long: on a terminal a line that overwrites itself, appears after a second and is removed
// at the end; elsewhere (a log, TERM=dumb, NO_COLOR) a line each ten seconds, unless quiet.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <thread>

namespace torchprof::launcher {

class Progress {
 public:
  // `written` gives the number of bytes so far.
  explicit Progress(std::function<uintmax_t()> written);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void update();

 private:
  std::function<uintmax_t()> written_;
  bool is_terminal_;
  std::chrono::steady_clock::time_point next_;
};

// The same on a thread of its own, for as long as the object lives; nothing is shown where no thread can be had.
// `written` is called on that thread.
class BackgroundProgress {
 public:
  explicit BackgroundProgress(std::function<uintmax_t()> written);
  ~BackgroundProgress();
  BackgroundProgress(const BackgroundProgress&) = delete;
  BackgroundProgress& operator=(const BackgroundProgress&) = delete;

 private:
  std::promise<void> over_;
  std::thread thread_;
};

// The size of the files in the directory and those below it, as a dataset has them; without raw records (spool/).
uintmax_t bytes_in(const std::filesystem::path& directory);

}  // namespace torchprof::launcher
