// What is asked for from outside: which steps are to be recorded, and what RUN/spool/control says.
#include "tracer/plan/asked_windows.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tracer/control_reader.h"
#include "tracer/session.h"
#include "tracer/spool/control_file.h"

namespace asked_windows_test {

namespace fs = std::filesystem;
using namespace torchprof;
using window::AskedNow;
using window::AskedWindows;

namespace {

// Lines as they come, with some that nobody understands.
std::string made_up_line(std::mt19937& random) {
  const std::string id = std::to_string(random() % 50);
  switch (random() % 6) {
    case 0:
      return "drop " + id;
    case 1:
      return std::vector<std::string>{"",
                                      "window",
                                      "window 7",
                                      "drop x",
                                      "window 7 steps=5..4",
                                      "capture 7 ranks=0,7",
                                      "window 7 steps=1..2 ranks=",
                                      "window 7 steps=1..2 ranks=0,",
                                      "window 7 steps=1..2 ranks=0..x",
                                      "window 7 steps=1..2 ranks=0 later=1",
                                      "window 7 steps=0..18446744073709551615",
                                      std::string("window 7\0steps=1..2", 19)}[random() % 12];
    default: {
      const uint64_t first = random() % 1000;
      return "window " + id + " steps=" + std::to_string(first) + ".." + std::to_string(first + random() % 9) +
             std::vector<std::string>{"", "", " ranks=3", " ranks=0,2..4,9"}[random() % 4];
    }
  }
}

bool is_understood(const ControlLine& line) {
  return line.kind == ControlLine::Kind::kWindow || line.kind == ControlLine::Kind::kDrop;
}

std::string text_of(const ControlLine& line) {
  if (line.kind == ControlLine::Kind::kDrop) return "drop " + std::to_string(line.id);
  return "window " + std::to_string(line.id) + " steps=" + std::to_string(line.first) + ".." +
         std::to_string(line.last) + (line.ranks.empty() ? "" : " ranks=" + std::string(line.ranks));
}

// What a process has obeyed, as lines.
std::string& obeyed() {
  static std::string lines;
  return lines;
}
bool obey(const ControlLine& line) noexcept {
  obeyed() += text_of(line) + "\n";
  return true;
}
bool refuse(const ControlLine&) noexcept { return false; }

// The result of `body` in a child process that records into a directory; one session is one process.
bool holds(const std::function<bool(const fs::path& control)>& body) {
  char name[] = "/tmp/torchprof-control-XXXXXX";
  const fs::path own = mkdtemp(name);
  fs::create_directory(own / "spool");
  const pid_t child = fork();
  if (child == 0) {
    session::arm(Config{}, own.c_str());
    _exit(session::open_spool() && body(own / "spool" / "control") ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  fs::remove_all(own);
  CHECK(WIFEXITED(status));
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void append(const fs::path& path, std::string_view text) { std::ofstream(path, std::ios::app) << text << std::flush; }

}  // namespace

TEST_CASE("a step is recorded if a request that came before its first step has it, and nothing has taken it back") {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    AskedWindows asked;
    struct Range {
      uint64_t first, last;
    };
    std::map<uint64_t, Range> model;  // by request
    bool is_started = false;
    for (uint64_t step = 0; step < 200; ++step) {
      std::erase_if(model, [step](const auto& each) { return each.second.last < step; });
      for (int i = static_cast<int>(random() % 3); i > 0; --i) {
        const uint64_t id = random() % 6, first = step + random() % 12, last = first + random() % 5;
        switch (random() % 8) {
          case 0:
            asked.drop(id);
            model.erase(id);
            break;
          case 1:
            asked.start(1);
            is_started = true;
            break;
          case 2:
          case 3:
            asked.stop(step);
            std::erase_if(model, [step](const auto& each) { return each.second.first <= step; });
            is_started = false;
            break;
          default: {
            const bool is_late = first <= step;
            CHECK(asked.take(id, first, last, step) ==
                  (is_late ? AskedWindows::Taken::kLate : AskedWindows::Taken::kTaken));
            model.erase(id);
            if (!is_late) model[id] = {first, last};
          }
        }
      }
      uint64_t until = is_started ? AskedNow::kByHand : 0, next = UINT64_MAX;
      for (const auto& [id, range] : model) {
        if (range.first > step)
          next = std::min(next, range.first);
        else if (range.last >= step)
          until = std::max(until, range.last + 1);
      }
      const AskedNow now = asked.at(step);
      REQUIRE(now.until == until);
      REQUIRE(now.next == next);
    }
  }
}

TEST_CASE("a process waits for eight windows; one that makes no steps forgets the oldest for the next") {
  AskedWindows busy, idle;
  for (uint64_t id = 1; id <= AskedWindows::kMost; ++id)
    CHECK(busy.take(id, 10 * id, 10 * id, 5) == AskedWindows::Taken::kTaken);
  CHECK(busy.take(99, 500, 500, 5) == AskedWindows::Taken::kFull);
  CHECK(busy.take(99, 500, 500, 11) == AskedWindows::Taken::kTaken);  // the first one is over
  for (uint64_t id = 1; id <= 20; ++id) CHECK(idle.take(id, 10 * id, 10 * id, 0) == AskedWindows::Taken::kTaken);
  CHECK(idle.at(200).until == 201);
  CHECK(idle.at(0).next == 130);
}

TEST_CASE("a start waits for the next step while steps end, two seconds at most") {
  constexpr int64_t kSecond = 1'000'000'000;
  struct Case {
    int64_t since_start, since_step, long_for_a_step;  // ns
    bool waits;
  };
  for (const Case& c : {Case{0, kSecond / 10, kSecond, true}, Case{kSecond, kSecond, kSecond / 100, true},
                        Case{2 * kSecond, kSecond / 10, kSecond, false},  // long enough
                        Case{0, 3 * kSecond, kSecond / 100, false},       // a hang
                        Case{0, 3 * kSecond, 80 * kSecond, true},         // steps of ten seconds
                        Case{0, kSecond, 0, false}}) {                    // no steps
    AskedWindows asked;
    const int64_t now = 1000 * kSecond;
    CHECK_FALSE(asked.start_waits(now, now - c.since_step, c.long_for_a_step));  // nothing was started
    asked.start(now - c.since_start);
    CHECK(asked.start_waits(now, now - c.since_step, c.long_for_a_step) == c.waits);
  }
}

TEST_CASE("a line of the control file is understood as a whole or not at all") {
  std::mt19937 random(7);
  for (int i = 0; i < 5000; ++i) {
    std::string line = made_up_line(random);
    if (random() % 2 == 0 && !line.empty()) line[random() % line.size()] = static_cast<char>(random());
    const ControlLine parsed = parse_control_line(line);
    CHECK((parsed.kind == ControlLine::Kind::kNone) == line.empty());
    if (!is_understood(parsed)) continue;
    CHECK(parsed.last >= parsed.first);
    const std::string text = text_of(parsed);  // the line has views of it
    CHECK(text_of(parse_control_line(text)) == text);
  }
  CHECK(text_of(parse_control_line("window 12 steps=200..204")) == "window 12 steps=200..204");
}

TEST_CASE("a line with ranks is for these ranks alone, and for no process that is none") {
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    std::set<uint64_t> wanted;
    std::string ranks;
    for (size_t n = 1 + random() % 4; n > 0; --n) {
      const uint64_t first = random() % 40, last = random() % 2 == 0 ? first : first + random() % 5;
      ranks += (ranks.empty() ? "" : ",") + std::to_string(first);
      if (last > first || random() % 4 == 0) ranks += ".." + std::to_string(last);
      for (uint64_t rank = first; rank <= last; ++rank) wanted.insert(rank);
    }
    const std::string text = "window 7 steps=1..2 ranks=" + ranks;
    const ControlLine line = parse_control_line(text);
    CAPTURE(text);
    REQUIRE(line.kind == ControlLine::Kind::kWindow);
    for (uint64_t rank = 0; rank < 50; ++rank) CHECK(is_for_rank(line, rank) == wanted.contains(rank));
    CHECK_FALSE(is_for_rank(line, kNoRank));
  }
  CHECK(is_for_rank(parse_control_line("window 7 steps=1..2"), kNoRank));
}

TEST_CASE("the control file is read once, in whatever pieces it is written") {
  for (unsigned seed = 0; seed < 20; ++seed)
    CHECK(holds([seed](const fs::path& control) {
      std::mt19937 random(seed);
      const uint64_t rank = seed % 6 == 5 ? kNoRank : seed % 6;
      window::control_reader::know_rank(rank);
      std::string all, expected;
      for (int i = 0; i < 400; ++i) {
        const std::string line = random() % 40 == 0 ? std::string(random() % 10'000, 'x') : made_up_line(random);
        const ControlLine parsed = parse_control_line(line);
        if (is_understood(parsed) && is_for_rank(parsed, rank)) expected += text_of(parsed) + "\n";
        all += line + "\n";
      }
      bool is_right = window::control_reader::look(true, obey);  // there is none
      for (size_t at = 0; at < all.size();) {
        const size_t size = std::min(all.size() - at, size_t{1} + random() % 3000);
        append(control, all.substr(at, size));
        at += size;
        if (random() % 5 == 0) window::control_reader::look(true, refuse);
        is_right = window::control_reader::look(true, obey) && is_right;
      }
      append(control, "window 1 steps=5..6");  // is not there yet
      return window::control_reader::look(true, obey) && is_right && obeyed() == expected;
    }));
}

TEST_CASE("a line that could not be obeyed comes again, and a file that is a new one is read from its begin") {
  CHECK(holds([](const fs::path& control) {
    append(control, "drop 1\ndrop 2\n");
    const bool was_refused = !window::control_reader::look(true, refuse) && obeyed().empty();
    const bool is_taken = window::control_reader::look(true, obey) && obeyed() == "drop 1\ndrop 2\n";
    fs::remove(control);
    append(control, "drop 3\n");
    return was_refused && is_taken && window::control_reader::look(true, obey) &&
           obeyed() == "drop 1\ndrop 2\ndrop 3\n";
  }));
}

TEST_CASE("what is no file of the user's is not read") {
  CHECK(holds([](const fs::path& control) {
    fs::create_directory(control);
    const bool is_passed = window::control_reader::look(true, obey);
    fs::remove(control);
    append(fs::path(control) += ".other", "drop 1\n");
    fs::create_symlink(fs::path(control) += ".other", control);
    return is_passed && window::control_reader::look(true, obey) && obeyed().empty();
  }));
}

}  // namespace asked_windows_test
