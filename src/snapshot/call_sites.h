#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "snapshot/model.h"

namespace lowtide::snapshot {

// What a stack says about the code that allocates. Python frames come first; C++ frames are folded away,
// except for the operator's name.
struct CallSite {
  // Bits of what the stack passes through.
  enum Trait : uint32_t {
    kPython = 1,      // has a Python frame
    kOptimizer = 2,   // torch/optim, or a function `step` of an optimizer
    kBackward = 4,    // autograd engine
    kAccumulate = 8,  // AccumulateGrad: the gradient of a leaf
    kForward = 16,    // Module.__call__ or a forward()
    kInit = 32,       // building, loading or moving a model
    kZeroGrad = 64,
    kCheckpoint = 128,  // activation checkpointing
    kCommunication = 256,
    kCompiled = 512,  // TorchInductor or FX code
  };
  uint32_t traits = 0;
  std::string file;  // of the user's own line; empty when no Python frame is there
  int line = 0;
  std::string function;
  std::string via;    // the innermost library line below it: "torch/nn/functional.py:1234 linear"
  std::string op;     // "addmm", "MmBackward0"
  std::string label;  // one line for people: "train.py:31 forward"
};

// The call site of every stack, made when first asked for.
class CallSites {
 public:
  explicit CallSites(const Snapshot& snapshot)
      : snapshot_(snapshot), sites_(snapshot.names.stack_count()), made_(sites_.size()) {}
  const CallSite& Of(StackId stack);
  // The frames worth showing, user's code first, C++ folded; at most `most`.
  std::vector<uint32_t> Shown(StackId stack, size_t most) const;
  const Snapshot& snapshot() const { return snapshot_; }

 private:
  const Snapshot& snapshot_;
  std::vector<CallSite> sites_;
  std::vector<bool> made_;
};

// Whether a frame is Python code (by its file name), and whether that file belongs to an installed library.
bool IsPythonFile(std::string_view file);
bool IsLibraryFile(std::string_view file);
// The part of a path that tells: after site-packages, else the last two names.
std::string ShortPath(std::string_view file);

}  // namespace lowtide::snapshot
