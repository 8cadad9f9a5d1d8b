#pragma once

#include <string>

#include "plan/shape.h"

namespace lowtide::plan {

// A model from a Hugging Face config.json, from the small file that `lowtide.plan(module)` writes ("lowtide_model"), or
// from a folder that has a config.json. Keys are known under the names that the families use (n_embd, num_layers ...);
// a nested "text_config" is the model. A family that is not known is taken for a Llama-like decoder, and
// `Shape::assumed` says so. Throws Error: no file, not JSON, a size missing, negative or absurd.
Shape ReadConfig(const std::string& path);

// The same from text; `name` is what messages call it.
Shape ParseConfig(const std::string& text, const std::string& name);

}  // namespace lowtide::plan
