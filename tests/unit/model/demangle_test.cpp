// C++ symbols: real ones read as libstdc++ reads them, and those that ask for too much are left alone.
#include <cxxabi.h>
#include <doctest/doctest.h>

#include <cctype>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "formats/gpu/kernel_names.h"
#include "formats/gpu/names.h"
#include "formats/symbols/demangle.h"
#include "tests/unit/support/spool_builder.h"

namespace demangle_test {

using namespace torchprof::formats;
using namespace torchprof::test;

namespace {

std::string by_libstdcxx(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                    std::free);
  return text ? text.get() : name;
}

std::string times(size_t count, const std::string& text) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

// The mangled names of kernels in what CUPTI delivered on an H100.
std::set<std::string> recorded_names() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden_directory() / "gpu")) {
    if (!entry.path().string().ends_with(".gpu.records")) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    const auto is_of_name = [&](size_t at) {
      return at < bytes.size() && (std::isalnum(bytes[at]) || bytes[at] == '_');
    };
    for (size_t at = 0; (at = bytes.find("_ZN", at)) != bytes.npos;) {
      size_t end = at;
      while (is_of_name(end)) ++end;
      if (at == 0 || !is_of_name(at - 1)) names.insert(bytes.substr(at, end - at));
      at = end;
    }
  }
  return names;
}

