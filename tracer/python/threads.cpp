#include "tracer/python/threads.h"

#include <cstring>
#include <string_view>

#include "tracer/python/events.h"
#include "tracer/python/modules.h"
#include "tracer/session.h"

namespace torchprof::python {
namespace {

bool is_thread(Object* object) noexcept {
  Object* threading = api().dict_get(api().modules(), "threading");  // borrowed
  const Ref type(threading ? api().get_attr(threading, "Thread") : static_cast<Object*>(nullptr));
  return type && api().is_subtype(type_of(object), type.get()) != 0;
}

// Whether this is threading's first frame of a new thread, whose native id is not set yet.
bool is_bootstrap(Frame* frame) noexcept {
  const Ref code(api().frame_code(frame));
  const Ref name(api().get_attr(code.get(), "co_name"));
  const char* text = name ? api().utf8(name.get(), nullptr) : nullptr;
  return text && strcmp(text, "_bootstrap_inner") == 0;
}

void define_name(ThreadBuffer& buffer, uint32_t tid, std::string_view text) noexcept {
  const StringId name = session::intern(text);
  if (tid != buffer.tid) return session::define_thread_name({}, tid, name);
  OnThread& thread = on_thread(buffer);
  if (name != thread.name) session::define_thread_name(buffer.track, tid, name);
  thread.name = name;
}

}  // namespace

void name_thread(Frame* frame) noexcept {
  const KeepError keep;
  ThreadBuffer* buffer = session::current_buffer();
  Object* self = buffer ? self_in(frame) : nullptr;
  if (self && is_thread(self)) {
    const Ref name(own_attribute(self, "_name"));
    const Ref native_id(own_attribute(self, "_native_id"));  // None until the thread has begun
    Size size = 0;
    const char* text = name ? api().utf8(name.get(), &size) : nullptr;
    const bool is_known = native_id && native_id.get() != api().none;
    const uint32_t tid = is_bootstrap(frame) ? buffer->tid
                         : is_known          ? static_cast<uint32_t>(api().as_long(native_id.get()))
                                             : 0;
    if (text && tid != 0) define_name(*buffer, tid, {text, static_cast<size_t>(size)});
  }
  api().error_clear();
}

}  // namespace torchprof::python
