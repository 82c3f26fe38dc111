#include "launcher/terminal/progress.h"

#include <string>
#include <system_error>
#include <utility>

#include "formats/io/text.h"
#include "launcher/terminal/say.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr std::chrono::seconds kOnTerminal = 1s, kElsewhere = 10s;

}  // namespace

Progress::Progress(std::function<uintmax_t()> written)
    : written_(std::move(written)),
      is_terminal_(can_overwrite()),
      next_(std::chrono::steady_clock::now() + (is_terminal_ ? kOnTerminal : kElsewhere)) {}

Progress::~Progress() { wipe(); }

void Progress::update() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  const std::string text = "writing the trace, " + formats::bytes_text(written_()) + " so far";
  if (is_terminal_) {
    overwrite(text);
  } else {
    say(text);
    next_ = now + kElsewhere;
  }
}

BackgroundProgress::BackgroundProgress(std::function<uintmax_t()> written) {
  try {
    thread_ = std::thread([over = over_.get_future(), written = std::move(written)] {
      Progress progress(written);
      while (over.wait_for(500ms) == std::future_status::timeout) progress.update();
    });
  } catch (const std::system_error&) {  // no thread can be had
  }
}

BackgroundProgress::~BackgroundProgress() {
  if (!thread_.joinable()) return;
  over_.set_value();
  thread_.join();
}

uintmax_t bytes_in(const fs::path& directory) {
  uintmax_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (at->path().filename() == "spool")
      at.disable_recursion_pending();
    else if (at->is_regular_file(ignored))
      bytes += at->file_size(ignored);
  }
  return bytes;
}

}  // namespace torchprof::launcher
