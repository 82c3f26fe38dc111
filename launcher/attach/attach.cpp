#include "launcher/attach/attach.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <thread>

#include "formats/io/error.h"
#include "formats/io/open_file.h"
#include "formats/io/process_files.h"
#include "launcher/attach/remote_script.h"
#include "launcher/attach/stopped_thread.h"

namespace torchprof::launcher {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono;
using Stub = StoppedThread::Stub;

constexpr char kFile[] = "libtorchprof.so", kMemoryFile[] = "memfd:libtorchprof.so";
constexpr milliseconds kUntilOtherWay{100};  // a thread that runs comes to a safe point within some milliseconds
constexpr milliseconds kCallPatience{300}, kLoadPatience{3000};

// What the library's answer is in its memory (TorchprofAnswer in inject/late/attach.h).
struct Answer {
  uint64_t serial;
  char text[1024];
  uint64_t cancelled;
};

// The body of a bytes literal.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    char code[8];
    snprintf(code, sizeof(code), "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    out += code;
  }
  return out;
}

// The script, which its reader must be able to open; gone with the object. Where it fails it says so in its place.
class ScriptFile {
 public:
  ScriptFile(const std::string& library, const std::string& settings, uint32_t pid) {
    std::error_code error;
    path_ = (fs::temp_directory_path(error) / "torchprof-attach-XXXXXX").string();
    const int fd = error ? -1 : mkstemp(path_.data());
    if (fd < 0) throw Error(path_ + ": " + std::strerror(errno));
    const std::string text =
        "def torchprof_attach():\n"
        " try:\n"
        "  import _imp, _frozen_importlib\n"
        "  library = b'" +
        escaped(library) +
        "'.decode('utf-8', 'surrogateescape')\n"
        "  spec = _frozen_importlib.ModuleSpec('_torchprof', None, origin=library)\n"
        "  _imp.create_dynamic(spec).attach(b'" +
        escaped(settings) +
        "')\n"
        " except BaseException as error:\n"
        "  try:\n"
        "   with open(b'" +
        escaped(path_) + "', 'w') as file: file.write('" + std::string(kFailed) +
        "%s' % error)\n"
        "  except BaseException: pass\n"
        "torchprof_attach()\n";
    struct stat owner {};
    const std::string process = formats::process_path(pid);
    const bool is_written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    if (stat(process.c_str(), &owner) == 0 && owner.st_uid != geteuid() && fchown(fd, owner.st_uid, owner.st_gid) != 0)
      fchmod(fd, 0644);
    close(fd);
    if (!is_written) throw Error(path_ + ": cannot be written");
  }
  ~ScriptFile() { unlink(path_.c_str()); }
  ScriptFile(const ScriptFile&) = delete;
  ScriptFile& operator=(const ScriptFile&) = delete;
  const std::string& path() const { return path_; }
  // Why it failed; empty: it did not, so far.
  std::string why() const {
    std::string line;
    std::getline(std::ifstream(path_), line);
    return line.starts_with(kFailed) ? line.substr(std::strlen(kFailed)) : "";
  }

 private:
  static constexpr const char* kFailed = "failed: ";
  std::string path_;
};

class Attacher {
 public:
  Attacher(Image& image, const AttachTarget& target, const AttachWish& wish)
      : image_(image),
        target_(target),
        wish_(wish),
        serial_(static_cast<uint64_t>(duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count())),
        settings_(std::to_string(serial_) + "\n" + wish.settings),
        deadline_(steady_clock::now() + wish.patience) {
    if (settings_.size() >= sizeof(Stub::settings)) throw Error("the settings are too long");
  }

  Attached run() {
    const bool is_there = known("torchprof_attach") != 0;
    const bool has_path = !target_.is_elsewhere && (!is_there || image_.object(kFile) == wish_.library);
    const bool by_script = target_.minor >= 14 && has_path;
    if (!by_script && !StoppedThread::is_supported()) throw Error("on AArch64 it takes Python 3.14 or later");
    if (by_script)
      ask_by_script();
    else
      ask_by_pending_call();
    for (bool has_tried_holder = false; !is_answered(steady_clock::now() + kUntilOtherWay);) {
      if (steady_clock::now() > deadline_) give_up();
      if (by_script && !std::exchange(has_tried_holder, true) && remote_->ask_holder(script_->path())) continue;
      if (StoppedThread::is_supported()) ask_resting_thread();
    }
    forget_requests();
    const std::string text = answer_.text;
    const size_t end = std::min(text.find('\n'), text.size());
    if (text.starts_with("error: ")) throw Error(text.substr(7, end - 7));
    attached_.lines = end < text.size() ? text.substr(end + 1) : "";
    return attached_;
  }

 private:
  // An address in the library, if it is loaded.
  uint64_t known(const char* name) const {
    for (const char* const file : {kFile, kMemoryFile})
      if (const Symbol found = image_.symbol(file, name); found.address != 0) return found.address;
    return 0;
  }

