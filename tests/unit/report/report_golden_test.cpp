// Every table of a report in every style, every grouping of operators, and the formats that are text, of a training
// with modules, memory, GPUs and collectives: golden/report/TABLE.STYLE.
#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "formats/io/text.h"
#include "formats/report/columns.h"
#include "formats/report/summary.h"
#include "formats/write/chrome_legacy.h"
#include "formats/write/memory_timeline.h"
#include "formats/write/stacks.h"
#include "tests/unit/support/collective_encoding.h"
#include "tests/unit/support/gpu_program.h"

namespace report_golden_test {

using namespace torchprof;
using namespace torchprof::formats;
using namespace torchprof::test;
using namespace std::string_literals;

namespace {

constexpr uint64_t kStep = 1'000'000, kMiB = 1 << 20, kKiB = 1 << 10;
constexpr uint64_t kUs = 1000;

// A float tensor of sizes below 128.
std::string tensor(const std::string& sizes, char device = 1) {
  return "T\x06"s + device + (device == 0 ? '\xff' : '\0') + '\x01' + static_cast<char>(sizes.size()) + sizes;
}

// A process of it. The second begins its collectives later. What stays where: the input and the activation of a step
// until its end, the gradient until the end of the next step's backward, 64 KiB of a log on the CPU for ever.
class Training {
 public:
  Training(SpoolBuilder& b, uint32_t rank, uint64_t steps) : b_(b), tid_(100 * (rank + 1)), rank_(rank) {
    b.use_chunks_of(16 * kKiB);
    b.meta("environment.RANK", std::to_string(rank));
    b.meta("cupti.thread", "system");
    b.meta("cuda.driver", "12040");
    b.device(h100(0), "NVIDIA H100");
    b.context(1, 0, 7);
    main_ = b.thread(tid_, "pt_main_thread", 1);
    engine_ = b.thread(tid_ + 1, "pt_autograd_0", 2);
    const TrackId cupti = b.thread(tid_ + 9, "cupti");
    const std::string weight = "p\x01w" + "\x01"s + tensor("\x08\x04") + "\x10\0"s;
    b.detail(net_, net_, "");
    b.detail(linear_, net_, "decoder.out", weight);
    b.detail(sgd_, {}, "", "G" + weight);
    b.on(main_).at(10 * kUs).begin(module_);
    for (uint64_t n = 0; n < steps; ++n) step(n, 100 * kUs + n * kStep + (n > 3 ? 300 * kUs : 0));
    b.on(main_).at(510 * kUs + steps * kStep).end(module_);
    b.on(cupti).at(520 * kUs + steps * kStep);
    for (const GpuApi& c : calls_) b.gpu(c);
    for (const GpuKernel& k : kernels_) b.gpu(k);
    for (const GpuCopy& c : copies_) b.gpu(c);
    b.clean_exit(530 * kUs + steps * kStep);
  }

 private:
  struct Device {
    uint64_t name, reserved;
    uint64_t allocated = 0;
  };
  SpoolBuilder& op(uint64_t key, const std::string& name, const std::string& inputs = {}, SpoolBuilder::Op op = {}) {
    b_.op(key, name, op);
    if (!inputs.empty()) b_.raw(static_cast<uint8_t>(Kind::OpInputs), {b_.string(inputs).value});
    return b_;
  }
  void memory(Device& device, uint64_t address, uint64_t bytes, bool is_free = false) {
    device.allocated = is_free ? device.allocated - bytes : device.allocated + bytes;
    b_.raw(static_cast<uint8_t>(Kind::Memory),
           {address, is_free ? 0 - bytes : bytes, device.allocated, device.reserved, device.name});
  }
  void launch(uint32_t tid, uint64_t t, uint64_t begin, uint64_t end, const char* name) {
    calls_.push_back(call(tid, t, t + 2 * kUs, ++correlation_));
    kernels_.push_back(kernel(b_, begin, end, correlation_, name));
  }

