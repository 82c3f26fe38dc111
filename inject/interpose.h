// The interposed functions of libc10 (interpose.cpp), for who points imports to them. exports.map lists the same names.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tracer/torch/memory.h"

#define TORCHPROF_EXPORT extern "C" __attribute__((visibility("default")))

TORCHPROF_EXPORT bool _ZN3c1022memoryProfilingEnabledEv();
TORCHPROF_EXPORT void _ZN3c1025ProfiledCPUMemoryReporter3NewEPvm(void* self, void* address, size_t bytes);
TORCHPROF_EXPORT void _ZN3c1025ProfiledCPUMemoryReporter11OutOfMemoryEm(void* self, size_t bytes);
TORCHPROF_EXPORT void _ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv(void* self, void* address);
TORCHPROF_EXPORT void _ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE(void* address, int64_t bytes,
                                                                            int64_t allocated, int64_t reserved,
                                                                            torchprof::torch::Device device);
TORCHPROF_EXPORT void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void* address, int64_t bytes,
                                                                            uint64_t allocated, uint64_t reserved,
                                                                            torchprof::torch::Device device);
TORCHPROF_EXPORT void _ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE(int64_t bytes, int64_t allocated,
                                                                          int64_t reserved,
                                                                          torchprof::torch::Device device);
TORCHPROF_EXPORT void _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(int64_t bytes, uint64_t allocated,
                                                                          uint64_t reserved,
                                                                          torchprof::torch::Device device);
