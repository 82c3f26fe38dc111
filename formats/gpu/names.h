// Names for the work of devices: Kineto's (libkineto/src/cupti_strings.cpp, CuptiActivity.h).
#pragma once

#include <string>
#include <string_view>

#include "tracer/spool/record.h"

namespace torchprof::formats {

std::string kernel_name(std::string_view mangled);       // demangled (symbols/demangle.h); never empty
std::string copy_name(const GpuCopy& copy);              // "Memcpy HtoD (Pageable -> Device)"
std::string set_name(const GpuSet& set);                 // "Memset (Device)"
std::string sync_name(const GpuSync& sync);              // "Stream Sync"
std::string overhead_name(const GpuOverhead& overhead);  // "Buffer Flush"

}  // namespace torchprof::formats
