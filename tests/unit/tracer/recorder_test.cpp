// The recorder without preloading: real threads, real forks, a real spool. One session is one process, so each scenario
// runs in a child of its own and the test reads what it left. Under ThreadSanitizer this is the test of the recorder's
// ordering.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tracer/session.h"
#include "tracer/spool/reader.h"

namespace recorder_test {

namespace fs = std::filesystem;
using namespace torchprof;

namespace {

class Directory {
 public:
  Directory() {
    char name[] = "/tmp/torchprof-recorder-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Directory() { fs::remove_all(path_); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  fs::path path() const { return path_; }

 private:
  fs::path path_;
};

// Runs `body` in a child with an armed session; the wait status.
int in_session(const fs::path& output, const std::function<void()>& body, const Config& config = {}) {
  const pid_t child = fork();
  if (child == 0) {
    session::arm(config, output.c_str());
    body();
    session::finish();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

struct Spool {
  std::unique_ptr<const SpoolReader> reader;
  std::map<uint32_t, std::string> strings;
  std::map<uint32_t, uint64_t> begun;  // per track
  std::map<uint32_t, uint64_t> ended;
  std::map<std::string, uint64_t> names;  // of OpBegin
  uint64_t undefined = 0;                 // events that use a name which is not defined
  uint64_t backwards = 0;                 // events older than the one before on the track

  explicit Spool(const fs::path& file) {
    std::string error;
    reader = SpoolReader::open(file, error);
    REQUIRE_MESSAGE(reader, error);
    for (const ChunkView& chunk : reader->chunks()) read(chunk);
  }

  void read(const ChunkView& chunk) {
    RecordCursor cursor(chunk.records);
    RecordView record;
    Ticks last{};
    while (cursor.next(record)) {
      if (record.kind() == Kind::StringDef) {
        bool whole = false;
        strings[record.as<StringDef>().id.value] = record.text(whole);
        CHECK(whole);
      } else if (record.kind() == Kind::OpBegin) {
        const auto name = strings.find(record.as<OpBegin>().name.value);
        if (name == strings.end())
          ++undefined;
        else
          ++names[name->second];
        ++begun[chunk.track.value];
      } else if (record.kind() == Kind::OpEnd) {
        ++ended[chunk.track.value];
      }
      if (is_definition(record.kind())) continue;
      if (record.time(chunk.base) < last) ++backwards;
      last = record.time(chunk.base);
    }
    CHECK(cursor.dropped_bytes() == 0);
  }
};

std::vector<fs::path> spools(const fs::path& output) {
  std::vector<fs::path> files;
  if (!fs::exists(output / "spool")) return files;
  for (const auto& entry : fs::directory_iterator(output / "spool"))
    if (entry.path().extension() == ".spool") files.push_back(entry.path());
  return files;
}

// What sources keep of a thread.
struct Small {
  static constexpr Part kPart = Part::kTorch;
  uint64_t value;
};
struct Large {
  static constexpr Mapping kMapping = Mapping::kNative;
  uint64_t values[1000];
};

void record_op(const std::string& name, uint64_t key) {
  const StringId id = session::intern(name);
  ThreadBuffer* buffer = session::current_buffer();
  if (!buffer) return;
  OpBegin* begin = buffer->append<OpBegin>(session::now());
  if (!begin) return;
  const RecordHeader header = begin->header;
  *begin = OpBegin{};
  begin->header = header;
  begin->name = id;
  begin->key = key;
  buffer->commit();
  OpEnd* end = buffer->append<OpEnd>(session::now());
  if (!end) return;
  end->key = key;
  buffer->commit();
}

}  // namespace

TEST_CASE("eight threads record what they record, in order, with every name defined") {
  const Directory directory;
  constexpr int kThreads = 8, kOps = 20000;
  const int status = in_session(directory.path(), [] {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([t] {
        session::current_buffer();
        for (int i = 0; i < kOps; ++i) record_op("op " + std::to_string((t * 7 + i) % 500), static_cast<uint64_t>(i));
      });
    for (std::thread& thread : threads) thread.join();
  });
  REQUIRE(status == 0);
  REQUIRE(spools(directory.path()).size() == 1);
  const Spool spool(spools(directory.path())[0]);
  CHECK(spool.begun.size() == kThreads);
  for (const auto& [track, count] : spool.begun) CHECK(count == kOps);
  CHECK(spool.ended == spool.begun);
  CHECK(spool.names.size() == 500);
  CHECK(spool.undefined == 0);
  CHECK(spool.backwards == 0);
  CHECK_FALSE(spool.reader->damage());
  CHECK(spool.reader->header().clean_exit == 1);
}

TEST_CASE("a process that is killed leaves every record that it committed") {
  const Directory directory;
  const int status = in_session(directory.path(), [] {
    session::current_buffer();
    for (uint64_t i = 0; i < 5000; ++i) record_op("before the end", i);
    raise(SIGKILL);
  });
  REQUIRE(WIFSIGNALED(status));
  const Spool spool(spools(directory.path())[0]);
  CHECK(spool.names.at("before the end") == 5000);
  CHECK(spool.reader->header().clean_exit == 0);
}

TEST_CASE("a forked child has a spool of its own and keeps its parent's names") {
  const Directory directory;
  const int status = in_session(directory.path(), [] {
    session::current_buffer();
    // Several chunks of definitions, so that the child copies more than the newest.
    for (uint64_t i = 0; i < 4000; ++i)
      record_op("a name that fills the definitions of the parent, number " + std::to_string(i), i);
    const StringId before = session::intern("known before the fork");
    const pid_t child = fork();
    if (child == 0) {
      session::current_buffer();
      if (session::intern("known before the fork") != before) _exit(1);
      record_op("known before the fork", 1);
      record_op("the child's own", 2);
      session::finish();
      _exit(0);
    }
    record_op("the parent's own", 3);
    int child_status = 0;
    waitpid(child, &child_status, 0);
    if (child_status != 0) _exit(1);
  });
  REQUIRE(status == 0);
  const auto files = spools(directory.path());
  REQUIRE(files.size() == 2);
  Spool a(files[0]), b(files[1]);
  Spool& child = a.reader->forked_from().empty() ? b : a;
  Spool& parent = &child == &a ? b : a;
  CHECK(child.reader->forked_from() == (files[&parent == &a ? 0 : 1]).filename().string());
  CHECK(child.names == std::map<std::string, uint64_t>{{"known before the fork", 1}, {"the child's own", 1}});
  CHECK(child.undefined == 0);
  CHECK(parent.names.at("the parent's own") == 1);
  CHECK(parent.names.size() == 4001);
}

TEST_CASE("forks of forks keep the names of all before them") {
  const Directory directory;
  constexpr int kDepth = 5;
  constexpr uint64_t kNames = 1'000;
  const auto name = [](int depth, uint64_t i) {
    return "a name that fills the definitions of its process, of depth " + std::to_string(depth) + ": " +
           std::to_string(i);
  };
  const int status = in_session(directory.path(), [&] {
    session::current_buffer();
    for (int depth = 0;; ++depth) {
      for (uint64_t i = 0; i < kNames; ++i) record_op(name(depth, i), i);
      if (depth == kDepth) return;
      const pid_t child = fork();
      if (child != 0) {
        int child_status = 0;
        waitpid(child, &child_status, 0);
        if (child_status != 0) _exit(1);
        return;
      }
      for (int before = 0; before <= depth; ++before)
        for (uint64_t i = 0; i < kNames; i += 100) record_op(name(before, i), i);
    }
  });
  REQUIRE(status == 0);
  const auto files = spools(directory.path());
  REQUIRE(files.size() == kDepth + 1);
  for (const fs::path& file : files) {
    const Spool spool(file);
    CHECK_FALSE(spool.reader->damage());
    CHECK(spool.undefined == 0);
    CHECK((spool.names.size() - kNames) % (kNames / 100) == 0);
    CHECK(spool.strings.size() >= spool.names.size());
  }
}

TEST_CASE("a program that holds every descriptor gets all that it may have, and loses nothing") {
  const Directory directory;
  const auto take_all = [] {
    std::vector<int> taken;
    for (int fd; (fd = dup(0)) >= 0;) taken.push_back(fd);
    return taken;
  };
  bool is_before_the_first = false;
  SUBCASE("after its first event") {}
  SUBCASE("before it") { is_before_the_first = true; }
  const int status = in_session(directory.path(), [&] {
    const rlimit few{20, 20};
    setrlimit(RLIMIT_NOFILE, &few);
    const auto without_us = take_all();
    if (!is_before_the_first) {
      for (const int fd : without_us) close(fd);
      session::current_buffer();
      record_op("one", 1);
      if (take_all() != without_us) _exit(1);
    }
    session::current_buffer();
    for (uint64_t i = 0; i < 20'000; ++i) record_op("many " + std::to_string(i % 3'000), i);
    const pid_t child = fork();
    if (child == 0) {
      for (uint64_t i = 0; i < 5'000; ++i) record_op("many " + std::to_string(i % 3'000), i);
      session::finish();
      _exit(dup(0) == -1 ? 0 : 1);
    }
    int child_status = 0;
    if (waitpid(-1, &child_status, 0) != child || child_status != 0) _exit(2);
    if (waitpid(-1, nullptr, __WALL) != -1) _exit(3);
    for (const int fd : without_us) close(fd);
    if (take_all() != without_us) _exit(4);
  });
  REQUIRE(status == 0);
  const auto files = spools(directory.path());
  REQUIRE(files.size() == 2);
  uint64_t begun = 0;
  for (const fs::path& file : files) {
    const Spool spool(file);
    for (const auto& [track, count] : spool.begun) begun += count;
    CHECK(spool.undefined == 0);
    CHECK_FALSE(spool.reader->damage());
    CHECK(spool.reader->header().command_size > 0);
  }
  CHECK(begun == 25'000 + !is_before_the_first);
}

TEST_CASE("no fork is left with a descriptor of the file that another thread grows") {
  const Directory directory;
  const int status = in_session(directory.path(), [] {
    std::atomic<bool> is_over{false};
    std::thread grows([&is_over] {
      for (uint64_t i = 0; !is_over; ++i) record_op("many", i);
    });
    for (int n = 0; n < 300; ++n) {
      const pid_t child = fork();
      if (child == 0) {
        int open_ones = 0;
        for (int fd = 3; fd < 64; ++fd) {
          char path[32], target[256] = "";
          snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
          if (readlink(path, target, sizeof(target) - 1) > 0 && strstr(target, ".spool")) ++open_ones;
        }
        _exit(open_ones);
      }
      int child_status = 0;
      waitpid(child, &child_status, 0);
      if (child_status != 0) _exit(1);
    }
    is_over = true;
    grows.join();
  });
  CHECK(status == 0);
}

TEST_CASE("events of a window are not counted for the one a thousand windows later") {
  const Directory directory;
  const int status = in_session(directory.path(), [] {
    session::count_events();
    const auto record_in = [](uint16_t window, int ops) {
      session::resume(window);
      for (int i = 0; i < ops; ++i) record_op("op", 1);
    };
    record_in(1, 5000);
    record_in(1025, 100);
    record_in(1026, 1);
    if (session::recorded_in(1) != 0 || session::recorded_in(1025) != 100) _exit(1);
    if (session::recorded() != 5100) _exit(2);
  });
  CHECK(status == 0);
}

TEST_CASE("a thousand short threads are a thousand tracks") {
  const Directory directory;
  const int status = in_session(directory.path(), [] {
    for (int i = 0; i < 250; ++i) {
      std::vector<std::thread> threads;
      for (int t = 0; t < 4; ++t) threads.emplace_back([] { session::current_buffer(), record_op("short", 1); });
      for (std::thread& thread : threads) thread.join();
    }
  });
  REQUIRE(status == 0);
  const Spool spool(spools(directory.path())[0]);
  CHECK(spool.begun.size() == 1000);
  CHECK(spool.names.at("short") == 1000);
  CHECK(fs::file_size(spools(directory.path())[0]) < 1000 * kChunkSize / 8);
}

TEST_CASE("what a source keeps of a thread begins as zeros on each, and its memory goes with the thread") {
  const Directory directory;
  const int status = in_session(directory.path(), [] {
    static void* last = nullptr;
    for (int i = 0; i < 3; ++i)
      std::thread([] {
        SourceMemory& sources = session::current_buffer()->sources;
        if (sources.part<Small>().value != 0 || sources.mapped<Large>()) _exit(1);
        auto* large = sources.map<Large>();
        if (!large || large->values[999] != 0 || sources.map<Large>() != large) _exit(2);
        sources.part<Small>().value = large->values[999] = 7;
        last = large;
      }).join();
    unsigned char is_there = 0;
    if (mincore(last, 1, &is_there) == 0 || errno != ENOMEM) _exit(3);
  });
  CHECK(status == 0);
}

TEST_CASE("a flight recorder gives away chunks again whose threads are all gone") {
  const Directory directory;
  Config config;
  config.max_size = kMinMaxSize;
  config.keep = Keep::kLast;
  const int status = in_session(
      directory.path(),
      [] {
        session::current_buffer();
        for (uint64_t i = 0; i < 2000; ++i)
          std::thread([i] {
            session::current_buffer();
            record_op(i + 1 == 2000 ? "the last" : "short", i);
            for (uint64_t n = 0; i % 50 == 0 && n < 200; ++n) record_op("more", n);
          }).join();
        if (session::state() != session::State::kCapturing) _exit(1);
      },
      config);
  REQUIRE(status == 0);
  const fs::path file = spools(directory.path())[0];
  const Spool spool(file);
  CHECK(fs::file_size(file) <= kMinMaxSize + kChunkSize);
  CHECK(spool.names.at("the last") == 1);
  CHECK(spool.names.at("short") > 50);
  CHECK(spool.undefined == 0);
  CHECK_FALSE(spool.reader->damage());
  CHECK(spool.reader->header().recycled > 10);
}

TEST_CASE("at the size limit capture stops, and what was recorded stays") {
  const Directory directory;
  Config config;
  config.max_size = kMinMaxSize;
  const int status = in_session(
      directory.path(),
      [] {
        session::current_buffer();
        for (uint64_t i = 0; i < 100000; ++i) record_op("many", i);
        if (session::state() != session::State::kStopped || session::current_buffer()) _exit(1);
      },
      config);
  REQUIRE(status == 0);
  const fs::path file = spools(directory.path())[0];
  const Spool spool(file);
  CHECK(fs::file_size(file) <= kMinMaxSize);
  CHECK(spool.names.at("many") > 10000);
  CHECK(spool.reader->header().lost[static_cast<size_t>(LossCause::kSizeLimit)] > 0);
  CHECK(spool.reader->header().stop_ticks > 0);
}

TEST_CASE("at the size limit of the run each process stops, and those before it count") {
  const Directory directory;
  Config config;
  config.max_run_size = 4 * kMinMaxSize;
  for (int process = 0; process < 3; ++process)
    REQUIRE(in_session(
                directory.path(),
                [] {
                  for (uint64_t i = 0; i < 100000; ++i) record_op("many", i);
                },
                config) == 0);
  uint64_t bytes = 0, lost = 0, empty = 0;
  for (const fs::path& file : spools(directory.path())) {
    bytes += fs::file_size(file);
    const Spool spool(file);
    lost += spool.reader->header().lost[static_cast<size_t>(LossCause::kRunSize)];
    empty += spool.names.count("many") == 0;
  }
  CHECK(spools(directory.path()).size() == 3);
  CHECK(bytes > 3 * kMinMaxSize);
  CHECK(bytes <= config.max_run_size + 3 * first_chunk(static_cast<uint64_t>(sysconf(_SC_PAGESIZE))));
  CHECK((lost > 0 && empty >= 1));
}

TEST_CASE("a flight recorder keeps the last part of every thread, within its size") {
  const Directory directory;
  Config config;
  config.max_size = kMinMaxSize;
  config.keep = Keep::kLast;
  constexpr uint64_t kOps = 50000, kThreads = 4;
  const int status = in_session(
      directory.path(),
      [] {
        std::vector<std::thread> threads;
        std::barrier together(kThreads);
        for (uint64_t t = 0; t < kThreads; ++t)
          threads.emplace_back([&together] {
            OpBegin* open = session::current_buffer()->append<OpBegin>(session::now());
            open->name = session::intern("open all the time");
            open->key = kOps + 1;
            session::current_buffer()->commit();
            for (uint64_t i = 0; i < kOps; ++i) {
              if (i % 1000 == 0) together.arrive_and_wait();
              record_op(i + 1 == kOps ? "the last" : "many", i);
            }
          });
        for (std::thread& thread : threads) thread.join();
        if (session::state() != session::State::kCapturing) _exit(1);
      },
      config);
  REQUIRE(status == 0);
  const fs::path file = spools(directory.path())[0];
  const Spool spool(file);
  CHECK(fs::file_size(file) <= kMinMaxSize + kThreads * kChunkSize);
  CHECK(spool.names.at("the last") == kThreads);
  CHECK(spool.names.at("many") < kThreads * kOps / 2);
  CHECK(spool.undefined == 0);
  CHECK(spool.backwards == 0);
  CHECK(spool.reader->header().recycled > 0);
  CHECK(spool.reader->header().stop_ticks == 0);
  // Whatever chunk of a thread is its first now says what was open.
  std::map<uint32_t, bool> seen;
  for (const ChunkView& chunk : spool.reader->chunks()) {
    if (chunk.kind != ChunkKind::kEvents || std::exchange(seen[chunk.track.value], true)) continue;
    RecordCursor cursor(chunk.records);
    RecordView record;
    REQUIRE(cursor.next(record));
    REQUIRE(record.kind() == Kind::Restate);
    CHECK(record.as<Restate>().count >= 1);
    REQUIRE(cursor.next(record));
    CHECK(record.as<OpBegin>().key == kOps + 1);
  }
  CHECK(seen.size() == kThreads);
}

TEST_CASE("a program that closes every descriptor loses nothing") {
  const Directory directory;
  const int status = in_session(directory.path(), [] {
    session::current_buffer();
    record_op("before", 1);
    for (int fd = 3; fd < 4096; ++fd) close(fd);
    for (uint64_t i = 0; i < 20000; ++i) record_op("after", i);
  });
  REQUIRE(status == 0);
  const Spool spool(spools(directory.path())[0]);
  CHECK(spool.names == std::map<std::string, uint64_t>{{"before", 1}, {"after", 20000}});
}

TEST_CASE("an unwritable output is one line, and the program goes on") {
  const int status = in_session("/proc/nowhere", [] {
    if (session::current_buffer() || session::state() != session::State::kFailed) _exit(1);
  });
  CHECK(status == 0);
}

TEST_CASE("notes reach the spool whether they come before or after it is open") {
  const Directory directory;
  const int status = in_session(directory.path(), [] {
    session::note_source("early", SourceState::kOff, "said before the first event");
    session::current_buffer();
    session::note_source("late", SourceState::kOn, "said after it");
    session::note_fact("fact", "value");
  });
  REQUIRE(status == 0);
  const Spool spool(spools(directory.path())[0]);
  std::vector<std::string> found;
  for (const auto& [id, text] : spool.strings) found.push_back(text);
  for (const char* want : {"early", "said before the first event", "late", "said after it", "fact", "value"})
    CHECK(std::find(found.begin(), found.end(), want) != found.end());
}

}  // namespace recorder_test
