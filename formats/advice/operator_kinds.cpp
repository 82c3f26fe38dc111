#include "formats/advice/operator_kinds.h"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace torchprof::formats {
namespace {

// Names without "aten::", underscores around them and what ends in "_" for operators in place. One that ends in a star
// is the begin of a name.
struct KindNames {
  OperatorKind kind;
  std::string_view names;
};
constexpr std::array kNames = std::to_array<KindNames>({
    {OperatorKind::kProduct,
     "mm addmm bmm baddbmm addbmm matmul linear addmv mv dot vdot inner outer tensordot einsum "
     "bilinear trilinear chain_matmul int_mm scaled_mm grouped_mm linalg_vecdot "
     "linalg_multi_dot mkldnn_linear* weight_int*"},
    {OperatorKind::kNetwork,
     "conv* thnn_conv* slow_conv* mkldnn_* miopen_* cudnn_* nnpack* xnnpack* scaled_dot* fused_sdp* "
     "efficient_attention* "
     "flash_attention* lstm* gru* rnn_* thnn_fused* thnn_differentiable* native_* transform_bias* transformer_* "
     "triton_* batch_norm* layer_norm* group_norm* instance_norm* rms_norm* fused_* local_response_norm norm* renorm "
     "linalg_norm linalg_vector_norm weight_norm* nuclear_norm frobenius_norm normalize cosine_similarity "
     "pairwise_distance relu* gelu* silu* mish* elu* selu celu leaky_relu* rrelu* prelu* hardtanh* hardswish* "
     "hardsigmoid* hardshrink* softshrink* sigmoid* tanh* softplus* softmax* log_softmax* log_sigmoid* logsigmoid* "
     "threshold* glu* softmin* avg_pool* max_pool* adaptive_* lp_pool* fractional_* max_unpool* upsample* "
     "interpolate* grid_sampl* affine_grid* pixel_* channel_shuffle dropout* feature_dropout* alpha_dropout* "
     "bernoulli_dropout *_loss* binary_cross_entropy* cross_entropy* nll_* mse_* l1_* smooth_l1* huber_* kl_div* "
     "ctc_* embedding embedding_bag* embedding_renorm add sub rsub mul div divide multiply subtract true_divide "
     "floor_divide remainder fmod pow float_power sqrt rsqrt exp exp2 expm1 log log2 log10 log1p neg negative abs "
     "absolute sum mean nanmean var std var_mean std_mean prod square clamp clamp_min clamp_max clip max min amax amin "
     "aminmax maximum minimum fmax fmin where eq ne gt lt ge le greater* less* not_equal all any logical_* bitwise_* "
     "isnan isinf isfinite addcmul addcdiv lerp sign sgn signbit reciprocal sin cos tan asin acos atan atan2 sinh cosh "
     "erf erfc erfinv floor ceil round trunc frac logsumexp logaddexp* logit xlogy lgamma digamma argmax argmin "
     "masked_fill foreach_* fused_adam* fused_sgd* amp_* nan_to_num heaviside hypot cumulative_trapezoid "
     "view view_as reshape reshape_alias unsafe_view expand expand_as permute transpose t numpy_T mT select slice "
     "narrow split* chunk* unsafe_split* unsafe_chunk* unbind squeeze unsqueeze flatten unflatten as_strided detach* "
     "alias diagonal swapaxes swapdims movedim moveaxis ravel real imag view_as_real view_as_complex unfold_view "
     "conj resolve_conj resolve_neg lift_fresh requires_grad* set result_type is_same_size sym_* size stride numel "
     "result_type can_cast empty* new_empty* resize* output_nr version retain_grad backward set_data data quantize* "
     "dequantize* fake_quantize* choose_qparams* histogramdd_* complex polar"},
    {OperatorKind::kMoves,
     "copy clone contiguous to to_copy pin_memory repeat repeat_interleave tile roll flip fliplr flipud rot90 "
     "expand_copy *_copy float double half int long bool bfloat16 type_as cpu cuda pad constant_pad_nd "
     "reflection_pad* replication_pad* circular_pad* im2col col2im unfold pad_packed_sequence pack_padded* "
     "from_file nested_* to_padded_tensor"},
    {OperatorKind::kSelects,
     "cat concat concatenate stack hstack vstack dstack column_stack index index_select gather take take_along_dim "
     "masked_select index_put* index_copy index_add index_fill scatter* scatter_add* scatter_reduce* segment_reduce* "
     "masked_scatter put block_diag cartesian_prod combinations meshgrid *embedding_dense_backward "
     "*embedding_backward *embedding_sparse_backward"},
    {OperatorKind::kSparse, "to_dense to_sparse* coalesce* sparse_coo_tensor* sparse_mask* sparse_* indices values"},
    {OperatorKind::kLinalg,
     "linalg_* svd* symeig* eig eigh* inverse pinverse cholesky* qr* det logdet slogdet lu lu_* ormqr orgqr geqrf "
     "lstsq triangular_solve matrix_exp matrix_power matrix_rank trace cdist* pdist* cov corrcoef fft_* stft istft "
     "kron trapz trapezoid gradient"},
    {OperatorKind::kSorts,
     "sort* argsort msort topk kthvalue median nanmedian mode quantile nanquantile unique* nonzero* argwhere "
     "count_nonzero cumsum* cumprod* cummax* cummin* logcumsumexp* bincount histc histogram* searchsorted bucketize "
     "isin diff"},
    {OperatorKind::kMakes,
     "zeros* ones* full* fill zero new_zeros new_ones new_full arange linspace logspace eye tril* triu* one_hot diag "
     "diag_embed vander hann_window* hamming_window* blackman_window* scalar_tensor tensor fill_diagonal"},
    {OperatorKind::kRandom,
     "rand* randn* randint* randperm* normal* uniform bernoulli* exponential cauchy log_normal geometric multinomial "
     "random poisson* dirichlet* standard_gamma* binomial*"},
    {OperatorKind::kReads, "item local_scalar_dense is_nonzero equal allclose"},
});

class KindTable {
 public:
  KindTable() {
    for (const KindNames& each : kNames)
      for (std::string_view rest = each.names; !rest.empty();) {
        const size_t space = rest.find(' ');
        std::string_view name = rest.substr(0, space);
        rest = space == rest.npos ? std::string_view() : rest.substr(space + 1);
        if (name.starts_with('*'))
          middles_.emplace_back(name.substr(1, name.size() - 1 - name.ends_with('*')), each.kind);
        else if (name.ends_with('*'))
          begins_.emplace_back(name.substr(0, name.size() - 1), each.kind);
        else
          exact_.emplace(name, each.kind);
      }
  }