// What other kernels and host code need: cutlass, thrust, lambdas in templates, conversions, packs, decltype, tables,
// thunks, names that depend on arguments.
const char* const kOthers[] = {
    "_ZN7cutlass13device_kernelIN49_GLOBAL__N__8bf0e19b_16_scaled_mm_c3x_cu_2bec3df915cutlass_3x_gemmIaNS_6half_tENS1_"
    "14"
    "ScaledEpilogueEN4cute5tupleIJNS5_1CILi64EEENS7_ILi128EEES9_EEENS6_IJNS7_ILi2EEENS7_ILi1EEESC_EEENS_4gemm32Kernel"
    "TmaWarpSpecializedPingpongENS_8epilogue18TmaWarpSpecializedEE10GemmKernelEEEvNT_6ParamsE",
    "_Z11gemm_deviceIN4cute5tupleIJiiiEEENS1_IJNS0_1CILi128EEES4_NS3_ILi64EEEEEEN7cutlass6half_tENS1_IJNS3_"
    "ILi1EEEiEEENS"
    "0_14ComposedLayoutINS0_7SwizzleILi3ELi4ELi3EEENS0_18smem_ptr_flag_bitsILi16EEENS0_6LayoutINS1_IJNS1_IJS5_NS3_ILi2E"
    "EEEEENS1_IJNS3_ILi8EEESJ_EEENS1_IJS9_NS3_ILi3EEEEEEEEENS1_IJNS1_IJS9_NS3_ILi512EEEEEENS1_IJS5_NS3_"
    "ILi1024EEEEEENS1_"
    "IJNS3_ILi0EEENS3_ILi8192EEEEEEEEEEEEENS0_9TiledCopyINS0_9Copy_AtomIJNS0_25SM80_CP_ASYNC_CACHEALWAYSINS7_9uint128_"
    "tE"
    "S11_EES8_EEENSG_INS1_IJS4_SJ_EEENS1_IJSJ_S9_EEEEES14_EES8_SA_SX_S17_S8_SA_NS0_8TiledMMAINS0_8MMA_AtomIJNS0_"
    "4SM904GM"
    "MA25MMA_64x64x16_F16F16F16_SSILNS1B_5MajorE1ELS1D_1ELNS1B_7ScaleInE1ELS1E_1EEEEEENSG_INS1_IJS9_S9_S9_EEENS1_IJSS_"
    "SS"
    "_SS_EEEEENS1_IJNS0_10UnderscoreES1K_S1K_EEEEES8_S8_EvT_T0_PKT1_T2_T3_T4_PKT5_T6_T7_T8_PT9_T10_T11_T12_T13_",
    "_ZN6thrust8cuda_cub4core13_kernel_agentINS0_12__merge_sort10MergeAgentIPP8hittableS7_lPFbPKS5_S9_ENS_"
    "6detail17integ"
    "ral_constantIbLb0EEEEEbS7_S7_lS7_S7_SB_PllEEvT0_T1_T2_T3_T4_T5_T6_T7_T8_",
    "_ZN2at6native27unrolled_elementwise_kernelIZZZNS0_39_GLOBAL__N__d5663c65_7_Copy_cu_ddc55cb923direct_copy_kernel_"
    "cud"
    "aERNS_18TensorIteratorBaseEENKUlvE0_clEvENKUlvE6_clEvEUlfE_NS_"
    "6detail5ArrayIPcLi2EEE23TrivialOffsetCalculatorILi1Ej"
    "ESD_NS0_6memory12LoadWithCastILi1EEENSE_13StoreWithCastEEEviT_T0_T1_T2_T3_T4_",
    "_ZN8epilogue4impl12globalKernelILi8ELi32E6__halfS2_fLb0ELb0EEEviilPT1_18cublasLtEpilogue_tiPT2_lPvlllPT3_lPi",
    "_ZNK1AcvT_IiEEv",
    "_ZNK1AcvPT_IiEEv",
    "_Z1fIJidcEEDTcl1gspfp_EEDpOT_",
    "_Z1fIiEDTplfp_Li1EET_",
    "_Z3sumIJidEEDaDpT_",
    "_Z1fIiLb1EENSt9enable_ifIXaasr3std11is_integralIT_EE5valueT0_EvE4typeES1_",
    "_Z1fIJilEEvPFvDpT_ENS_1AIXspsr1BIT_EE1vEEE",
    "_Z1fI1AEDTcldtfp_3getEET_",
    "_Z1fIiEvRAT__KcRA5_S0_M1AFvvEKM1AKFivRE",
    "_ZTV1A",
    "_ZTIN1a1bE",
    "_ZTVSt10_HashtableIiSaIiEE",
    "_ZThn16_N1A1fEv",
    "_ZTv0_n24_N1A1fEv",
    "_ZTch0_v0_n24_N1A1fEv",
    "_ZTC1A16_1B",
    "_ZGVZN1a1fEvE1s",
    "_ZGRN1a1fE0",
    "_ZZN1a1fEvE1s_0",
    "_ZZ4mainENKUlT_E_clIiEEDaS_",
    "_ZZN1a1fEiEd_NKUlvE_clEv",
    "_ZN1aC2ERKS_",
    "_ZN1aD0Ev",
    "_ZN1AIiEC1IdEERKS_IT_E",
    "_ZNSsC1EPKcRKSaIcE",
    "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE6appendEPKcm",
    "_ZN1a1fB5cxx11Ev",
    "_ZNO1a1fEv",
    "_ZNVKR1a1fEv",
    "_ZN1aUt_C1Ev",
    "_Zli3_kmy",
    "_ZplRK1AS1_",
    "_Z1fDv4_fDnDsu5__f16",
    "_Z1fPDoFvvEPDxFvvE",
    "_Z1fU8__vectorf",
    "_Z1fIXadL_Z1gvEEEvv",
    "_Z1fILPKc0EEvv",
    "_Z1fILf40490fdbELin5ELDnEEvv",
    "_ZN1fIJEEEvv",
    "_Z1fi.constprop.0",
    "_Z1fv.isra.0.cold",
    "_ZL1fi",
    "_ZNSt3mapIN3c1010DeviceTypeES_IS1_iSt4lessIS1_ESaISt4pairIKS1_iEEES4_SaIS5_IS6_S8_EEE4findERS6_",
};

// "S_", "S0_", ...
std::string reference(size_t i) {
  constexpr const char* kDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  return i == 0 ? "S_" : std::string("S") + kDigits[i - 1] + "_";
}

// Types of which each holds that before it `copies` times. The first holds part number `first`, and all are of the
// template that is the part before that.
std::string chain(size_t first, size_t copies, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += reference(first - 1) + "I" + times(copies, reference(first + i)) + "E";
  return out;
}

