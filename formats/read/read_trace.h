// Reads a trace file of any form that we know: JSON of Kineto and torch.profiler (kineto.h), our own Perfetto traces
// (perfetto.h), both also compressed, and databases of nvprof (nvprof.h) and nsys (nsys.h). The form is told by the
// first bytes, never by the name.
#pragma once

#include <filesystem>
#include <optional>

#include "formats/read/events.h"

namespace torchprof::formats {

// Throws Error naming the file and the cause. `warmup`: see totals_of().
TraceFile read_trace(const std::filesystem::path& file, std::optional<size_t> warmup = {});

// Likewise the events themselves, for totals_of().
ReadEvents read_events(const std::filesystem::path& file);

// The form as which it would be read; kJson if no other fits. Throws Error if the file cannot be opened.
enum class TraceForm : uint8_t { kJson, kPerfetto, kDatabase, kSpool };
TraceForm form_of(const std::filesystem::path& file);
bool may_be_trace(const std::filesystem::path& file);  // judging by its first bytes

}  // namespace torchprof::formats
