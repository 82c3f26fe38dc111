// The activity records of CUPTI that we read: the offset of each field, and since which CUPTI it exists.
//
// From CUDA 11.0 to 13.0 records only grow at their ends, so an offset holds for every version that has the field.
// `since` is a result of cuptiGetVersion():
//     13   CUDA 11.0        17   11.6, 11.7            22   12.4        28       12.9
//     14        11.1        18   11.8, 12.0, 12.1      23   12.5        130000   13.0
//     15        11.2        20   12.2                  24   12.6        130100   13.1
//     16        11.5        21   12.3                  26   12.8        130200   13.2, and so on
//
// Source: cupti_activity.h and cupti_activity_deprecated.h, which have all older structs and say in which CUDA each was
// replaced. tests/foreign/cupti_headers.py compares the table with the headers of NVIDIA's wheels, 12.2 to 13.5;
// tests/unit/cupti/cupti_layout_test.cpp with those that are installed. A CUPTI above kNewest is refused.
#pragma once

#include <cstdint>

namespace torchprof::cupti::abi {

inline constexpr uint32_t kOldest = 13;
inline constexpr uint32_t kNewest = 139999;  // 13.x: a later 13 adds fields only after those that are read

struct Field {
  uint16_t at;
  uint32_t since = kOldest;
};

enum ActivityKind : uint32_t {  // CUpti_ActivityKind
  kMemcpy = 1,
  kMemset = 2,
  kDriver = 4,
  kRuntime = 5,
  kDevice = 8,
  kContext = 9,
  kConcurrentKernel = 10,
  kOverhead = 17,
  kEnvironment = 20,
  kMemcpyPeer = 22,
  kCudaEvent = 36,
  kSynchronization = 38,
  kMemory2 = 49,
  kMemoryPool = 50,  // since 11.2
};

inline constexpr Field kKind{0};  // of every record, uint32_t

namespace kernel {  // CUpti_ActivityKernel5 .. 11
inline constexpr uint16_t kSize = 160;
inline constexpr Field kRegisters{6}, kStart{16}, kEnd{24}, kDevice{40}, kContext{44}, kStream{48}, kGrid{52},
    kBlock{64}, kStaticShared{76}, kDynamicShared{80}, kLocalPerThread{84}, kCorrelation{92}, kName{104}, kQueued{120},
    kSubmitted{128}, kLaunchType{136}, kSharedExecuted{140}, kGraphNode{144}, kGraph{156}, kChannel{168, 17},
    kChannelType{172, 17}, kPriority{216, 130100};
}  // namespace kernel

namespace memcpy {  // CUpti_ActivityMemcpy3 .. 6
inline constexpr uint16_t kSize = 72;
inline constexpr Field kCopyKind{4}, kSrcKind{5}, kDstKind{6}, kFlags{7}, kBytes{8}, kStart{16}, kEnd{24}, kDevice{32},
    kContext{36}, kStream{40}, kCorrelation{44}, kGraphNode{64}, kGraph{72, 14}, kChannel{76, 17}, kChannelType{80, 17};
}  // namespace memcpy

namespace peer {  // CUpti_ActivityMemcpyPtoP2 .. 4; up to the stream as memcpy
inline constexpr uint16_t kSize = 80;
inline constexpr Field kSrcDevice{44}, kSrcContext{48}, kDstDevice{52}, kDstContext{56}, kCorrelation{60},
    kGraphNode{72}, kGraph{80, 14}, kChannel{84, 17}, kChannelType{88, 17};
}  // namespace peer

namespace memset {  // CUpti_ActivityMemset2 .. 4
inline constexpr uint16_t kSize = 72;
inline constexpr Field kValue{4}, kBytes{8}, kStart{16}, kEnd{24}, kDevice{32}, kContext{36}, kStream{40},
    kCorrelation{44}, kFlags{48}, kMemoryKind{50}, kGraphNode{64}, kGraph{72, 14}, kChannel{76, 17},
    kChannelType{80, 17};
}  // namespace memset

namespace api {  // CUpti_ActivityAPI
inline constexpr uint16_t kSize = 40;
inline constexpr Field kCbid{4}, kStart{8}, kEnd{16}, kThread{28}, kCorrelation{32}, kResult{36};
}  // namespace api

namespace sync {  // CUpti_ActivitySynchronization, 2
inline constexpr uint16_t kSize = 40;
inline constexpr Field kType{4}, kStart{8}, kEnd{16}, kCorrelation{24}, kContext{28}, kStream{32}, kEvent{36},
    kEventRecord{40, 26}, kResult{48, 26};
}  // namespace sync

namespace event {  // CUpti_ActivityCudaEvent, 2
inline constexpr uint16_t kSize = 24;
inline constexpr Field kCorrelation{4}, kContext{8}, kStream{12}, kEvent{16}, kDeviceTime{40, 26}, kEventRecord{48, 26};
}  // namespace event

// Since 13.0 an overhead has a pointer to more at 48, which the client may free. We neither read nor free it: the
// record may be another client's as well.
namespace overhead {  // CUpti_ActivityOverhead, 2, 3
inline constexpr uint16_t kSize = 40;
inline constexpr Field kOverheadKind{4}, kObjectKind{8}, kObject{12}, kStart{24}, kEnd{32}, kCorrelation{40, 21};
// The object: a process and a thread, or a device, a context and a stream.
inline constexpr uint32_t kOfProcess = 1, kOfThread = 2;
}  // namespace overhead

namespace memory {  // CUpti_ActivityMemory2 .. 4
inline constexpr uint16_t kSize = 112;
inline constexpr Field kOperation{4}, kMemoryKind{8}, kCorrelation{12}, kAddress{16}, kBytes{24}, kTime{32},
    kDevice{52}, kContext{56}, kStream{60}, kIsAsync{72};
}  // namespace memory

namespace pool {  // CUpti_ActivityMemoryPool, 2
inline constexpr uint16_t kSize = 64;
inline constexpr Field kOperation{4}, kPoolType{8}, kCorrelation{12}, kDevice{20}, kAddress{32}, kBytes{40},
    kThreshold{48}, kTime{56}, kUsed{64, 16};  // in 11.3 already, but that has the version number of 11.2
}  // namespace pool

namespace environment {  // CUpti_ActivityEnvironment
inline constexpr uint16_t kSize = 40;
inline constexpr Field kDevice{4}, kTime{8}, kEnvironmentKind{16}, kValues{20};  // the last is a union, five numbers
}  // namespace environment

namespace device {  // CUpti_ActivityDevice2 .. 5
inline constexpr uint16_t kSize = 144;
inline constexpr Field kBandwidth{8}, kMemory{16}, kL2{28}, kWarp{32}, kClock{36}, kMultiprocessors{44}, kWarps{52},
    kBlocks{56}, kSharedOfMultiprocessor{60}, kRegistersOfMultiprocessor{64}, kRegistersOfBlock{68}, kSharedOfBlock{72},
    kThreadsOfBlock{76}, kMajor{104}, kMinor{108}, kId{112}, kName{136};
}  // namespace device

namespace context {  // CUpti_ActivityContext, 2, 3
inline constexpr uint16_t kSize = 16;
inline constexpr Field kContext{4}, kDevice{8}, kDefaultStream{14};  // the last is uint16_t
}  // namespace context

// The driver's (cuda.h)
inline constexpr int kDriverNotInitialized = 3;  // CUresult; cuInit has not returned yet
inline constexpr int kSharedPerBlockOptin = 97;  // CUdevice_attribute; since CUDA 9

// CUptiResult
inline constexpr int kSuccess = 0;
inline constexpr int kMaxLimitReached = 12;      // of cuptiActivityGetNextRecord: the buffer has no more
inline constexpr int kNotInitialized = 15;       // libcupti is newer than the driver
inline constexpr int kMultipleSubscribers = 39;  // also under nsys, ncu and cuda-gdb

}  // namespace torchprof::cupti::abi
