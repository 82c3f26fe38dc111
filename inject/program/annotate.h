// torchprof.annotate as objects of the interpreter, made from C so that it costs next to nothing while nobody listens.
//
// annotate(name) gives an Annotation, which is a context manager and, by `decorate`, a decorator. While nobody listens
// a name gives the same one again, and what `with` finds in it are two built-in functions that do nothing: no object is
// made. While somebody listens each call gives one of its own, so that tasks that wait in the midst of theirs end each
// its own. The same one may be entered again and again, by several threads.
//
// In the first interpreter of the process, on builds that tracer/python/abi.h knows. With the GIL held.
#pragma once

#include "tracer/python/abi.h"

namespace torchprof::inject {

// The function annotate(name: str) -> Annotation, a new reference. `decorate(annotation, function)` becomes the type's
// __call__; `annotation.name` is the name. nullptr: not in this interpreter; no error is set.
python::Object* annotate_function(python::Object* decorate) noexcept;

}  // namespace torchprof::inject
