// NVTX: the ABI table beside NVIDIA's headers, names, and what the trace says of a range.
#include "formats/trace/nvtx.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "cupti/nvtx/nvtx.h"
#include "cupti/nvtx/nvtx_names.h"
#include "cupti/nvtx/nvtx_ranges.h"
#include "cupti/nvtx/nvtx_text.h"
#include "tracer/session.h"

#include "formats/replay/replay.h"
#include "tests/unit/support/spool_builder.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

namespace nvtx_test {

#define HAS_NVIDIA_HEADERS
#endif

using namespace torchprof;

namespace {

std::string utf8_of(const wchar_t* wide, size_t size = 64) {
  char out[64];
  const size_t length = nvtx::to_utf8(wide, out, size);
  CHECK(out[length] == 0);
  return {out, length};
}

std::string view_of(const nvtx::Text* text) { return text ? std::string(text->text, text->length) : "none"; }

// Each slice as "begin-end name"; a star: in a row of its own; a domain where it is a range of NVTX.
class Slices final : public formats::Sink {
 public:
  explicit Slices(const test::SpoolBuilder& spool) : trace_(spool), replay_(trace_->processes.at(0)) {
    replay_.run(*this);
  }
  void slice(const formats::Slice& s) override {
    text += std::to_string(s.begin.value - test::kStartNs) + "-" + std::to_string(s.end.value - test::kStartNs) + " ";
    text += replay_.names().text(s.name);
    if (replay_.rows()[s.row].is_overflow) text += "*";
    if (s.nvtx) text.append(" ").append(trace_->processes[0].string(s.nvtx->domain)).append(":");
    text += "\n";
  }
  std::string text = "\n";

 private:
  test::LoadedTrace trace_;
  formats::Replay replay_;
};

constexpr test::SpoolBuilder::Op kRange{.scope = OpScope::kNvtx};
constexpr test::SpoolBuilder::Op kNumbered{.scope = OpScope::kNvtx, .is_async = true};

// NvtxAttributes of a domain alone, as words.
std::vector<uint64_t> in_domain(StringId domain) { return {domain.value, 0, 0, 0}; }

// A client of NVTX: the functions of domains that attach() puts into its slots.
struct Client {
  static inline nvtx::Function functions[nvtx::kCore2Size];
  static inline nvtx::Function* slots[nvtx::kCore2Size];

