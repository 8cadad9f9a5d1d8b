#pragma once

#include <unordered_map>
#include <vector>

#include "lint/flow.h"

namespace lowtide::lint {

// Runs functions abstractly and fills Flow's values. Lives only while Flow is being made.
class Executor {
 public:
  explicit Executor(Flow& flow);
  void Run();

 private:
  struct Change {
    Atom path;
    Value before;
  };

  // Environment: a value per access path, undone by a journal.
  Value Get(Atom path) const;
  bool Known(Atom path) const;
  void Set(Atom path, const Value& value);
  void Undo(size_t mark);
  size_t Mark() const { return journal_.size(); }
  std::vector<Change> Take(size_t mark);           // values set since, undone
  void Join(const std::vector<Change>& a, const std::vector<Change>& b);
  size_t SlotOf(Atom path);

  void RunFunction(int function);
  void RunBody(int function);
  void KeepAttributes(int cls);

  void Exec(NodeId statement);
  void ExecBlock(NodeId block);
  void ExecIf(NodeId statement);
  void ExecLoop(NodeId statement);
  void ExecTry(NodeId statement);
  void ExecWith(NodeId statement);
  void ExecReturn(NodeId statement);
  void Assign(NodeId target, const Value& value, NodeId right);
  Value Element(NodeId right, int index, const Value& whole);

  Value Eval(NodeId id);
  Value EvalUncached(NodeId id);
  Value EvalName(NodeId id);
  Value EvalAttribute(NodeId id, Value base);  // `base`: its object's, evaluated once, or chains would take twice as long per link
  Value EvalSubscript(NodeId id);
  Value EvalCall(NodeId id);
  Value EvalBuiltin(NodeId call, Atom name, const Value& arguments, bool& known);
  Value EvalMethod(NodeId call, Atom name, const Value& object, const Value& arguments, bool& known);
  Value EvalTorch(NodeId call, Atom name, const Value& arguments);
  Value EvalKnownFunction(NodeId call, int function);
  Value Apply(NodeId call, int function, const Value& returned);
  Value EvalUnknown(NodeId call, Atom name, const Value& object, const Value& arguments);
  Value EvalComprehension(NodeId id);
  Value EvalChildren(NodeId id);
  Value Constructor(NodeId call, Atom name);
  Value Computed(Value value) const;  // the result of a differentiable operation on `value`
  Atom TypeTested(NodeId test) const;
  void MarkBacked(NodeId id);
  void SetParts(Atom path, const Value& value);
  void CleanedByLoop(NodeId loop);
  uint8_t Hints(Atom name);
  uint32_t AddDep(Atom name, Atom cls, NodeId call, bool named_loss);

  Flow& flow_;
  const Module& m_;
  std::vector<Value> env_;
  std::vector<bool> known_;
  std::unordered_map<Atom, size_t> path_slots_;
  std::vector<Change> journal_;
  std::unordered_map<Atom, std::vector<Atom>> parts_;  // `d["loss"]` and the like, by `d`
  std::vector<uint8_t> hints_;
  std::vector<std::vector<std::pair<Atom, Value>>> attributes_;  // per class, what `self.x` is
  std::vector<bool> frozen_;                                     // by slot
  size_t module_mark_ = 0;  // length of the journal after the module's own code
  int function_ = 0;
  int depth_ = 0;
  int no_grad_ = 0;
  bool first_pass_ = false;
};

}  // namespace lowtide::lint
