#include "inject/exec_environment.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "inject/exec_memory.h"

namespace exec_environment_test {

using namespace torchprof::inject;

namespace {

constexpr const char* kLibrary = "/opt/lib/libtorchprof.so";

// What the process was started with; save_environment() is called once, as in the constructor.
void start_process() {
  static const bool done = [] {
    static std::string set[] = {"LD_PRELOAD=/usr/lib/mine.so:/opt/lib/libtorchprof.so",
                                "TORCHPROF_OUTPUT=/runs/a%%b",
                                "TORCHPROF_PYTHON=calls",
                                "NVTX_INJECTION64_PATH=/opt/lib/libtorchprof.so",
                                "TORCHPROF_LAUNCHED=here:/runs/a%b",
                                "HOME=/root"};
    static char* pointers[] = {set[0].data(), set[1].data(), set[2].data(), set[3].data(),
                               set[4].data(), set[5].data(), nullptr};
    char** before = environ;
    environ = pointers;
    save_environment(kLibrary);
    environ = before;
    // The program may overwrite what it was started with.
    for (std::string& entry : set) std::ranges::fill(entry, 'x');
    return true;
  }();
  REQUIRE(done);
  REQUIRE(keeps_environment());
}

// What a child that is given `environment` gets, sorted.
std::vector<std::string> child_of(std::vector<std::string> environment, Preload preload = Preload::kPutBack) {
  start_process();
  std::vector<char*> pointers;
  for (std::string& entry : environment) pointers.push_back(entry.data());
  pointers.push_back(nullptr);
  const size_t room = room_for(pointers.data(), preload);
  if (room == 0) return environment;
  std::vector<std::byte> memory(room + 8, std::byte{0x5a});
  std::vector<std::string> out;
  for (char** entry = with_library(pointers.data(), preload, memory.data()); *entry; ++entry) out.emplace_back(*entry);
  for (size_t i = room; i < memory.size(); ++i) CHECK(memory[i] == std::byte{0x5a});
  std::ranges::sort(out);
  return out;
}

using Strings = std::vector<std::string>;

}  // namespace

TEST_CASE("an empty environment gets the library and every setting back, and nothing else") {
  CHECK(child_of({}) == Strings{"LD_PRELOAD=/opt/lib/libtorchprof.so", "NVTX_INJECTION64_PATH=/opt/lib/libtorchprof.so",
                                "TORCHPROF_LAUNCHED=here:/runs/a%b", "TORCHPROF_OUTPUT=/runs/a%%b",
                                "TORCHPROF_PYTHON=calls"});
}

TEST_CASE("an environment of the caller's own keeps what it says, and its preloads stay in front") {
  CHECK(child_of({"A=1", "LD_PRELOAD=x.so y.so", "NVTX_INJECTION64_PATH=/mine.so"}) ==
        Strings{"A=1", "LD_PRELOAD=x.so:y.so:/opt/lib/libtorchprof.so", "NVTX_INJECTION64_PATH=/mine.so",
                "TORCHPROF_LAUNCHED=here:/runs/a%b", "TORCHPROF_OUTPUT=/runs/a%%b", "TORCHPROF_PYTHON=calls"});
}

TEST_CASE("a child with a run directory of its own is given no settings of ours") {
  CHECK(child_of({"TORCHPROF_OUTPUT=/other"}) ==
        Strings{"LD_PRELOAD=/opt/lib/libtorchprof.so", "TORCHPROF_OUTPUT=/other"});
}

TEST_CASE("what is complete, or says TORCHPROF_DISABLE, stays as it is") {
  const Strings complete{"LD_PRELOAD=/opt/lib/libtorchprof.so:z.so", "TORCHPROF_OUTPUT=/runs/a%%b"};
  CHECK(child_of(complete) == complete);
  CHECK(child_of({"TORCHPROF_DISABLE=1"}) == Strings{"TORCHPROF_DISABLE=1"});
  CHECK(child_of({"TORCHPROF_DISABLE=0"}).size() == 6);
}

TEST_CASE("the library is taken out for a program that cannot have it, the other preloads stay") {
  CHECK(child_of({"A=1", "LD_PRELOAD=x.so:/opt/lib/libtorchprof.so"}, Preload::kTakeOut) ==
        Strings{"A=1", "LD_PRELOAD=x.so"});
  CHECK(child_of({"LD_PRELOAD=/opt/lib/libtorchprof.so", "NVTX_INJECTION64_PATH=/opt/lib/libtorchprof.so"},
                 Preload::kTakeOut) == Strings{});
  CHECK(child_of({"A=1"}, Preload::kTakeOut) == Strings{"A=1"});
}

TEST_CASE("a program of another user gets nothing of ours, and the rest as it is") {
  start_process();
  if (geteuid() != 0) return;  // only root may become somebody else
  const Strings given{"A=1",
                      "CUDA_INJECTION64_PATH=/opt/lib/libtorchprof.so",
                      "LD_PRELOAD=x.so:/opt/lib/libtorchprof.so",
                      "NVTX_INJECTION64_PATH=/opt/lib/libtorchprof.so",
                      "PYTHONPATH=/mine:/opt/lib/python::/opt/lib/python3",
                      "TORCHPROF_OUTPUT=/runs/a%%b"};
  const Strings none{"LD_PRELOAD=/opt/lib/libtorchprof.so", "PYTHONPATH=/opt/lib/python"};
  const Strings theirs{"CUDA_INJECTION64_PATH=/x.so", "NVTX_INJECTION64_PATH=/x.so", "PYTHONPATH=/mine"};
  REQUIRE(seteuid(65534) == 0);
  const std::vector<Strings> got{child_of(given), child_of(none), child_of({}), child_of(theirs),
                                 child_of(given, Preload::kTakeOut)};
  REQUIRE(seteuid(0) == 0);
  const Strings rest{"A=1", "LD_PRELOAD=x.so", "PYTHONPATH=/mine::/opt/lib/python3"};
  CHECK(got == std::vector<Strings>{rest, {}, {}, theirs, rest});
}

TEST_CASE("a program where the library cannot be opened gets nothing of ours, and the rest as it is") {
  CHECK(child_of({"A=1", "LD_PRELOAD=x.so:/opt/lib/libtorchprof.so", "NVTX_INJECTION64_PATH=/opt/lib/libtorchprof.so",
                  "PYTHONPATH=/mine:/opt/lib/python", "TORCHPROF_OUTPUT=/runs/a%%b"},
                 Preload::kTakeAllOut) == Strings{"A=1", "LD_PRELOAD=x.so", "PYTHONPATH=/mine"});
  CHECK(child_of({"A=1"}, Preload::kTakeAllOut) == Strings{"A=1"});
  CHECK_FALSE(has_library_file());  // nobody has one there
}

TEST_CASE("a file of the run is known by the directory that the process was started with") {
  start_process();
  char name[PATH_MAX];
  REQUIRE(file_of_run("spool/untraced", name));
  CHECK(std::string(name) == "/runs/a%b/spool/untraced");
}

TEST_CASE("a program with AddressSanitizer is told to bear a library before its own") {
  const auto asan = Preload::kPutBackWithAsan;
  CHECK(child_of({"ASAN_OPTIONS=a=1", "LD_PRELOAD=/opt/lib/libtorchprof.so", "TORCHPROF_OUTPUT=/b"}, asan) ==
        Strings{"ASAN_OPTIONS=a=1:verify_asan_link_order=0", "LD_PRELOAD=/opt/lib/libtorchprof.so",
                "TORCHPROF_OUTPUT=/b"});
  CHECK(child_of({}, asan).front() == "ASAN_OPTIONS=verify_asan_link_order=0");
  const Strings told = {"ASAN_OPTIONS=verify_asan_link_order=0", "LD_PRELOAD=/opt/lib/libtorchprof.so",
                        "TORCHPROF_OUTPUT=/b"};
  CHECK(child_of(told, asan) == told);
}

TEST_CASE("memory that a child of vfork took is there again for the thread that made it") {
  ExecMemory* first = ExecMemory::take();
  REQUIRE(first);
  ExecMemory* nested = ExecMemory::take();  // as in a handler that interrupts a wrapper
  CHECK(nested != first);
  first->give_back();
  nested->give_back();
  for (int i = 0; i < 3; ++i) {
    const pid_t child = vfork();
    if (child == 0) {
      ExecMemory::take();
      _exit(0);  // or exec: nothing is given back
    }
    waitpid(child, nullptr, 0);
    ExecMemory* again = ExecMemory::take();
    CHECK(again == first);
    again->give_back();
  }
}

TEST_CASE("a program under a filter of seccomp is told to leave us out") {
  start_process();
  char output[] = "TORCHPROF_OUTPUT=/runs/a", path[] = "PYTHONPATH=/opt/lib/python:/mine", no[] = "TORCHPROF_DISABLE=0";
  char* environment[] = {output, no, path, nullptr};
  char* room[32];
  char* const* given = with_us_disabled(environment, room, sizeof(room));
  CHECK(given[0] == output);
  CHECK(std::string(given[1]) == "PYTHONPATH=/mine");
  CHECK(std::string(given[2]) == "TORCHPROF_DISABLE=1");
  CHECK(given[3] == nullptr);
  char* none[] = {path, nullptr};
  CHECK(with_us_disabled(none, room, sizeof(room)) == none);
  CHECK(with_us_disabled(environment, room, 16) == environment);
}

}  // namespace exec_environment_test
