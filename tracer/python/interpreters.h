// Interpreters of one process: the first, and those that it or an embedding program makes besides (subinterpreters, and
// a first one anew after Py_FinalizeEx).
//
// 3.10 and 3.11: all share one GIL. From 3.12 on one may have its own: its thread runs at the same time as the others,
// and no Python object is ours to share with it but the immortal ones (None, sys.monitoring.DISABLE, built-in types).
// What belongs to an interpreter lies in its own dictionary (PyInterpreterState_GetDict, stable ABI), which dies with
// it.
#pragma once

#include "tracer/python/abi.h"

namespace torchprof::python {

namespace detail {
extern bool g_has_others;  // another interpreter than the first was started, at any time
bool is_first_interpreter() noexcept;
}  // namespace detail

// In the first interpreter, with the GIL held; once, after load().
void know_first_interpreter() noexcept;
// In one that is starting, with its GIL held. False: it is the first, or we have been here before.
bool enter_other_interpreter() noexcept;

inline bool has_other_interpreters() noexcept { return detail::g_has_others; }
// Of the calling thread, which holds its GIL.
inline bool is_first_interpreter() noexcept { return !detail::g_has_others || detail::is_first_interpreter(); }

// Whether the calling thread holds the GIL of the interpreter that it runs in. PyGILState_Check() says yes to everybody
// once there was a subinterpreter (Python/pystate.c, 3.10 to 3.14).
bool holds_gil() noexcept;

// A small number that the calling thread's interpreter keeps under `name`, a literal; `none` if it has none. With its
// GIL held, no error is set.
long own_number(const char* name, long none) noexcept;
void set_own_number(const char* name, long number) noexcept;

// f(ThreadState*) for each thread of every interpreter. 3.10 and 3.11, with the GIL held.
template <class F>
void for_each_thread(F f) noexcept {
  for (Interpreter* i = api().first_interpreter(); i; i = api().next_interpreter(i))
    for (ThreadState* t = api().first_thread(i); t; t = api().next_thread(t)) f(t);
}

}  // namespace torchprof::python
