// Another client of CUPTI, as CUPTI sees its clients: the two functions that it registered, and its buffer that is
// being filled.
//
// CUPTI only fills our buffers. The other client's records are copied into buffers of its own, for which its functions
// are called as CUPTI would call them, in the order in which CUPTI delivers. So the client gets no record of a kind or
// time that it did not want (torch from 2.7 on prints a line for each record of a kind that it does not know), and
// CUPTI never has a buffer that could come back to the wrong client. A record reaches from one address that
// cuptiActivityGetNextRecord finds to the next, and that function finds the records of a copy, too (H100, CUDA 13.0:
// shared between two clients, and the saved records of tests/gpu/raw_records.c).
//
// The client's functions are called with no lock of ours held, and never from within CUPTI's callbacks: on its own
// thread while it enables a kind or flushes, on ours when a buffer has come. One thread at a time.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstdint>

#include "cupti/activity_buffers.h"
#include "cupti/activity_writer.h"
#include "cupti/cupti_api.h"

namespace torchprof::cupti {

class OtherClient {
 public:
  // The client that registered last counts, as in CUPTI. Any thread, also for the next three.
  void registers(RequestBuffer request, BufferCompleted completed) noexcept;
  // Pairs with registers(): request() and completed() are set.
  bool is_there() const noexcept { return __atomic_load_n(&is_there_, __ATOMIC_ACQUIRE); }
  RequestBuffer request() const noexcept { return __atomic_load_n(&request_, __ATOMIC_RELAXED); }
  BufferCompleted completed() const noexcept { return __atomic_load_n(&completed_, __ATOMIC_RELAXED); }

  // A turn: the functions below are for one thread at a time. False: this thread has the turn already, and the client's
  // functions, which are called in it, have led here.
  bool begin() noexcept;
  void end() noexcept;

  // Makes sure that we have a buffer of the client's, as CUPTI would: when libkineto stops, it looks for records only
  // if it was asked for a buffer before.
  bool keep_buffer() noexcept;
  void pour(const Api& api, const Sharing& sharing, const Completed& buffer) noexcept;
  void hand_over() noexcept;
  bool has_buffer() const noexcept { return data_ != nullptr; }
  bool has_records() const noexcept { return used_ != 0; }

 private:
  bool fits(size_t bytes) const noexcept { return used_ + bytes <= size_ && (most_ == 0 || count_ < most_); }

  bool is_there_ = false;
  RequestBuffer request_ = nullptr;
  BufferCompleted completed_ = nullptr, owner_ = nullptr;  // of the buffer
  pthread_mutex_t lock_ = PTHREAD_MUTEX_INITIALIZER;       // of the two that follow
  pthread_cond_t ended_ = PTHREAD_COND_INITIALIZER;
  bool is_taken_ = false;
  uint8_t* data_ = nullptr;
  size_t size_ = 0, used_ = 0, most_ = 0, count_ = 0;
};

}  // namespace torchprof::cupti
