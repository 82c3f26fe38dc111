// Short names of kernels: those of torch 2.11 on an H100 as a golden file (golden/gpu/kernel_names.txt, line by line),
// of other libraries and demanglers here. The file is long and no digest: whether a name is a good one only shows when
// it is read, and a change of the rules is reviewed by the lines that it changes.
#include <doctest/doctest.h>

#include <ctime>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "formats/gpu/kernel_names.h"
#include "formats/io/text.h"
#include "tests/unit/support/spool_builder.h"

namespace kernel_names_test {

using namespace torchprof;
using namespace torchprof::formats;
using namespace torchprof::test;

namespace {

std::vector<std::string> real_names() {
  std::ifstream file(golden_directory() / "gpu/kernel_names.txt");
  std::vector<std::string> names;
  for (std::string line; std::getline(file, line);) names.push_back(line);
  return names;
}

void check_all(const std::vector<std::pair<std::string, std::string>>& cases) {
  for (const auto& [name, expected] : cases) {
    CAPTURE(name);
    CHECK(short_kernel_name(name) == expected);
  }
}

}  // namespace

TEST_CASE("kernels of torch 2.11 on an H100") {
  const auto names = real_names();
  REQUIRE(names.size() > 1000);
  std::string text;
  std::map<std::string, int> shared;
  for (const std::string& name : names) {
    const std::string short_name = short_kernel_name(name);
    CAPTURE(name);
    CHECK(!short_name.empty());
    CHECK(short_name.size() <= name.size());
    ++shared[short_name];
    text += short_name + "\n";
  }
  check_golden("gpu/kernel_names.short.txt", text);
  for (const auto& [name, times] : shared) {
    CAPTURE(name);
    CHECK(times <= 4);  // tiles of one product with other stages and alignments
  }
}

TEST_CASE("collectives of NCCL, by its schemes of 2.7 to 2.28") {
  check_all({
      {"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "nccl AllReduce sum bf16 ring LL"},
      {"ncclDevKernel_AllReduce_Sum_f32_TREE_LL128(ncclDevComm*, unsigned long, ncclWork*)",
       "nccl AllReduce sum fp32 tree LL128"},
      {"ncclDevKernel_ReduceScatter_Sum_f16_RING_SIMPLE(ncclDevKernelArgsStorage<4096ul>)",
       "nccl ReduceScatter sum fp16 ring SIMPLE"},
      {"ncclDevKernel_AllReduce_SumPostDiv_u64_COLLNET_CHAIN(ncclDevKernelArgsStorage<4096ul>)",
       "nccl AllReduce sumpostdiv uint64 collnet chain"},
      {"ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "nccl AllGather ring LL"},
      {"ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "nccl SendRecv"},
      {"ncclDevKernel_Broadcast_RING_LL(ncclDevComm*, unsigned long, ncclWork*)", "nccl Broadcast ring LL"},
      {"ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
       "nccl AllReduce sum fp32 ring LL"},
      {"ncclKernel_AllReduce_TREE_LL128_Sum___nv_bfloat16(ncclDevComm*, unsigned long, ncclWork*)",
       "nccl AllReduce sum bf16 tree LL128"},
      {"ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
       "nccl SendRecv ring SIMPLE"},
      {"ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclWorkElem)", "nccl Broadcast ring LL"},
      {"ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "nccl AllReduce sum fp32 ring LL"},
      {"ncclSymkDevKernel_AllReduce_RSxLD_AGxST_sum_bf16(ncclSymkDevWorkArgs4K)",
       "nccl AllReduce sum bf16 RSxLD AGxST"},
      {"ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", "nccl Generic 4"},
  });
}

TEST_CASE("attention of other versions and libraries") {
  check_all({
      {"void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMai"
       "nloopFwdSm90<2, cute::tuple<cute::C<1>, cute::C<1>, cute::C<1> >, cute::tuple<cute::C<128>, "
       "cute::C<128>, cute::C<128> >, 128, cutlass::bfloat16_t, float, cutlass::arch::Sm90, true, false, "
       "false, true, true, false, false, false, true, true, false>, flash::CollectiveEpilogueFwd<cute::tuple"
       "<cute::C<128>, cute::C<128>, cute::C<128> >, cutlass::bfloat16_t> > > >(flash::enable_sm90_or_"
       "later<flash::FlashAttnFwdSm90<int> >::Params)",
       "flash attn fwd<bf16> (sm90)"},
      {"void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnBwdSm90<flash::CollectiveMai"
       "nloopBwdSm90<2, 2, 2, cute::tuple<cute::C<1> >, cutlass::half_t, float> > > >(int)",
       "flash attn bwd<fp16> (sm90)"},
      {"void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, "
       "cutlass::bfloat16_t, Flash_kernel_traits<128, 128, 64, 4, cutlass::bfloat16_t> >, true, true, "
       "false, false, false, true, false, false>(flash::Flash_fwd_params)",
       "flash attn fwd<bf16> d128 causal dropout"},
      {"fmha_cutlassB_f16_notaligned_64x64_k64_dropout_sm75(PyTorchMemEffAttention::AttentionBackwardKernel<"
       "cutlass::arch::Sm75, cutlass::half_t, false, true, false, 64, 64, 64, false>::Params)",
       "efficient attn bwd fp16 notaligned 64x64 k64 dropout"},
      {"void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<(flashinfer::MaskMode)1"
       ", 128u, 2u, 8u, __nv_bfloat16> >(int)",
       "BatchPrefillWithPagedKVCacheKernel<bf16> (flashinfer)"},
      {"cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_3_64x64x128_4x1x1_kernel0_0",
       "flash attn fwd 16-bit 64x64x128 (cudnn)"},
      {"void cudnn::fusion::fmha_reduce_head<true>(void const*, void*)", "flash attn bwd reduce heads<bf16> (cudnn)"},
      {"void cudnn::fusion::compute_dot_do_o_specialized<(bool)0, (int)64>(const void *, void *)",
       "flash attn bwd dot(dO, O)<fp16> d64 (cudnn)"},
      {"void cudnn::ops::nchwToNhwcKernel<float, float, float, (bool)0, (bool)1, (cudnnKernelDataType_t)2>"
       "(cudnn::ops::nchw2nhwc_params_t<T3>, const T1 *, T2 *)",
       "layout nchw to nhwc<fp32->tf32> (cudnn)"},
      {"void cudnn::ops::nchwToNhwcKernel<__half, __half, float, (bool)0, (bool)1, (cudnnKernelDataType_t)0>"
       "(cudnn::ops::nchw2nhwc_params_t<T3>, const T1 *, T2 *)",
       "layout nchw to nhwc<fp16> (cudnn)"},
  });
}

TEST_CASE("products of cuBLAS, cuDNN and CUTLASS that were not on that machine") {
  check_all({
      {"ampere_sgemm_128x64_tn", "gemm fp32 128x64 TN"},
      {"ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn", "gemm fp16 128x128x32 TN (cublas ampere)"},
      {"ampere_bf16_s1688gemm_bf16_128x128_ldg8_f2f_stages_32x1_nn", "gemm bf16 128x128x32 NN (cublas ampere)"},
      {"ampere_s16816gemm_bf16_64x64_sliced1x2_ldg8_stages_64x6_nn", "gemm bf16->fp32 64x64x64 NN (cublas ampere)"},
      {"volta_h884gemm_64x64_ldg8_nn", "gemm fp16 64x64 NN (cublas)"},
      {"volta_gcgemm_64x32_nt", "volta_gcgemm_64x32_nt"},
      {"maxwell_scudnn_128x64_relu_interior_nn_v1", "conv fp32 128x64 NN relu (maxwell)"},
      {"turing_h1688cudnn_256x64_ldg8_relu_exp_small_nhwc_tn_v1", "conv fp16 256x64 nhwc relu (turing)"},
      {"ampere_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", "conv fp32 128x128 NT winograd relu (ampere)"},
      {"ampere_dgemm_128x64_nn", "gemm fp64 128x64 NN"},
      {"sm90_xmma_gemm_bf16f32_bf16f32_f32_nt_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_"
       "kernel__5x_cublas",
       "gemm bf16->fp32 128x128x64 NT (cublas sm90)"},
      {"sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128_warpgroupsize1x1x1_bias_execute_"
       "segment_k_off_kernel__5x_cublas",
       "gemm fp8e4m3->bf16 128x128x128 TN bias (cublas sm90)"},
      {"sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize96x128x32_stage4_warpsize2x2x1_tensor16x8x16_kernel",
       "gemm fp16 96x128x32 TN (sm80)"},
      {"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x64_32x4_nn_align8>(cutlass_"
       "80_tensorop_bf16_s16816gemm_relu_bf16_256x64_32x4_nn_align8::Params)",
       "gemm bf16 256x64x32 NN relu (cutlass sm80)"},
      {"void cutlass::Kernel<cutlass_70_wmma_tensorop_f16_s161616gemm_f16_16x16_64x2_tn_align8>(cutlass_70_"
       "wmma_tensorop_f16_s161616gemm_f16_16x16_64x2_tn_align8::Params)",
       "gemm fp16 16x16x64 TN wmma (cutlass sm70)"},
      {"void cutlass::device_kernel<cutlass3x_sm90_tensorop_s64x128x16gemm_f16_f16_f32_void_f16_128x128x64_"
       "2x1x1_0_tnn_align8_warpspecialized_cooperative_epi_tma>(cutlass3x_sm90_tensorop_s64x128x16gemm_f16_"
       "f16_f32_void_f16_128x128x64_2x1x1_0_tnn_align8_warpspecialized_cooperative_epi_tma::Params)",
       "gemm fp16 128x128x64 TN (cutlass sm90)"},
      {"cutlass3x_sm90_tensorop_s64x128x32gemm_e4m3_e4m3_f32_bf16_bf16_128x128x128_1x2x1_0_tnn_align16_"
       "warpspecialized_cooperative_epi_tma",
       "gemm fp8e4m3->bf16 128x128x128 TN (cutlass sm90)"},
      {"cutlass3x_sm100_tensorop_s128x64x8tf32gemm_f32_f32_f32_f32_f32_128x64x32_0_tnn_align4_2sm_epi_tma",
       "gemm tf32 128x64x32 TN (cutlass sm100)"},
      {"cutlass3x_sm100_simt_sgemm_f32_f32_f32_f32_f32_64x32x16_1x1x1_3_tnn_align1_bias_f32_relu",
       "gemm fp32 64x32x16 TN bias relu (cutlass sm100)"},
      {"void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, "
       "cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<4, "
       "cute::tuple<cute::C<2> > >, cute::tuple<cute::C<128> >, cutlass::float_e4m3_t, cute::tuple<long>, "
       "cutlass::float_e4m3_t> > >(cutlass::gemm::kernel::GemmUniversal<int>::Params)",
       "gemm<fp8e4m3> (cutlass)"},
      {"nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTT", "gemm fp16 128x256x64 NT (nvjet)"},
      {"nvjet_sm100_tst_64x16_64x16_2x4_2cta_h_bz_splitK_TNT", "gemm bf16 64x16x64 TN splitK (nvjet sm100)"},
      {"nvjet_sm120_tst_mma_64x64x128_3_32x32x128_tmaAB_alignCD4_bz_TNNN", "gemm bf16 64x64x128 TN (nvjet sm120)"},
      {"nvjet_sm100_ootst_128x256_256x4_2x1_2cta_v_bz_TNT", "gemm ootst 128x256x256 TN (nvjet sm100)"},
  });
}

TEST_CASE("cub, thrust and apex") {
  check_all({
      {"void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float, float, int>, float, float, "
       "float, float, float, float, adamMode_t, float>(long, int volatile*, TensorListMetadata<4>, "
       "AdamFunctor<float, float, int>, float, float)",
       "foreach adam<fp32>"},
      {"void cuApplyLayerNorm<c10::BFloat16, float, c10::BFloat16>(c10::BFloat16*, float*, float*, "
       "c10::BFloat16 const*, int, int, float)",
       "layer_norm fwd<bf16> (apex)"},
      {"void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<int, "
       "at::cuda::cub::detail::OpaqueType<8>, int>::Policy900, false, int, "
       "at::cuda::cub::detail::OpaqueType<8>, int, int, cub::detail::identity_decomposer_t>(int*)",
       "cub radix_sort_onesweep<int32, 8B>"},
      {"void cub::CUB_200200_800_NS::DeviceReduceKernel<cub::CUB_200200_800_NS::DeviceReducePolicy<float, "
       "unsigned int, cub::Sum>::Policy600, float*, unsigned int, thrust::plus<float>, float>(float*, "
       "float*)",
       "cub reduce add<fp32>"},
      {"void cub::DeviceSegmentedRadixSortKernel<cub::DeviceRadixSortPolicy<float, long, int>::Policy800, "
       "false, true, float, long, int const*, int const*, int>(float const*)",
       "cub segmented_radix_sort<fp32, int64>"},
      {"void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::__parallel_"
       "for::ParallelForAgent<thrust::cuda_cub::__uninitialized_fill::functor<thrust::device_ptr<float>, "
       "float>, unsigned long>, thrust::cuda_cub::__uninitialized_fill::functor<thrust::device_ptr<float>, "
       "float>, unsigned long>(int)",
       "thrust parallel_for uninitialized_fill<fp32>"},
      {"void cub::detail::for_each::static_kernel<cub::detail::for_each::policy_hub_t::policy_350_t, long, "
       "thrust::cuda_cub::__transform::unary_transform_f<float*, float*> >(long, float*)",
       "cub for_each unary_transform_f<fp32>"},
      {"void cub::DeviceMergeSortBlockSortKernel<cub::DeviceMergeSortPolicy<float*>::Policy600, float*, "
       "long*, int, float*, long*, at::native::GTOp<float> >(bool, float*)",
       "cub merge_sort_block_sort<fp32, int64>"},
  });
}

TEST_CASE("torch's kernels as other versions and demanglers write them") {
  check_all({
      {"void at::native::vectorized_elementwise_kernel<(int)4, at::native::AbsFunctor<float>, "
       "std::array<char *, (unsigned long)2>>(int, T2, T3)",
       "elementwise abs<fp32>"},
      {"void at::native::vectorized_elementwise_kernel<(int)4, at::native::float8_copy_kernel_"
       "cuda(at::TensorIteratorBase &)::[lambda(float) (instance 1)], std::array<char *, "
       "(unsigned long)2>>(int, T2, T3)",
       "copy fp32->fp8e4m3"},
      {"void at::native::elementwise_kernel<(int)128, (int)4, void at::native::gpu_kernel_impl_"
       "nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 3)]::opera"
       "tor ()() const::[lambda() (instance 7)]::operator ()() const::[lambda(float) (instance 1)]>(at::Tens"
       "orIteratorBase &, const T1 &)::[lambda(int) (instance 1)]>(int, T3)",
       "copy<fp32> (strided)"},
      {"void at::native::<unnamed>::CatArrayBatchedCopy_contig<at::native::<unnamed>::OpaqueType<(unsigned i"
       "nt)2>, unsigned int, (int)3, (int)128, (int)1>(T1 *)",
       "cat contiguous<2B>"},
      {"void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_"
       "cuda(at::TensorIteratorBase&)::'lambda1'()::operator()() const::'lambda10'()::operator()() const::'l"
       "ambda'(c10::BFloat16), std::array<char*, 2ul>, 4, TrivialOffsetCalculator<1, unsigned int>, "
       "TrivialOffsetCalculator<1, unsigned int>, at::native::memory::LoadWithCast<1>, "
       "at::native::memory::StoreWithCast<1> >(int)",
       "copy any->bf16"},
      {"void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float, c10::BFloat16, "
       "at::native::(anonymous namespace)::LogSoftMaxForwardEpilogue>(c10::BFloat16*, c10::BFloat16 const*, "
       "int)",
       "log_softmax fwd<bf16>"},
      {"void at::native::(anonymous namespace)::cunn_SoftMaxForwardSmem<4, float, float, float, "
       "at::native::(anonymous namespace)::SoftMaxForwardEpilogue, long>(float*, float const*, long)",
       "softmax fwd<fp32> (shared)"},
      {"void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<at::native::index_"
       "put_kernel_impl<at::native::OpaqueType<2> >(at::TensorIterator&, c10::ArrayRef<long>, "
       "c10::ArrayRef<long>)::{lambda(char*, char const*, long)#1}>(at::TensorIteratorBase&)::{lambda(int)#1"
       "}>(long)",
       "index_put<2B>"},
      {"void at::native::_scatter_gather_elementwise_kernel<128, 8, at::native::_cuda_scatter_gather_"
       "internal_kernel<true, float>::operator()<at::native::ReduceAdd>(at::TensorIterator&, long, long, "
       "long, at::native::ReduceAdd const&)::{lambda(int)#1}>(int)",
       "scatter add<fp32>"},
      {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::Half, at::native::func_wrapper_"
       "t<float, at::native::sum_functor<c10::Half, float, float>::operator()(at::TensorIterator&)::{lambda("
       "float, float)#1}>, unsigned int, float, 4, 4> >(int)",
       "reduce sum<fp16->fp32>"},
      {"void at::native::tensor_kernel_scan_innermost_dim<float, std::plus<float> >(float*, float const*, "
       "unsigned int, unsigned int, unsigned int, float, std::plus<float>)",
       "scan add<fp32> (innermost)"},
      {"void at::native::vectorized_templated_elementwise_kernel<4, at::native::BinaryFunctor<float, float, "
       "float, at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul>, "
       "TrivialOffsetCalculator<2, unsigned int>, at::native::memory::LoadWithCast<2>, "
       "at::native::memory::StoreWithCast<1>, float, float, c10::BFloat16>(int)",
       "elementwise mul<fp32> (cast)"},
      {"void (anonymous namespace)::softmax_warp_forward<float, float, float, 5, true, false>(float*, "
       "float const*, int, int, int, bool const*, int, bool)",
       "log_softmax fwd<fp32>"},
      {"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, "
       "at::detail::Array<char*, 3> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, "
       "at::detail::Array<char*, 3>)",
       "elementwise add<bf16>"},
      {"void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16tofloat32_copy_kernel_"
       "cuda(at::TensorIteratorBase&)::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >(int)",
       "copy bf16->fp32"},
  });
}

TEST_CASE("kernels of others keep their names, and short template arguments") {
  check_all({
      {"void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*, c10::BFloat16 const*, "
       "c10::BFloat16 const*, float, int, int)",
       "rms_norm_kernel<bf16> (vllm)"},
      {"void vllm::act_and_mul_kernel<c10::BFloat16, &(c10::BFloat16 vllm::silu_"
       "kernel<c10::BFloat16>(c10::BFloat16 const&)), true>(c10::BFloat16*, c10::BFloat16 const*, int)",
       "act_and_mul_kernel<bf16, silu_kernel> (vllm)"},
      {"void vllm::paged_attention_v2_kernel<unsigned short, unsigned short, 128, 16, 128, "
       "(vllm::Fp8KVCacheDataType)0, false, 512>(float*, float*, unsigned short*)",
       "paged_attention_v2_kernel<uint16> (vllm)"},
      {"std::enable_if<((16)>(0))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type vllm::fused_add_"
       "rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, c10::BFloat16*)",
       "fused_add_rms_norm_kernel<bf16> (vllm)"},
      {"void transformer_engine::(anonymous namespace)::rmsnorm_fwd_tuned_kernel<transformer_"
       "engine::normalization::Kernel_traits<__nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, "
       "unsigned int, 4096u> >(transformer_engine::ForwardKernelParams)",
       "rmsnorm_fwd_tuned_kernel<bf16> (transformer_engine)"},
      {"void fastertransformer::generalAddBiasResidualLayerNormOpt2<__half2, true>(__half2*, __half2 const*)",
       "generalAddBiasResidualLayerNormOpt2<fp16x2> (fastertransformer)"},
      {"void kDequantizeBlockwise<__nv_bfloat16, 512, 64, 8, 2>(float*, unsigned char*, float*, __nv_"
       "bfloat16*, int, int)",
       "kDequantizeBlockwise<bf16, 512, 64, 8, 2>"},
      {"void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 2112u, 7168u, 1u, 64u, 96u, 128u, 128u, 5u>(float*, "
       "int*)",
       "sm90_fp8_gemm_1d2d_impl"},
      {"gemm(float*)", "gemm"},
      {"void gemm<float>(float*)", "gemm<fp32>"},
  });
}

TEST_CASE("what is plain, or no kernel, stays whole") {
  for (const char* name :
       {"triton_poi_fused_add_relu_0", "triton_red_fused__to_copy_add_mul_native_layer_norm_backward_sum_12",
        "_fwd_kernel", "Cijk_Ailk_Bljk_BBS_BH_MT128x128x16_SE", "Memcpy HtoD (Pageable -> Device)", "Memset (Device)",
        "<unknown kernel>", "my_kernel", "Stream Wait Event", "_Z9my_kernelIfEvPT_"})
    CHECK(short_kernel_name(name) == name);
}

TEST_CASE("hostile names: nothing is lost, and nothing takes long") {
  std::istringstream lines(R"names(<
(
{
[
>
)
,
::
 
_
*
&
&(
a<
a<b,
a(
a::
(a
operator
operator<
operator()
kernel<
Kernel<a::
kernel<kernel<a>>::
{lambda(
a::{lambda(int)#1}::
'lambda'(
<>
()
a b 
const 
a<float>::
std::plus<
at::native::vectorized_elementwise_kernel<4, 
at::native::gpu_kernel_impl<
at::native::BinaryFunctor<float, float, float, 
multi_tensor_apply_kernel<a, BinaryOpScalarFunctor<float>, 
cub::DeviceScanKernel<
flash_fwd_kernel<Flash_fwd_kernel_traits<
nvjet_
sm80_xmma_
ncclDevKernel_
cutlass_80_
fmha_cutlassF_
Ã©
_Z1fI
__nv_static___ZN)names");
  std::vector<std::string> pieces{"\xff"};
  for (std::string line; std::getline(lines, line);) pieces.push_back(line);
  std::string doubled = "__nv_static___Z1f1AIiiE";  // demangled, each argument is twice as long as that before it
  for (const char c : std::string("_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ")) {
    const std::string last = c == '_' ? "S_" : std::string("S") + c + "_";
    doubled += "S_I" + last + last + "E";
  }
  pieces.push_back(doubled);
  // The processor's time for names of this length.
  const auto time_of = [&](size_t length) {
    const std::clock_t begin = std::clock();
    for (const std::string& piece : pieces) {
      for (const char* end : {"", ">", "(int)"}) {
        std::string name;
        while (name.size() < (piece == doubled ? piece.size() : length)) name += piece;
        name += end;
        CAPTURE(piece);
        const std::string text = short_kernel_name(name);
        CHECK(!text.empty());
        CHECK(text.size() <= name.size());
        if (piece != "\xff") CHECK(printable(text) == text);
      }
    }
    return static_cast<double>(std::clock() - begin);
  };
  const double few = time_of(12'500), many = time_of(100'000);
  MESSAGE("times as long for eight times as much: ", many / few);
  CHECK(many < 24 * few);                       // eight times as long; quadratic time would be 64 times as much
  for (const std::string& name : real_names())  // cut anywhere
    for (size_t size = 1; size < std::min<size_t>(name.size(), 300); size += 7) {
      const std::string text = short_kernel_name(name.substr(0, size));
      CHECK((!text.empty() && text.size() <= size));
    }
  CHECK(short_kernel_name("").empty());
}

}  // namespace kernel_names_test
