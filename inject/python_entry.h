// The way into an interpreter from C, before it has started. The program cannot see it, and it does not get in its way.
//
// 1. hook_start(), from the ELF constructor: the table of built-in modules (PyImport_Inittab, public) gets our own
//    initialiser for "posix", which every interpreter loads while it starts, whatever -I, -S and -E say. It calls the
//    real one and asks for enter() at the next safe point.
// 2. enter(), with the GIL held: starts the capture of calls and adds a step of ours after `_imp.create_dynamic`, so
//    that torch is seen the moment its extension module has been loaded. The step goes into the method table of the
//    built-in function (PyMethodDef, stable ABI): the object that programs see stays the same, and nothing but these
//    rare calls costs anything. An audit hook would do as well, but it cannot be removed and makes id(), open() and
//    f.__code__ slower for good; it is used where the method table is not what we know.
#pragma once

namespace torchprof::inject {

// False: this interpreter has no table of built-in modules.
bool hook_start() noexcept;

// Idempotent. With the GIL held.
void enter() noexcept;

// The other way round, with the GIL held and the window closed: what enter() has put into the interpreter is out of it
// again, but for what somebody else has replaced since. Then enter() may be called again.
void leave() noexcept;

}  // namespace torchprof::inject
