// Which module an operator belongs to, forward and backward, and the time that modules take.
#include "formats/analysis/modules.h"

#include <doctest/doctest.h>

#include <map>

#include "formats/analysis/statistics.h"
#include "formats/replay/forward_modules.h"
#include "formats/replay/replay.h"
#include "formats/report/summary.h"
#include "tests/unit/support/spool_builder.h"

namespace modules_test {

using namespace torchprof;
using namespace torchprof::formats;
using test::SpoolBuilder;

namespace {

class OwnerSink final : public Sink {
 public:
  explicit OwnerSink(Replay& replay) : replay_(replay) {}
  void slice(const Slice& s) override {
    if (s.kind != SliceKind::kOperator) return;
    Names& names = replay_.names();
    std::string& text = owners[std::string(names.text(s.name))];
    if (!text.empty()) text += ", ";
    text += s.module ? without_role(names.text(names.function({}, s.module)), NameRole::kModule) : "none";
    if (s.is_backward) text += " backward";
  }
  std::map<std::string, std::string> owners;

 private:
  Replay& replay_;
};

std::map<std::string, std::string> owners(const SpoolBuilder& b) {
  const test::LoadedTrace trace(b);
  Replay replay(trace->processes.at(0));
  OwnerSink sink(replay);
  replay.run(sink);
  return sink.owners;
}

// A program of one Python thread and one of autograd's, and the few words that these tests are made of.
struct Program : SpoolBuilder {
  TrackId autograd = thread(101, "autograd", 2);
  TrackId main = thread(100, "python3", 1);
  FunctionId call = function("torch/nn/modules/module.py", 1190, "_call_impl", 0, FunctionKind::kModuleCall);
  ObjectId net = object("Net"), one = object("Linear"), two = object("Linear");
  uint64_t time = 0, key = 0;

