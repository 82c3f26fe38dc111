#include "tracer/python/interpreters.h"

#include <pthread.h>

#include <cstring>

namespace torchprof::python {

bool detail::g_has_others = false;

namespace {

constexpr char kMark[] = "torchprof.entered";
// Offset of PyThreadState.thread_id, which is what pthread_self() returns: found by looking for that number. 0: not
// known. 3.10 and 3.11.
size_t g_thread_id = 0;

void find_thread_id(const ThreadState* self) noexcept {
  constexpr size_t kEnd = 320;  // bytes; the struct has 352 and more
  const pthread_t me = pthread_self();
  for (size_t offset = 0; self && offset < kEnd; offset += sizeof(me))
    if (memcmp(reinterpret_cast<const char*>(self) + offset, &me, sizeof(me)) == 0) g_thread_id = offset;
}

}  // namespace

bool detail::is_first_interpreter() noexcept { return own_number(kMark, 0) == 1; }

void know_first_interpreter() noexcept {
  set_own_number(kMark, 1);
  if (api().minor <= 11 && api().current_thread) find_thread_id(api().current_thread());
}

bool enter_other_interpreter() noexcept {
  if (own_number(kMark, 0) != 0) return false;
  detail::g_has_others = true;
  set_own_number(kMark, 2);
  return true;
}

bool holds_gil() noexcept {
  if (!api().current_thread) return api().gil_check() != 0;
  const ThreadState* current = api().current_thread();
  if (!current) return false;
  // From 3.12 on `current` is the calling thread's own; before, that of the thread which holds the GIL.
  if (api().minor >= 12 || current == api().this_thread()) return true;
  const pthread_t me = pthread_self();
  return detail::g_has_others && g_thread_id &&
         memcmp(reinterpret_cast<const char*>(current) + g_thread_id, &me, sizeof(me)) == 0;
}

long own_number(const char* name, long none) noexcept {
  Object* own = api().interpreter_dict(api().current_interpreter());  // borrowed
  Object* number = own ? api().dict_get(own, name) : nullptr;
  return number ? api().as_long(number) : none;
}

void set_own_number(const char* name, long number) noexcept {
  Object* own = api().interpreter_dict(api().current_interpreter());
  const Ref value(own ? api().from_long(number) : static_cast<Object*>(nullptr));
  if (value) api().dict_set(own, name, value.get());
  api().error_clear();
}

}  // namespace torchprof::python
