// A LibTorch training loop with lowtide's gradient diagnostics, clip and memory figures.
#include <lowtide/torch.h>

#include <cstdlib>
#include <iostream>

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 200;
  const bool breaks = argc > 2;  // any second argument: one batch holds a NaN
  torch::manual_seed(0);
  torch::nn::Sequential model(torch::nn::Linear(12, 40), torch::nn::Tanh(), torch::nn::Linear(40, 1));
  torch::optim::Adam optimizer(model->parameters(), 1e-2);
  lowtide::Gradients gradients(model->named_parameters());
  int clipped = 0, skipped = 0;
  double first = 0, last = 0;
  for (int step = 1; step <= steps; ++step) {
    torch::Tensor x = torch::randn({64, 12});
    torch::Tensor y = x.sum(1, true);
    if (breaks && step == 50) x[3][4] = NAN;
    torch::Tensor loss = torch::mse_loss(model->forward(x), y);
    optimizer.zero_grad();
    loss.backward();
    const lowtide::GradientReport report = gradients.Clip();
    clipped += report.clipped_to > 0;
    if (!report.finite()) {
      ++skipped;
      std::cout << "step " << step << ": not finite: " << report.NotFinite().front() << "\n";
      continue;
    }
    optimizer.step();
    last = loss.item<double>();
    if (step == 1) first = last;
    if (step % 100 == 0) std::cout << "step " << step << ", loss " << last << ", norm " << report.total_norm << ", " << lowtide::Memory().Text() << "\n";
  }
  std::cout << "clipped " << clipped << ", skipped " << skipped << ", loss " << first << " -> " << last << "\n";
  return last < first ? 0 : 1;
}