  SpoolBuilder& later() { return at(time += 100); }
  void forward(std::string_view name, int64_t sequence) {
    later().op(++key, name, {.sequence = sequence});
    later().op_end(key);
  }
  template <class Inside>
  void backward(const std::string& name, int64_t sequence, Inside inside) {
    on(autograd);
    const uint64_t outer = ++key, inner = ++key;
    later().op(outer, "autograd::engine::evaluate_function: " + name);
    later().op(inner, name, {.scope = OpScope::kBackwardFunction, .sequence = sequence, .fwd_thread = 1});
    inside();
    later().op_end(inner);
    later().op_end(outer);
    on(main);
  }
  void backward(const std::string& name, int64_t sequence) {
    backward(name, sequence, [this, &name] { forward("inside " + name, -1); });
  }
};

}  // namespace

TEST_CASE("a backward operator and what is inside it belong to the module that called the forward operator") {
  Program p;
  p.on(p.main).at(0).begin(p.call, p.net);
  p.later().begin(p.call, p.one);
  p.forward("first", 1);
  p.later().end(p.call);
  p.later().begin(p.call, p.two);
  p.forward("second", 2);
  p.later().end(p.call);
  p.forward("third", 3);
  p.later().end(p.call);
  p.forward("loss", 4);
  for (const auto& [name, sequence] :
       {std::pair("LossBackward", 4), {"ThirdBackward", 3}, {"SecondBackward", 2}, {"FirstBackward", 1}})
    p.backward(name, sequence);
  p.backward("torch::autograd::AccumulateGrad", -1);
  const auto found = owners(p);
  CHECK(found.at("first") == "Linear_0");
  CHECK(found.at("second") == "Linear_1");
  CHECK(found.at("third") == "Net_0");
  CHECK(found.at("loss") == "none");
  CHECK(found.at("LossBackward") == "none backward");
  CHECK(found.at("ThirdBackward") == "Net_0 backward");
  CHECK(found.at("inside SecondBackward") == "Linear_1 backward");
  CHECK(found.at("autograd::engine::evaluate_function: FirstBackward") == "Linear_0 backward");
  CHECK(found.at("torch::autograd::AccumulateGrad") == "none backward");
  CHECK(found.at("inside torch::autograd::AccumulateGrad") == "none backward");
}

TEST_CASE("a layer that is used twice has both backwards, and those of a graph that is kept") {
  Program p;
  p.on(p.main);
  for (const int64_t sequence : {1, 2}) {
    p.later().begin(p.call, p.one);
    p.forward("mm", sequence);
    p.later().end(p.call);
  }
  for (int time = 0; time < 2; ++time) {
    p.backward("SecondUse", 2);
    p.backward("FirstUse", 1);
  }
  CHECK(owners(p).at("FirstUse") == "Linear_0 backward, Linear_0 backward");
  CHECK(owners(p).at("SecondUse") == "Linear_0 backward, Linear_0 backward");
}

TEST_CASE("of forward operators of one number the latest to begin has the backward") {
  Program p;
  p.on(p.main).at(0).begin(p.call, p.one);
  p.forward("detach", 1);  // makes no node: the number comes again
  p.later().end(p.call);
  p.forward("mul", 1);
  p.backward("MulBackward0", 1);
  CHECK(owners(p).at("MulBackward0") == "none backward");
}

TEST_CASE("what a backward computes anew by calling modules is theirs, and forward") {
  Program p;
  p.on(p.main).at(0).begin(p.call, p.net);
  p.forward("CheckpointFunction", 1);
  p.later().end(p.call);
  p.backward("CheckpointFunctionBackward", 1, [&p] {
    p.later().begin(p.call, p.one);
    p.forward("again", 7);
    p.later().end(p.call);
    p.forward("after", -1);
  });
  const auto found = owners(p);
  CHECK(found.at("again") == "Linear_0");
  CHECK(found.at("after") == "Net_0 backward");
}

TEST_CASE("an annotation that outlives a module's call is not in it") {
  Program p;
  p.on(p.main).at(0).begin(p.call, p.one).at(10).annotation(1, "outlives").at(20).end(p.call);
  p.later().op(2, "aten::later").at(200).op_end(2).at(300).op_end(1);
  CHECK(owners(p).at("aten::later") == "none");
  CHECK(owners(p).at("outlives") == "none");
}

TEST_CASE("numbers of forward operators are forgotten once a million others came") {
  ForwardModules modules;
  modules.forward_began(1, 0, {7});
  CHECK(modules.find(1, 0) == ObjectId{7});
  CHECK(!modules.find(2, 0));
  for (int64_t i = 1; i <= static_cast<int64_t>(ForwardModules::kMost); ++i) modules.forward_began(1, i, {8});
  CHECK(!modules.find(1, 0));
  CHECK(modules.find(1, 1) == ObjectId{8});
}

TEST_CASE("numbers of forward operators that lie far apart take no memory for what is between them") {
  ForwardModules modules;
  for (const int64_t sequence : {int64_t{3}, int64_t{3} + 256}) modules.forward_began(1, sequence, {7});
  CHECK(!modules.find(1, 3));
  CHECK(modules.find(1, 259) == ObjectId{7});
}

TEST_CASE("time by module: its own, with its parts, forward and backward") {
  Program p;
  p.detail(p.net, p.net, "");
  p.detail(p.one, p.net, "body.0");
  p.detail(p.two, p.net, "body.0.inner");
  p.on(p.main).at(0).begin(p.call, p.net).at(1000).begin(p.call, p.one).at(2000).begin(p.call, p.two);
  p.op(1, "mm", {.sequence = 1}).at(2500).op_end(1).at(3000).end(p.call).at(4500).end(p.call).at(5000).end(p.call);
  p.on(p.autograd).at(6000).op(2, "MmBackward0", {.scope = OpScope::kBackwardFunction, .sequence = 1, .fwd_thread = 1});
  p.at(6700).op_end(2);
  const test::LoadedTrace trace(p);
  const ModuleTallies tallies = statistics_of(trace->processes[0]).modules;
  const ModuleTally &net = tallies.at("nn.Module: Net_0"), &one = tallies.at("nn.Module: Linear_0"),
                    &two = tallies.at("nn.Module: Linear_1");
  CHECK(net.forward_total_ns == 5000);
  CHECK(net.forward_self_ns == 1500);
  CHECK(one.forward_self_ns == 2500);
  CHECK(two.forward_self_ns == 1000);
  CHECK(two.backward_self_ns == 700);
  CHECK(one.backward_self_ns == 0);
  CHECK(one.backward_total_ns == 700);
  CHECK(net.backward_total_ns == 700);
  CHECK(summary_text(*trace, {{"modules"}}).find("    nn.Module: Linear_1  inner\n") != std::string::npos);
}

TEST_CASE("modules without paths add up to those in whose calls they were made, also in a circle") {
  ModuleCollector c;
  c.define(1, "nn.Module: A_0", "", "");
  c.define(2, "nn.Module: B_0", "", "");
  c.call(1, 2, 10, 10, true);
  c.call(2, 1, 10, 10, true);
  c.backward(1, 5);
  const ModuleTallies tallies = c.finish();
  CHECK(tallies.at("nn.Module: A_0").backward_total_ns == 5);
  CHECK(tallies.at("nn.Module: B_0").backward_total_ns == 5);
}

}  // namespace modules_test
