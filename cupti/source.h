// The state that the parts of the GPU's source share: cupti_source.cpp (beginning and end, our thread),
// activity_kinds.cpp, delivery.cpp and shared_cupti.cpp. See cupti_source.h.
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
#include "cupti/in_flight.h"
#include "cupti/other_client.h"
#include "cupti/own_clock.h"
#include "cupti/stuck_work.h"
#include "cupti/wishes.h"
#include "tracer/process/wakeup.h"

namespace torchprof::cupti {

enum class State : uint8_t { kOff, kWaiting, kStarting, kOn, kAside };  // without prepare() it is off

struct Source {
  std::atomic<State> state{State::kOff};
  std::atomic<bool> expects_subscriber{false};
  Api api{};
  ActivityBuffers buffers;
  pthread_mutex_t switching = PTHREAD_MUTEX_INITIALIZER;  // of what is enabled, and of who is registered
  std::atomic<bool> is_registered{false};                 // with CUPTI; only once, and again after cuptiFinalize
  bool was_registered = false;
  bool watches_calls = false;            // calls are enabled one by one (watched_calls.h)
  bool has_foreign_clock = false;        // another client has given CUPTI a clock
  bool has_own_clock = false;            // our times are own_clock()'s; constant once registered
  std::atomic<bool> enabled{false};      // kinds of the window; written under `switching`, read by our thread without
  std::atomic<bool> was_enabled{false};  // since our thread last looked: otherwise it might miss a short window
  uint32_t not_there = 0;                // kinds that this CUPTI refused
  pthread_mutex_t wishing = PTHREAD_MUTEX_INITIALIZER;  // of the next two members
  Wishes wishes;
  Clock clock;
  OtherClient other;
  pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;  // of the next members; held while CUPTI is flushed or walked
  Tally tally;
  bool calls_are_missing = false;  // check_watched_calls()
  Devices devices;
  BufferInUse in_use[ActivityBuffers::kMostForced]{};
  RecordSizes sizes;
  OpenStreams open_streams;                // at the last look
  std::atomic<bool> has_open_work{false};  // in them
  StuckWork stuck;
  // Not yet given to the other client; a ring. The last `unwritten` of them are not written yet, and of the last
  // `unseen` among these the calls have not been seen.
  Completed to_pour[ActivityBuffers::kMostForced]{};
  size_t first_to_pour = 0, count_to_pour = 0;
  std::atomic<size_t> unseen{0}, unwritten{0};  // read also without the lock
  Wakeup work;                                  // a buffer has come, or the window has changed
  std::atomic<bool> must_flush{false};          // our thread has to flush, and then to post `flushed`
  sem_t flushed{};
  std::atomic<bool> must_forget{false};  // the calls of a window that has closed are still watched
  std::atomic<bool> end_waits{false};    // whoever ends the process waits for `writing`
  std::atomic<bool> has_ended{false};
  std::atomic<uint64_t> late_buffers{0}, late_bytes{0};  // that came after the end

  Sharing sharing() noexcept { return {&wishing, &wishes, &clock, has_own_clock}; }
  // Our clock and CUPTI's, whoever gave it to CUPTI.
  BothClocks clocks_now() const noexcept {
    return read_both(own_clock, [this](uint64_t& time) { return api.get_timestamp(&time) == abi::kSuccess; });
  }
};

Source& source() noexcept;
// Pairs with become(): what a state needs is set before it (the functions of `api` before kOn).
inline State state() noexcept { return source().state.load(std::memory_order_acquire); }
// Pairs with state(), and with the compare_exchange in start().
inline void become(State next) noexcept { source().state.store(next, std::memory_order_release); }

// The time now on the clock of our records.
uint64_t cupti_now() noexcept;

// CUPTI wants a buffer, and gives one back (delivery.cpp). Called by CUPTI, under locks of its own: they call nothing
// of it.
void on_request(uint8_t** buffer, size_t* size, size_t* most_records);
void on_completed(void* context, uint32_t stream, uint8_t* buffer, size_t size, size_t valid);

// Writes what has come back from CUPTI. With the lock `writing`.
void write_completed() noexcept;
// Flushes CUPTI first; `forced`: also the records of what has not ended.
void write_all(bool forced, bool has_clock = true) noexcept;
// Before and after CUPTI is finalized: takes what is there, and forgets what CUPTI had. With the lock `writing`.
void leave_buffers() noexcept;
void forget_buffers() noexcept;
// Gives the other client its part of what was written. Without a lock.
void pour_completed() noexcept;

// Kinds of records that a party wishes from now on, and that it wishes now. Without the lock `wishing`.
void wish(Party party, uint64_t kinds) noexcept;
uint64_t wishes_of(Party party) noexcept;

// Says that the GPU is recorded, and which kinds of records this CUPTI does not have.
void note_on() noexcept;

// Joins the other client's session, if it records already. Without a lock.
void join_session() noexcept;

// ---- with the lock `switching` --------------------------------------------------------------------------------------

// The result for kernels, without which there is nothing to show. Calls that are watched one by one only `with_calls`:
// it takes a while until they are off again.
int enable_all(bool with_calls = true) noexcept;
void disable_all() noexcept;
int register_ourselves() noexcept;  // also enables what is always enabled

}  // namespace torchprof::cupti
