// Another client of CUPTI, in a library that is linked with it: it calls CUPTI in the order in which libkineto does,
// which stops by disabling its kinds first and flushing by force then, and only if it was asked for a buffer. Source:
// libkineto/src/CuptiActivityApi.cpp and CuptiActivityProfiler.cpp of October 2022 (torch 1.13), December 2024 (2.6)
// and August 2026 (2.14). KINETO says which of them; 2.14 without it.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

extern "C" {
int cuptiActivityRegisterCallbacks(void (*)(uint8_t**, size_t*, size_t*),
                                   void (*)(void*, uint32_t, uint8_t*, size_t, size_t));
int cuptiActivityRegisterTimestampCallback(uint64_t (*)());
int cuptiActivityEnable(uint32_t kind);
int cuptiActivityDisable(uint32_t kind);
int cuptiActivityEnableRuntimeApi(uint32_t cbid, uint8_t on);
int cuptiActivityFlushAll(uint32_t flag);
int cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid, uint8_t** record);
int cuptiSubscribe(void** subscriber, void*, void*);
int cuptiFinalize();
}

#define CLIENT_API extern "C" __attribute__((visibility("default")))

namespace {

constexpr uint32_t kKernel = 10;

bool is_version(const char* version) {
  const char* set = std::getenv("KINETO");
  return std::strcmp(set ? set : "2.14", version) == 0;
}

// In the order of its ActivityType. In 1.13 there are no driver's calls.
std::vector<uint32_t> kinds() {
  if (const char* one = std::getenv("KINETO_KINDS")) return {static_cast<uint32_t>(std::atoi(one))};
  std::vector<uint32_t> all = {1, 2, kKernel, 39, 5};
  if (!is_version("1.13")) all.push_back(4);
  all.push_back(17);
  return all;
}

// Two ticks and a half a ns, as the processor's counter has them.
uint64_t ticks() {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  const auto ns = static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
  static const uint64_t begin = ns;
  return 1'000'000'000 + (ns - begin) * 5 / 2;
}

struct Buffer {
  std::unique_ptr<uint8_t[]> data;
  size_t valid = 0;
};

struct Client {
  std::mutex lock;
  std::map<uint8_t*, Buffer> out, ready;
  std::map<uint32_t, int> seen;  // records of the last session, by kind
  uint64_t started = 0;
  int strange = 0;
};
Client& client() {
  static auto* the = new Client;
  return *the;
}

size_t buffer_size() {
  const char* size = std::getenv("KINETO_BUFFER");
  return size ? static_cast<size_t>(std::atol(size)) : size_t{4} << 20;
}

void request(uint8_t** buffer, size_t* size, size_t* most) {
  Client& c = client();
  const std::lock_guard guard(c.lock);
  auto data = std::make_unique<uint8_t[]>(buffer_size());
  *buffer = data.get();
  *size = buffer_size();
  *most = 0;
  c.out[*buffer] = {std::move(data), 0};
}

void completed(void*, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  Client& c = client();
  const std::lock_guard guard(c.lock);
  const auto it = c.out.find(buffer);
  if (it == c.out.end()) {
    ++c.strange;  // "bufferCompleted called with unknown buffer"
    return;
  }
  it->second.valid = valid;
  c.ready[buffer] = std::move(it->second);
  c.out.erase(it);
}

bool has_none_out() {
  const std::lock_guard guard(client().lock);
  return client().out.empty();
}

template <class T>
T field(const uint8_t* record, size_t at) {
  T value;
  std::memcpy(&value, record + at, sizeof(value));
  return value;
}

}  // namespace

CLIENT_API void clientStart() {
  Client& c = client();
  if (!is_version("1.13")) {
    cuptiActivityRegisterTimestampCallback(ticks);
    c.started = ticks();
  }
  cuptiActivityRegisterCallbacks(request, completed);
  for (const uint32_t kind : kinds()) cuptiActivityEnable(kind);
}
// Not as libkineto does: kernels, and of all calls the launches alone.
CLIENT_API void clientStartLaunches() {
  cuptiActivityRegisterCallbacks(request, completed);
  cuptiActivityEnable(kKernel);
  cuptiActivityEnableRuntimeApi(211, 1);
}
// At the end of its warm-up: what is there is thrown away.
CLIENT_API void clientClear() {
  if (has_none_out()) return;
  cuptiActivityFlushAll(0);
  const std::lock_guard guard(client().lock);
  client().ready.clear();
}
CLIENT_API void clientDisable() {
  for (const uint32_t kind : kinds()) cuptiActivityDisable(kind);
}
// The kernels of the session.
CLIENT_API int clientStop() {
  Client& c = client();
  clientDisable();
  c.seen.clear();
  if (has_none_out() && (!is_version("2.14") || c.ready.empty())) return 0;
  cuptiActivityFlushAll(1);
  const std::lock_guard guard(c.lock);
  for (auto& [data, buffer] : c.ready) {
    uint8_t* record = nullptr;
    while (cuptiActivityGetNextRecord(data, buffer.valid, &record) == 0) {
      const auto kind = field<uint32_t>(record, 0);
      ++c.seen[kind];
      const size_t start = kind == kKernel ? 16 : 8;  // of a call
      if (c.started != 0 && (kind == kKernel || kind == 5))
        c.strange += field<uint64_t>(record, start) < c.started || field<uint64_t>(record, start + 8) > ticks();
    }
  }
  c.ready.clear();
  return c.seen[kKernel];
}
CLIENT_API int clientSeen(uint32_t kind) { return client().seen[kind]; }
// Records of kinds that it did not enable or of times outside of the session, and buffers that are not its own.
CLIENT_API int clientStrange() {
  Client& c = client();
  int strange = c.strange;
  for (const auto& [kind, count] : c.seen) {
    bool is_known = false;
    for (const uint32_t known : kinds()) is_known |= known == kind;
    if (!is_known) strange += count;
  }
  return strange;
}
CLIENT_API int clientBuffersOut() { return static_cast<int>(client().out.size()); }
CLIENT_API int clientFinalize() { return cuptiFinalize(); }
