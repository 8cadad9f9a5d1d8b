#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/text.h"

namespace lowtide::plan {

enum class Kind { kDecoder, kEncoder, kEncoderDecoder, kVision };

// DeepSeek's latent attention (arXiv 2405.04434, section 2.1): sizes of its low-rank projections; kv_rank 0 means none.
struct LatentAttention {
  uint64_t q_rank = 0, kv_rank = 0, nope_dim = 0, rope_dim = 0, v_dim = 0;
};

// A mixture of experts in every layer but the first `dense_layers`.
struct Experts {
  uint64_t count = 0;           // 0: no experts
  uint64_t per_token = 0;
  uint64_t ffn = 0;             // inner size of one expert
  uint64_t shared_ffn = 0;      // inner size of the expert that every token passes
  uint64_t dense_layers = 0;    // layers with an ordinary MLP
  bool shared_gate = false;     // a gate of `hidden` weights before the shared expert
  bool router_bias = false;
};

// A transformer's sizes: all that memory depends on. Counts are of numbers, not bytes.
struct Shape {
  std::string name, family;     // family: Hugging Face's model_type, or "guessed"
  Kind kind = Kind::kDecoder;
  uint64_t layers = 0;          // of the decoder where there are two stacks
  uint64_t encoder_layers = 0;  // of the other stack
  uint64_t hidden = 0, ffn = 0, vocab = 0;
  uint64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool gated = true;            // three matrices in the MLP instead of two
  bool tied = false;            // the head is the embedding
  bool has_head = true;         // logits over the vocabulary for each token
  bool qkv_bias = false, out_bias = false, mlp_bias = false, norm_bias = false, head_bias = false;
  bool qk_norm = false;
  bool qk_norm_wide = false;    // over all heads instead of one (OLMo 2)
  bool dropout = false;
  bool rms_norm = true;
  bool python_gelu = false;     // the tanh approximation written out in Python
  uint64_t norms = 2;           // per layer
  bool final_norm = true;
  bool embedding_norm = false;
  uint64_t positions = 0;       // learnt ones
  uint64_t token_types = 0;
  uint64_t embedding_dim = 0;   // 0: hidden; else projected to and from
  uint64_t relative_biases = 0; // T5: numbers in one stack's table
  uint64_t other = 0;           // pooler, patch embedding, classifier
  Experts experts;
  LatentAttention latent;
  uint64_t exact_parameters = 0;  // counted on a live module or given by the user; 0: as the sizes say
  uint64_t trainable = 0;         // 0: all (only with exact_parameters)
  double parameter_bytes = 0;     // of a live module, as loaded; 0: unknown
  bool sizes_known = true;        // false: nothing but a parameter count is known of this model
  std::vector<Text> assumed;      // what was not given, and what is taken instead
};

struct ParameterCount {
  double embedding = 0;      // token and position tables, with what stands before the first layer
  double head = 0;           // 0 when tied
  double layer = 0;          // an average layer
  double experts = 0;        // of `layer`: what expert parallelism splits
  double unsplit = 0;        // of `layer`: norms and biases that tensor parallelism repeats on each GPU
  double linear = 0;         // of `layer`: weights of linear maps
  double linear_sides = 0;   // of `layer`: sum over linear maps of inputs + outputs (LoRA adds rank times this)
  double rest = 0;           // final norm and the like
  uint64_t layers = 0;       // both stacks
  double total = 0;
  double active = 0;         // used by one token

  double layers_total() const { return layer * static_cast<double>(layers); }
};

// Exact for the known families. `exact_parameters`, where given, wins: the layers are scaled to it.
ParameterCount CountParameters(const Shape& shape);

// Throws Error (message, remedy) when a size is zero, negative by wrap-around, absurd, or does not fit another.
void CheckShape(const Shape& shape);

// What a sensible maker would choose for so many parameters: sizes of a decoder with grouped heads and a gated MLP.
// `given` has what is known already (zero: not known); its `assumed` gets a line for each size chosen here.
// Throws Error when the count cannot be reached.
Shape GuessShape(double parameters, Shape given);

// "llama3.1-8b" and the like; nullptr when there is none. Names are compared without case, blanks, dashes, points.
const Shape* FindPreset(const std::string& name);
std::vector<std::string> PresetNames();

}  // namespace lowtide::plan
