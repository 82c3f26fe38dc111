// What the package `torchprof` (packaging/python/) asks of the library from within a program: the functions of the
// extension module `_torchprof`.
//
//     attach(settings: bytes) -> str | None   torchprof_attach() (late/attach.h); its answer, or None: passed over
//     check(settings: bytes) -> str           the run directory that they name; ValueError: what is wrong with them
//     recorded() -> str | None                the run directory of this process; None: it is not recorded
//     leave() -> bool                         ends what attach() has begun. Waits without the GIL
//     set_window(opens: bool) -> str          "done", "same" (it was so), "busy" (try again), or why it cannot be
//     begin(name: str) -> int                 an annotation begins (inject/program/annotations.h); its key, 0: nobody
//                                             listens
//     end(name: str, key: int) -> None
//     mark(name: str) -> None
//     annotate(decorate) -> function | None   annotate.h
//
// All with the GIL held. Nothing is raised but ValueError by check() and TypeError for arguments of another type.
#pragma once

#include "tracer/python/abi.h"

namespace torchprof::inject {

python::MethodDef* program_functions() noexcept;

}  // namespace torchprof::inject
