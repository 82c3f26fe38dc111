// CUPTI's functions, found in this process at run time; nothing of CUDA is linked or included.
//
// Every CUPTI from 11.0 to 13.0 has these functions, unless a line says otherwise. Two libcuptis in one process
// collide, so one that is mapped already is taken before any other is looked for.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torchprof::cupti {

using RequestBuffer = void (*)(uint8_t** buffer, size_t* size, size_t* most_records);
using BufferCompleted = void (*)(void* context, uint32_t stream, uint8_t* buffer, size_t size, size_t valid);

struct Api {
  int (*get_version)(uint32_t*);
  int (*get_timestamp)(uint64_t*);
  int (*register_callbacks)(RequestBuffer, BufferCompleted);
  int (*enable)(uint32_t kind);
  int (*disable)(uint32_t kind);
  int (*flush_all)(uint32_t flag);
  int (*next_record)(uint8_t* buffer, size_t valid, std::byte** record);
  int (*dropped)(void* context, uint32_t stream, size_t* count);
  int (*subscribe)(void** subscriber, void* callback, void* data);
  int (*unsubscribe)(void* subscriber);
  int (*enable_runtime_call)(uint32_t cbid, uint8_t on);  // these two since 12.5, otherwise nullptr
  int (*enable_driver_call)(uint32_t cbid, uint8_t on);
  int (*set_clock)(uint64_t (*clock)());                           // cuptiActivityRegisterTimestampCallback; since 11.6
  int (*result_string)(int result, const char** text);             // this one and those below may be nullptr
  int (*thread_id_type)(uint32_t*);                                // since 10.2
  int (*driver_version)(int*);                                     // cuDriverGetVersion of libcuda
  int (*runtime_version)(int*);                                    // cudaRuntimeGetVersion of libcudart
  int (*device)(int* device, int ordinal);                         // cuDeviceGet of libcuda; needs no context
  int (*device_attribute)(int* value, int attribute, int device);  // cuDeviceGetAttribute
  int (*context_state)(int device, unsigned* flags, int* active);  // cuDevicePrimaryCtxGetState
  uint32_t version;                                                // cuptiGetVersion
  char library[256];                                               // its file
};

// False: `why` says what is missing. Loads a libcupti if none is mapped. Not from a constructor, and not before cuInit:
// without a driver cuptiGetVersion() of 13.2.86 crashes.
bool find(Api& api, const char** why) noexcept;

// Whether this is a CUDA program: libcuda, libcudart or libcupti is mapped. May be called from anywhere.
bool is_cuda_program() noexcept;

}  // namespace torchprof::cupti
