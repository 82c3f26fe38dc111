#include "formats/gpu/kernel_table.h"

#include <algorithm>
#include <array>
#include <utility>

#include "formats/io/ascii.h"

namespace torchprof::formats {
namespace {

// Read in torch 1.13 to 2.11 (aten/src/ATen/native/cuda/) and from the names of tests/unit/golden/gpu/kernel_names.txt.
constexpr std::array kKnownNames{
    // Kernels that do what a functor says.
    KnownName{"vectorized_elementwise_kernel", "elementwise %", 1},
    KnownName{"vectorized_templated_elementwise_kernel", "elementwise %", 1, 0, -1, "elementwise % cast", kAnyFlag},
    KnownName{"unrolled_elementwise_kernel", "elementwise %", 0, 0, -1, "elementwise % cast", kAnyFlag},
    KnownName{"unrolled_elementwise_kernel_for_multi_outputs", "elementwise %", 1},
    KnownName{"elementwise_kernel", "elementwise % (strided)", 2},
    KnownName{"legacy_elementwise_kernel", "elementwise % (strided)", 2},
    KnownName{"elementwise_kernel_with_index", "%", 1, kNoTypes},
    KnownName{"_elementwise_kernel", "%", 2},
    KnownName{"_elemwise_kernel", "%", 2},
    KnownName{"index_elementwise_kernel", "%", 2},
    KnownName{"_scatter_gather_elementwise_kernel", "%", 2},
    KnownName{"distribution_elementwise_grid_stride_kernel", "distribution %", 2},
    KnownName{"kernelPointwiseApply1", "elementwise %", 0},
    KnownName{"kernelPointwiseApply2", "elementwise %", 0},
    KnownName{"kernelPointwiseApply3", "elementwise %", 0},
    KnownName{"reduce_kernel", "reduce %", 2},
    KnownName{"multi_tensor_apply_kernel", "foreach %", 1},

    // What stands around the functor. gpu_kernel_impl casts from and to other types while the kernel runs.
    KnownName{"gpu_kernel_impl", "% cast", 0},
    KnownName{"gpu_kernel_impl_nocast", "%", 0},
    KnownName{"gpu_index_kernel", "%", 0},
    KnownName{"BinaryFunctor", "%", 3, 2, 2},
    KnownName{"BUnaryFunctor", "% scalar", 3, 2, 2},  // the second one is a number
    KnownName{"AUnaryFunctor", "scalar %", 3, 2, 2},
    KnownName{"ReduceOp", "%", 1, 1, 3},
    KnownName{"func_wrapper_t", "%", 1},
    KnownName{"normal_and_transform", "%", 3, 1},
    KnownName{"uniform_and_transform", "%", 3, 1},
    KnownName{"transform_iterator", "%", 0},

    // Functors.
    KnownName{"plus", "add"},
    KnownName{"minus", "sub"},
    KnownName{"multiplies", "mul"},
    KnownName{"divides", "div"},
    KnownName{"greater", "gt"},
    KnownName{"less", "lt"},
    KnownName{"greater_equal", "ge"},
    KnownName{"less_equal", "le"},
    KnownName{"SumOp", "add"},
    KnownName{"ReduceAdd", "add"},
    KnownName{"ReduceMultiply", "mul"},
    KnownName{"ReduceMinimum", "min"},
    KnownName{"ReduceMaximum", "max"},
    KnownName{"ReduceMean", "mean"},
    KnownName{"NonZeroOp", "nonzero"},
    KnownName{"CUDAFunctorOnSelf_add", "add scalar"},
    // The functors hold which comparison they make as a number, so it is not in the name.
    KnownName{"CompareEqFunctor", "compare eq/ne"},
    KnownName{"CompareFunctor", "compare lt/le/gt/ge"},
    KnownName{"compare_scalar_kernel", "compare lt/le/gt/ge scalar"},
    KnownName{"NormTwoOps", "norm2"},
    KnownName{"NormOneOps", "norm1"},
    KnownName{"NormZeroOps", "norm0"},
    KnownName{"WelfordOps", "std/var"},
    KnownName{"ArgMaxOps", "argmax"},
    KnownName{"ArgMinOps", "argmin"},
    KnownName{"MaxOps", "max with index"},
    KnownName{"MinOps", "min with index"},
    KnownName{"MaxNanFunctor", "max"},
    KnownName{"MinNanFunctor", "min"},
    KnownName{"and_kernel_cuda", "all"},
    KnownName{"or_kernel_cuda", "any"},
    KnownName{"pow_tensor_tensor_kernel", "pow"},
    KnownName{"batch_norm_update_stats_and_invert", "batch_norm update"},
    KnownName{"launch_clamp_scalar", "clamp scalar"},
    KnownName{"GroupNormKernelImplInternal", "group_norm fwd % inputs"},
    KnownName{"GroupNormBackwardKernelImplInternal", "group_norm bwd % inputs"},

    // Copies.
    KnownName{"direct_copy_kernel_cuda", "copy"},
    KnownName{"CopyFunctor", "copy"},
    KnownName{"bfloat16_copy_kernel_cuda", "copy ->bf16"},
    KnownName{"float16_copy_kernel_cuda", "copy ->fp16"},
    KnownName{"bfloat16tofloat32_copy_kernel_cuda", "copy ->fp32"},
    KnownName{"float16tofloat32_copy_kernel_cuda", "copy ->fp32"},
    KnownName{"float8_copy_kernel_cuda", "copy ->fp8"},
    KnownName{"ConvertToFloat8E4M3fnOp", "copy ->fp8e4m3"},
    KnownName{"ConvertFloatToFloat8E5M2Op", "copy fp32->fp8e5m2"},
    KnownName{"CatArrayBatchedCopy", "cat"},
    KnownName{"CatArrayBatchedCopy_contig", "cat contiguous"},
    KnownName{"CatArrayBatchedCopy_aligned16_contig", "cat aligned"},
    KnownName{"CatArrayBatchedCopy_alignedK_contig", "cat aligned"},
    KnownName{"CatArrayBatchedCopy_vectorized", "cat vectorized"},

    // Lists of tensors (foreach, fused optimizers), of torch and of apex.
    KnownName{"UnaryOpFunctor", "%"},
    KnownName{"BinaryOpScalarFunctor", "% scalar"},
    KnownName{"BinaryOpScalarListFunctor", "% scalars"},
    KnownName{"BinaryOpScalarTensorFunctor", "% scalar tensor"},
    KnownName{"BinaryOpListAlphaFunctor", "% list"},
    KnownName{"PointwiseOpScalarFunctor", "addc% scalar"},
    KnownName{"PointwiseOpScalarListFunctor", "addc% scalars"},
    KnownName{"PointwiseOpScalarTensorFunctor", "addc% scalar tensor"},
    KnownName{"PointwiseOpListFunctor", "addc% list"},
    KnownName{"TernaryOpScalarFunctor", "% scalar"},
    KnownName{"TernaryOpScalarListFunctor", "% scalars"},
    KnownName{"TernaryOpListFunctor", "% list"},
    KnownName{"LpNormFunctor", "norm"},
    KnownName{"lpnorm_cleanup", "foreach norm (sum)"},
    KnownName{"FusedAdamMathFunctor", "adam fused", -1, 0, -1, "adamw fused", 2},
    KnownName{"FusedSgdMathFunctor", "sgd fused"},
    KnownName{"FusedAdagradMathFunctor", "adagrad fused"},
    KnownName{"_amp_foreach_non_finite_check_and_unscale_cuda_", "amp unscale"},

    // Indices, scans and sorts.
    KnownName{"_cuda_scatter_gather_internal_kernel", "gather %", -1, 0, -1, "scatter %", 0},
    KnownName{"_cuda_scatter_fill_internal_kernel", "scatter fill %"},
    KnownName{"TensorAssign", ""},
    KnownName{"vectorized_gather_kernel", "gather rows (vectorized)", -1, kNoTypes},
    KnownName{"indexSelectSmallIndex", "index_select small"},
    KnownName{"indexSelectLargeIndex", "index_select large"},
    KnownName{"indexFuncSmallIndex", "index_% small", 6},
    KnownName{"indexFuncLargeIndex", "index_% large", 7},
    KnownName{"indexing_backward_kernel", "index bwd (accumulate)"},
    KnownName{"write_indices", "nonzero (write indices)"},
    KnownName{"triu_tril_kernel", "tril", -1, 0, -1, "triu", 2},
    KnownName{"tensor_kernel_scan_innermost_dim", "scan % (innermost)", 1},
    KnownName{"tensor_kernel_scan_outer_dim", "scan % (outer)", 2},
    KnownName{"tensor_kernel_scan_innermost_dim_with_indices", "cummax (innermost)", -1, 0, -1, "cummin (innermost)",
              kAnyFlag},
    KnownName{"tensor_kernel_scan_outer_dim_with_indices", "cummax (outer)", -1, 0, -1, "cummin (outer)", kAnyFlag},
    KnownName{"gatherTopK", "topk"},
    KnownName{"gatherKthValue", "kthvalue"},
    KnownName{"gatherMedian", "median"},
    KnownName{"compute_mode", "mode"},
    KnownName{"bitonicSortKVInPlace", "sort bitonic"},
    KnownName{"radixSortKVInPlace", "sort radix"},
    KnownName{"ParallelForAgent", "thrust parallel_for %", 0},
    KnownName{"static_kernel", "cub for_each %", 2},

    // Softmax, norms, embeddings.
    KnownName{"softmax_warp_forward", "softmax fwd", -1, 0, -1, "log_softmax fwd", 4},
    KnownName{"softmax_warp_backward", "softmax bwd", -1, 0, -1, "log_softmax bwd", 4},
    KnownName{"cunn_SoftMaxForward", "softmax fwd", -1, 0, -1, "log_softmax fwd", kAnyFlag},
    KnownName{"cunn_SoftMaxForwardReg", "softmax fwd (registers)", -1, 0, -1, "log_softmax fwd (registers)", kAnyFlag},
    KnownName{"cunn_SoftMaxForwardSmem", "softmax fwd (shared)", -1, 0, -1, "log_softmax fwd (shared)", kAnyFlag},
    KnownName{"cunn_SoftMaxForwardGmem", "softmax fwd (global)", -1, 0, -1, "log_softmax fwd (global)", kAnyFlag},
    KnownName{"cunn_SoftMaxBackward", "softmax bwd", -1, 0, -1, "log_softmax bwd", kAnyFlag},
    KnownName{"cunn_SoftMaxBackwardSmem", "softmax bwd (shared)", -1, 0, -1, "log_softmax bwd (shared)", kAnyFlag},
    KnownName{"cunn_SpatialSoftMaxForward", "softmax fwd (spatial)", -1, 0, -1, "log_softmax fwd (spatial)", kAnyFlag},
    KnownName{"cunn_SpatialSoftMaxBackward", "softmax bwd (spatial)", -1, 0, -1, "log_softmax bwd (spatial)", kAnyFlag},
    KnownName{"vectorized_layer_norm_kernel", "layer_norm fwd", -1, 0, -1, "rms_norm fwd", 2},
    KnownName{"LayerNormForwardCUDAKernel", "layer_norm fwd (affine)", -1, 0, -1, "rms_norm fwd (affine)", 2},
    KnownName{"layer_norm_grad_input_kernel", "layer_norm bwd (input)", -1, 0, -1, "rms_norm bwd (input)", 2},
    KnownName{"layer_norm_grad_input_kernel_vectorized", "layer_norm bwd (input)", -1, 0, -1, "rms_norm bwd (input)",
              2},
    KnownName{"GammaBetaBackwardCUDAKernelTemplate", "layer_norm bwd (gamma, beta)", -1, 0, -1, "rms_norm bwd (gamma)",
              7},
    KnownName{"GammaBetaBackwardSimpleCUDAKernel", "layer_norm bwd (gamma, beta)", -1, 0, -1, "rms_norm bwd (gamma)",
              2},
    KnownName{"GammaBetaBackwardCUDAKernel", "layer_norm bwd (gamma, beta)", -1, 0, -1, "rms_norm bwd (gamma)", 2},
    KnownName{"cuApplyLayerNorm", "layer_norm fwd (apex)"},
    KnownName{"cuApplyRMSNorm", "rms_norm fwd (apex)"},
    KnownName{"cuComputeGradInput", "layer_norm bwd (input, apex)"},
    KnownName{"cuComputeGradGammaBeta", "layer_norm bwd (gamma, beta, apex)"},
    KnownName{"cuComputePartGradGammaBeta", "layer_norm bwd (gamma, beta, parts, apex)"},
    KnownName{"RowwiseMomentsCUDAKernel", "group_norm/layer_norm fwd (moments)"},
    KnownName{"ComputeFusedParamsCUDAKernel", "group_norm fwd (parameters)"},
    KnownName{"ComputeInternalGradientsCUDAKernel", "group_norm bwd (inner gradients)"},
    KnownName{"ComputeBackwardFusedParamsCUDAKernel", "group_norm bwd (parameters)"},
    KnownName{"GammaBetaBackwardCUDAKernel1", "group_norm bwd (gamma, beta)"},
    KnownName{"GammaBetaBackwardCUDAKernel2", "group_norm bwd (gamma, beta, large)"},
    KnownName{"EmbeddingBag_updateOutputKernel_sum_mean", "embedding_bag fwd sum/mean"},
    KnownName{"EmbeddingBag_updateOutputKernel_max", "embedding_bag fwd max"},
    KnownName{"compute_grad_weight_bags", "embedding_bag bwd (weight)"},
    KnownName{"compute_grad_weight", "embedding bwd (weight)"},
    KnownName{"sum_and_scatter", "embedding bwd (sum, scatter)"},
    KnownName{"krn_partials_per_segment", "embedding bwd (segment partials)"},
    KnownName{"krn_partial_segment_offset", "embedding bwd (segment offsets)"},
    KnownName{"compute_num_of_partial_segments", "embedding bwd (count segments)"},

    // Attention: FlashAttention 2 (its traits are read in kernel_names.cpp) and 3, cuDNN's.
    KnownName{"flash_fwd_kernel", "flash attn fwd"},
    KnownName{"flash_fwd_splitkv_kernel", "flash attn fwd splitkv"},
    KnownName{"flash_fwd_splitkv_combine_kernel", "flash attn fwd splitkv combine"},
    KnownName{"flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", "flash attn bwd"},
    KnownName{"flash_bwd_dq_dk_dv_loop_kernel", "flash attn bwd (loop)"},
    KnownName{"flash_bwd_dot_do_o_kernel", "flash attn bwd dot(dO, O)"},
    KnownName{"flash_bwd_convert_dq_kernel", "flash attn bwd convert dQ"},
    KnownName{"flash_bwd_convert_dkv_kernel", "flash attn bwd convert dK, dV"},
    KnownName{"FlashAttnFwdSm90", "flash attn fwd (sm90)"},
    KnownName{"FlashAttnFwdSm80", "flash attn fwd (sm80)"},
    KnownName{"FlashAttnFwdCombine", "flash attn fwd combine"},
    KnownName{"FlashAttnBwdSm90", "flash attn bwd (sm90)"},
    KnownName{"FlashAttnBwdSm80", "flash attn bwd (sm80)"},
    KnownName{"FlashAttnBwdPreprocess", "flash attn bwd dot(dO, O)"},
    KnownName{"FlashAttnBwdPostprocessConvertdQ", "flash attn bwd convert dQ"},
    // cuDNN's: true for bfloat16, as torch runs them.
    KnownName{"compute_dot_do_o_specialized", "flash attn bwd dot(dO, O)<fp16> d%", 1, 0, -1,
              "flash attn bwd dot(dO, O)<bf16> d%", 0},
    KnownName{"convert_dq_to_16bits", "flash attn bwd convert dQ<fp16>", -1, 0, -1, "flash attn bwd convert dQ<bf16>",
              0},
    KnownName{"fmha_reduce_head", "flash attn bwd reduce heads<fp16>", -1, 0, -1, "flash attn bwd reduce heads<bf16>",
              0},

    // cuBLAS, CUTLASS, cuDNN, NCCL.
    KnownName{"GemmUniversal", "gemm"},
    KnownName{"IgemmTraits", "gemm int8->int32", -1, kNoTypes},
    KnownName{"ReduceSplitK", "splitK reduce"},
    KnownName{"splitKreduce_kernel", "splitK reduce ->"},
    KnownName{"dot_kernel", "dot (cublas)"},
    KnownName{"reduce_1Block_kernel", "dot reduce (cublas)"},
    KnownName{"scal_kernel", "scal (cublas)"},
    KnownName{"scal_kernel_val", "scal val (cublas)"},
    KnownName{"gemv2N_kernel", "gemv N (cublas)"},
    KnownName{"gemv2T_kernel_val", "gemv T (cublas)"},
    KnownName{"gemvNSP_kernel", "gemv NSP (cublas)"},
    KnownName{"gemvx", "gemv (cublas gemvx)"},
    KnownName{"gemmSN_NN_kernel", "gemm NN small (cublas)"},
    KnownName{"gemmSN_TN_kernel", "gemm TN small (cublas)"},
    KnownName{"gemmcn_skinny_kernel", "gemm skinny"},
    KnownName{"gemmk1_kernel", "gemm k1 (cublas)"},
    KnownName{"implicit_convolve_sgemm", "conv fprop implicit sgemm (cudnn)"},
    KnownName{"precomputed_convolve_sgemm", "conv fprop precomputed sgemm (cudnn)"},
    KnownName{"convolve_common_engine_float_NHWC", "conv fprop nhwc (cudnn)"},
    KnownName{"conv2d_grouped_direct_kernel", "conv fprop grouped direct"},
    KnownName{"dgrad_engine", "conv dgrad"},
    KnownName{"wgrad_alg0_engine", "conv wgrad alg0 (cudnn)"},
    KnownName{"wgrad_alg1_engine", "conv wgrad alg1"},
    KnownName{"wgrad2d_grouped_direct_kernel", "conv wgrad grouped direct"},
    KnownName{"reduce_wgrad_nchw_helper", "conv wgrad reduce nchw", -1, 1, 1},
    KnownName{"kern_precompute_indices", "conv precompute indices"},
    KnownName{"winogradWgradData4x4", "conv wgrad winograd 4x4 data"},
    KnownName{"winogradWgradDelta4x4", "conv wgrad winograd 4x4 delta"},
    KnownName{"winogradWgradOutput4x4", "conv wgrad winograd 4x4 output"},
    KnownName{"nchwToNhwcKernel", "layout nchw to nhwc"},
    KnownName{"nhwcToNchwKernel", "layout nhwc to nchw"},
    KnownName{"nhwcAddPaddingKernel", "layout nhwc add padding (cudnn)"},
    KnownName{"convertTensor_kernel", "convert"},
    KnownName{"tensorTransformGeneric", "layout transform (cudnn)"},
    KnownName{"bn_fw_tr_1C11_singleread", "batch_norm fwd 1C11"},
    KnownName{"bn_bw_1C11_singleread", "batch_norm bwd 1C11"},
    KnownName{"RNN_blockPersist_fp_RNN", "rnn fwd persistent (cudnn)"},
    KnownName{"RNN_blockPersist_fp_LSTM", "lstm fwd persistent (cudnn)"},
    KnownName{"RNN_blockPersist_fp_GRU", "gru fwd persistent (cudnn)"},
    KnownName{"RNN_blockPersist_bp_RNN_FMA", "rnn bwd persistent (cudnn)"},
    KnownName{"RNN_blockPersist_bp_LSTM_FMA", "lstm bwd persistent (cudnn)"},
    KnownName{"RNN_blockPersist_bp_GRU_FMA", "gru bwd persistent (cudnn)"},
    KnownName{"RNN_elementWise_bp1", "rnn bwd elementwise 1 (cudnn)"},
    KnownName{"LSTM_elementWise_fp", "lstm fwd elementwise (cudnn)"},
    KnownName{"LSTM_elementWise_bp1", "lstm bwd elementwise 1 (cudnn)"},
    KnownName{"GRU_elementWise_fp", "gru fwd elementwise (cudnn)"},
    KnownName{"GRU_elementWise_bp1", "gru bwd elementwise 1 (cudnn)"},
    KnownName{"GRU_elementWise_bp2", "gru bwd elementwise 2 (cudnn)"},
    KnownName{"GENERIC_elementWise_bp2", "lstm bwd elementwise 2 (cudnn)", -1, 0, -1, "rnn bwd elementwise 2 (cudnn)",
              3},
    KnownName{"persistRNN_addBias", "rnn add bias (cudnn)"},
    KnownName{"getrf_wo_pivot_params_", "getrf_wo_pivot (cusolver)"},
    KnownName{"oneRankReduce", "nccl one rank %", 0},
    KnownName{"FuncPreMulSum", "premulsum"},
};

struct LambdaText {
  std::string_view function;
  std::string_view numbers;
  std::string_view text;
};

// The lambdas of Gelu are chosen by the approximation, those of pow by the exponent, those of the copies to float8 by
// the result's type. For arange and linspace, whose lambdas take an index, only the number tells the type:
// AT_DISPATCH_ALL_TYPES counts uint8, int8, int32, int64, int16, fp64, fp32.
constexpr std::array kLambdas{
    LambdaText{"GeluCUDAKernelImpl", "1", "gelu tanh"},
    LambdaText{"GeluCUDAKernelImpl", "2", "gelu"},
    LambdaText{"GeluBackwardCUDAKernelImpl", "1", "gelu tanh bwd"},
    LambdaText{"GeluBackwardCUDAKernelImpl", "2", "gelu bwd"},
    LambdaText{"pow_tensor_scalar_kernel_impl", "1", "pow 2"},
    LambdaText{"pow_tensor_scalar_kernel_impl", "2", "pow 3"},
    LambdaText{"pow_tensor_scalar_kernel_impl", "3", "pow -2"},
    LambdaText{"pow_tensor_scalar_kernel_impl", "4", "pow scalar"},
    LambdaText{"float8_copy_kernel_cuda", "1", "copy ->fp8e4m3"},
    LambdaText{"float8_copy_kernel_cuda", "2", "copy ->fp8e5m2"},
    LambdaText{"float8_copy_kernel_cuda", "3", "copy ->fp8e4m3fnuz"},
    LambdaText{"float8_copy_kernel_cuda", "4", "copy ->fp8e5m2fnuz"},
    LambdaText{"arange_cuda_out", "1.1", "arange<uint8>"},
    LambdaText{"arange_cuda_out", "1.2", "arange<int8>"},
    LambdaText{"arange_cuda_out", "1.3", "arange<int32>"},
    LambdaText{"arange_cuda_out", "1.4", "arange<int64>"},
    LambdaText{"arange_cuda_out", "1.5", "arange<int16>"},
    LambdaText{"arange_cuda_out", "1.6", "arange<fp64>"},
    LambdaText{"arange_cuda_out", "1.7", "arange<fp32>"},
    LambdaText{"linspace_cuda_out", "2.1", "linspace<fp64>"},
    LambdaText{"linspace_cuda_out", "2.2", "linspace<fp32>"},
};

// "GeluCUDAKernel" -> "gelu_cuda_kernel"
std::string snake_case(std::string_view name) {
  std::string out;
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool is_before_lower = i + 1 < name.size() && is_lower(name[i + 1]);
    if (is_upper(c) && i != 0 && (is_lower(name[i - 1]) || (name[i - 1] != '_' && is_before_lower))) out += '_';
    out += is_upper(c) ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

}  // namespace

const KnownName* find_known_name(std::string_view name) {
  const auto found = std::ranges::find(kKnownNames, name, &KnownName::name);
  return found == kKnownNames.end() ? nullptr : &*found;
}

std::string deed_of(std::string_view name) {
  constexpr std::array<std::string_view, 15> kNoise{"cuda", "kernel",     "impl",     "functor", "ops",
                                                    "op",   "launch",     "frame",    "out",     "internal",
                                                    "vec",  "vectorized", "template", "",        "unrolled"};
  const std::string snake = snake_case(name);
  std::string out;
  for (size_t begin = 0; begin <= snake.size();) {
    const size_t end = std::min(snake.find('_', begin), snake.size());
    std::string word = snake.substr(begin, end - begin);
    begin = end + 1;
    if (std::ranges::find(kNoise, word) != kNoise.end()) continue;
    const bool has_direction = word == "forward" || word == "backward";
    if (has_direction) word = word == "forward" ? "fwd" : "bwd";
    if (!out.empty()) out += has_direction || out.ends_with("fwd") || out.ends_with("bwd") ? ' ' : '_';
    out += word;
  }
  return out.empty() ? std::string(name) : out;
}

std::string_view lambda_text(std::string_view function, std::string_view numbers) {
  for (const LambdaText& row : kLambdas)
    if (row.numbers == numbers && row.function == function) return row.text;
  return {};
}

bool is_entry_point(std::string_view name) {
  constexpr std::array<std::string_view, 11> kEntryPoints{
      "kernel",           "Kernel",        "Kernel2",       "device_kernel",        "gemm_kernel_nolb",   "Gemm",
      "kernel_cutlass3x", "_kernel_agent", "kernel_agent_", "enable_sm90_or_later", "enable_sm80_to_sm89"};
  return std::ranges::find(kEntryPoints, name) != kEntryPoints.end();
}

std::string_view library_of(std::string_view name_space) {
  using Named = std::pair<std::string_view, std::string_view>;
  constexpr std::array kLibraries{
      Named{"cudnn", "cudnn"},
      Named{"cask_plugin__5x_cudnn", "cudnn"},
      Named{"cublas", "cublas"},
      Named{"cublasLt", "cublasLt"},
      Named{"cusparse", "cusparse"},
      Named{"cusolver", "cusolver"},
      Named{"cutlass", "cutlass"},
      Named{"cutlass1x", "cutlass"},
      Named{"cutlass__5x_cudnn", "cudnn cutlass"},
      Named{"flashinfer", "flashinfer"},
      Named{"vllm", "vllm"},
      Named{"fastertransformer", "fastertransformer"},
      Named{"tensorrt_llm", "tensorrt_llm"},
      Named{"transformer_engine", "transformer_engine"},
  };
  const auto found = std::ranges::find(kLibraries, name_space, &Named::first);
  return found == kLibraries.end() ? std::string_view{} : found->second;
}

}  // namespace torchprof::formats
