// The whole ABI of libtorchprof.so: what the Python side may call. exports.map lists the same names.
#pragma once

#include "tracer/python/abi.h"

extern "C" {

// The library as an extension module: sitecustomize.py loads it in a process that LD_PRELOAD did not reach. Starts
// capture if the environment asks for it and it has not been started before. With the GIL held. What the module itself
// has: program/functions.h.
__attribute__((visibility("default"))) torchprof::python::Object* PyInit__torchprof();
}
