// Field numbers of Perfetto's trace format: those that we write and read.
//
// Source: protos/perfetto/trace of google/perfetto (v58): trace, trace_packet, trace_packet_defaults, clock_snapshot,
// interned_data/interned_data, track_event/{track_event,track_descriptor,process_descriptor,thread_descriptor,
// counter_descriptor,debug_annotation}.proto, profiling/profile_common.proto. Published numbers never change.
// tests/e2e/support/perfetto.proto has the same for protoc.
#pragma once

#include <cstdint>

namespace torchprof::formats::perfetto {

namespace trace {
enum : uint32_t { kPacket = 1 };
}
namespace packet {
enum : uint32_t {
  kClockSnapshot = 6,
  kTimestamp = 8,
  kSequenceId = 10,  // trusted_packet_sequence_id
  kTrackEvent = 11,
  kInternedData = 12,
  kSequenceFlags = 13,
  kDefaults = 59,  // trace_packet_defaults
  kTrackDescriptor = 60,
};
enum : uint32_t { kIncrementalStateCleared = 1, kNeedsIncrementalState = 2 };  // sequence_flags
}  // namespace packet
namespace defaults {
enum : uint32_t { kTimestampClock = 58 };
}
namespace clock_snapshot {
enum : uint32_t { kClocks = 1, kPrimaryClock = 2 };
enum : uint32_t { kClockId = 1, kTimestamp = 2 };   // Clock
enum : uint32_t { kRealtime = 1, kSequence = 64 };  // clock ids; 64 to 127 belong to a sequence
}  // namespace clock_snapshot
namespace interned {
enum : uint32_t {
  kCategories = 1,
  kEventNames = 2,
  kAnnotationNames = 3,
  kFunctionNames = 5,
  kFrames = 6,
  kCallstacks = 7,
  kBuildIds = 16,
  kMappingPaths = 17,
  kSourcePaths = 18,
  kMappings = 19,
  kAnnotationStrings = 29
};
// EventCategory, EventName, DebugAnnotationName, InternedString; of the others only the iid (1) is the same.
enum : uint32_t { kId = 1, kName = 2 };
}  // namespace interned
namespace mapping {
enum : uint32_t { kBuildId = 2, kStart = 4, kEnd = 5, kPath = 7 };
}
namespace frame {
enum : uint32_t { kFunctionName = 2, kMapping = 3, kRelativePc = 4, kSourcePath = 5, kLine = 6 };
}
namespace callstack {
enum : uint32_t { kFrame = 2 };  // outermost first
}
namespace track {
enum : uint32_t { kUuid = 1, kName = 2, kProcess = 3, kThread = 4, kParent = 5, kCounter = 8 };
}
namespace process {
enum : uint32_t { kPid = 1, kCommandLine = 2, kName = 6, kStart = 7, kLabels = 8 };
}
namespace thread {
enum : uint32_t { kPid = 1, kTid = 2, kName = 5 };
}
namespace counter {
enum : uint32_t { kUnit = 3, kUnitName = 6 };
enum : uint32_t { kCount = 2, kBytes = 3 };
}  // namespace counter
namespace event {
enum : uint32_t {
  kCategory = 3,
  kAnnotations = 4,
  kLegacy = 6,
  kType = 9,
  kName = 10,
  kTrack = 11,
  kCounterValue = 30,
  kFlowIds = 47,  // fixed64
  kCallstack = 56,
};
enum : uint32_t { kSliceBegin = 1, kSliceEnd = 2, kInstant = 3, kCounter = 4 };  // type
}  // namespace event
namespace legacy {
enum : uint32_t { kPhase = 2, kId = 6, kBindToEnclosing = 12 };
}
namespace annotation {
enum : uint32_t { kNameId = 1, kBool = 2, kInt = 4, kDouble = 5, kStringId = 17 };
}

}  // namespace torchprof::formats::perfetto
