#include "formats/io/error.h"
#include "launcher/attach/stopped_thread.h"

namespace torchprof::launcher {

struct StoppedThread::Registers {};

bool StoppedThread::is_supported() { return false; }
std::span<const std::byte> StoppedThread::stub() { return {}; }
StopPlaces find_stop_places(const Image&) { return {}; }
StoppedThread::StoppedThread(const Image& image, const StopPlaces& places, uint32_t tid)
    : image_(image), places_(places), tid_(tid) {
  throw Error("on AArch64 only Python 3.14 and later can be attached to");
}
StoppedThread::~StoppedThread() = default;
void StoppedThread::restore() noexcept {}
void StoppedThread::wait_for_interrupt() {}
int StoppedThread::wait(std::chrono::milliseconds, const char*) { return 0; }
void StoppedThread::hold(int) {}
uint64_t StoppedThread::instruction() const { return 0; }
std::chrono::microseconds StoppedThread::stopped_for() const { return {}; }
bool StoppedThread::rests_safely() const { return false; }
int64_t StoppedThread::system_call(long, std::span<const uint64_t>) { return -1; }
std::optional<uint64_t> StoppedThread::call(uint64_t, uint64_t, uint64_t, std::chrono::milliseconds) { return {}; }
std::vector<uint32_t> threads_that_rest(uint32_t) { return {}; }

}  // namespace torchprof::launcher
