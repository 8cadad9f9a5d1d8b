// A LibTorch training loop with lowtide's gradient diagnostics, clip, memory figures, step marks and checkpoints.
//
//   ./train [STEPS] [--nan] [--leak] [--slow] [--checkpoints FOLDER] [--record FOLDER]
//
// `lowtide run -- ./train 2000` records it; so does `--record FOLDER` alone.
#include <lowtide/torch.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <thread>

namespace {

struct Options {
  uint64_t steps = 200;
  bool nan = false, leak = false, slow = false;  // one bad batch; a history that grows; time to look at it
  std::string checkpoints, record;
};

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    options.nan |= word == "--nan";
    options.leak |= word == "--leak";
    options.slow |= word == "--slow";
    if (word == "--checkpoints" && i + 1 < argc) options.checkpoints = argv[++i];
    if (word == "--record" && i + 1 < argc) options.record = argv[++i];
    if (std::isdigit(static_cast<unsigned char>(word[0]))) options.steps = std::strtoull(word.c_str(), nullptr, 10);
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  torch::manual_seed(0);
  torch::nn::Sequential model(torch::nn::Linear(12, 40), torch::nn::Tanh(), torch::nn::Linear(40, 1));
  torch::optim::Adam optimizer(model->parameters(), 1e-2);
  lowtide::Gradients gradients(model->named_parameters());
  lowtide::Recorder recorder(options.record);
  std::unique_ptr<lowtide::Checkpointer> checkpoints;
  uint64_t begin = 0;
  if (!options.checkpoints.empty()) {
    checkpoints = std::make_unique<lowtide::Checkpointer>(options.checkpoints, *model, &optimizer);
    if (const auto resumed = checkpoints->Resume()) {
      begin = resumed->step;
      for (const std::string& text : resumed->damaged) std::cout << "passed over " << text << "\n";
      std::cout << "resumed at step " << begin << "\n";
    }
  }
  std::vector<torch::Tensor> history;
  int clipped = 0, skipped = 0;
  double first = 0, last = 0;
  for (uint64_t step = begin + 1; step <= options.steps; ++step) {
    torch::Tensor x = torch::randn({64, 12});
    torch::Tensor y = x.sum(1, true);
    if (options.nan && step == 50) x[3][4] = NAN;
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
    if (options.leak) history.push_back(torch::ones({5000}) * loss);  // the graph and 20 kB, kept for ever
    last = loss.item<double>();
    if (step == begin + 1) first = last;
    if (step % 100 == 0) {
      std::cout << "step " << step << ", loss " << last << ", norm " << report.total_norm << ", " << lowtide::Memory().Text() << std::endl;
      try {
        if (checkpoints) checkpoints->Save(step);
      } catch (const std::runtime_error& error) {  // a full disk, for example: training goes on
        std::cout << "not saved: " << error.what() << "\n";
      }
    }
    if (options.slow && step > 300) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (recorder.Step()) break;
  }
  std::cout << "clipped " << clipped << ", skipped " << skipped << ", loss " << first << " -> " << last << "\n";
  return begin > 0 || last < first ? 0 : 1;
}
