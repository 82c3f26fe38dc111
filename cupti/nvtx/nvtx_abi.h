// NVTX's injection interface: how a tool gets the calls of a program. Facts about an ABI; no header of NVTX is used.
//
// Each copy of NVTX in a process (header-only NVTX 3 has one in every shared object that uses it, libnvToolsExt of NVTX
// 2 is one) is a client of its own. At its first call it loads the library that NVTX_INJECTION64_PATH names and calls
// its `int InitializeInjectionNvtx2(GetExportTable)` once. The tool asks for tables of function slots and stores its
// functions there. If the tool returns 0, all calls of this client do nothing from then on; if it leaves a slot as it
// was, that call does nothing.
//
// Source: nvToolsExt.h, nvtxDetail/nvtxTypes.h, nvtxImpl.h and nvtxInit.h of NVTX 3 as it comes with CUDA 13.0 (they
// say which version of NVTX brought what; numbers are never given out again). Test: tests/unit/cupti/nvtx_test.cpp lays
// this file beside those headers where they are installed; tests/e2e/gpu/test_nvtx.py runs clients that were built with
// them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torchprof::nvtx {

using Function = void (*)();
using FunctionTable = Function**;  // slots, by the numbers below

enum ExportTable : uint32_t { kCallbacks = 1, kVersionInfo = 3 };
using GetExportTable = const void* (*)(uint32_t table);
using InitializeInjection = int (*)(GetExportTable);
inline constexpr const char* kInitialize = "InitializeInjectionNvtx2";

enum Module : int { kCore = 1, kCuda = 2, kOpenCl = 3, kCudaRt = 4, kCore2 = 5, kSync = 6 };

struct Callbacks {  // kCallbacks
  size_t size;      // of this struct
  // Returns 1, or 0 for a module that the client does not know. `count`: number of slots; slot 0 is not used.
  int (*module_table)(int module, FunctionTable* table, unsigned* count);
};

struct VersionInfo {  // kVersionInfo
  size_t size;        // of this struct
  uint32_t version;   // of the client's NVTX
  uint32_t reserved;
  void (*set_injection_version)(uint32_t version);
};

enum CoreFunction : unsigned {  // module kCore
  kMarkEx = 1,
  kMarkA = 2,
  kMarkW = 3,
  kRangeStartEx = 4,
  kRangeStartA = 5,
  kRangeStartW = 6,
  kRangeEnd = 7,
  kRangePushEx = 8,
  kRangePushA = 9,
  kRangePushW = 10,
  kRangePop = 11,
  kNameCategoryA = 12,
  kNameCategoryW = 13,
  kNameOsThreadA = 14,
  kNameOsThreadW = 15,
  kCoreSize = 16,
};

enum Core2Function : unsigned {  // module kCore2, from NVTX 2
  kDomainMarkEx = 1,
  kDomainRangeStartEx = 2,
  kDomainRangeEnd = 3,
  kDomainRangePushEx = 4,
  kDomainRangePop = 5,
  kDomainResourceCreate = 6,
  kDomainResourceDestroy = 7,
  kDomainNameCategoryA = 8,
  kDomainNameCategoryW = 9,
  kDomainRegisterStringA = 10,
  kDomainRegisterStringW = 11,
  kDomainCreateA = 12,
  kDomainCreateW = 13,
  kDomainDestroy = 14,
  kInitializeClient = 15,
  kCore2Size = 16,
};

// What a push or a pop returns where depths are not tracked.
inline constexpr int kNoTracking = -2;

enum ColorType : int32_t { kColorArgb = 1 };
enum MessageType : int32_t { kMessageAscii = 1, kMessageUnicode = 2, kMessageRegistered = 3 };
enum PayloadType : int32_t {
  kPayloadUint64 = 1,
  kPayloadInt64 = 2,
  kPayloadDouble = 3,
  kPayloadUint32 = 4,
  kPayloadInt32 = 5,
  kPayloadFloat = 6,
};

struct Text;    // what the tool gives for nvtxStringHandle_t
struct Domain;  // likewise for nvtxDomainHandle_t; nullptr: the default domain

struct EventAttributes {  // nvtxEventAttributes_v2; version 1 ends at the same place
  uint16_t version;
  uint16_t size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type;
  int32_t reserved;
  uint64_t payload;  // a union: the bytes of the value come first
  int32_t message_type;
  union {
    const char* ascii;
    const wchar_t* unicode;
    const Text* registered;
  } message;
};
static_assert(sizeof(EventAttributes) == 48 && offsetof(EventAttributes, payload) == 24 &&
              offsetof(EventAttributes, message_type) == 32 && offsetof(EventAttributes, message) == 40);

}  // namespace torchprof::nvtx
