// How Perfetto is to merge the traces of single ranks: a perfetto_manifest of version 1, which lies beside them.
//
// Whoever wants some of them on one timeline puts them into an archive with it, and opens that (from v58 on):
//
//     tar cf some.tar perfetto_manifest.json rank0.perfetto-trace rank7.perfetto-trace
//
// Each file belongs to the machine of its process, so that process ids of two hosts are not mixed up. All times are of
// one clock (formats/ranks/align.h), which each file ties to CLOCK_REALTIME: the merged timeline is that one, and needs
// no offsets. Source: google/perfetto docs/reference/perfetto-manifest.md.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "formats/trace/trace.h"

namespace torchprof::formats {

inline constexpr const char* kPerfettoManifest = "perfetto_manifest.json";

// Of files with one process each.
std::string perfetto_manifest(const std::vector<std::pair<std::string, const Process*>>& files);

}  // namespace torchprof::formats
