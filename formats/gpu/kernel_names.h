// Short names of GPU kernels, for tables: what a kernel does, on which type, and whose it is.
//
//   void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, ...>(...)
//                                                                elementwise add<bf16>
//   nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT                gemm bf16 64x8x64 TN splitK (nvjet sm90)
//   sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwc...   conv fprop bf16 128x64x32 nhwc (sm80)
//   ncclDevKernel_AllReduce_Sum_bf16_RING_LL(...)                nccl AllReduce sum bf16 ring LL
//   void vllm::rms_norm_kernel<c10::BFloat16>(...)               rms_norm_kernel<bf16> (vllm)
//   triton_poi_fused_gelu_1                                      the same: a name that is plain already stays
//
// Types are fp64, fp32, tf32, bf16, fp16, fp8e4m3, fp8e5m2, complex64, int64, int32, uint8, bool and so on;
// "fp32->bool" where the result has another; "4B" where only the size counts; "any" where the kernel casts from a type
// that its name does not tell. Where operations share one kernel, all are named: "compare eq/ne".
//
// Kernels that differ in operation, type or direction have different short names, as far as their names tell. Those
// that differ in how they do it (vector width, unrolling, stages, alignment) may share one, so rows are never joined by
// it.
#pragma once

#include <string>
#include <string_view>

namespace torchprof::formats {

// `name`: as kernel_name() gives it. Never empty unless `name` is, never longer, valid UTF-8 if `name` is; takes time
// linear in the length. What is no kernel's name ("Memcpy HtoD (Pageable -> Device)") stays as it is.
std::string short_kernel_name(std::string_view name);

}  // namespace torchprof::formats
