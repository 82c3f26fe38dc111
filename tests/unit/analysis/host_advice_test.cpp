// Which findings about the program's own threads are made; tests/e2e/files/test_planted.py plants them in programs.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "formats/advice/advice.h"
#include "formats/advice/spread.h"
#include "formats/io/cells.h"
#include "formats/report/summary.h"
#include "formats/report/tables.h"
#include "tests/unit/support/spool_builder.h"

namespace host_advice_test {

using namespace torchprof;
using namespace torchprof::formats;
using namespace torchprof::test;

namespace {

constexpr uint64_t kStep = 10'000'000;

// Four steps of 10 ms in train() of a program; `fill` says what happens in each, from `begin` on.
std::string advice(
    const std::function<void(SpoolBuilder&, uint64_t begin)>& fill,
    const std::function<void(SpoolBuilder&)>& prepare = [](SpoolBuilder&) {}, uint64_t steps = 4) {
  SpoolBuilder b;
  prepare(b);
  const FunctionId train = b.function("/home/u/train.py", 12, "train");
  b.on(b.thread(100)).at(1000).begin(train);
  for (uint64_t step = 0; step < steps; ++step) {
    const uint64_t begin = 1'000'000 + step * kStep;
    b.at(begin).annotation(step + 1, std::string("ProfilerStep#").append(std::to_string(step)));
    fill(b, begin);
    b.at(begin + kStep).op_end(step + 1);
  }
  b.at(60'000'000).end(train);
  b.clean_exit(61'000'000);
  const LoadedTrace trace(b);
  return summary_text(*trace, {.tables = {"advice"}, .style = ReportStyle::kCsv});
}

bool says(const std::string& text, const std::string& words) { return text.find(words) != text.npos; }

void run(SpoolBuilder& b, uint64_t begin, uint64_t ns, const char* name) {
  b.at(begin).op(50, name).at(begin + ns).op_end(50);
}

}  // namespace

TEST_CASE("what keeps its share is steady, however long all of a step takes; what comes and goes is not") {
  std::mt19937 random(9);
  for (int round = 0; round < 50; ++round) {
    std::vector<StepSpan> steps;
    std::vector<int64_t> keeps, comes;
    int64_t at = 0;
    for (uint64_t i = 0; i < 16; ++i) {
      // The machine is busy with something else in the second half.
      const int64_t ns = static_cast<int64_t>(1000 + random() % 200) * (i < 8 ? 1 : 5);
      steps.push_back({at, at + ns, i});
      at += ns;
      keeps.push_back(ns / 3);
      comes.push_back(i < 8 ? ns / 10 : ns / 3);
    }
    CHECK_FALSE(is_unsteady(keeps, steps));
    CHECK(is_unsteady(comes, steps));
  }
}

TEST_CASE("how often something is done in a step is never none") {
  CHECK(number_text(1.0 / 25, "time") == "1 time in 25 steps");
  CHECK(number_text(0.5, "call") == "0.5 calls");
  CHECK(number_text(1, "call") == "1 call");
  for (uint64_t steps = 1; steps < 3'000; ++steps)
    CHECK(!number_text(1 / static_cast<double>(steps), "time").starts_with("0.0"));
}

TEST_CASE("no finding costs less than 3 % of a step, of however many ranks have it") {
  std::mt19937 random(3);
  const CommsCalls none;
  for (int round = 0; round < 200; ++round) {
    const size_t ranks = 1 + random() % 8;
    std::vector<ProcessAdvice> all(ranks);
    std::vector<AdvisedProcess> processes;
    size_t worth = 0;
    for (size_t i = 0; i < ranks; ++i) {
      all[i].has_steps = true;
      all[i].steps = 10;
      all[i].step_ns = all[i].mean_step_ns = 1'000'000;
      const int64_t cost = 20'000 + static_cast<int64_t>(random() % 300'000);
      if (random() % 2 == 0) all[i].findings.push_back({.rule = "alone", .cost_ns = cost, .where = std::to_string(i)});
      if (!all[i].findings.empty() && cost / static_cast<int64_t>(ranks) >= 30'000) ++worth;
      all[i].findings.push_back({.rule = "leak", .where = "no cost"});
      processes.push_back({"rank " + std::to_string(i), false, 0, &all[i], &none});
    }
    const Advice advice = advice_of(processes);
    size_t alone = 0;
    for (const Finding& f : advice.findings) {
      CHECK((f.cost_ns == 0 || f.cost_ns * 100 >= advice.step_ns * 3));
      alone += f.rule == "alone";
    }
    CHECK(alone == worth);
    CHECK(advice.findings.size() == worth + 1);
  }
}

TEST_CASE("gradients that are set to zero are worth a word from 3 % of a step on") {
  const auto with = [](uint64_t ns) {
    return advice([ns](SpoolBuilder& b, uint64_t begin) {
      b.at(begin + 1'000).annotation(60, "Optimizer.zero_grad#SGD.zero_grad");
      run(b, begin + 2'000, ns, "aten::zero_");
      b.at(begin + 3'000 + ns).op_end(60);
      run(b, begin + 1'000'000, 8'000'000, "aten::mm");
    });
  };
  CHECK(!says(with(50'000), "\"zero_grad\""));  // 0.5 %
  CHECK(says(with(300'000), "\"zero_grad\""));
}

TEST_CASE("products on fewer threads than cores are named with what more would give") {
  const auto with = [](const char* threads, const char* processors) {
    return advice([](SpoolBuilder& b, uint64_t begin) { run(b, begin + 1000, 8'000'000, "aten::mm"); },
                  [=](SpoolBuilder& b) {
                    b.meta("torch.threads", threads);
                    b.meta("processors", processors);
                  });
  };
  const std::string text = with("1", "16");
  CAPTURE(text);
  CHECK(says(text, "7000000,70,3000000,\"threads\""));  // 8 ms on 1 of 8 cores
  CHECK(says(text, "\"/home/u/train.py(12): train\""));
  CHECK(!says(with("8", "16"), "\"threads\""));
  CHECK(!says(with("1", "2"), "\"threads\""));  // of one core, maybe
  CHECK(!says(with("many", "16"), "\"threads\""));
}

TEST_CASE("the garbage collector, a compiler and waits are named by what they take") {
  const std::string collects = advice(
      [](SpoolBuilder& b, uint64_t begin) { b.at(begin + 1000).gc_begin(2).at(begin + 2'001'000).gc_end(5, 0); });
  CAPTURE(collects);
  CHECK(says(collects,
             "2000000,20,8000000,\"collecting\",\"Python's garbage collector takes 2.00 ms.\",\"It runs 1 time.\""));
  const std::string compiles = advice([](SpoolBuilder& b, uint64_t begin) {
    const FunctionId compiler =
        b.function("/usr/lib/python3/dist-packages/torch/_dynamo/convert_frame.py", 9, "_compile");
    b.at(begin + 1000).begin(compiler).at(begin + 3'001'000).end(compiler);
  });
  CAPTURE(compiles);
  CHECK(says(compiles, "3000000,30,7000000,\"compiling\""));
  const std::string waits = advice([](SpoolBuilder& b, uint64_t begin) {
    const FunctionId wait = b.function("/usr/lib/python3.11/threading.py", 288, "wait");
    b.at(begin + 1000).begin(wait).at(begin + 4'001'000).end(wait);
  });
  CAPTURE(waits);
  CHECK(
      says(waits, "4000000,40,6000000,\"waiting\",\"train waits for another thread or process, or sleeps: 4.00 ms.\""));
  CHECK(!says(waits, "threading.py"));  // nobody can change it
}

TEST_CASE("many short operators of one place are one finding, with the Python between them") {
  const auto with = [](uint64_t count, uint64_t ns) {
    return advice([=](SpoolBuilder& b, uint64_t begin) {
      const FunctionId loop = b.function("/home/u/train.py", 30, "normalise");
      b.at(begin + 1000).begin(loop);
      for (uint64_t i = 0; i < count; ++i)
        run(b, begin + 2000 + i * (ns + 1000), ns, i % 2 ? "aten::add" : "aten::mul");
      b.at(begin + 2000 + count * (ns + 1000)).end(loop);
    });
  };
  const std::string text = with(1000, 2000);
  CAPTURE(text);
  CHECK(says(text, "\"tiny operators\""));
  CHECK(says(text, "train.py(30): normalise"));
  CHECK(!says(with(50, 2000), "\"tiny operators\""));
  CHECK(!says(with(200, 40'000), "\"tiny operators\""));
}

TEST_CASE("imports are no finding wherever they are, nor is the garbage that is collected in them") {
  for (const bool is_program : {false, true}) {
    const std::string text = advice([=](SpoolBuilder& b, uint64_t begin) {
      const FunctionId import = b.import("torch._dynamo");
      const FunctionId module = b.function(
          is_program ? "/home/u/work.py" : "/usr/lib/python3/dist-packages/torch/_dynamo/__init__.py", 1, "<module>");
      b.at(begin + 1000).begin(import).at(begin + 2000).begin(module);
      b.at(begin + 3000).gc_begin(2).at(begin + 3'003'000).gc_end(5, 0);
      b.at(begin + 7'000'000).end(module).at(begin + 7'001'000).end(import);
    });
    CAPTURE(text);
    // A module of the program may do all its work while it is imported.
    CHECK(says(text, "\"collecting\"") == is_program);
    CHECK(says(text, "The script takes 4.00 ms in Python code of its own.") == is_program);
  }
}

TEST_CASE("a loader without workers is told so, whoever wrote its data set") {
  for (const bool has_workers : {false, true}) {
    const std::string text = advice([=](SpoolBuilder& b, uint64_t begin) {
      b.at(begin + 1000)
          .annotation(60, has_workers ? "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
                                      : "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__");
      b.at(begin + 4'001'000).op_end(60);
    });
    CAPTURE(text);
    CHECK(says(text, "4000000,40,6000000,\"loading\",\"A step waits 4.00 ms for a DataLoader.\""));
    CHECK(says(text, "without workers") == !has_workers);
  }
}

TEST_CASE("large blocks have the place of the program around them, whoever allocates") {
  const std::string text = advice([](SpoolBuilder& b, uint64_t begin) {
    const FunctionId backward =
        b.function("/usr/lib/python3/dist-packages/torch/autograd/graph.py", 9, "_engine_run_backward");
    b.at(begin + 1000).begin(backward);
    const auto memory = [&b](uint64_t at, int64_t bytes) {
      b.at(at).raw(static_cast<uint8_t>(Kind::Memory), {0x10000, static_cast<uint64_t>(bytes), 1 << 30, 0, 0xff00});
    };
    memory(begin + 2000, int64_t{64} << 20);
    memory(begin + 6'000'000, -(int64_t{64} << 20));
    b.end(backward);
  });
  CAPTURE(text);
  CHECK(says(text, "\"first touch\""));
  CHECK(says(text, "train.py(12): train"));
  CHECK(!says(text, "graph.py"));
}

TEST_CASE("a finding's share is called by what it is one of") {
  const auto title = [](bool has_steps, const char* unit) {
    Advice advice;
    advice.has_steps = has_steps;
    advice.unit = unit;
    const ReportTable table = advice_table(advice);
    return std::string(table.columns[table.column("share_percent")].title);
  };
  CHECK(title(true, "") == "of a step");
  CHECK(title(true, "a call of generate") == "of it");
  CHECK(title(false, "") == "of the run");
}

TEST_CASE("the time in which large blocks are given back to the kernel is not the program's Python") {
  std::mt19937 random(13);
  for (int round = 0; round < 60; ++round) {
    const int64_t bytes = static_cast<int64_t>(8 + random() % 120) << 20;
    const uint64_t gap = 1'000'000 + random() % 4'000'000;
    const bool frees = random() % 4 != 0;
    const std::string text = advice([&](SpoolBuilder& b, uint64_t begin) {
      if (frees)
        b.at(begin).raw(static_cast<uint8_t>(Kind::Memory),
                        {0x10000, static_cast<uint64_t>(-bytes), 1 << 30, 0, 0xff00});
      run(b, begin + gap, kStep - gap, "aten::mm");
    });
    // Measured are 0.3 us a page; none of it is Python's where it may be all.
    const uint64_t most = static_cast<uint64_t>(bytes) / 4096 * 500;
    const bool is_large = bytes >= int64_t{32} << 20;
    const uint64_t left = frees && is_large ? gap - std::min(gap, most) : gap;
    CAPTURE(text);
    CAPTURE(bytes);
    CAPTURE(gap);
    CHECK(says(text, "Python code of its own") == (left * 100 >= kStep * 3));
  }
}

TEST_CASE("who keeps the processors busy: others, or processes that the program started and that never wait") {
  const auto with = [](double busy, bool is_loader, size_t children) {
    ProcessAdvice program, child;
    program.has_steps = true;
    program.steps = 10;
    program.step_ns = program.mean_step_ns = 10'000'000;
    program.processors = 2;
    program.use = {.queued = std::vector<int64_t>(10, 8'000'000),
                   .slept = std::vector<int64_t>(10),
                   .is_known = std::vector<bool>(10, true),
                   .process_ran = 0.2,
                   .others_ran = 1.8};
    child.busy = busy;
    const CommsCalls none;
    std::vector<AdvisedProcess> processes{{"process 1", false, 0, &program, &none}};
    for (size_t i = 0; i < children; ++i) processes.push_back({"process 2", is_loader, 0, &child, &none});
    return advice_of(processes);
  };
  const auto accuses = [](const Advice& advice) { return !advice.findings.empty(); };
  CHECK(accuses(with(1, false, 2)));
  CHECK(!accuses(with(1, false, 0)));
  CHECK(!accuses(with(1, false, 1)));    // there is a processor for each of them
  CHECK(!accuses(with(1, true, 4)));     // workers do what the steps ask for
  CHECK(!accuses(with(0.6, false, 4)));  // they wait as well, and for a processor as much as the program
  CHECK(says(with(1, true, 4).machine, "the machine was busy"));
}

TEST_CASE(
    "where nobody knows what others had of the processors nothing is said of it, and the program is not accused") {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    const auto number = [&random](double most) { return static_cast<double>(random() % 1001) / 1000 * most; };
    const uint32_t processors = 1 + random() % 8;
    const double ran = number(processors), share = 0.05 + number(0.9);
    const bool knows = random() % 2 == 0;
    const double others = number(processors - ran);
    ProcessAdvice program;
    program.has_steps = true;
    program.steps = 10;
    program.step_ns = program.mean_step_ns = 10'000'000;
    program.processors = processors;
    program.threads = 1 + random() % 16;
    program.use = {.queued = std::vector<int64_t>(10, static_cast<int64_t>(share * 1e7)),
                   .slept = std::vector<int64_t>(10),
                   .is_known = std::vector<bool>(10, true),
                   .queued_share = share,
                   .process_ran = ran};
    if (knows) program.use.others_ran = others;
    const CommsCalls none;
    const Advice advice = advice_of({{"process 1", false, 0, &program, &none}});
    std::string all = advice.machine;
    for (const Finding& f : advice.findings) all += f.what + f.evidence;
    CAPTURE(all);
    CAPTURE(processors);
    CAPTURE(ran);
    CAPTURE(others);
    CHECK(says(all, "others") == knows);
    // The least that the program's own part can be.
    const double most = knows ? others : processors - ran;
    if (ran * 2 < most) CHECK(advice.findings.empty());
    // Operators have no more threads than there are processors, and others had enough to keep the thread from running.
    if (program.threads <= processors && most >= share) CHECK(advice.findings.empty());
    if (advice.findings.empty() && share > 0.05) CHECK(says(all, print(" %.1f %% of its time", 100 * share)));
  }
}

TEST_CASE("a few steps in which the thread has no processor do not count for what each step does") {
  std::mt19937 random(7);
  for (int round = 0; round < 40; ++round) {
    // Four steps: one has a stall, in the middle of it.
    const uint64_t stall = random() % 4, zeroes = 400'000 + random() % 3'000'000;
    const std::string text = advice([&](SpoolBuilder& b, uint64_t begin) {
      const bool stalls = (begin - 1'000'000) / kStep == stall;
      b.at(begin + 1'000).annotation(60, "Optimizer.zero_grad#SGD.zero_grad");
      run(b, begin + 2'000, stalls ? 9'000'000 : zeroes, "aten::zero_");
      b.at(begin + 9'500'000).op_end(60);
    });
    CAPTURE(text);
    CAPTURE(zeroes);
    CHECK(says(text, "\n" + std::to_string(zeroes) + ","));
  }
}

TEST_CASE("a function that sleeps is not said to compute, however long the thread waits for a processor beside that") {
  constexpr uint64_t kMs = 1'000'000;
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    const uint64_t slept = (random() % 5 + 1) * kMs, queued = random() % 4 * kMs, ran = random() % (slept / 4);
    const uint64_t loads = slept + queued + ran;
    uint64_t ran_before = 0, queued_before = 0;
    const std::string text = advice(
        [&](SpoolBuilder& b, uint64_t begin) {
          const FunctionId load = b.function("/home/u/train.py", 3, "load");
          b.at(begin).begin(load).at(begin + loads).end(load);
          run(b, begin + loads, kStep - loads, "aten::mm");
          ran_before += kStep - slept - queued, queued_before += queued;
          b.at(begin + kStep).step_end(begin / kStep + 1, 0, 0);
          b.used(ProcessorTime{{}, 100, 0, ran_before, queued_before, ran_before});
        },
        [](SpoolBuilder& b) { b.meta("window", "auto"); }, 6);
    CAPTURE(text);
    CAPTURE(slept);
    CAPTURE(queued);
    CHECK(!says(text, "in Python code of its own."));
    CHECK((says(text, "load waits or sleeps") || says(text, "in Python code of its own or in a wait")));
    if (queued == 0) CHECK(says(text, "load waits or sleeps"));
  }
}

TEST_CASE("a library inside of a module's call is the network's; its loop around the steps is told as that") {
  SpoolBuilder b;
  const FunctionId main = b.function("/home/u/ask.py", 3, "main");
  const FunctionId generate = b.function("/usr/lib/python3/dist-packages/transformers/utils.py", 80, "generate");
  const FunctionId forward = b.function("/usr/lib/python3/dist-packages/transformers/gpt2.py", 90, "forward");
  const FunctionId mask = b.function("/usr/lib/python3/dist-packages/transformers/masks.py", 7, "mask");
  const FunctionId choose = b.function("/usr/lib/python3/dist-packages/transformers/choose.py", 70, "choose");
  const ObjectId model = b.object("GPT2");
  b.on(b.thread(100)).at(1000).begin(main).at(2000).begin(generate);
  for (uint64_t step = 0; step < 6; ++step) {
    const uint64_t begin = 1'000'000 + step * kStep;
    b.at(begin).annotation(step + 1, std::string("ProfilerStep#").append(std::to_string(step)));
    b.at(begin + 1000).begin(forward, model).at(begin + 2000).begin(mask).at(begin + 5'002'000).end(mask);
    run(b, begin + 5'003'000, 1'000'000, "aten::mm");
    b.at(begin + 6'004'000).end(forward).at(begin + 6'005'000).begin(choose).at(begin + 9'005'000).end(choose);
    b.at(begin + kStep).op_end(step + 1);
  }
  b.at(80'000'000).end(generate).at(81'000'000).end(main);
  b.clean_exit(82'000'000);
  const LoadedTrace trace(b);
  const std::string text = summary_text(*trace, {.tables = {"advice"}, .style = ReportStyle::kCsv});
  CAPTURE(text);
  CHECK(says(text, "\"python\",\"generate of transformers, which main calls, takes 3.00 ms beside the work"));
  CHECK(!says(text, "0 calls"));
}

TEST_CASE("nothing is found in the first step alone") {
  const auto with = [](uint64_t steps) {
    return advice([](SpoolBuilder& b, uint64_t begin) { run(b, begin + 1000, 8'000'000, "aten::zeros"); },
                  [](SpoolBuilder&) {}, steps);
  };
  const std::string text = with(1);
  CAPTURE(text);
  CHECK(!says(text, "\"operator\""));
  CHECK(says(with(4), "\"operator\""));
}

TEST_CASE("of a program without operators it is said what takes most") {
  SpoolBuilder b;
  const FunctionId main = b.function("/home/u/count.py", 1, "<module>"),
                   count = b.function("/home/u/count.py", 3, "count");
  b.on(b.thread(100)).at(1000).begin(main);
  b.at(1'000'000).begin(count).at(900'000'000).end(count).at(910'000'000).end(main);
  b.clean_exit(911'000'000);
  const LoadedTrace trace(b);
  const std::string text = summary_text(*trace, {.tables = {"advice"}});
  CAPTURE(text);
  CHECK(says(text, "no findings; most of the time is in"));
  CHECK(says(text, "count"));
}

TEST_CASE("requests are looked at where they are served, not where somebody waits for them") {
  SpoolBuilder b;
  const FunctionId client = b.function("/home/u/server.py", 20, "client");
  const FunctionId open = b.function("/usr/lib/python3.11/urllib/request.py", 189, "urlopen");
  const FunctionId serve = b.function("/usr/lib/python3.11/socketserver.py", 215, "serve_forever");
  const FunctionId request = b.function("/home/u/server.py", 8, "do_POST");
  const TrackId asks = b.thread(100), serves = b.thread(101);
  b.on(asks).at(1000).begin(client).on(serves).at(1000).begin(serve);
  b.on(asks);
  run(b, 2000, 50'000, "aten::normal_");
  for (uint64_t i = 0; i < 20; ++i) {
    const uint64_t begin = 1'000'000 + i * kStep;
    b.on(asks).at(begin).begin(open);
    b.on(serves).at(begin + 10'000).begin(request);
    run(b, begin + 20'000, 8'000'000, "aten::addmm");
    b.on(serves).at(begin + 9'000'000).end(request);
    b.on(asks).at(begin + 9'100'000).end(open);
  }
  b.on(serves).at(210'000'000).end(serve).on(asks).at(210'000'000).end(client);
  b.clean_exit(211'000'000);
  const LoadedTrace trace(b);
  const std::string text = summary_text(*trace, {.tables = {"advice"}});
  CAPTURE(text);
  CHECK(says(text, "do_POST (server.py) takes 8.99 ms"));
  CHECK(!says(text, "waits"));
}

TEST_CASE("text that a library compiles is no place of the program, unless its command has text") {
  for (const bool is_text : {false, true}) {
    SpoolBuilder b(100, is_text ? std::vector<std::string>{"python3", "-c", "..."}
                                : std::vector<std::string>{"python3", "train.py"});
    const FunctionId make = b.function("<string>", 1, "make");
    b.on(b.thread(100)).at(500).begin(b.function(is_text ? "<string>" : "/home/u/train.py", 12, "train"));
    for (uint64_t step = 0; step < 4; ++step) {
      const uint64_t begin = 1'000'000 + step * kStep;
      b.at(begin).annotation(step + 1, std::string("ProfilerStep#").append(std::to_string(step)));
      b.at(begin + 1000).begin(make).at(begin + 8'001'000).end(make);
      b.at(begin + kStep).op_end(step + 1);
    }
    b.clean_exit(61'000'000);
    const LoadedTrace trace(b);
    const std::string text = summary_text(*trace, {.tables = {"advice"}, .style = ReportStyle::kCsv});
    CAPTURE(text);
    CHECK(says(text, "\"make takes 8.00 ms in Python code of its own.\"") == is_text);
    CHECK(says(text, "\"train takes 10.0 ms in Python and libraries") == !is_text);
  }
}

TEST_CASE("what a short script could gain is nothing beside its imports") {
  const auto with = [](uint64_t import_ns) {
    SpoolBuilder b;
    const FunctionId main = b.function("/home/u/ask.py", 1, "<module>"), torch = b.import("torch");
    const FunctionId draw = b.function("/home/u/ask.py", 5, "draw");
    b.on(b.thread(100)).at(1000).begin(main).at(2000).begin(torch).at(2000 + import_ns).end(torch);
    const uint64_t begin = 10'000 + import_ns;
    run(b, begin, 1'000'000, "aten::mm");
    b.at(begin + 2'000'000).begin(draw).at(begin + 9'000'000).end(draw).at(begin + kStep).end(main);
    b.clean_exit(begin + kStep + 1000);
    const LoadedTrace trace(b);
    return summary_text(*trace, {.tables = {"advice"}});
  };
  const std::string text = with(5'000'000);
  CAPTURE(text);
  CHECK(says(text, "draw takes 7.00 ms"));
  CHECK(says(with(500'000'000), "no findings"));
}

TEST_CASE("the place of a loader's workers comes with its own text, and if a good part of their work is there") {
  const auto with = [](int64_t there) {
    ProcessAdvice program, worker;
    program.has_steps = true;
    program.steps = 10;
    program.step_ns = program.mean_step_ns = 10'000'000;
    program.findings = {{.rule = "loading", .cost_ns = 5'000'000, .where = "a.py(1): train", .source = "for batch in"}};
    worker.loader.busiest = {.all_ns = 100, .ns = there, .function = "get", .where = "a.py(9): get"};
    worker.loader.source = "decode(item)";
    const CommsCalls none;
    const Advice advice = advice_of({{"process 1", false, 0, &program, &none}, {"process 2", true, 0, &worker, &none}});
    REQUIRE(advice.findings.size() == 1);
    return advice.findings[0];
  };
  CHECK(with(70).where == "a.py(9): get");
  CHECK(with(70).source == "decode(item)");
  CHECK(with(10).where == "a.py(1): train");
  CHECK(with(10).source == "for batch in");
}

TEST_CASE("what takes most of the time takes what it takes of a step, however much longer a few steps are") {
  std::mt19937 random(11);
  for (int round = 0; round < 50; ++round) {
    SpoolBuilder b;
    b.on(b.thread(100));
    uint64_t now = 1'000;
    for (uint64_t step = 0; step < 20; ++step) {
      const uint64_t ns = 1'000'000 * (1 + random() % 3) * (random() % 6 == 0 ? 50 : 1);
      b.at(now).annotation(step + 1, "ProfilerStep#" + std::to_string(step));
      run(b, now + 10, ns / 2 + random() % (ns / 4), "aten::mm");
      now += ns;
      b.at(now).op_end(step + 1);
    }
    b.clean_exit(now + 1'000);
    const LoadedTrace trace(b);
    const std::string text = summary_text(*trace, {.tables = {"advice"}});
    CAPTURE(text);
    const std::string before = "most of the time is in aten::mm, ";
    const size_t at = text.find(before);
    if (at == text.npos) continue;  // it is a finding
    const double share = std::stod(text.substr(at + before.size()));
    CHECK((share > 49 && share < 76));
  }
}

TEST_CASE("that Python objects are kept is said where tensors are known not to be, and nothing where they may be") {
  constexpr int64_t kKib = 1 << 10;
  enum class Recorded { kAll, kNoMemory, kWindows, kFew };
  std::mt19937 random(5);
  const auto advised = [](int64_t process, int64_t tensors, Recorded recorded) {
    SpoolBuilder b;
    b.on(b.thread(100));
    b.source("memory", recorded == Recorded::kNoMemory ? SourceState::kOff : SourceState::kOn, "");
    if (recorded == Recorded::kWindows)
      for (uint64_t i = 0; i < 2; ++i) b.window(i + 1, 50 * i, 1 + 50 * i * kStep, (50 * i + 50) * kStep);
    const uint64_t steps = recorded == Recorded::kFew ? 30 : 100;
    uint64_t ran = 0;
    for (uint64_t step = 0; step < 100; ++step) {
      const uint64_t begin = 1'000 + step * kStep;
      b.at(begin);
      if (step < steps) {
        b.annotation(step + 1, "ProfilerStep#" + std::to_string(step)).at(begin + 1'000).op(500, "keeps");
        if (recorded != Recorded::kNoMemory && tensors > 0)
          b.raw(static_cast<uint8_t>(Kind::Memory),
                {0x1000 + step, static_cast<uint64_t>(tensors), uint64_t{1} << 30, 0, 0xff00});
        b.at(begin + 9'000'000).op_end(500);
      }
      ran += kStep;
      b.at(begin + kStep - 10);
      if (step < steps) b.op_end(step + 1);
      b.step_end(step, 0, 0).resident((uint64_t{1} << 30) + static_cast<uint64_t>(step * process));
      b.used(ProcessorTime{{}, 100, 0, ran, 0, ran});
    }
    b.clean_exit(101 * kStep);
    const LoadedTrace trace(b);
    return summary_text(*trace, {.tables = {"advice"}, .style = ReportStyle::kCsv});
  };
  for (int round = 0; round < 60; ++round) {
    const int64_t process = static_cast<int64_t>(300 + random() % 3000) * kKib;
    const auto recorded = static_cast<Recorded>(random() % 4);
    // How much of it may be tensors'.
    const int64_t tensors = round % 3 == 0 ? 0 : process / static_cast<int64_t>(1 + random() % 12);
    const std::string text = advised(process, tensors, recorded);
    CAPTURE(text);
    CAPTURE(static_cast<int>(recorded));
    CAPTURE(tensors);
    const bool is_known = recorded == Recorded::kAll;
    CHECK(says(text, "So it is Python objects") == (is_known && tensors == 0));
    if (recorded == Recorded::kNoMemory || recorded == Recorded::kWindows || tensors == 0) {
      CHECK(says(text, "Memory of the process grows"));
      CHECK(says(text, "is not known: in most steps their memory") == !is_known);
    } else {
      CHECK_FALSE(says(text, "Memory of the process grows"));
    }
  }
}

}  // namespace host_advice_test
