#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "lint/module.h"

// What each expression's value is made of, above all whether it holds on to an autograd graph. One pass of abstract
// execution per function, in program order: branches are joined, loops run twice, functions of the same file are
// entered through summaries, functions of other files leave a dependence that the index resolves later.
namespace lowtide::lint {

enum ValueFlag : uint16_t {
  kGrad = 1 << 0,       // a tensor attached to a graph, or a container that holds one
  kMaybe = 1 << 1,      // attached if the unknown callee (`dep`) passes its arguments' graph on
  kTensor = 1 << 2,     // a tensor without a graph
  kNumber = 1 << 3,     // a Python number, string, None or NumPy value
  kModel = 1 << 4,      // an nn.Module
  kLossFn = 1 << 5,     // a callable that computes a loss
  kContainer = 1 << 6,  // a list, dict, set or tuple made here
  kBacked = 1 << 7,     // backward() has run on it: the graph's buffers are gone
  kData = 1 << 8,       // comes from a loader, or a loop's element
  kOptimizer = 1 << 9,
  kLoader = 1 << 10,
  kLeaf = 1 << 11,      // nn.Parameter, or requires_grad set: computing with it attaches
  kState = 1 << 12,     // a state dict or what torch.load returned
  kCuda = 1 << 13,
  kInstance = 1 << 14,  // an object of class `dep`
  kLossNamed = 1 << 15, // came from something called a loss
};

struct Value {
  uint16_t flags = 0;
  uint16_t params = 0;  // parameters of the current function that it is computed from, as bits
  uint32_t dep = 0;     // index into Flow::deps(); 0 none
  bool attached() const { return flags & (kGrad | kMaybe); }
};

// A call whose result the file alone cannot judge, or the class of an instance.
struct Dep {
  Atom name = kNoAtom;   // function, or class for an instance
  Atom cls = kNoAtom;    // class, when the call is a method of a known one
  uint8_t element = 255; // which element of the returned tuple; 255 the whole
  bool named_loss = false;
  bool given = false;  // some argument was attached
  NodeId call = 0;
};

struct FunctionFlow {
  std::vector<Value> returns;  // per element of the returned tuple; one when it is no tuple
  bool returns_tuple = false;
  bool done = false, active = false;
};

class Flow {
 public:
  explicit Flow(const Module& module);
  const Value& Of(NodeId id) const { return values_[id]; }
  const Dep& DepOf(const Value& value) const { return deps_[value.dep]; }
  const FunctionFlow& Function(int function) const { return functions_[function]; }
  // The function of this file that `call` enters, or -1.
  int ResolveCall(NodeId call) const;
  // Autograd is off here by a `with`, a decorator or set_grad_enabled in this file.
  bool NoGradAt(NodeId id) const;
  // The with-item or decorator expression switches autograd off (also through names bound in this file).
  bool SwitchesGradOff(NodeId expression) const;
  // The class of the object an expression denotes, by name; kNoAtom when unknown.
  Atom InstanceClass(NodeId id) const;

 private:
  friend class Executor;
  void FindNoGradNames();

  const Module& module_;
  std::vector<Value> values_;
  std::vector<Dep> deps_;
  std::vector<FunctionFlow> functions_;
  std::unordered_map<Atom, bool> nograd_names_;
  std::vector<std::pair<NodeId, int>> disabled_from_;  // set_grad_enabled(False) statements and their function
};

// Names as people choose them.
enum NameHint : uint8_t { kHintModel = 1, kHintLoss = 2, kHintLoader = 4, kHintOptimizer = 8, kHintMeter = 16, kHintFrozen = 32 };
uint8_t HintsOf(std::string_view name);
bool IsBuilderName(std::string_view name);  // create_model: makes or changes a thing, does not run it

}  // namespace lowtide::lint
