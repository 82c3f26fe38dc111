#include "formats/gpu/library_kernels.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "formats/io/ascii.h"

namespace torchprof::formats {
namespace {

using Words = std::vector<std::string_view>;
using NamedPart = std::pair<std::string_view, std::string_view>;
using Letter = std::pair<char, std::string_view>;

constexpr size_t kMostWords = 64;

Words words_of(std::string_view name) {
  Words words;
  while (!name.empty() && words.size() < kMostWords) {
    const std::string_view word = name.substr(0, name.find('_'));
    name.remove_prefix(std::min(name.size(), word.size() + 1));
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

bool has(const Words& words, std::string_view word) { return std::ranges::find(words, word) != words.end(); }

template <class Key, size_t N>
std::string_view look_up(const std::array<std::pair<Key, std::string_view>, N>& table, const Key& key) {
  const auto found = std::ranges::find(table, key, &std::pair<Key, std::string_view>::first);
  return found == table.end() ? std::string_view{} : found->second;
}

// Empty: not the word of a type.
std::string_view type_word(std::string_view word) {
  static constexpr auto kTypes = std::to_array<NamedPart>({
      {"f16", "fp16"},       {"fp16", "fp16"},       {"half", "fp16"},     {"bf16", "bf16"},      {"bfloat16", "bf16"},
      {"f32", "fp32"},       {"fp32", "fp32"},       {"float", "fp32"},    {"tf32", "tf32"},      {"f64", "fp64"},
      {"double", "fp64"},    {"e4m3", "fp8e4m3"},    {"ue4m3", "fp8e4m3"}, {"f8e4m3", "fp8e4m3"}, {"e5m2", "fp8e5m2"},
      {"f8e5m2", "fp8e5m2"}, {"e2m1", "fp4e2m1"},    {"s8", "int8"},       {"i8", "int8"},        {"u8", "uint8"},
      {"i32", "int32"},      {"s32", "int32"},       {"u32", "uint32"},    {"i64", "int64"},      {"u64", "uint64"},
      {"cf32", "complex64"}, {"cf64", "complex128"}, {"int8", "int8"},     {"uint8", "uint8"},    {"int32", "int32"},
      {"uint32", "uint32"},  {"int64", "int64"},     {"uint64", "uint64"},
  });
  return look_up(kTypes, word);
}

// "128x64", "64x32x64": how many numbers; 0: something else.
size_t dimensions(std::string_view word) {
  size_t count = 0;
  for (size_t i = 0; i < word.size(); ++i) {
    if (is_digit(word[i]))
      count += i == 0 || word[i - 1] == 'x' ? 1 : 0;
    else if (word[i] != 'x' || i == 0 || !is_digit(word[i - 1]) || i + 1 == word.size())
      return 0;
  }
  return count > 1 ? count : 0;
}

bool is_architecture(std::string_view word) {
  constexpr std::array<std::string_view, 6> kNames{"maxwell", "pascal", "volta", "turing", "ampere", "hopper"};
  return (word.starts_with("sm") && word.size() > 3 && is_digit(word[2])) ||
         std::ranges::find(kNames, word) != kNames.end();
}

std::string types_text(std::string_view in, std::string_view out) {
  // TF32 is how float32 is multiplied: what comes out is float32.
  if (in == out || out.empty() || (in == "tf32" && out == "fp32")) return std::string(in);
  return std::string(in) + "->" + std::string(out);
}

// What a matrix product or a convolution is called.
struct Product {
  std::string_view what = "gemm";
  std::string types{};
  std::string tile{};
  std::string layout{};
  std::string extras{};
  std::string_view library{};
  std::string architecture{};

  std::string text() const {
    std::string out(what);
    for (const std::string& part : {types, tile, layout}) out.append(part.empty() ? "" : " ").append(part);
    out.append(extras);
    // Of cuDNN are all convolutions but CUTLASS's.
    std::string from(library == "cudnn" && !architecture.empty() && what.starts_with("conv") ? "" : library);
    from.append(from.empty() || architecture.empty() ? "" : " ").append(architecture);
    return from.empty() ? out : out + " (" + from + ")";
  }

  // What words mean in all schemes.
  void add(const Words& words, size_t i) {
    const std::string_view word = words[i];
    static constexpr auto kExtras = std::to_array<NamedPart>({{"bias", "bias"},
                                                              {"relu", "relu"},
                                                              {"gelu", "gelu"},
                                                              {"dgelu", "dgelu"},
                                                              {"drelu", "drelu"},
                                                              {"splitK", "splitK"},
                                                              {"split", "splitK"},
                                                              {"winograd", "winograd"},
                                                              {"unity", "stride1"},
                                                              {"depthwise", "depthwise"},
                                                              {"post", "post"},
                                                              {"wmma", "wmma"}});
    if (const auto extra = look_up(kExtras, word); !extra.empty()) extras.append(" ").append(extra);
    if (word == "segment" && i + 2 < words.size() && words[i + 2] == "on") extras += " segmentK";
    if (is_architecture(word) && architecture.empty()) architecture = word;
    if (word == "fprop") what = "conv fprop";
    if (word == "dgrad") what = "conv dgrad";
    if (word == "wgrad") what = "conv wgrad";
    if (word == "cudnn" || word == "cublas") library = word;
    add_layout(word);
  }

  // "tn", "TNN", "tnn": how the two operands lie. Convolutions: "nhwckrsc", "nhwc" for input and output.
  void add_layout(std::string_view word) {
    const bool is_upper = word.find_first_not_of("NT") == word.npos;
    if (layout.empty() && word.size() >= 2 && word.size() <= 4 &&
        (is_upper || word.find_first_not_of("nt") == word.npos))
      for (const char c : word.substr(0, 2)) layout += c == 'n' || c == 'N' ? 'N' : 'T';
    if (!word.starts_with("nhwc") && !word.starts_with("nchw")) return;
    const std::string_view order = word.substr(0, 4);
    layout = layout.empty() || layout == order ? std::string(order) : layout + "->" + std::string(order);
  }
};

// sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x32x16_..._kernel__5x_cudnn: the
// types are those of the input and the result, those in which it multiplies and adds, and that of the factors.
std::string xmma_name(const Words& words) {
  Product p;
  std::vector<NamedPart> pairs;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    p.add(words, i);
    if (word.starts_with("tilesize")) p.tile = word.substr(8);
    for (size_t cut = 2; cut + 2 <= word.size() && cut < 6; ++cut)
      if (const auto a = type_word(word.substr(0, cut)), b = type_word(word.substr(cut)); !a.empty() && !b.empty()) {
        pairs.emplace_back(a, b);
        break;
      }
  }
  if (pairs.empty()) return {};
  const bool is_tf32 = pairs.size() > 1 && pairs[1].first == "tf32";
  p.types = types_text(is_tf32 ? "tf32" : pairs[0].first, pairs[0].second);
  return p.text();
}

// The type of "s" in "sgemm" and "s16816gemm", in which it adds.
std::string_view letter_type(char letter) {
  static constexpr auto kLetters = std::to_array<Letter>(
      {{'s', "fp32"}, {'d', "fp64"}, {'h', "fp16"}, {'c', "complex64"}, {'z', "complex128"}, {'i', "int32"}});
  return look_up(kLetters, letter);
}

// The word that says what is done: "sgemm", "s1688gemm", "s161616gemm", "s16816dgrad", "h884cudnn", "s64x128x16gemm".
// Sets `what`, and gives the part before that. False: it is another word.
bool is_deed(std::string_view word, std::string_view& what, std::string_view& how) {
  static constexpr auto kDeeds = std::to_array<NamedPart>(
      {{"gemm", "gemm"}, {"cudnn", "conv"}, {"fprop", "conv fprop"}, {"dgrad", "conv dgrad"}, {"wgrad", "conv wgrad"}});
  for (const auto& [ending, deed] : kDeeds) {
    if (!word.ends_with(ending) || word.size() == ending.size()) continue;
    what = deed;
    how = word.substr(0, word.size() - ending.size());
    if (how.starts_with("gc")) how.remove_prefix(1);  // "gcgemm": complex by three products
    return !letter_type(how.front()).empty();
  }
  return false;
}

// cutlass_80_tensorop_s1688gemm_bf16_64x64_32x6_nn_align4 and
// ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_nn: a type before the deed is that of the result, one behind
// it that of the operands; sizes of the tile, depth and stages.
// cutlass3x_sm90_tensorop_s64x128x16gemm_A_B_SUM_C_D_128x128x64_2x1x1_...: types of all.
std::string cutlass_name(const Words& words) {
  Product p;
  std::string_view how, in, out;
  size_t tiles = 0;
  const bool is_3x = words[0].starts_with("cutlass3x");
  if (words[0].starts_with("cutlass")) p.library = "cutlass";
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    p.add(words, i);
    if (i == 1 && !p.library.empty() && word.size() < 4 && is_digit(word[0])) p.architecture = "sm" + std::string(word);
    if (how.empty() && is_deed(word, p.what, how)) continue;
    if (const auto type = type_word(word); !type.empty()) (how.empty() || (is_3x && !in.empty()) ? out : in) = type;
    const size_t numbers = dimensions(word);
    if (numbers != 0 && ++tiles == 1) p.tile = word;
    if (numbers == 2 && dimensions(p.tile) == 2 && tiles == 2)
      p.tile.append("x").append(word.substr(0, word.find('x')));
  }
  if (how.empty()) return {};
  const std::string_view sum = letter_type(how.front());
  const bool is_1688 = how.substr(1).starts_with("1688");  // the shape of TF32's products
  if (how.find("tf32") != how.npos || (in.empty() && is_1688 && sum == "fp32")) in = "tf32";
  if (in.empty()) in = sum;
  p.types = types_text(in, out.empty() ? sum : out);
  if (is_1688 && sum == "complex64") p.types += " tf32";
  if (p.library.empty()) p.library = p.what == "gemm" ? "cublas" : "cudnn";
  return p.text();
}

// nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT: types of operands, sum and result (or of both operands, C, sum and
// result), tile, depth and stages, cluster; the third letter of the layout is the result's.
std::string nvjet_name(const Words& words) {
  static constexpr auto kLetters =
      std::to_array<Letter>({{'h', "fp16"}, {'t', "bf16"}, {'s', "fp32"}, {'q', "fp8e4m3"}, {'r', "fp8e5m2"}});
  Product p{.library = "nvjet"};
  const std::string_view code = words[is_architecture(words[1]) && words.size() > 2 ? 2 : 1];
  std::vector<std::string_view> types;
  for (const char letter : code) {
    if (const auto type = look_up(kLetters, letter); !type.empty()) types.push_back(type);
  }
  p.types = code;
  if (types.size() == code.size() && (types.size() == 3 || types.size() == 5)) {
    p.types = types_text(types.front(), types.back());
    if (types.size() == 5 && types[0] != types[1])
      p.types = std::string(types[0]) + "*" + p.types.replace(0, types[0].size(), types[1]);
  }
  size_t tiles = 0;
  for (size_t i = 1; i < words.size(); ++i) {
    p.add(words, i);
    const size_t numbers = dimensions(words[i]);
    if (numbers != 0 && ++tiles == 1) p.tile = words[i];
    if (numbers == 2 && tiles == 2 && dimensions(p.tile) == 2)
      p.tile.append("x").append(words[i].substr(0, words[i].find('x')));
  }
  return p.text();
}

// fmha_cutlassF_bf16_aligned_64x64_rf_sm80, fmha_cutlassB_f16_aligned_128x128_k128_dropout_seqaligned_sm80: torch's
// memory-efficient attention.
std::string fmha_name(const Words& words) {
  if (words.size() < 3) return {};
  std::string out = words[1].ends_with('B') ? "efficient attn bwd" : "efficient attn fwd";
  for (size_t i = 2; i + 1 < words.size(); ++i) {
    if (words[i] == "aligned" || words[i] == "seqaligned") continue;
    const std::string_view type = type_word(words[i]);
    out.append(" ").append(type.empty() ? words[i] : type);
  }
  return out;
}

// cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_cga1x1x1_kernel0_0. Its "f16"
// stands for bfloat16, too.
std::string sdpa_name(const Words& words) {
  std::string out = has(words, "bprop") ? "flash attn bwd" : "flash attn fwd";
  bool has_tile = false;
  for (size_t i = 5; i < words.size(); ++i) {
    const std::string_view type = type_word(words[i]);
    if (!type.empty()) out.append(" ").append(type == "fp16" ? "16-bit" : type);
    if (dimensions(words[i]) != 0 && !std::exchange(has_tile, true)) out.append(" ").append(words[i]);
  }
  return out + " (cudnn)";
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

// ncclDevKernel_AllReduce_Sum_bf16_RING_LL, ncclKernel_AllReduce_RING_LL_Sum___nv_bfloat16 (before 2.19),
// ncclAllReduceRingLLKernel_sum_f32 (before 2.8), ncclSymkDevKernel_AllReduce_RSxLD_AGxST_sum_bf16 (2.27). Where
// nothing is added up, "Sum_int8_t" says nothing.
std::string nccl_name(const Words& words) {
  constexpr std::array<std::string_view, 8> kSums{"sum",    "prod",      "min",        "max",
                                                  "minmax", "premulsum", "sumpostdiv", "avg"};
  constexpr std::array<std::string_view, 7> kWays{"ring", "tree", "collnet", "nvls", "pat", "chain", "direct"};
  size_t i = 1;
  std::string_view collective;
  std::string sum, type, way;
  if (words[0].ends_with("Kernel") && words[0].find("Dev") == words[0].npos && words[0].size() > 10) {
    collective = words[0].substr(4, words[0].size() - 10);
    for (const std::string_view of_old : {"Ring", "Tree", "CollNet"})
      if (const size_t at = collective.find(of_old); at != collective.npos) {
        way = " " + lower(of_old) + " " + std::string(collective.substr(at + of_old.size()));
        collective = collective.substr(0, at);
      }
  } else if (words.size() > 1) {
    collective = words[i++];
  }
  if (collective.empty()) return {};
  for (; i < words.size(); ++i) {
    const std::string word = lower(words[i]);
    if (std::ranges::find(kSums, word) != kSums.end())
      sum = " " + word;
    else if (const auto t = type_word(word); !t.empty())
      type.append(" ").append(t);
    else if (std::ranges::find(kWays, word) != kWays.end())
      way.append(" ").append(word);
    else if (word != "nv" && word != "t")
      way.append(" ").append(words[i]);
  }
  const bool has_sum = collective.find("Reduce") != collective.npos;
  return "nccl " + std::string(collective) + (has_sum ? sum + type : "") + way;
}

// Kernels that torch compiles at run time (aten/src/ATen/native/cuda/jit_utils.cpp): lgamma_kernel_vectorized4_kernel,
// digamma_vectorized4_kernel, reduction_prod_kernel. The type is not in the name.
std::string jiterator_name(const Words& words) {
  if (words.size() < 3 || words.back() != "kernel") return {};
  const std::string_view before = words[words.size() - 2];
  if (words[0] == "reduction" && words.size() == 3) return "reduce " + std::string(before);
  if (!before.starts_with("vectorized") || before.size() != 11 || !is_digit(before[10])) return {};
  std::string op;
  for (size_t i = 0; i + 2 < words.size(); ++i)
    if (words[i] != "kernel") op.append(op.empty() ? "" : "_").append(words[i]);
  return op.empty() ? op : "elementwise " + op;
}

}  // namespace

std::string library_kernel_name(std::string_view name) {
  const Words words = words_of(name);
  if (words.size() < 2 || words.size() == kMostWords) return {};
  if (name.starts_with("triton_")) return {};
  if (name.starts_with("nccl")) return nccl_name(words);
  if (name.starts_with("nvjet_")) return nvjet_name(words);
  if (name.starts_with("fmha_cutlass")) return fmha_name(words);
  if (name.starts_with("cudnn_generated_fort_native_sdpa_")) return sdpa_name(words);
  if (is_architecture(words[0]) && words[1] == "xmma") return xmma_name(words);
  if (is_architecture(words[0]) || words[0].starts_with("cutlass")) return cutlass_name(words);
  return jiterator_name(words);
}

}  // namespace torchprof::formats
