#include "cupti/other_client.h"

#include <cstring>

#include "cupti/cupti_abi.h"
#include "tracer/process/lock.h"

namespace torchprof::cupti {
namespace {

thread_local bool t_has_turn = false;

}  // namespace

void OtherClient::registers(RequestBuffer request, BufferCompleted completed) noexcept {
  __atomic_store_n(&request_, request, __ATOMIC_RELAXED);
  __atomic_store_n(&completed_, completed, __ATOMIC_RELAXED);
  __atomic_store_n(&is_there_, true, __ATOMIC_RELEASE);  // pairs with is_there(): both functions are set
}

bool OtherClient::begin() noexcept {
  if (t_has_turn) return false;
  const Lock lock(lock_);
  while (is_taken_) pthread_cond_wait(&ended_, &lock_);
  return is_taken_ = t_has_turn = true;
}

void OtherClient::end() noexcept {
  const Lock lock(lock_);
  is_taken_ = t_has_turn = false;
  pthread_cond_broadcast(&ended_);
}

bool OtherClient::keep_buffer() noexcept {
  if (data_) return true;
  uint8_t* data = nullptr;
  size_t size = 0, most = 0;
  owner_ = completed();
  request()(&data, &size, &most);
  if (!data || size == 0) return false;
  data_ = data, size_ = size, most_ = most;
  used_ = count_ = 0;
  return true;
}

void OtherClient::hand_over() noexcept {
  if (!data_) return;
  uint8_t* data = data_;
  data_ = nullptr;
  const size_t used = used_;
  used_ = 0;
  owner_(nullptr, 0, data, size_, used);
}

void OtherClient::pour(const Api& api, const Sharing& sharing, const Completed& buffer) noexcept {
  RecordWalk walk(api, buffer);
  bool has_record = walk.next();
  while (has_record) {
    if (!keep_buffer()) return;  // dropped, as CUPTI itself would
    bool is_full = false;
    {
      const Lock lock(*sharing.lock);
      for (; has_record; has_record = walk.next()) {
        Brief what = brief(walk.record(), walk.bytes());
        what.start = sharing.clock->own(what.start);
        if ((sharing.wishes->parties(what) & kTheirs) == 0) continue;
        is_full = !fits(walk.bytes());
        if (is_full) break;
        memcpy(data_ + used_, walk.record(), walk.bytes());
        used_ += walk.bytes();
        ++count_;
      }
    }
    if (!is_full) return;
    if (used_ == 0) has_record = walk.next();  // it is larger than the client's buffer
    hand_over();
  }
}

}  // namespace torchprof::cupti
