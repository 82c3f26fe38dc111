// The interpreters of one process: the first, and others that it or an embedding program makes (subinterpreters, or a
// new first one after Py_FinalizeEx).
//
// 3.10 and 3.11: all share one GIL. From 3.12 on one may have its own. Then its threads run at the same time as the
// others, and the only Python objects that we may share with it are immortal ones (None, sys.monitoring.DISABLE,
// built-in types). What belongs to an interpreter is kept in its own dictionary (PyInterpreterState_GetDict, stable
// ABI), which dies with it.
#pragma once

#include "tracer/python/abi.h"

namespace torchprof::python {

namespace detail {
extern bool g_has_others;  // an interpreter other than the first has been started at some time
bool is_first_interpreter() noexcept;
}  // namespace detail

// Marks the current interpreter as the first one. Once, after load(), with the GIL held.
void know_first_interpreter() noexcept;
// Called in one that is starting, with its GIL held. False: it is the first, or this was called there before.
bool enter_other_interpreter() noexcept;

inline bool has_other_interpreters() noexcept { return detail::g_has_others; }
// Whether the calling thread, which holds the GIL, runs in the first interpreter.
inline bool is_first_interpreter() noexcept { return !detail::g_has_others || detail::is_first_interpreter(); }

// Whether the calling thread holds the GIL of the interpreter that it runs in. PyGILState_Check() is always true once
// there was a subinterpreter (Python/pystate.c, 3.10 to 3.15).
bool holds_gil() noexcept;

// A small number that the calling thread's interpreter keeps under `name`, a literal; `none` if there is none. With its
// GIL held and no error set.
long own_number(const char* name, long none) noexcept;
void set_own_number(const char* name, long number) noexcept;

// Calls f(ThreadState*) for each thread of every interpreter. 3.10 and 3.11, with the GIL held.
template <class F>
void for_each_thread(F f) noexcept {
  for (Interpreter* i = api().first_interpreter(); i; i = api().next_interpreter(i))
    for (ThreadState* t = api().first_thread(i); t; t = api().next_thread(t)) f(t);
}

}  // namespace torchprof::python
