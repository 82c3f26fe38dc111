// A program of libtorch without Python: a small regression, trained in main() and checked in a thread of its own.
//
//     c++ -std=c++20 -O2 -g train.cpp -o train -ltorch_cpu -lc10 -pthread
//     torchprof run --native on ./train
//
// `step` and `check` are annotations.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <cstdio>
#include <thread>
#include <vector>

struct Model {
  at::Tensor w1 = at::randn({8, 32}).mul_(0.3).requires_grad_(true);
  at::Tensor w2 = at::randn({32, 1}).mul_(0.3).requires_grad_(true);

  at::Tensor forward(const at::Tensor& x) const { return at::mm(at::tanh(at::mm(x, w1)), w2); }
  std::vector<at::Tensor> parameters() const { return {w1, w2}; }
};

static at::Tensor loss_of(const Model& model, const at::Tensor& x, const at::Tensor& y) {
  return at::mse_loss(model.forward(x), y);
}

static void step(const Model& model, const at::Tensor& x, const at::Tensor& y) {
  RECORD_USER_SCOPE("step");
  loss_of(model, x, y).backward();
  const at::NoGradGuard no_grad;
  for (at::Tensor p : model.parameters()) {
    p.sub_(p.grad(), 0.05);
    p.mutable_grad().reset();
  }
}

int main() {
  at::manual_seed(1);
  const at::Tensor x = at::randn({256, 8});
  const at::Tensor y = x.sum(1, true).sin();
  const Model model;
  for (int i = 0; i < 20; ++i) {
    for (int k = 0; k < 10; ++k) step(model, x, y);
    double loss = 0;
    std::thread check([&] {
      RECORD_USER_SCOPE("check");
      const at::NoGradGuard no_grad;
      loss = loss_of(model, x, y).item<double>();
    });
    check.join();
    if (i % 5 == 4) std::printf("step %3d  loss %.4f\n", (i + 1) * 10, loss);
  }
}
