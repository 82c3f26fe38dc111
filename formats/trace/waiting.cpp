#include "formats/trace/waiting.h"

#include <algorithm>
#include <array>
#include <optional>

namespace torchprof::formats {
namespace {

struct Function {
  std::string_view file;  // below the directory of the library, or of the packages
  std::string_view name;
};

constexpr std::array kFunctions = std::to_array<Function>({
    {"threading.py", "wait"},  // of a Condition; those of Event, Barrier, Queue.get and Future.result end here
    {"threading.py", "acquire"},
    {"threading.py", "__enter__"},
    {"threading.py", "join"},                   // 3.13 and later
    {"threading.py", "_wait_for_tstate_lock"},  // join, up to 3.12
    {"threading.py", "_shutdown"},              // the main thread waits for the others at the end
    {"selectors.py", "select"},                 // asyncio's loops idle here
    {"socket.py", "accept"},
    {"subprocess.py", "wait"},
    {"subprocess.py", "_wait"},
    {"subprocess.py", "_try_wait"},
    {"subprocess.py", "communicate"},
    {"multiprocessing/connection.py", "wait"},
    {"multiprocessing/connection.py", "_poll"},
    {"multiprocessing/connection.py", "_recv"},        // the header of a message: until the other side sends one
    {"multiprocessing/forkserver.py", "read_signed"},  // until a child has begun, or has ended
    {"multiprocessing/resource_tracker.py", "main"},
    {"multiprocessing/popen_fork.py", "poll"},
    {"multiprocessing/popen_fork.py", "wait"},
    {"multiprocessing/synchronize.py", "wait"},
    {"multiprocessing/synchronize.py", "__enter__"},
    {"concurrent/futures/thread.py", "_worker"},  // its queue's get is a C call
    {"torch/_inductor/compile_worker/subproc_pool.py", "_recv_msg"},
    {"torch/distributed/elastic/agent/server/api.py", "_invoke_run"},
});

struct Method {
  std::string_view name;
  std::string_view type;
};

constexpr std::array kMethods = std::to_array<Method>({
    {"acquire", "_thread.lock"},
    {"acquire_lock", "_thread.lock"},
    {"__enter__", "_thread.lock"},
    {"acquire", "_thread.RLock"},
    {"__enter__", "_thread.RLock"},
    {"join", "_thread._ThreadHandle"},  // 3.13 and later
    {"get", "_queue.SimpleQueue"},
    {"acquire", "_multiprocessing.SemLock"},
    {"__enter__", "_multiprocessing.SemLock"},
    {"poll", "select.poll"},
    {"poll", "select.epoll"},
    {"poll", "select.devpoll"},
    {"control", "select.kqueue"},
    {"_accept", "socket"},
    {"_accept", "SSLSocket"},
    {"_accept", "_socket.socket"},
});

constexpr std::array<std::string_view, 12> kBuiltins{"sleep",        "select",      "waitpid", "waitid",
                                                     "wait",         "wait3",       "wait4",   "sigwait",
                                                     "sigtimedwait", "sigwaitinfo", "pause",   "_shutdown"};

std::optional<std::string_view> inside(std::string_view text, std::string_view begin, std::string_view end) {
  if (!text.starts_with(begin) || !text.ends_with(end) || text.size() < begin.size() + end.size()) return std::nullopt;
  return text.substr(begin.size(), text.size() - begin.size() - end.size());
}

bool is_waiting_call(std::string_view name) {
  if (const auto function = inside(name, "<built-in function ", ">"))
    return std::ranges::find(kBuiltins, *function) != kBuiltins.end();
  auto method = inside(name, "<built-in method ", ">");
  if (!method) return false;
  method = method->substr(0, method->find(" object at 0x"));
  if (method->ends_with(" object")) method->remove_suffix(std::string_view(" object").size());
  const size_t of = method->find(" of ");
  if (of == std::string_view::npos) return false;
  const std::string_view type = method->substr(of + 4);
  method = method->substr(0, of);
  return std::ranges::any_of(kMethods, [&](const Method& m) { return m.name == *method && m.type == type; });
}

// `directory`: with its slash at the end.
bool is_of_library(std::string_view directory, std::string_view file) {
  if (directory.empty()) return true;
  if (directory.back() != '/' && directory.back() != '\\') return false;
  if (file.starts_with("torch/")) return true;
  directory.remove_suffix(1);
  const std::string_view last = directory.substr(directory.find_last_of("/\\") + 1);
  return last.starts_with("python") || last.starts_with("pypy") || last == "Lib" || last == "lib";
}

bool is_file(std::string_view path, std::string_view file) {
  if (path.size() < file.size()) return false;
  const size_t begin = path.size() - file.size();
  const auto is_same = [](char a, char b) { return a == b || (a == '\\' && b == '/'); };  // a trace from Windows
  return std::ranges::equal(path.substr(begin), file, is_same) && is_of_library(path.substr(0, begin), file);
}

}  // namespace

bool is_waiting(std::string_view name) {
  if (name.starts_with('<')) return is_waiting_call(name);
  const size_t end = name.rfind("): ");
  const size_t line = end == std::string_view::npos ? end : name.rfind('(', end);
  if (line == std::string_view::npos) return false;
  const std::string_view path = name.substr(0, line), function = name.substr(end + 3);
  return std::ranges::any_of(kFunctions,
                             [&](const Function& f) { return f.name == function && is_file(path, f.file); });
}

}  // namespace torchprof::formats
