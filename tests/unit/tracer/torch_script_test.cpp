// Lines of TorchScript, as torch gives them by vectors of strings that are given back here.
#include "tracer/native/script.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <vector>

#include "tests/unit/support/script_stand_in.h"
#include "tracer/session.h"

namespace torch_script_test {

using namespace torchprof;
using script_stand_in::StandIn;

namespace {

using Found = std::vector<torch::ScriptLine>;

Found ask(size_t room = 64) {
  Found lines(room);
  lines.resize(torch::script_lines(lines.data(), room));
  return lines;
}

// Runs in a child that records. Its exit status is the number of the first check that fails. The sanitizer finds leaks.
void check(const StandIn& torch, const std::function<bool(const StandIn&)>& body) {
  char directory[] = "/tmp/torchprof-script-XXXXXX";
  REQUIRE(mkdtemp(directory));
  std::filesystem::create_directory(std::string(directory) + "/spool");
  const pid_t child = fork();
  if (child == 0) {
    session::arm(Config{}, directory);
    if (!session::current_buffer()) _exit(2);
    torch::detail::ScriptApi api;
    api.current = reinterpret_cast<decltype(api.current)>(torch.current);
    api.prepare = reinterpret_cast<decltype(api.prepare)>(torch.prepare);
    api.free = [](void* memory) { ::operator delete(memory); };
    api.string = torch.string;
    torch::detail::use_script(api);
    _exit(body(torch) ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  std::filesystem::remove_all(directory);
}

void check_both(const std::function<bool(const StandIn&)>& body) {
  SUBCASE("strings of the C++11 ABI") { check(script_stand_in::new_abi::stand_in(), body); }
  SUBCASE("strings of the ABI before") { check(script_stand_in::old_abi::stand_in(), body); }
}

bool lines_are(const Found& found, const std::vector<uint32_t>& lines) {
  if (found.size() != lines.size()) return false;
  for (size_t i = 0; i < lines.size(); ++i)
    if (found[i].line != lines[i] || !found[i].function) return false;
  return true;
}

}  // namespace

TEST_CASE("functions and lines are read, and everything is given back") {
  check_both([](const StandIn& torch) {
    torch.set(3, 0, false);
    bool is_right = true;
    for (int i = 0; i < 1000; ++i) {
      const Found found = ask();
      is_right = is_right && lines_are(found, {10, 11, 12}) && found[0].function == found[2].function &&
                 found[0].function != found[1].function;
    }
    return is_right && torch.owned() == 0 && lines_are(ask(2), {10, 11});
  });
}

TEST_CASE("functions without a file are left out, also before the size of an entry is known") {
  check_both([](const StandIn& torch) {
    torch.set(1, 1, false);
    if (!ask().empty() || torch.owned() != 0) return false;
    torch.set(4, 2, false);
    return lines_are(ask(), {12, 13}) && torch.owned() == 0;
  });
}

TEST_CASE("no interpreter, no lines") {
  check_both([](const StandIn& torch) {
    torch.set(0, 0, false);
    return ask().empty();
  });
}

TEST_CASE("an answer that looks otherwise ends it") {
  check_both([](const StandIn& torch) {
    torch.set(2, 0, true);
    if (!ask().empty()) return false;
    torch.set(2, 0, false);
    return ask().empty();
  });
}

}  // namespace torch_script_test
