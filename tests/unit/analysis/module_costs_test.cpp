// What modules cost on the GPU, in the optimizer and in memory, what they hold, and the tree that text shows.
#include "formats/analysis/module_costs.h"

#include <doctest/doctest.h>

#include "formats/analysis/statistics.h"
#include "formats/report/summary.h"
#include "formats/report/tables.h"
#include "tests/unit/support/gpu_program.h"

namespace module_costs_test {

using namespace torchprof;
using namespace torchprof::formats;
using namespace torchprof::test;

namespace {

using namespace std::string_literals;

// A float tensor of `n` numbers, at most 63.
std::string parameter(char key, char n) { return "p\x01w"s + key + "T\x06\x00\xff\x01\x01"s + n + "\x10\x00"s; }

// A net of two layers, of 6 and 18 numbers; its own 8 are those that the second one has too.
struct Net : test::Program {
  FunctionId call = b.function("torch/nn/modules/module.py", 1190, "_call_impl", 0, FunctionKind::kModuleCall);
  FunctionId step = b.function("torch/optim/optimizer.py", 88, "wrapper", 0, FunctionKind::kOptimizerStep);
  ObjectId net = b.object("Net"), one = b.object("Linear"), two = b.object("Linear"), list = b.object("List"),
           sgd = b.object("SGD", ObjectKind::kOptimizer);
  Net() {
    b.detail(net, net, "", parameter(3, 8));
    b.detail(list, net, "layers");
    b.detail(one, net, "layers.0", parameter(1, 6));
    b.detail(two, net, "layers.1", parameter(2, 10) + parameter(3, 8));
    b.detail(sgd, {}, "", "G"s + parameter(1, 6) + parameter(2, 10) + parameter(3, 8) + parameter(9, 8));
  }
  void memory(uint64_t address, int64_t bytes) {
    b.raw(static_cast<uint8_t>(Kind::Memory), {address, static_cast<uint64_t>(bytes), 5000, 0, 0xff00});
  }
  // Forward 10..40 us, backward of the first layer 50..60, the optimizer 70..90.
  void train() {
    b.at(10'000).begin(call, net).at(12'000).begin(call, one).op(1, "mm", {.sequence = 1});
    memory(0x1000, 100);
    b.at(20'000).op_end(1).end(call).at(25'000).begin(call, two);
    memory(0x2000, 70);
    b.at(35'000).end(call);
    memory(0x2000, -70);
    b.at(40'000).end(call);
    b.at(50'000).op(2, "MmBackward0", {.scope = OpScope::kBackwardFunction, .sequence = 1, .fwd_thread = 1});
    memory(0x3000, 50);
    b.at(60'000).op_end(2).at(70'000).begin(step, sgd).at(90'000).end(step);
    deliver();
    b.gpu(test::call(100, 13'000, 14'000, 1)).gpu(kernel(b, 100'000, 101'000, 1));
    b.gpu(test::call(100, 36'000, 37'000, 2)).gpu(kernel(b, 110'000, 110'500, 2));
    b.gpu(test::call(100, 51'000, 52'000, 3)).gpu(kernel(b, 120'000, 122'000, 3));
    b.gpu(test::call(100, 71'000, 72'000, 4)).gpu(kernel(b, 130'000, 134'000, 4)).clean_exit(1'000'000);
  }
};

}  // namespace

TEST_CASE("parameters of a module and those inside it, each once, also those that two hold") {
  Net n;
  n.train();
  const LoadedTrace trace(n.b);
  const ModuleTree tree(trace->processes[0]);
  CHECK(tree.holder(n.one) == n.list);
  CHECK(tree.holder(n.list) == n.net);
  CHECK(!tree.holder(n.net));
  CHECK(tree.holding(n.net).parameters == 24);
  CHECK(tree.holding(n.net).own == 8);
  CHECK(tree.holding(n.two).bytes == 72);
  CHECK(tree.holding(n.list).parameters == 24);
}

TEST_CASE("GPU, optimizer and memory of modules") {
  Net n;
  n.train();
  const LoadedTrace trace(n.b);
  const ModuleTallies tallies = statistics_of(trace->processes[0], {.has_module_costs = true}).modules;
  const ModuleCosts net = tallies.at("nn.Module: Net_0").costs.value(),
                    one = tallies.at("nn.Module: Linear_0").costs.value(),
                    two = tallies.at("nn.Module: Linear_1").costs.value();
  CHECK((one.gpu_forward_self_ns == 1000 && one.gpu_forward_total_ns == 1000));
  CHECK((net.gpu_forward_self_ns == 500 && net.gpu_forward_total_ns == 1500));
  CHECK((one.gpu_backward_self_ns == 2000 && net.gpu_backward_self_ns == 0));
  CHECK(net.gpu_backward_total_ns == 2000);
  CHECK((net.optimizer_ns == 15'000 && net.optimizer_gpu_ns == 3000));  // 24 of the 32 numbers that it steps
  CHECK((one.optimizer_ns == 3750 && two.optimizer_ns == 11'250));
  CHECK((one.cpu_peak_bytes == 150 && two.cpu_peak_bytes == 70 && net.cpu_peak_bytes == 170));
  CHECK((net.gpu_peak_bytes == 0 && net.parameter_bytes == 96));
}

TEST_CASE("text shows the tree of modules, and sorted otherwise a list") {
  Net n;
  n.train();
  const LoadedTrace trace(n.b);
  check_golden("modules.txt", summary_text(*trace, {.tables = {"modules"}, .has_totals = true}));
  const std::string list = summary_text(*trace, {.tables = {"modules"}, .sort = "name", .has_totals = true});
  CHECK(list.find("  nn.Module: Linear_0  layers.0\n") < list.find("  nn.Module: Net_0\n"));
}

TEST_CASE("modules that called each other first in a circle are all in the tree") {
  ModuleTallies tallies;
  for (const auto& [name, parent] : {std::pair("A"s, "B"s), {"B"s, "A"s}, {"C"s, "A"s}, {"D"s, "gone"s}})
    tallies[name].parent = parent;
  ReportTable table = modules_table(tallies);
  sort_rows(table, table.column("name"));
  arrange_as_tree(table);
  std::string names;
  for (size_t i = 0; i < table.rows.size(); ++i)
    names.append(table.indents[i], '.').append(std::get<std::string>(table.rows[i][table.column("name")]));
  CHECK(names == "DA.B.C");
}

TEST_CASE("a damaged size of a parameter counts nothing") {
  SpoolBuilder b;
  const ObjectId net = b.object("Net");
  b.detail(net, net, "", "p\x01w\x01T\x06\x00\xff\x01\x02\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x02\x10\x00"s);
  const LoadedTrace trace(b);
  CHECK(ModuleTree(trace->processes[0]).holding(net).bytes == 0);
}

}  // namespace module_costs_test