  void load(uint64_t t) {
    b_.at(t).annotation(1, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__").at(t + 90 * kUs).op_end(1);
    b_.at(t + 100 * kUs).c_begin(to_);
    op(2, "aten::to", tensor("\x08\x04", 0)).at(t + 105 * kUs);
    op(3, "aten::copy_", tensor("\x08\x04") + tensor("\x08\x04", 0));
    memory(gpu_, 0x1000, kMiB);
    calls_.push_back(call(tid_, t + 110 * kUs, t + 115 * kUs, ++correlation_, kMemcpyAsync));
    GpuCopy copy{};
    copy.start = SpoolBuilder::cupti(t + 120 * kUs);
    copy.end = SpoolBuilder::cupti(t + 140 * kUs);
    copy.bytes = kMiB;
    copy.correlation = correlation_;
    copy.context = 1;
    copy.stream = 7;
    copy.copy_kind = copy.src_kind = 1;  // host to device, pageable
    copy.dst_kind = 3;
    copies_.push_back(copy);
    b_.at(t + 145 * kUs).op_end(3).at(t + 150 * kUs).op_end(2).c_end();
  }

  void forward(uint64_t t, int64_t sequence) {
    b_.at(t).begin(call_, net_).at(t + 10 * kUs).begin(call_, linear_).at(t + 20 * kUs);
    op(4, "aten::linear", tensor("\x08\x04") + tensor("\x04\x08"), {.sequence = sequence}).at(t + 30 * kUs);
    op(5, "aten::addmm\0default"s, tensor("\x08\x04") + tensor("\x04\x08"));
    memory(gpu_, 0x2000, 512 * kKiB);
    launch(tid_, t + 40 * kUs, t + 50 * kUs, t + 180 * kUs, "ampere_sgemm_128x64_tn");
    b_.at(t + 80 * kUs).op_end(5).at(t + 90 * kUs).op_end(4).at(t + 95 * kUs).end(call_).at(t + 100 * kUs);
    b_.end(call_);
  }

  // What a loop does for its log: it waits for the GPU, and keeps what it gets.
  void log(uint64_t t, uint64_t n) {
    b_.at(t).begin(log_).at(t + 5 * kUs).c_begin(item_).op(6, "aten::item");
    calls_.push_back(call(tid_, t + 10 * kUs, t + 80 * kUs, ++correlation_, kStreamSynchronize));
    b_.at(t + 85 * kUs).op_end(6).c_end().op(7, "aten::clone");
    memory(cpu_, 0x100000 + n * 0x10000, 64 * kKiB);
    b_.at(t + 88 * kUs).op_end(7).at(t + 90 * kUs).end(log_);
  }

  void backward(uint64_t t, int64_t sequence) {
    b_.on(engine_).at(t).op(8, "autograd::engine::evaluate_function: AddmmBackward0").at(t + 10 * kUs);
    op(9, "AddmmBackward0", {}, {OpScope::kBackwardFunction, sequence, 1, false, 0}).at(t + 20 * kUs);
    op(10, "aten::mm", tensor("\x04\x08") + tensor("\x08\x04"));
    memory(gpu_, sequence % 2 == 0 ? 0x3000 : 0x4000, 256 * kKiB);
    launch(tid_ + 1, t + 30 * kUs, t + 40 * kUs, t + 120 * kUs, "ampere_sgemm_64x32_nt");
    b_.at(t + 100 * kUs).op_end(10).at(t + 110 * kUs).op_end(9);
    memory(gpu_, 0x2000, 512 * kKiB, true);
    if (sequence > 1) memory(gpu_, sequence % 2 == 0 ? 0x4000 : 0x3000, 256 * kKiB, true);
    b_.at(t + 120 * kUs).op_end(8).on(main_);
  }

  void reduce(uint64_t t, uint64_t sequence) {
    const uint64_t late = rank_ == 1 ? 60 * kUs : 0;
    b_.at(t).op(11, "record_param_comms");
    collective(b_, {.group = "0", .description = "default_pg", .ranks = {0, 1}}, sequence);
    launch(tid_, t + 5 * kUs, t + 10 * kUs + late, t + 110 * kUs, "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
    b_.at(t + 20 * kUs).op_end(11);
  }

  void optimize(uint64_t t) {
    b_.at(t).begin(step_, sgd_).at(t + 5 * kUs).annotation(12, "Optimizer.step#SGD.step").at(t + 10 * kUs);
    op(13, "aten::add_", tensor("\x08\x04") + tensor("\x08\x04"));
    launch(tid_, t + 20 * kUs, t + 30 * kUs, t + 35 * kUs, "void at::native::vectorized_elementwise_kernel<4>");
    b_.at(t + 50 * kUs).op_end(13).at(t + 55 * kUs).op_end(12).at(t + 60 * kUs).end(step_);
    b_.at(t + 70 * kUs).annotation(14, "Optimizer.zero_grad#SGD.zero_grad");
    b_.op(15, "aten::zero_").at(t + 90 * kUs).op_end(15).op_end(14);
  }

  void step(uint64_t n, uint64_t t) {
    const auto sequence = static_cast<int64_t>(n + 1);
    b_.on(main_).at(t).annotation(1000 + n, numbered("ProfilerStep#", n)).begin(train_);
    load(t);
    forward(t + 160 * kUs, sequence);
    log(t + 270 * kUs, n);
    backward(t + 370 * kUs, sequence);
    reduce(t + 500 * kUs, n);
    optimize(t + 650 * kUs);
    b_.at(t + 880 * kUs);
    memory(gpu_, 0x1000, kMiB, true);
    // Every other step takes a little longer; the fourth far longer.
    b_.at(t + (n == 3 ? 1200 : 900 + n % 2) * kUs).end(train_).op_end(1000 + n);
  }

  SpoolBuilder& b_;
  const uint32_t tid_, rank_;
  const FunctionId module_ = b_.function("/home/me/train.py", 1, "<module>", 9);
  const FunctionId train_ = b_.function("/home/me/train.py", 12, "step", 9);
  const FunctionId log_ = b_.function("/home/me/train.py", 30, "log", 9);
  const FunctionId call_ = b_.function("torch/nn/modules/module.py", 1190, "_call_impl", 0, FunctionKind::kModuleCall);
  const FunctionId step_ = b_.function("torch/optim/sgd.py", 121, "step", 0, FunctionKind::kOptimizerStep);
  const ObjectId net_ = b_.object("Net"), linear_ = b_.object("Linear"),
                 sgd_ = b_.object("SGD", ObjectKind::kOptimizer);
  const CallSiteId to_ = b_.call_site("<built-in method to of Tensor object>", train_, 14),
                   item_ = b_.call_site("<built-in method item of Tensor object>", log_, 31);
  TrackId main_, engine_;
  Device gpu_{0x0001, 4 * kMiB}, cpu_{0xff00, 0};
  uint32_t correlation_ = 0;
  std::vector<GpuApi> calls_;
  std::vector<GpuKernel> kernels_;
  std::vector<GpuCopy> copies_;
};

class TwoRanks {
 public:
  TwoRanks() {
    for (uint32_t rank = 0; rank < 2; ++rank) Training(spools_[rank], rank, 8);
  }
  std::string report(TableOptions options) const {
    const SpoolBuilder* both[] = {&spools_[0], &spools_[1]};
    return summary_text(*LoadedTrace(both), options);
  }

 private:
  SpoolBuilder spools_[2] = {SpoolBuilder(100), SpoolBuilder(200)};
};

void check(const std::string& name, const std::string& text) {
  CAPTURE(name);
  check_golden("report/" + name, text);
}

}  // namespace

TEST_CASE("every table in every style") {
  const TwoRanks ranks;
  constexpr std::pair<const char*, ReportStyle> kStyles[] = {{"txt", ReportStyle::kText},
                                                             {"md", ReportStyle::kMarkdown},
                                                             {"csv", ReportStyle::kCsv},
                                                             {"json", ReportStyle::kJson}};
  for (const std::string& table : table_names()) {
    TableOptions options{.tables = {table}, .has_totals = true};
    if (table == "profiler") {  // all but how long it took to read
      options.columns = column_names(table);
      std::erase(options.columns, "read_ns");
    }
    for (const auto& [ending, style] : kStyles) {
      options.style = style;
      check(std::string(table).append(".").append(ending), ranks.report(options));
    }
  }
}

namespace {

using nlohmann::json;

json tables_of(const TwoRanks& ranks, TableOptions options) {
  options.style = ReportStyle::kJson;
  return json::parse(ranks.report(std::move(options)))["tables"];
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

size_t rows_with(const json& tables, const std::string& text) {
  const auto has_text = [&text](const json& row) {
    return std::any_of(row.begin(), row.end(), [&text](const json& cell) {
      return cell.is_string() && lower(cell.get<std::string>()).find(lower(text)) != std::string::npos;
    });
  };
  size_t rows = 0;
  for (const json& table : tables)
    rows += static_cast<size_t>(std::count_if(table["rows"].begin(), table["rows"].end(), has_text));
  return rows;
}

size_t rows_of(const json& tables) {
  size_t rows = 0;
  for (const json& table : tables) rows += table["rows"].size();
  return rows;
}

// Largest numbers first, texts from A to Z, what is missing last.
bool is_in_order(const json& before, const json& after) {
  if (before.is_null() || after.is_null()) return after.is_null();
  return before.is_string() ? before <= after : before >= after;
}

}  // namespace

TEST_CASE("every table takes a filter, an order by each of its columns, and a limit") {
  const TwoRanks ranks;
  for (const std::string& name : table_names()) {
    CAPTURE(name);
    const json all = tables_of(ranks, {.tables = {name}, .rows = SIZE_MAX});
    for (const json& table : all) {
      if (table["rows"].empty()) continue;
      for (const json& cell : table["rows"].back()) {
        if (!cell.is_string() || cell.get<std::string>().empty()) continue;
        const std::string text = cell.get<std::string>();
        CAPTURE(text);
        const json found = tables_of(ranks, {.tables = {name}, .rows = SIZE_MAX, .filter = lower(text)});
        CHECK(rows_with(found, text) == rows_of(found));
        CHECK(rows_of(found) == rows_with(all, text));
      }
    }
    for (const Column& column : columns_of(name)) {
      const std::string key(column.key);
      CAPTURE(key);
      for (const json& table : tables_of(ranks, {.tables = {name}, .rows = SIZE_MAX, .sort = key})) {
        const json& rows = table["rows"];
        for (size_t i = 1; i < rows.size(); ++i)
          if (rows[i].contains(key)) CHECK(is_in_order(rows[i - 1][key], rows[i][key]));
      }
    }
    // The rows of memory add up to the peak: the other owners are a row, and so is what is older than the capture.
    const size_t most = name == "memory" ? 3 : 1;
    for (const json& table : tables_of(ranks, {.tables = {name}, .rows = 1})) CHECK(table["rows"].size() <= most);
  }
}

TEST_CASE("tables follow the width of a terminal: narrow ones have fewer columns and shorter names") {
  const TwoRanks ranks;
  const auto text_for = [&ranks](const std::string& table, size_t terminal) {
    return ranks.report({.tables = {table}, .has_totals = true, .terminal = terminal});
  };
  for (const std::string& table : table_names())
    for (size_t terminal = 60; terminal <= 240; terminal += 20) {
      const std::string text = text_for(table, terminal);
      CAPTURE(text);
      CAPTURE(terminal);
      for (size_t at = 0, end = 0; at < text.size(); at = end + 1) {
        end = text.find('\n', at);
        CHECK(columns(std::string_view(text).substr(at, end - at)) <= terminal);
      }
    }
  const std::string name = "autograd::engine::evaluate_function: AddmmBackward0";
  const std::string wide = text_for("ops", 200), narrow = text_for("ops", 60);
  CHECK(wide.find(name) != wide.npos);
  CHECK(wide.find("GFLOPs") != wide.npos);
  CHECK(narrow.find(name) == narrow.npos);
  CHECK(narrow.find("GFLOPs") == narrow.npos);
  CHECK(narrow.find("  self  self %  ") != narrow.npos);
  CHECK(narrow.find("...") != narrow.npos);
  CHECK(ranks.report({.tables = {"ops"}, .columns = {"name", "flops", "calls"}, .terminal = 60}).find("GFLOPs") !=
        std::string::npos);
}

TEST_CASE("what no row has is said") {
  const TwoRanks ranks;
  CHECK(ranks.report({.tables = {"ops"}, .filter = "no such thing"})
            .ends_with("\nOperators by self time\n  no row has 'no such thing' (--filter)\n"));
  CHECK(ranks.report({.tables = {"ops"}, .rows = 1, .filter = "ADDMM"}).find("aten::addmm") != std::string::npos);
}

TEST_CASE("operators by what they are grouped by") {
  const TwoRanks ranks;
  TableOptions options{.tables = {"ops"}, .rows = 12, .sort = "self", .has_totals = true};
  for (const std::string by : {"shape", "stack:2", "module", "thread", "overload", "line"}) {
    REQUIRE(parse_grouping(by, options.grouping));
    check("ops_by_" + by.substr(0, by.find(':')) + ".txt", ranks.report(options));
  }
  options.grouping = {};
  options.grouping.top_level = true;
  check("ops_top_level.txt", ranks.report(options));
}

TEST_CASE("formats that are text") {
  SpoolBuilder b(100);
  Training(b, 0, 2);
  const LoadedTrace trace(b);
  constexpr std::pair<const char*, Write> kFormats[] = {{"stacks.txt", write_stacks},
                                                        {"stacks-cuda.txt", write_cuda_stacks},
                                                        {"memory-timeline.json", write_memory_timeline},
                                                        {"memory-timeline-raw.json", write_memory_timeline_raw},
                                                        {"chrome-legacy.json", write_chrome_legacy}};
  for (const auto& [name, write] : kFormats) check(name, written(*trace, write));
}

}  // namespace report_golden_test