  OperatorKind of(std::string_view name) const {
    if (const auto found = exact_.find(name); found != exact_.end()) return found->second;
    size_t longest = 0;
    OperatorKind kind = OperatorKind::kOther;
    for (const auto& [begin, of] : begins_)
      if (begin.size() > longest && name.starts_with(begin)) {
        longest = begin.size();
        kind = of;
      }
    if (longest != 0) return kind;
    for (const auto& [middle, of] : middles_)
      if (name.find(middle) != name.npos) return of;
    return kind;
  }

 private:
  std::unordered_map<std::string_view, OperatorKind> exact_;
  std::vector<std::pair<std::string_view, OperatorKind>> begins_, middles_;
};

std::string_view bare(std::string_view name) {
  const size_t colons = name.rfind("::");
  if (colons != name.npos) name.remove_prefix(colons + 2);
  while (name.starts_with('_')) name.remove_prefix(1);
  while (name.ends_with('_')) name.remove_suffix(1);
  return name;
}

}  // namespace

OperatorKind kind_of_operator(std::string_view name) {
  static const KindTable table;
  // Operators of other libraries, functions of autograd and compiled regions are the program's own work.
  return name.starts_with("aten::") ? table.of(bare(name)) : OperatorKind::kNetwork;
}

bool is_elementwise(std::string_view name) {
  constexpr std::array<std::string_view, 21> kElementwise = {
      "add",  "sub",   "mul", "div",       "sqrt",    "copy", "addcmul", "addcdiv", "lerp",      "pow", "square",
      "relu", "clone", "neg", "threshold", "sigmoid", "fill", "zero",    "clamp",   "clamp_min", "exp"};
  return std::ranges::find(kElementwise, bare(name)) != kElementwise.end();
}

bool reads_value(std::string_view name) { return kind_of_operator(name) == OperatorKind::kReads; }

}  // namespace torchprof::formats
