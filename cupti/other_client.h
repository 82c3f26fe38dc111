// Another client of CUPTI, as CUPTI knows its clients: the two functions that he registered, and his buffer that is
// being filled.
//
// CUPTI fills our buffers alone. What is his is copied into buffers of his, which he is asked for and gets back by his
// own functions, in the order of CUPTI's; so he sees no record of a kind or a time that he did not want (torch from
// 2.7 on prints a line for each of a kind that it does not know), and CUPTI never has a buffer that would come back to
// the wrong one. A record is what lies between two that cuptiActivityGetNextRecord finds, which it finds in a copy as
// well (H100, CUDA 13.0: shared between two clients, and the saved records of tests/gpu/raw_records.c).
//
// His functions are called with no lock of ours held and never from within CUPTI's callbacks: on his own thread while
// he enables a kind or flushes, on ours when a buffer came. One thread at a time.
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
  // The newest counts, as in CUPTI. Any thread, as the next two.
  void registers(RequestBuffer request, BufferCompleted completed) noexcept;
  bool is_there() const noexcept { return __atomic_load_n(&is_there_, __ATOMIC_ACQUIRE); }  // pairs with registers()
  RequestBuffer request() const noexcept { return __atomic_load_n(&request_, __ATOMIC_RELAXED); }
  BufferCompleted completed() const noexcept { return __atomic_load_n(&completed_, __ATOMIC_RELAXED); }

  // A turn: what follows is for one thread at a time. False: it is this thread's already, which is called from there.
  bool begin() noexcept;
  void end() noexcept;

  // He has a buffer out at CUPTI: libkineto asks for nothing when it stops unless it was asked for one before.
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