  bool is_answered(steady_clock::time_point until) {
    for (;;) {
      if (place_ == 0) {
        image_.look();
        if (!image_.is_there()) throw Error("it has ended");
        place_ = known("torchprof_answer");
      }
      if (place_ != 0 && image_.value<uint64_t>(place_) == serial_ && image_.read(place_, &answer_, sizeof(answer_))) {
        answer_.text[sizeof(answer_.text) - 1] = 0;
        return true;
      }
      for (const uint64_t stub : {memory_, resting_memory_})
        if (state(stub) == Stub::kFailed)
          throw Error("its loader refuses the library: " +
                      remote_text(image_.value<uint64_t>(stub + offsetof(Stub, error))));
      if (const std::string why = script_ ? script_->why() : ""; !why.empty())
        throw Error("it cannot load the library: " + why);
      if (steady_clock::now() > until) return false;
      std::this_thread::sleep_for(milliseconds(1));
    }
  }

  [[noreturn]] void give_up() {
    forget_requests();
    // It may have been stopped, or traced, after it was looked at.
    if (const std::string why = why_not(look_at_target_process(image_)); !why.empty()) throw Error(why);
    throw Error(
        "it did not come to a point at which it can be attached to within " +
        std::to_string(duration_cast<seconds>(wish_.patience).count()) +
        " s: its main thread runs C code that takes long, or is in a system call that cannot be left; try again");
  }

  // What was asked for and has not happened yet will not happen.
  void forget_requests() {
    if (remote_) remote_->cancel();
    if (place_ != 0) image_.write(place_ + offsetof(Answer, cancelled), &serial_, sizeof(serial_));
    const uint64_t cancelled = Stub::kCancelled;
    // A stub whose call is still to come stays mapped.
    if (memory_ != 0 && state(memory_) == Stub::kWaiting) image_.write(memory_, &cancelled, sizeof(cancelled));
    for (uint64_t* const stub : {&memory_, &resting_memory_})
      if (state(*stub) == Stub::kDone) free_memory(*stub);
  }

  // ---- by a script --------------------------------------------------------------------------------------------------

  void ask_by_script() {
    remote_ = std::make_unique<RemoteScript>(image_);
    if (!remote_->why().empty()) throw Error(remote_->why());
    script_ = std::make_unique<ScriptFile>(wish_.library.string(), settings_, target_.pid);
    attached_.way = "a script at a safe point (PEP 768)";
    if (!remote_->ask_main(script_->path())) throw Error("its interpreter cannot be asked to run a script");
  }

  // ---- by a stub ----------------------------------------------------------------------------------------------------

  uint64_t state(uint64_t stub) const { return stub == 0 ? uint64_t{Stub::kWaiting} : image_.value<uint64_t>(stub); }

  std::string remote_text(uint64_t at) const {
    std::string out;
    for (char c = 0; out.size() < 300 && image_.read(at + out.size(), &c, 1) && c != 0;) out += c;
    return out;
  }

  uint64_t of_libc(const char* name) const {
    for (const char* const file : {"libc.so", "libc-", "libdl", "ld-musl"})
      if (const Symbol found = image_.symbol(file, name); found.address != 0) return found.address;
    return 0;
  }

  static size_t stub_at() { return (sizeof(Stub) + 15) / 16 * 16; }
  static size_t memory_size() { return (stub_at() + StoppedThread::stub().size() + 4095) / 4096 * 4096; }

  template <class Use>
  void stop(uint32_t tid, Use use) {
    StoppedThread thread(image_, places_, tid);
    use(thread);
    attached_.stopped = std::max(attached_.stopped, thread.stopped_for());
  }

  // Memory for the stub, with the thread stopped.
  uint64_t take_memory(StoppedThread& thread) {
    const uint64_t arguments[] = {
        0, memory_size(), PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, ~uint64_t{0}, 0};
    const int64_t at = thread.system_call(SYS_mmap, arguments);
    if (at < 0 && at > -4096)
      throw Error("memory that can be executed is refused in it (SELinux, or systemd's MemoryDenyWriteExecute)");
    return static_cast<uint64_t>(at);
  }

  // Of a stub that the main thread has run, or a thread that was stopped for it.
  void free_memory(uint64_t& memory) {
    try {
      stop(target_.pid, [&memory](StoppedThread& thread) {
        const uint64_t at = thread.instruction();
        if (memory <= at && at < memory + memory_size()) return;  // it is on its way out
        const uint64_t arguments[] = {memory, memory_size()};
        thread.system_call(SYS_munmap, arguments);
      });
    } catch (const Error&) {
      // 20 KiB stay mapped.
    }
    memory = 0;
  }

