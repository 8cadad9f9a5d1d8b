#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/verbs.h"

namespace lowtide::cli {

// Sizes that are 0 and words that are empty were not given.
struct PlanOptions {
  std::string model;         // config.json, a folder with one, or a known name
  std::string params;        // "7B"
  uint64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0;
  uint64_t experts = 0, experts_per_token = 0, expert_ffn = 0;
  std::optional<bool> tied;
  uint64_t gpus = 1, gpus_per_node = 8;
  std::string gpu;
  uint64_t gpu_memory = 0;
  std::string strategy;      // empty: choose
  uint64_t tp = 1, pp = 1, cp = 1, ep = 1, shard = 0;
  bool sequence_parallel = false, distributed_optimizer = false;
  std::string offload = "none", precision, optimizer, checkpoint, code, logits, attention = "flash";
  bool optimizer_in_backward = false, foreach = false;
  std::optional<uint64_t> micro_batch;
  uint64_t seq_len = 0, accumulate = 1;
  uint64_t lora_rank = 0;
  double base_bits = 16;
  bool states_only = false;
  std::string counting = "lowtide";
  std::string largest_layer; // parameters, for --counting deepspeed
  std::string format = "text";
  bool measure = false;
  uint64_t steps = 4;        // of --measure
  std::string python;
  std::vector<std::string> command;  // of --measure: SCRIPT [ARGS]
};

int Plan(const PlanOptions& options, const CommonOptions& common);

}  // namespace lowtide::cli