  Client() {
    static constexpr nvtx::Callbacks callbacks{sizeof(nvtx::Callbacks),
                                               [](int module, nvtx::FunctionTable* table, unsigned* count) {
                                                 if (module != nvtx::kCore2) return 0;
                                                 for (unsigned i = 0; i < nvtx::kCore2Size; ++i)
                                                   slots[i] = &functions[i];
                                                 *table = slots;
                                                 *count = nvtx::kCore2Size;
                                                 return 1;
                                               }};
    REQUIRE(
        nvtx::attach([](uint32_t table) -> const void* { return table == nvtx::kCallbacks ? &callbacks : nullptr; }));
  }
  template <class F>
  F* get(unsigned number) {
    return reinterpret_cast<F*>(functions[number]);
  }
  int push(nvtx::Domain* d) {
    return get<int(nvtx::Domain*, const nvtx::EventAttributes*)>(nvtx::kDomainRangePushEx)(d, nullptr);
  }
  int pop(nvtx::Domain* d) { return get<int(nvtx::Domain*)>(nvtx::kDomainRangePop)(d); }
};

}  // namespace

#ifdef HAS_NVIDIA_HEADERS
TEST_CASE("the table says what NVIDIA's headers say") {
  static_assert(sizeof(nvtx::EventAttributes) == sizeof(nvtxEventAttributes_t));
  static_assert(offsetof(nvtx::EventAttributes, payload) == offsetof(nvtxEventAttributes_t, payload));
  static_assert(offsetof(nvtx::EventAttributes, message) == offsetof(nvtxEventAttributes_t, message));
  static_assert(sizeof(nvtx::Callbacks) == sizeof(NvtxExportTableCallbacks));
  static_assert(offsetof(nvtx::VersionInfo, version) == offsetof(NvtxExportTableVersionInfo, version));
  CHECK(+nvtx::kCallbacks == +NVTX_ETID_CALLBACKS);
  CHECK(+nvtx::kVersionInfo == +NVTX_ETID_VERSIONINFO);
  CHECK(+nvtx::kCore == +NVTX_CB_MODULE_CORE);
  CHECK(+nvtx::kCore2 == +NVTX_CB_MODULE_CORE2);
  CHECK(+nvtx::kCoreSize == +NVTX_CBID_CORE_SIZE);
  CHECK(+nvtx::kCore2Size == +NVTX_CBID_CORE2_SIZE);
  CHECK(+nvtx::kMarkA == +NVTX_CBID_CORE_MarkA);
  CHECK(+nvtx::kRangeStartA == +NVTX_CBID_CORE_RangeStartA);
  CHECK(+nvtx::kRangeEnd == +NVTX_CBID_CORE_RangeEnd);
  CHECK(+nvtx::kRangePushA == +NVTX_CBID_CORE_RangePushA);
  CHECK(+nvtx::kRangePop == +NVTX_CBID_CORE_RangePop);
  CHECK(+nvtx::kNameOsThreadA == +NVTX_CBID_CORE_NameOsThreadA);
  CHECK(+nvtx::kDomainRangePushEx == +NVTX_CBID_CORE2_DomainRangePushEx);
  CHECK(+nvtx::kDomainRegisterStringA == +NVTX_CBID_CORE2_DomainRegisterStringA);
  CHECK(+nvtx::kDomainCreateA == +NVTX_CBID_CORE2_DomainCreateA);
  CHECK(+nvtx::kInitializeClient == +NVTX_CBID_CORE2_Initialize);
  CHECK(nvtx::kNoTracking == NVTX_NO_PUSH_POP_TRACKING);
  CHECK(+nvtx::kMessageRegistered == +NVTX_MESSAGE_TYPE_REGISTERED);
  CHECK(+nvtx::kPayloadFloat == +NVTX_PAYLOAD_TYPE_FLOAT);
  CHECK(+nvtx::kColorArgb == +NVTX_COLOR_ARGB);
}
#endif

TEST_CASE("wide strings become UTF-8, cut between characters") {
  CHECK(utf8_of(L"") == "");
  CHECK(utf8_of(L"a\u00e9\u20ac\U0001f600") == "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  const wchar_t odd[] = {0xd800, static_cast<wchar_t>(0x80000000), 'x', 0};
  CHECK(utf8_of(odd) == "\xef\xbf\xbd\xef\xbf\xbdx");
  CHECK(utf8_of(L"ab\u20ac", 5) == "ab");
  CHECK(utf8_of(L"ab\u20ac", 6) == "ab\xe2\x82\xac");
}

TEST_CASE("domains are found by name, categories by number, the later name holds") {
  nvtx::Domain* a = nvtx::domain_named("a");
  REQUIRE(a);
  CHECK(nvtx::domain_named("a") == a);
  CHECK(nvtx::domain_named("b") != a);
  nvtx::name_category(*a, 3, "old");
  nvtx::name_category(*a, 3, "new");
  nvtx::name_category(*a, 4, "other");
  CHECK(view_of(nvtx::category_name(*a, 3)) == "new");
  CHECK(view_of(nvtx::category_name(*a, 4)) == "other");
  CHECK(view_of(nvtx::category_name(nvtx::default_domain(), 3)) == "none");
}

TEST_CASE("threads may name things at the same time, until there is no room") {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 100; ++i)
        nvtx::name_category(nvtx::default_domain(), static_cast<uint32_t>(t * 100 + i), std::to_string(i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint32_t i = 0; i < 400; ++i)
    CHECK(view_of(nvtx::category_name(nvtx::default_domain(), i)) == std::to_string(i % 100));
  const std::string large(30000, 'x');
  size_t made = 0;
  while (made < 1000 && nvtx::register_string(large)) ++made;
  CHECK(made > 200);
  CHECK(made < nvtx::kRoom / large.size());
  CHECK(nvtx::domain_named(large) == nullptr);
}

TEST_CASE("attributes are written as far as they were said") {
  formats::Process process;
  process.strings = {"", "the \"domain\"", "the category"};
  NvtxAttributes a{};
  CHECK(formats::nvtx_json(process, a) == R"(,"NVTX domain":"default")");
  a.domain = {1};
  a.category = 5;
  CHECK(formats::nvtx_json(process, a) == R"(,"NVTX domain":"the \"domain\"","NVTX category":5)");
  a.domain = {9};  // of a damaged file
  a.category_name = {2};
  a.color = 0x80ff;
  a.has_color = 1;
  CHECK(formats::nvtx_json(process, a) ==
        R"(,"NVTX domain":"","NVTX category":"the category","NVTX color":"#000080ff")");
  const auto payload = [&](NvtxPayload type, uint64_t bits) {
    NvtxAttributes only{};
    only.payload = bits;
    only.payload_type = type;
    return formats::nvtx_json(process, only).substr(sizeof(R"(,"NVTX domain":"default")") - 1);
  };
  CHECK(payload(NvtxPayload::kUint64, ~uint64_t{0}) == R"(,"NVTX payload":18446744073709551615)");
  CHECK(payload(NvtxPayload::kInt64, ~uint64_t{0}) == R"(,"NVTX payload":-1)");
  CHECK(payload(NvtxPayload::kInt32, 0xdeadbeef'fffffffe) == R"(,"NVTX payload":-2)");
  CHECK(payload(NvtxPayload::kUint32, 0xdeadbeef'fffffffe) == R"(,"NVTX payload":4294967294)");
  CHECK(payload(NvtxPayload::kDouble, 0x7ff0000000000000) == R"(,"NVTX payload":"inf")");
  CHECK(payload(NvtxPayload::kDouble, 0x7ff8000000000000) == R"(,"NVTX payload":"nan")");
  CHECK(payload(NvtxPayload::kFloat, 0x3fc00000) == R"(,"NVTX payload":1.5)");
  CHECK(payload(static_cast<NvtxPayload>(77), 1) == "");
}

TEST_CASE("an operator's text is as long as it may be") {
  const auto text = [](const nvtx::Operator& op, size_t size) {
    char out[64];
    nvtx::write_text(op, out, size);
    return std::string(out);
  };
  CHECK(text({"aten::mm", 4, 17, nullptr, nullptr, 0}, 64) == "aten::mm, seq = 4, op_id = 17");
  CHECK(text({"aten::mm", -1, 17, nullptr, nullptr, 0}, 64) == "aten::mm, op_id = 17");
  CHECK(text({"aten::mm", -1, 0, nullptr, nullptr, 0}, 64) == "aten::mm");
  CHECK(text({"aten::mm", 4, 17, nullptr, nullptr, 0}, 17) == "aten::mm, seq = ");
}

TEST_CASE("a numbered range that ends among others moves, they stay") {
  test::SpoolBuilder b;
  b.on(b.thread(1)).at(1).op(kNvtxKey | 1, "numbered", kNumbered).at(2).op(5, "aten::mm");
  b.at(3).op_end(kNvtxKey | 1).at(4).op_end(5);
  CHECK(Slices(b).text == "\n1-3 numbered* :\n2-4 aten::mm\n");
}

TEST_CASE("the end of an operator is never that of a range with the same last bits") {
  test::SpoolBuilder b;
  b.on(b.thread(1)).at(1).op(5, "aten::mm").at(2).op(kNvtxKey | 5, "left open", kRange);
  b.at(3).short_record(131, 5).at(4).op_end(kNvtxKey | 5);
  CHECK(Slices(b).text == "\n1-3 aten::mm\n2-4 left open* :\n");
}

TEST_CASE("what is said of a range belongs to the one before it, and to no operator") {
  test::SpoolBuilder b;
  const auto domain = in_domain(b.string("lib"));
  b.on(b.thread(1)).at(1).op(kNvtxKey | 1, "said", kRange).raw(84, domain).at(2).op(kNvtxKey | 2, "not", kRange);
  b.at(3).op(7, "aten::mm").raw(84, domain).at(4).op_end(7).op_end(kNvtxKey | 2).op_end(kNvtxKey | 1);
  CHECK(Slices(b).text == "\n3-4 aten::mm\n2-4 not :\n1-4 said lib:\n");
}

TEST_CASE("a thread that seals the process may push its first range after that") {
  Client client;
  char name[] = "/tmp/torchprof-nvtx-XXXXXX";
  const std::filesystem::path output = mkdtemp(name);
  std::filesystem::create_directory(output / "spool");
  const pid_t child = fork();  // one session is one process
  if (child == 0) {
    session::arm({}, output.c_str());
    const bool good = session::seal(true) && client.push(nullptr) == 0 && client.push(nullptr) == 1 &&
                      client.pop(nullptr) == 1 && client.pop(nullptr) == 0;
    _exit(good ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  std::filesystem::remove_all(output);
  CHECK(status == 0);
}

TEST_CASE("each domain pops its own ranges where more are open than are recorded") {
  Client client;
  nvtx::Domain *a = nvtx::domain_named("a"), *b = nvtx::domain_named("b");
  char name[] = "/tmp/torchprof-nvtx-XXXXXX";
  const std::filesystem::path output = mkdtemp(name);
  std::filesystem::create_directory(output / "spool");
  const pid_t child = fork();  // one session is one process
  if (child == 0) {
    session::arm({}, output.c_str());
    constexpr int kMost = nvtx::OpenRanges::kMost;
    bool good = client.push(b) == 0;
    for (int level = 0; level < kMost + 2; ++level) good = good && client.push(a) == level;
    good = good && client.push(b) == 1;  // deeper, as three of `a` are
    good = good && client.pop(b) == 1 && client.pop(b) == 0 && client.pop(b) == nvtx::kNoTracking;
    // There is room again, but not above ranges that are not recorded.
    good = good && client.push(a) == kMost + 2;
    for (int level = kMost + 2; level >= 0; --level) good = good && client.pop(a) == level;
    good = good && client.pop(a) == nvtx::kNoTracking && client.push(a) == 0;
    _exit(good ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  std::filesystem::remove_all(output);
  CHECK(status == 0);
}

}  // namespace nvtx_test