  // Writes the stub. `name`: the function of the library that is to be called.
  void prepare(uint64_t memory, const char* name) {
    auto stub = std::make_unique<Stub>();
    *stub = {};
    stub->function = known(name);
    stub->open = of_libc("dlopen");
    stub->look_up = of_libc("dlsym");
    stub->why = of_libc("dlerror");
    stub->close = of_libc("close");
    stub->descriptor = descriptor_;
    const std::string path = descriptor_ >= 0 ? "/proc/self/fd/" + std::to_string(descriptor_) : wish_.library.string();
    if (path.size() >= sizeof(stub->path)) throw Error(path + ": is too long a path");
    std::ranges::copy(path, stub->path);
    std::ranges::copy(std::string_view(name), stub->name);
    std::ranges::copy(settings_, stub->settings);
    const auto code = StoppedThread::stub();
    if (stub->function == 0 && (stub->open == 0 || stub->look_up == 0 || stub->why == 0 || stub->close == 0))
      throw Error("its libc has no dlopen()");
    if (!image_.write(memory, stub.get(), sizeof(Stub)) || !image_.write(memory + stub_at(), code.data(), code.size()))
      throw Error("its memory cannot be written to");
  }

  // The library as a file of the process's own memory, where its path is not there.
  void send_library() {
    const std::string bytes = formats::read_file(wish_.library);
    const std::string path = formats::process_path(target_.pid, "fd/" + std::to_string(descriptor_));
    std::ofstream out(path, std::ios::binary);
    if (bytes.empty() || !out.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush())
      throw Error("the library cannot be handed to it: " + path);
  }

  void ask_by_pending_call() {
    const uint64_t add = image_.symbol("", "Py_AddPendingCall").address;
    if (add == 0) throw Error("its interpreter has no Py_AddPendingCall");
    places_ = find_stop_places(image_);
    const bool needs_file = target_.is_elsewhere && known("torchprof_attach") == 0;
    // The main thread: it is the one that has the safe points, and its stack is large.
    stop(target_.pid, [&](StoppedThread& thread) {
      memory_ = take_memory(thread);
      if (needs_file) open_memory_file(thread);
    });
    if (needs_file) send_library();
    prepare(memory_, "torchprof_attach");
    attached_.way = "a pending call of its main thread";
    for (int tries = 0; tries < 20; ++tries) {
      std::optional<uint64_t> result;
      stop(target_.pid,
           [&](StoppedThread& thread) { result = thread.call(add, memory_ + stub_at(), memory_, kCallPatience); });
      if (result && static_cast<int>(*result) == 0) return;
      std::this_thread::sleep_for(milliseconds(5));  // its queue was full, or its lock was held where it was stopped
    }
    throw Error("its interpreter takes no pending call");
  }

  void open_memory_file(StoppedThread& thread) {
    constexpr char kName[] = "libtorchprof.so";
    constexpr uint64_t kCloseOnExec = 1;  // MFD_CLOEXEC
    image_.write(memory_, kName, sizeof(kName));
    const uint64_t arguments[] = {memory_, kCloseOnExec};
    descriptor_ = thread.system_call(SYS_memfd_create, arguments);
    if (descriptor_ < 0) throw Error("it cannot be given the library (memfd_create is refused)");
  }

  // A pending call or a script that comes after all finds that the request was dealt with.
  void ask_resting_thread() {
    if (resting_memory_ != 0 || state(memory_) != Stub::kWaiting) return;
    image_.look();
    places_ = find_stop_places(image_);
    for (const uint32_t tid : threads_that_rest(target_.pid)) {
      try {
        if (try_thread(tid)) return;
      } catch (const Error&) {
        // Another one may do; the process's end is seen by who waits.
      }
    }
  }

  bool try_thread(uint32_t tid) {
    stop(tid, [&](StoppedThread& thread) {
      if (!thread.rests_safely()) return;
      const uint64_t memory = take_memory(thread);
      prepare(memory, "torchprof_attach_soon");
      if (thread.call(memory + stub_at(), memory, 0, kLoadPatience)) resting_memory_ = memory;
    });
    if (resting_memory_ != 0) attached_.way = "a thread that rests";
    return resting_memory_ != 0;
  }

  Image& image_;
  const AttachTarget& target_;
  const AttachWish& wish_;
  const uint64_t serial_;
  const std::string settings_;
  const steady_clock::time_point deadline_;
  Attached attached_;
  Answer answer_{};
  uint64_t place_ = 0;  // of the answer in the process
  std::unique_ptr<RemoteScript> remote_;
  std::unique_ptr<ScriptFile> script_;
  StopPlaces places_;
  uint64_t memory_ = 0;          // in the process: the stub of the pending call
  uint64_t resting_memory_ = 0;  // likewise of the thread that rests; 0: none has called it
  int64_t descriptor_ = -1;      // of the process: the library
};

}  // namespace

Attached attach_library(Image& image, const AttachTarget& target, const AttachWish& wish) {
  return Attacher(image, target, wish).run();
}

}  // namespace torchprof::launcher
