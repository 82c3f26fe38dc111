// torchprof top: what a running job does now. It reads the spools and /proc; of the program itself it asks only what
// `ctl` asks, and only when w is pressed.
#include <unistd.h>

#include <map>
#include <utility>

#include "formats/io/error.h"
#include "launcher/run_dir/input.h"
#include "launcher/subcommands/alive_runs.h"
#include "launcher/subcommands/control.h"
#include "launcher/subcommands/subcommands.h"
#include "launcher/terminal/say.h"
#include "launcher/watch/live_job.h"
#include "launcher/watch/top_picture.h"

namespace torchprof::launcher {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

// What w has asked for, and what the processes have answered so far.
class Windows {
 public:
  void ask(const std::vector<LiveJob::Live>& processes) {
    requests_.clear();
    for (const auto& [pid, spool] : processes) requests_.emplace_back(pid, "start", spool);
    if (requests_.empty()) said_ = "w: no process runs here";
  }
  std::vector<pollfd> fds() const {
    std::vector<pollfd> out;
    for (const ControlRequest& request : requests_)
      if (!request.is_over()) out.push_back({request.fd(), POLLIN, 0});
    return out;
  }
  std::string said() {
    if (requests_.empty()) return said_;
    std::map<std::string, std::vector<uint32_t>> answers;
    for (ControlRequest& request : requests_) {
      if (!request.take()) {
        answers["w: waiting for an answer"].push_back(request.pid());
        continue;
      }
      const std::string answer = request.answer();
      answers[answer.substr(answer.starts_with("ok: ")      ? 4
                            : answer.starts_with("error: ") ? 7
                                                            : 0)]
          .push_back(request.pid());
    }
    std::string out;
    for (const auto& [answer, pids] : answers) {
      out += (out.empty() ? "" : "; ") + std::string(pids.size() == 1 ? "process " : "processes ");
      for (size_t i = 0; i < pids.size(); ++i) out += (i > 0 ? ", " : "") + std::to_string(pids[i]);
      out += ": " + answer;
    }
    return out;
  }

 private:
  std::vector<ControlRequest> requests_;
  std::string said_;
};

void print_picture(const LiveJob& job) {
  std::string out;
  constexpr size_t kRows = 40;  // of a picture of many processes; one of few has all that there is
  const TopState state = job.state();
  const size_t rows = state.processes.size() <= kRows / 2 ? 1000 : kRows;
  const TopStyle style{{screen_size().columns, rows}, has_colours(), has_utf8()};
  for (const std::string& line : top_picture(state, style)) out += line + "\n";
  print(out);
}

// False: the user has left before the job ended.
bool watch(LiveJob& job) {
  Screen screen;
  Windows windows;
  auto next = steady_clock::now();
  for (;;) {
    if (steady_clock::now() >= next) {
      job.look();
      if (job.has_ended()) return true;
      next = steady_clock::now() + 1s;
    }
    TopState state = job.state();
    state.has_keys = isatty(STDIN_FILENO) == 1;
    state.said = windows.said();
    screen.draw(top_picture(state, {screen_size(), has_colours(), has_utf8()}));
    std::vector<pollfd> answers = windows.fds();
    char key = 0;
    const Screen::Event event = screen.wait(next, answers, key);
    if (event == Screen::Event::kLeave || (event == Screen::Event::kKey && (key == 'q' || key == 'Q'))) return false;
    if (event == Screen::Event::kKey && key == 'w') windows.ask(job.live_here());
  }
}

}  // namespace

int top(const Arguments& arguments) {
  if (arguments.empty()) return list_alive_runs("torchprof top RUN");
  TopOptions options = parse_top(arguments);
  options.target = without_launcher(options.target);
  LiveJob job(options.target, options.seconds, formats::LiveSteps::kLatest);
  if (options.is_once || !can_draw()) {
    job.look();
    if (job.state().processes.empty()) throw Error(options.target + ": nothing is recorded so far");
    print_picture(job);
  } else if (watch(job)) {
    print_picture(job);
  }
  return 0;
}

}  // namespace torchprof::launcher
