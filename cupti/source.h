// What the parts of the GPU's source have in common (cupti_source.cpp, shared_cupti.cpp): its state. See
// cupti_source.h.
//
// Locks, in the order in which they are taken: switching, writing, wishing. None is held while another client's
// functions are called; CUPTI's callbacks take none of them.
#pragma once

#include <pthread.h>
#include <semaphore.h>

#include <atomic>
#include <cstdint>

#include "cupti/activity_buffers.h"
#include "cupti/activity_writer.h"
#include "cupti/cupti_abi.h"
#include "cupti/cupti_api.h"
#include "cupti/cupti_clock.h"
#include "cupti/other_client.h"
#include "cupti/wishes.h"

namespace torchprof::cupti {

enum class State : uint8_t { kOff, kWaiting, kStarting, kOn, kAside };  // without prepare() it is off

struct Source {
  std::atomic<State> state{State::kOff};
  std::atomic<bool> expects_subscriber{false};
  Api api{};
  ActivityBuffers buffers;
  pthread_mutex_t switching = PTHREAD_MUTEX_INITIALIZER;  // of what is enabled, and of who is registered
  std::atomic<bool> is_registered{false};                 // with CUPTI; never again, but after cuptiFinalize
  bool has_foreign_clock = false;                         // since before we were registered
  std::atomic<bool> enabled{false};      // kinds of the window; written with it, read by our thread without
  std::atomic<bool> was_enabled{false};  // since our thread last looked, which may miss a short window
  uint32_t not_there = 0;                // kinds that this CUPTI refused
  pthread_mutex_t wishing = PTHREAD_MUTEX_INITIALIZER;  // of the two that follow
  Wishes wishes;
  Clock clock;
  OtherClient other;
  pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;  // of what follows, and of who flushes and walks
  Tally tally;
  Devices devices;
  Completed to_pour[ActivityBuffers::kMostForced];  // written, but not yet given to the other client; a ring
  size_t first_to_pour = 0, count_to_pour = 0;
  sem_t work;                           // a buffer has come, or the window has changed
  std::atomic<bool> must_flush{false};  // our thread, before it posts `flushed`
  sem_t flushed;
  std::atomic<bool> end_waits{false};  // whoever ends the process waits for `writing`
  std::atomic<bool> has_ended{false};
  std::atomic<uint64_t> late_buffers{0}, late_bytes{0};  // that came after the end

  Sharing sharing() noexcept { return {&wishing, &wishes, &clock}; }
  // CUPTI's clock, whoever gave it to CUPTI.
  BothClocks clocks_now() const noexcept {
    return read_both([this](uint64_t& time) { return api.get_timestamp(&time) == abi::kSuccess; });
  }
};

Source& source() noexcept;
inline State state() noexcept { return source().state.load(std::memory_order_acquire); }  // pairs with become()
inline void become(State next) noexcept { source().state.store(next, std::memory_order_release); }

// CUPTI's time now, of its own clock.
uint64_t cupti_now() noexcept;

// All that has come back of CUPTI. With the lock of writing; `forced`: also of what has not ended.
void write_completed() noexcept;
void write_all(bool forced) noexcept;
// To the other client, what is his of what was written. Without a lock.
void pour_completed() noexcept;

// The other client, if he records already. Without a lock.
void join_session() noexcept;

// ---- with the lock of switching --------------------------------------------------------------------------
int enable_all() noexcept;  // the result of the one kind without which there is nothing to show
void disable_all() noexcept;
int register_ourselves() noexcept;  // and what is always enabled

}  // namespace torchprof::cupti
