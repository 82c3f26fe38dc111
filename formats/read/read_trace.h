// Reads a trace file of any form that we know, told apart by what it begins with, never by its name: Kineto's and
// torch.profiler's JSON (kineto.h), our own Perfetto traces (perfetto.h), both also compressed; databases of
// nvprof (nvprof.h) and nsys (nsys.h).
#pragma once

#include <filesystem>
#include <optional>

#include "formats/read/events.h"

namespace torchprof::formats {

// Throws Error naming the file and the cause. `warmup`: as totals_of().
TraceFile read_trace(const std::filesystem::path& file, std::optional<size_t> warmup = {});

// What it would be read as; kJson where nothing else fits. Throws Error if it cannot be opened.
enum class TraceForm : uint8_t { kJson, kPerfetto, kDatabase, kSpool };
TraceForm form_of(const std::filesystem::path& file);
bool may_be_trace(const std::filesystem::path& file);  // one of these, as far as its beginning shows

}  // namespace torchprof::formats
