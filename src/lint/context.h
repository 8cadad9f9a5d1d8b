#pragma once

#include "lint/flow.h"
#include "lint/module.h"

// Questions about where in the program an expression stands.
namespace lowtide::lint {

bool InExcept(const Module& m, NodeId id);
// A test around says that the expression is a number or text: `if isinstance(x, float)`, or the other branch of
// `if isinstance(x, torch.Tensor)`.
bool PlainByTest(const Module& m, NodeId expression);
// An `if` between `id` and `loop` (or the function) that lets only some iterations through: a modulo, a comparison of a
// counter, a name like log_interval.
bool Periodic(const Module& m, NodeId id, NodeId loop);
bool IsPeriodicTest(const Module& m, NodeId test);
// Only one rank gets here: an `if` around, an early return before, a decorator.
bool RankGuarded(const Module& m, NodeId id);
bool IsRankTest(const Module& m, NodeId test);
bool IsRankName(std::string_view name);
// The `if` whose consequence (not else) holds `id`, innermost first.
NodeId GuardAround(const Module& m, NodeId id, NodeId stop);

// A loop whose body takes training steps: backward or an optimizer's step() in it, directly or through a function of
// this file.
bool IsTrainingLoop(const Module& m, const Flow& flow, NodeId loop);
// The innermost enclosing loop that is one.
NodeId TrainingLoop(const Module& m, const Flow& flow, NodeId id);
bool CallsBackward(const Module& m, const Flow& flow, NodeId outer, int depth = 0);
bool CallsStep(const Module& m, const Flow& flow, NodeId outer, int depth = 0);
bool CallsAny(const Module& m, const Flow& flow, NodeId outer, std::initializer_list<Atom> names, int depth = 0);
// `for epoch in ...`: an iteration is a pass over the data.
bool IsEpochLoop(const Module& m, NodeId loop);
// The call is backward() of a tensor: not a definition, not Function.backward.
bool IsBackwardCall(const Module& m, NodeId call);
// The expression that is differentiated: `loss` of loss.backward(), scaler.scale(loss).backward(), accelerator.backward(loss).
NodeId BackwardTarget(const Module& m, NodeId call);
bool IsOptimizerStep(const Module& m, NodeId call);
// Access paths that flow into some backward() of the function, through assignments and appends.
std::vector<Atom> PathsIntoBackward(const Module& m, const Flow& flow, int function);
// The function's name or its calls of eval() say that it evaluates.
bool LooksLikeEvaluation(std::string_view name);
bool LooksLikeTraining(std::string_view name);

}  // namespace lowtide::lint
