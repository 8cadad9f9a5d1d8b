#pragma once

#include "plan/estimate.h"
#include "plan/gpus.h"

namespace lowtide::plan {

// What a strategy costs per optimizer step and GPU. Seconds come from nominal figures and only put strategies in order.
struct Cost {
  double network_bytes = 0;      // sent to other GPUs
  double host_bytes = 0;         // to and from the host's memory
  double recompute = 0;          // FLOPs done twice, as a share of all
  double bubble = 0;             // time that pipeline stages wait, as a share
  double seconds = 0;            // of one step
  double seconds_per_token = 0;  // per token of the whole job, times GPUs
  double host_memory = 0;        // bytes that a node must have for what is on the CPU
};

Cost Price(const Shape& shape, const Setup& setup, const Gpu& gpu);

}  // namespace lowtide::plan
