// Sizes for a bare parameter count.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "plan/shape.h"

namespace lowtide::plan {
namespace {

// Published decoders, smallest first: hidden size over parameters grows about so (Llama, Qwen, Pythia).
struct Step {
  double parameters;
  uint64_t hidden, vocab;
};
constexpr Step kSteps[] = {{3e7, 384, 50304},    {1.2e8, 768, 50304},   {3.5e8, 1024, 50304},   {1e9, 2048, 50304},  {1.6e9, 2048, 128256},
                           {3.2e9, 3072, 128256}, {5e9, 4096, 32000}, {9e9, 4096, 128256},  {1.6e10, 5120, 128256}, {3.5e10, 6656, 128256},
                           {9e10, 8192, 128256}, {2e11, 12288, 128256}, {6e11, 16384, 128256}, {2e12, 20480, 128256}, {1e15, 32768, 256000}};

const Step& StepFor(double parameters) {
  for (const Step& step : kSteps) {
    if (parameters <= step.parameters) return step;
  }
  return *std::rbegin(kSteps);
}

void Assume(Shape& shape, const char* what, const char* what_zh, uint64_t value) {
  shape.assumed.push_back({fmt::format("{} {}", what, value), fmt::format("{} {}", what_zh, value)});
}

void ChooseWidth(double parameters, Shape& shape) {
  const Step& step = StepFor(parameters);
  if (!shape.hidden) Assume(shape, "hidden size", "隐藏维度", shape.hidden = step.hidden);
  if (!shape.vocab) Assume(shape, "vocabulary", "词表", shape.vocab = step.vocab);
  if (!shape.head_dim) shape.head_dim = shape.heads ? std::max<uint64_t>(1, shape.hidden / shape.heads) : shape.hidden >= 2048 ? 128 : 64;
  if (!shape.heads) Assume(shape, "heads", "注意力头", shape.heads = std::max<uint64_t>(1, shape.hidden / shape.head_dim));
  if (!shape.kv_heads) {
    shape.kv_heads = shape.heads % 8 == 0 && shape.heads > 8 ? 8 : shape.heads;
    Assume(shape, "key-value heads", "键值头", shape.kv_heads);
  }
}

}  // namespace

Shape GuessShape(double parameters, Shape given) {
  if (!(parameters >= 1e4) || parameters > 1e15) {
    throw Error(fmt::format("{:.3g} parameters cannot be planned for", parameters), "give a count from 10K to 1000T, such as 7B");
  }
  Shape shape = std::move(given);
  const bool named = shape.hidden && shape.layers;
  shape.family = named ? "given" : "guessed";
  if (parameters < 3e7 && !shape.vocab) Assume(shape, "vocabulary", "词表", shape.vocab = 256);
  if (parameters < 2e6 && !shape.hidden) Assume(shape, "hidden size", "隐藏维度", shape.hidden = parameters < 1e5 ? 16 : 64);
  ChooseWidth(parameters, shape);
  if (shape.vocab && !shape.tied && parameters < 2e9) shape.tied = true;  // small models share embedding and head
  if (!shape.ffn) {
    shape.ffn = shape.gated ? (shape.hidden * 7 / 2 + 7) / 8 * 8 : 4 * shape.hidden;
    Assume(shape, "MLP size", "MLP 维度", shape.ffn);
  }
  if (!shape.layers) {
    shape.layers = 1;
    ParameterCount one = CountParameters(shape);
    const double layers = std::round((parameters - (one.total - one.layer)) / one.layer);
    shape.layers = static_cast<uint64_t>(std::clamp(layers, 1.0, 10000.0));
    Assume(shape, "layers", "层数", shape.layers);
  }
  shape.exact_parameters = static_cast<uint64_t>(parameters);
  CheckShape(shape);
  return shape;
}

}  // namespace lowtide::plan
