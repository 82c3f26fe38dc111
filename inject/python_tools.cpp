#include "inject/python_tools.h"

#include "inject/method_table.h"
#include "tracer/python/monitoring.h"

namespace torchprof::inject {
namespace {

using python::api;
using python::Object;

// The functions of sys.monitoring whose first argument is a tool id. If it is ours, we move away, and the id is free.
template <int>
struct Monitoring {
  static inline FastArgs fast = nullptr;
  static inline OneArg one = nullptr;
  static Object* call_fast(Object* self, Object* const* args, python::Size count) {
    if (count > 0) python::tool_is_wanted(args[0]);
    return fast(self, args, count);
  }
  static Object* call_one(Object* self, Object* arg) {
    python::tool_is_wanted(arg);
    Object* result = one(self, arg);
    if (result) python::tool_was_freed();
    return result;
  }
};

// The functions that only ask: sys.monitoring.get_tool(id), get_events(id), _all_events().
OneArg g_get_tool = nullptr;
OneArg g_get_events = nullptr;
NoArgs g_all_events = nullptr;

Object* get_tool(Object* self, Object* id) {
  if (!python::is_our_tool(id)) return g_get_tool(self, id);
  api().incref(api().none);
  return api().none;
}

Object* get_events(Object* self, Object* id) {
  return python::is_our_tool(id) ? api().from_long(0) : g_get_events(self, id);
}

Object* all_events(Object* self, Object* none) {
  Object* events = g_all_events(self, none);
  if (events) python::leave_out_our_tool(events);
  return events;
}

// sys.settrace(function), sys._settraceallthreads(function): the trace function is not the only tool (monitoring.h).
OneArg g_settrace = nullptr;
OneArg g_settrace_all = nullptr;

Object* settrace(Object* self, Object* function) {
  Object* result = g_settrace(self, function);
  if (result && function != api().none && python::is_monitoring()) python::restate_opcodes_of_this_thread();
  return result;
}

Object* settrace_all(Object* self, Object* function) {
  Object* result = g_settrace_all(self, function);
  if (result && function != api().none && python::is_monitoring()) python::restate_opcodes();
  return result;
}

}  // namespace

void hide_our_tool() noexcept {
  Object* monitoring = api().sys_object("monitoring");  // borrowed
  const auto fast = [&](const char* name, auto which) {
    put_behind(monitoring, name, python::kMethFastCall, &decltype(which)::call_fast, decltype(which)::fast);
  };
  const auto one = [&](const char* name, auto which) {
    put_behind(monitoring, name, python::kMethO, &decltype(which)::call_one, decltype(which)::one);
  };
  fast("use_tool_id", Monitoring<0>{});
  fast("register_callback", Monitoring<1>{});
  fast("set_events", Monitoring<2>{});
  fast("set_local_events", Monitoring<3>{});
  one("free_tool_id", Monitoring<4>{});
  one("clear_tool_id", Monitoring<5>{});  // 3.14
  put_behind(monitoring, "get_tool", python::kMethO, &get_tool, g_get_tool);
  put_behind(monitoring, "get_events", python::kMethO, &get_events, g_get_events);
  put_behind(monitoring, "_all_events", python::kMethNoArgs, &all_events, g_all_events);
  Object* sys = api().dict_get(api().modules(), "sys");  // borrowed
  put_behind(sys, "settrace", python::kMethO, &settrace, g_settrace);
  put_behind(sys, "_settraceallthreads", python::kMethO, &settrace_all, g_settrace_all);
}

}  // namespace torchprof::inject
