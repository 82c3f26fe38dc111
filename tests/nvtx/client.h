/* NVTX as programs use it: NVIDIA's own header where it is installed (compile with -I.../include), otherwise the part
   of its interface that the tests call, written from the documented ABI (cupti/nvtx/nvtx_abi.h says from where). Each file
   that includes it is a client of its own. */
#pragma once
#if !defined(OWN_CLIENT) && __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#else
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <wchar.h>

typedef uint64_t nvtxRangeId_t;
typedef struct nvtxDomainRegistration_st* nvtxDomainHandle_t;
typedef struct nvtxStringRegistration_st* nvtxStringHandle_t;
typedef union {
  const char* ascii;
  const wchar_t* unicode;
  nvtxStringHandle_t registered;
} nvtxMessageValue_t;
typedef struct {
  uint16_t version, size;
  uint32_t category;
  int32_t colorType;
  uint32_t color;
  int32_t payloadType, reserved0;
  union {
    uint64_t ullValue;
    int64_t llValue;
    double dValue;
    uint32_t uiValue;
    int32_t iValue;
    float fValue;
  } payload;
  int32_t messageType;
  nvtxMessageValue_t message;
} nvtxEventAttributes_t;
enum { NVTX_COLOR_ARGB = 1, NVTX_MESSAGE_TYPE_ASCII = 1, NVTX_MESSAGE_TYPE_UNICODE, NVTX_MESSAGE_TYPE_REGISTERED };
enum {
  NVTX_PAYLOAD_TYPE_UNSIGNED_INT64 = 1,
  NVTX_PAYLOAD_TYPE_INT64,
  NVTX_PAYLOAD_TYPE_DOUBLE,
  NVTX_PAYLOAD_TYPE_UNSIGNED_INT32,
  NVTX_PAYLOAD_TYPE_INT32,
  NVTX_PAYLOAD_TYPE_FLOAT
};
#define NVTX_VERSION 3
#define NVTX_EVENT_ATTRIB_STRUCT_SIZE ((uint16_t)sizeof(nvtxEventAttributes_t))

typedef void (*nvtx_function)(void);
static nvtx_function nvtx_core[16], nvtx_core2[16]; /* by number */
static nvtx_function* nvtx_slots[2][17];

static int nvtx_module_table(int module, nvtx_function*** table, unsigned* count) {
  if (module != 1 && module != 5) return 0;
  nvtx_function** slots = nvtx_slots[module == 5];
  for (int i = 1; i < 16; ++i) slots[i] = module == 5 ? &nvtx_core2[i] : &nvtx_core[i];
  *table = slots;
  *count = 16;
  return 1;
}
static const struct {
  size_t size;
  int (*table)(int, nvtx_function***, unsigned*);
} nvtx_callbacks = {16, nvtx_module_table};
static const void* nvtx_get_export_table(uint32_t table) { return table == 1 ? &nvtx_callbacks : NULL; }

static void nvtx_connect(void) {
  const char* path = getenv("NVTX_INJECTION64_PATH");
  void* library = path ? dlopen(path, RTLD_LAZY) : NULL;
  int (*initialize)(const void* (*)(uint32_t)) =
      library ? (int (*)(const void* (*)(uint32_t)))dlsym(library, "InitializeInjectionNvtx2") : NULL;
  if (initialize && initialize(nvtx_get_export_table)) return;
  for (int i = 0; i < 16; ++i) nvtx_core[i] = nvtx_core2[i] = NULL;
}

/* Whoever calls while another connects waits for him, as with the real one. */
static void nvtx_init(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, nvtx_connect);
}

#define NVTX_CALL(result, name, table, number, none, types, names)       \
  static inline result name types {                                      \
    nvtx_init();                                                         \
    return table[number] ? ((result(*) types)table[number])names : none; \
  }
#define NVTX_DO(name, table, number, types, names)           \
  static inline void name types {                            \
    nvtx_init();                                             \
    if (table[number]) ((void(*) types)table[number]) names; \
  }
NVTX_DO(nvtxMarkEx, nvtx_core, 1, (const nvtxEventAttributes_t* a), (a))
NVTX_DO(nvtxMarkA, nvtx_core, 2, (const char* m), (m))
NVTX_CALL(nvtxRangeId_t, nvtxRangeStartA, nvtx_core, 5, 0, (const char* m), (m))
NVTX_DO(nvtxRangeEnd, nvtx_core, 7, (nvtxRangeId_t id), (id))
NVTX_CALL(int, nvtxRangePushEx, nvtx_core, 8, -2, (const nvtxEventAttributes_t* a), (a))
NVTX_CALL(int, nvtxRangePushA, nvtx_core, 9, -2, (const char* m), (m))
NVTX_CALL(int, nvtxRangePushW, nvtx_core, 10, -2, (const wchar_t* m), (m))
NVTX_CALL(int, nvtxRangePop, nvtx_core, 11, -2, (void), ())
NVTX_DO(nvtxNameCategoryA, nvtx_core, 12, (uint32_t c, const char* m), (c, m))
NVTX_DO(nvtxNameOsThreadA, nvtx_core, 14, (uint32_t t, const char* m), (t, m))
NVTX_DO(nvtxDomainMarkEx, nvtx_core2, 1, (nvtxDomainHandle_t d, const nvtxEventAttributes_t* a), (d, a))
NVTX_CALL(nvtxRangeId_t, nvtxDomainRangeStartEx, nvtx_core2, 2, 0,
          (nvtxDomainHandle_t d, const nvtxEventAttributes_t* a), (d, a))
NVTX_DO(nvtxDomainRangeEnd, nvtx_core2, 3, (nvtxDomainHandle_t d, nvtxRangeId_t id), (d, id))
NVTX_CALL(int, nvtxDomainRangePushEx, nvtx_core2, 4, -2, (nvtxDomainHandle_t d, const nvtxEventAttributes_t* a), (d, a))
NVTX_CALL(int, nvtxDomainRangePop, nvtx_core2, 5, -2, (nvtxDomainHandle_t d), (d))
NVTX_DO(nvtxDomainNameCategoryA, nvtx_core2, 8, (nvtxDomainHandle_t d, uint32_t c, const char* m), (d, c, m))
NVTX_CALL(nvtxStringHandle_t, nvtxDomainRegisterStringA, nvtx_core2, 10, NULL, (nvtxDomainHandle_t d, const char* m),
          (d, m))
NVTX_CALL(nvtxDomainHandle_t, nvtxDomainCreateA, nvtx_core2, 12, NULL, (const char* m), (m))
NVTX_DO(nvtxDomainDestroy, nvtx_core2, 14, (nvtxDomainHandle_t d), (d))
#endif

static inline nvtxEventAttributes_t attributes_of(const char* message) {
  nvtxEventAttributes_t a = {0};
  a.version = NVTX_VERSION;
  a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  a.messageType = NVTX_MESSAGE_TYPE_ASCII;
  a.message.ascii = message;
  return a;
}
