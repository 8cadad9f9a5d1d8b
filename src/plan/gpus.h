#pragma once

#include <string>
#include <vector>

namespace lowtide::plan {

// A kind of GPU. `memory`: bytes that PyTorch sees (torch.cuda.get_device_properties(0).total_memory). The others only order
// strategies: nominal dense 16-bit FLOP/s, and bytes/s in one direction within a node, between nodes (its share of the
// node's network), and to the host.
struct Gpu {
  const char* name;
  double memory, flops, link, network, host;
};

const Gpu* FindGpu(const std::string& name);  // without case, blanks, dashes; nullptr when not known
std::string GpuNames();                       // "h100, a100-40, ..."
extern const Gpu kUnknownGpu;                 // for a capacity without a name: figures of an A100

}  // namespace lowtide::plan
