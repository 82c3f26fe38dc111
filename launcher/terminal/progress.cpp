#include "launcher/terminal/progress.h"

#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>

#include "formats/io/text.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

void put(std::string_view text) { [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, text.data(), text.size()); }

}  // namespace

Progress::Progress(std::function<uintmax_t()> written)
    : written_(std::move(written)), is_shown_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (was_shown_) put("\r\033[K");
}

void Progress::update() {
  if (!is_shown_ || std::chrono::steady_clock::now() - start_ < 1s) return;
  put("\r\033[Ktorchprof: writing the trace, " + formats::bytes_text(written_()) + " so far");
  was_shown_ = true;
}

BackgroundProgress::BackgroundProgress(std::function<uintmax_t()> written) {
  if (isatty(STDERR_FILENO) != 1) return;
  thread_ = std::thread([this, written = std::move(written)] {
    Progress progress(written);
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, 500ms, [this] { return is_over_; })) progress.update();
  });
}

BackgroundProgress::~BackgroundProgress() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

uintmax_t bytes_in(const fs::path& directory) {
  uintmax_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (at->is_regular_file(ignored)) bytes += at->file_size(ignored);
  }
  return bytes;
}

}  // namespace torchprof::launcher
