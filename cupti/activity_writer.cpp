#include "cupti/activity_writer.h"

#include <cstring>

#include "cupti/activity_decode.h"
#include "cupti/cupti_abi.h"
#include "cupti/own_clock.h"
#include "tracer/process/lock.h"
#include "tracer/session.h"

namespace torchprof::cupti {
namespace {

template <class R>
bool put(ThreadBuffer& to, const R& record) noexcept {
  R* at = to.append<R>(session::now());
  if (!at) return false;
  const RecordHeader header = at->header;
  *at = record;
  at->header = header;
  to.commit();
  return true;
}

// False: the driver cannot answer yet.
bool ask_driver(const Api& api, GpuDeviceDef& device) noexcept {
  if (!api.device || !api.device_attribute) return true;
  int handle = 0, bytes = 0;
  int result = api.device(&handle, static_cast<int>(device.device));
  if (result == 0) result = api.device_attribute(&bytes, abi::kSharedPerBlockOptin, handle);
  if (result == 0 && bytes > 0) device.shared_per_block_optin = static_cast<uint32_t>(bytes);
  return result != abi::kDriverNotInitialized;
}

bool put_device(const Api& api, GpuDeviceDef& device, Devices& devices) noexcept {
  if (ask_driver(api, device) || devices.count == Devices::kMost) return session::define_gpu(device);
  devices.waiting[devices.count++] = device;
  return true;
}

bool put(const Api& api, ThreadBuffer& to, Decoded& decoded, Devices& devices) noexcept {
  const auto name = [&] { return decoded.name ? session::intern_from(to, decoded.name) : StringId{}; };
  switch (decoded.kind) {
    case Kind::GpuKernel:
      decoded.as<GpuKernel>().name = name();
      return put(to, decoded.as<GpuKernel>());
    case Kind::GpuCopy:
      return put(to, decoded.as<GpuCopy>());
    case Kind::GpuSet:
      return put(to, decoded.as<GpuSet>());
    case Kind::GpuApi:
      return put(to, decoded.as<GpuApi>());
    case Kind::GpuSync:
      return put(to, decoded.as<GpuSync>());
    case Kind::GpuEvent:
      return put(to, decoded.as<GpuEvent>());
    case Kind::GpuOverhead:
      return put(to, decoded.as<GpuOverhead>());
    case Kind::GpuMemory:
      return put(to, decoded.as<GpuMemory>());
    case Kind::GpuMemoryPool:
      return put(to, decoded.as<GpuMemoryPool>());
    case Kind::GpuEnvironment:
      return put(to, decoded.as<GpuEnvironment>());
    case Kind::GpuDeviceDef:
      decoded.as<GpuDeviceDef>().name = name();
      return put_device(api, decoded.as<GpuDeviceDef>(), devices);
    case Kind::GpuContextDef:
      return session::define_gpu(decoded.as<GpuContextDef>());
    default:
      return false;
  }
}

void put_loss(GpuLoss loss, uint64_t count, uint32_t stream) noexcept {
  if (count == 0) return;
  ThreadBuffer* to = session::delivery_buffer();
  if (to) put(*to, GpuDropped{{}, count, kNoGpuNumber, stream, loss, {}});
}

// A kind that nobody asked for counts as ours.
bool is_ours(const Sharing& sharing, const std::byte* record, size_t room) noexcept {
  Brief what = brief(record, room);
  what.start = sharing.clock->own(what.start);
  const uint8_t parties = sharing.wishes->parties(what);
  return (parties & kOurs) != 0 || (parties == 0 && !sharing.wishes->was_wanted(what.kind));
}

void count(Tally& tally, Kind kind) noexcept {
  ++tally.written;
  if (kind == Kind::GpuApi) ++tally.calls;
  if (kind == Kind::GpuKernel || kind == Kind::GpuCopy || kind == Kind::GpuSet) ++tally.launched;
}

void to_own_clock(const Clock& clock, Decoded& decoded) noexcept {
  const auto both = [&clock](auto& record) {
    record.start = clock.own(record.start);
    record.end = clock.own(record.end);
  };
  const auto time = [&clock](auto& record) { record.time = clock.own(record.time); };
  switch (decoded.kind) {
    case Kind::GpuKernel:
      both(decoded.as<GpuKernel>());
      decoded.as<GpuKernel>().queued = clock.own(decoded.as<GpuKernel>().queued);
      decoded.as<GpuKernel>().submitted = clock.own(decoded.as<GpuKernel>().submitted);
      return;
    case Kind::GpuCopy:
      return both(decoded.as<GpuCopy>());
    case Kind::GpuSet:
      return both(decoded.as<GpuSet>());
    case Kind::GpuApi:
      return both(decoded.as<GpuApi>());
    case Kind::GpuSync:
      return both(decoded.as<GpuSync>());
    case Kind::GpuOverhead:
      return both(decoded.as<GpuOverhead>());
    case Kind::GpuEvent:
      decoded.as<GpuEvent>().device_time = clock.own(decoded.as<GpuEvent>().device_time);
      return;
    case Kind::GpuMemory:
      return time(decoded.as<GpuMemory>());
    case Kind::GpuMemoryPool:
      return time(decoded.as<GpuMemoryPool>());
    case Kind::GpuEnvironment:
      return time(decoded.as<GpuEnvironment>());
    default:
      return;
  }
}

}  // namespace

bool RecordWalk::next() noexcept {
  if (!has_begun_) find_next();
  has_begun_ = true;
  if (!has_next_) return false;
  record_ = next_;
  find_next();
  return true;
}

void RecordWalk::find_next() noexcept {
  std::byte* found = record_;
  const int result = api_.next_record(reinterpret_cast<uint8_t*>(buffer_.data), buffer_.valid, &found);
  has_next_ = result == abi::kSuccess && found >= buffer_.data && found < end() && (!record_ || found > record_);
  is_malformed_ = !has_next_ && result != abi::kMaxLimitReached;
  next_ = found;
}

void see_calls(const Api& api, const Completed& buffer, const Sharing& sharing) noexcept {
  const Lock lock(*sharing.lock);
  for (RecordWalk walk(api, buffer); walk.next();) {
    Brief what = brief(walk.record(), walk.bytes());
    if (!what.is_call) continue;
    what.start = sharing.clock->own(what.start);
    sharing.wishes->saw(what);
  }
}

void write_early(const Api& api, const std::byte* record, size_t bytes, Tally& tally, Devices& devices,
                 const Sharing* sharing) noexcept {
  ThreadBuffer* to = session::delivery_buffer();
  if (sharing && !is_ours(*sharing, record, bytes)) return;
  Decoded decoded;
  if (decode(record, bytes, api.version, decoded) != Decoding::kDone) return;
  if (sharing && sharing->clock->is_given()) to_own_clock(*sharing->clock, decoded);
  if (to && put(api, *to, decoded, devices)) {
    count(tally, decoded.kind);
    ++tally.early;
  } else {
    ++tally.lost;
  }
}

void write_buffer(const Api& api, const Completed& buffer, Tally& tally, Devices& devices, const Sharing* sharing,
                  const Progress* progress) noexcept {
  ++tally.buffers;
  ThreadBuffer* to = session::delivery_buffer();
  const std::byte* end = buffer.data + buffer.valid;
  uint64_t unknown = 0, malformed = 0;
  if (sharing) pthread_mutex_lock(sharing->lock);
  RecordWalk walk(api, buffer);
  while (walk.next()) {
    const auto room = static_cast<size_t>(end - walk.record());
    if (progress && progress->is_written(static_cast<size_t>(walk.record() - buffer.data))) continue;
    if (sharing && !is_ours(*sharing, walk.record(), room)) continue;
    Decoded decoded;
    const Decoding decoding = decode(walk.record(), room, api.version, decoded);
    if (decoding == Decoding::kTruncated) {
      ++malformed;
      break;
    }
    if (sharing && sharing->clock->is_given()) to_own_clock(*sharing->clock, decoded);
    if (decoding == Decoding::kUnknown)
      ++unknown;
    else if (to && put(api, *to, decoded, devices))
      count(tally, decoded.kind);
    else
      ++tally.lost;
  }
  if (malformed == 0 && walk.is_malformed()) ++malformed;
  if (sharing) pthread_mutex_unlock(sharing->lock);
  tally.unknown += unknown;
  tally.malformed += malformed;
  put_loss(GpuLoss::kUnknown, unknown, kNoGpuNumber);
  put_loss(GpuLoss::kMalformed, malformed, kNoGpuNumber);
  write_dropped(api, buffer.context, buffer.stream, tally);
}

void write_devices(const Api& api, Devices& devices, Tally& tally, bool is_last) noexcept {
  size_t left = 0;
  for (size_t i = 0; i < devices.count; ++i) {
    GpuDeviceDef device = devices.waiting[i];
    if (!ask_driver(api, device) && !is_last) {
      devices.waiting[left++] = device;
    } else if (!session::define_gpu(device)) {
      --tally.written;
      ++tally.lost;
    }
  }
  devices.count = left;
}

void write_dropped(const Api& api, void* context, uint32_t stream, Tally& tally) noexcept {
  size_t count = 0;
  if (api.dropped(context, stream, &count) != abi::kSuccess || count == 0) return;
  tally.dropped += count;
  put_loss(GpuLoss::kDropped, count, context ? stream : kNoGpuNumber);
}

void write_gap(GpuLoss edge) noexcept {
  if (ThreadBuffer* to = session::delivery_buffer()) put(*to, GpuDropped{{}, 0, kNoGpuNumber, kNoGpuNumber, edge, {}});
}

void write_clock(const Api& api, const Sharing& sharing) noexcept {
  // The tightest of three tries, as in clock::sample().
  GpuClock best{};
  uint64_t best_width = ~uint64_t{0};
  for (int i = 0; i < 3; ++i) {
    GpuClock sample{};
    sample.before = session::now().value;
    if (sharing.has_own_clock)
      sample.cupti = own_clock();
    else if (api.get_timestamp(&sample.cupti) != abi::kSuccess)
      return;
    sample.after = session::now().value;
    if (const uint64_t width = sample.after - sample.before; width < best_width) best = sample, best_width = width;
  }
  if (ThreadBuffer* to = session::delivery_buffer()) put(*to, best);
}

}  // namespace torchprof::cupti
