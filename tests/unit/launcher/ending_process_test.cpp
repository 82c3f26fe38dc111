// A process may end at any moment, also while the launcher reads what the kernel says of it: between the opening of a
// file in /proc and the reading, or in the midst of a list of its threads. Whoever looks gets less, and no error.
#include <doctest/doctest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <new>
#include <nlohmann/json.hpp>

#include "formats/io/process_files.h"
#include "launcher/attach/image.h"
#include "launcher/attach/rights.h"
#include "launcher/attach/stopped_thread.h"
#include "launcher/run_dir/still_running.h"
#include "launcher/run_dir/writers.h"

namespace ending_process_test {

using namespace torchprof;

namespace {

// A process that has a child at all times, which is killed and reaped as soon as the next has come.
class Mortals {
 public:
  Mortals() {
    void* const shared = mmap(nullptr, sizeof(Seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(shared != MAP_FAILED);
    seen_ = new (shared) Seen;
    keeper_ = fork();
    REQUIRE(keeper_ >= 0);
    if (keeper_ == 0) keep();
    while (seen_->last == 0) sched_yield();
  }
  ~Mortals() {
    kill(keeper_, SIGKILL);
    waitpid(keeper_, nullptr, 0);
    munmap(seen_, sizeof(Seen));
  }
  Mortals(const Mortals&) = delete;
  Mortals& operator=(const Mortals&) = delete;
  uint32_t one() const { return seen_->last; }
  size_t ended() const { return seen_->ended; }

 private:
  struct Seen {
    std::atomic<uint32_t> last{0};
    std::atomic<size_t> ended{0};
  };
  [[noreturn]] void keep() {
    for (pid_t before = 0;;) {
      const pid_t keeper = getpid(), pid = fork();
      if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (getppid() == keeper) pause();
        _exit(0);
      }
      if (pid > 0) seen_->last = static_cast<uint32_t>(pid);
      if (before > 0) {
        kill(before, SIGKILL);
        waitpid(before, nullptr, 0);
        ++seen_->ended;
      }
      before = pid;
    }
  }
  Seen* seen_ = nullptr;
  pid_t keeper_ = -1;
};

}  // namespace

TEST_CASE("a process that ends while it is looked at is no error") {
  const launcher::Marks marks("/nowhere", "/nowhere/libtorchprof.so");
  const std::function<void(uint32_t)> looks[] = {
      [](uint32_t pid) { formats::stat_behind_name(std::to_string(pid)); },
      [](uint32_t pid) { launcher::own_number(pid); },
      [](uint32_t pid) { launcher::spool_of(pid); },
      [](uint32_t pid) {
        launcher::still_running({{pid, true, ""}});
      },
      [](uint32_t pid) { launcher::look_at_target_process(launcher::Image(pid)); },
      [](uint32_t pid) { launcher::threads_that_rest(pid); },
      [&marks](uint32_t pid) { CHECK_FALSE(marks.has(pid)); },
      [](uint32_t pid) { formats::threads_of_process(pid); },
      [](uint32_t pid) { formats::has_ended(pid) || formats::is_ending(pid); },
  };
  const Mortals mortals;
  for (const auto& look : looks)
    for (const size_t enough = mortals.ended() + 200; mortals.ended() < enough;) {
      const uint32_t pid = mortals.one();
      for (int i = 0; i < 20; ++i) CHECK_NOTHROW(look(pid));
    }
}

TEST_CASE("what a process's status says") {
  const std::string status = formats::read_process_file(static_cast<uint32_t>(getpid()), "status");
  CHECK(formats::status_number(status, "Pid") == static_cast<uint32_t>(getpid()));
  CHECK(formats::status_number(status, "PPid") == static_cast<uint32_t>(getppid()));
  CHECK(formats::status_value(status, "State").starts_with("R"));
  CHECK(formats::status_value(status, "Stat").empty());
  CHECK(formats::status_value("Name:\tNSpid:\nNSpid:\t7 8", "NSpid") == "7 8");
  CHECK(formats::status_value("NSpid:", "NSpid").empty());
  CHECK(formats::read_process_file(0, "status").empty());
  CHECK(formats::threads_of_process(0).empty());
}

}  // namespace ending_process_test