// The ways to keep a demangler busy for a second or for ever that its grammar offers.
std::vector<std::string> hostile_names() {
  std::vector<std::string> names;
  names.push_back("_Z1f1AIiiE" + chain(1, 2, 26));
  names.push_back("_Z1f1AIiiE" + chain(1, 2, 36));
  names.push_back("_Z1f1AIiiE" + chain(1, 8, 12));
  names.push_back("_ZN1a1fE1AIiiE" + chain(3, 3, 20));
  names.push_back("_Z1fIJiEEv1AIiiE" + chain(2, 2, 34) + "DpSZ_");  // nothing comes out: a pack is looked for
  for (const size_t depth : {5, 20, 40})                            // packs in packs
    names.push_back("_Z1fIJ" + times(50, "i") + "EEv" + times(depth, "Dp1AIT_") + times(depth, "E"));
  for (const size_t depth : {100, 480}) {  // "x++" is looked at twice
    names.push_back("_Z1fIJiEEvDTsp" + times(depth, "pp") + "Li1EE");
    names.push_back("_Z1fIiEv1AIXsp" + times(depth, "pp") + "Li1EEE");
  }
  for (const size_t depth : {30, 60}) {  // each conversion is read twice
    names.push_back("_Z" + times(depth, "cvT_IL_Z") + "1fEvE" + times(depth, "E"));
    names.push_back("_ZN1a" + times(depth, "cvT_I") + "i" + times(depth, "E") + "IiEEv");
    names.push_back("_Z" + times(depth, "cvT_IN1a") + "cvi" + times(depth, "EE") + "v");
  }
  for (const size_t depth : {20, 30})  // parameters that stand for parameters
    names.push_back("_Z" + times(depth, "Z") + "1fI1AIT_T_EEvT_" + times(depth, "E1fI1AIT_T_EEvT_"));
  return names;
}

}  // namespace

TEST_CASE("real names") {
  std::set<std::string> names = recorded_names();
  CHECK(names.size() >= 10);
  names.insert(std::begin(kOthers), std::end(kOthers));
  for (const std::string& name : names) {
    CAPTURE(name);
    const std::string text = demangle(name);
    CHECK(text == by_libstdcxx(name));
    CHECK(text != name);
    CHECK(kernel_name(name) == text);
  }
}

TEST_CASE("what is no mangled name comes back as it is") {
  using namespace std::string_literals;
  for (const std::string& name : {""s, "f"s, "i"s, "main"s, "_Z"s, "_ZN"s, "_Z1"s, "_Z99999999999999999999f"s, "_ZS_"s,
                                  "_Z1fT_"s, "_Z1fi?"s, "_Z1fi\0i"s, "_Z1fi\n"s, "_Z\xff"s, "_R1f"s, "__Z1fi"s})
    CHECK(demangle(name) == name);
  CHECK(demangle("_Z1fi") == "f(int)");
}

TEST_CASE("names that ask for too much are left alone") {
  for (const std::string& name : hostile_names()) {
    CAPTURE(name);
    const std::clock_t begin = std::clock();
    const std::string of_file = "__nv_static_1__a_" + name;
    const bool is_same = demangle(name) == name && kernel_name(name) == name && short_kernel_name(of_file) == of_file;
    CHECK(is_same);
    CHECK(std::clock() - begin < CLOCKS_PER_SEC);
  }
}

TEST_CASE("changed names take no longer") {
  std::mt19937 random(7);
  const auto below = [&](size_t limit) { return std::uniform_int_distribution<size_t>(0, limit - 1)(random); };
  std::vector<std::string> names = hostile_names();
  names.insert(names.end(), std::begin(kOthers), std::end(kOthers));
  constexpr const char* kPieces[] = {"S_", "S0_", "S1_", "T_", "T0_", "I", "E",  "J",  "Dp", "N",  "Z",  "L_Z", "X",
                                     "sp", "pp",  "cv",  "1a", "P",   "F", "Ul", "E_", "cl", "sr", "DT", "i",   "EEv"};
  std::clock_t longest = 0;
  for (int tries = 0; tries < 20'000; ++tries) {
    std::string name = names[below(names.size())];
    for (size_t changes = 1 + below(6); changes > 0; --changes) {
      const size_t at = 2 + below(name.size() - 1);
      if (below(3) == 0)
        name.erase(at, below(8));
      else
        name.insert(std::min(at, name.size()),
                    times(below(5) == 0 ? below(30) : 1, kPieces[below(std::size(kPieces))]));
      if (name.size() < 4) name += "1f";
    }
    const std::clock_t begin = std::clock();
    const std::string text = kernel_name(name);
    const std::string short_text = short_kernel_name(text);
    longest = std::max(longest, std::clock() - begin);
    CAPTURE(name);
    CHECK(!text.empty());
    CHECK(!short_text.empty());
  }
  CHECK(longest < CLOCKS_PER_SEC);
}

}  // namespace demangle_test
