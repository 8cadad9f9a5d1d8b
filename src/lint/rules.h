#pragma once

#include "lint/context.h"
#include "lint/facts.h"
#include "lint/report.h"

// What every rule file includes. One function per rule, one line per rule in rules.cc's table.
namespace lowtide::lint {

using finding::Severity;

#define LOWTIDE_LINT_RULES(X)                                                        \
  X("LT101", "attached-tensor-accumulated", kOn, CheckAccumulated)                   \
  X("LT102", "attached-tensor-stored", kOn, CheckStored)                             \
  X("LT103", "meter-keeps-tensor", kOn, CheckMeter)                                  \
  X("LT104", "gradients-never-cleared", kOn, CheckZeroGrad)                          \
  X("LT105", "accumulated-loss-not-divided", kOn, CheckUndivided)                    \
  X("LT106", "evaluation-with-autograd", kOn, CheckEvaluation)                       \
  X("LT107", "needless-retain-graph", kOn, CheckRetainGraph)                         \
  X("LT108", "saved-tensor-unused-in-backward", kOn, CheckSavedForBackward)          \
  X("LT109", "hook-that-stores-or-stays", kOn, CheckHooks)                           \
  X("LT110", "ema-copy-with-graph", kOn, CheckEma)                                   \
  X("LT111", "empty-cache-in-step-loop", kOn, CheckEmptyCache)                       \
  X("LT112", "tensor-logged-every-step", kPreview, CheckLoggedTensor)                \
  X("LT113", "dataset-with-cuda-tensors", kOn, CheckDatasetCuda)                     \
  X("LT114", "dataset-with-python-list", kPreview, CheckDatasetList)                 \
  X("LT115", "persistent-workers-misused", kPreview, CheckPersistentWorkers)         \
  X("LT116", "shuffle-with-sampler", kOn, CheckShuffleSampler)                       \
  X("LT117", "sampler-without-set-epoch", kOn, CheckSetEpoch)                        \
  X("LT118", "ddp-wrap-order", kOn, CheckDdpOrder)                                   \
  X("LT119", "every-rank-writes", kPreview, CheckRankGuard)                          \
  X("LT120", "no-drop-last", kOff, CheckDropLast)                                    \
  X("LT121", "sync-every-step", kPreview, CheckSync)                                 \
  X("LT122", "no-gradient-clipping", kOff, CheckClipping)                            \
  X("LT123", "checkpoint-incomplete", kOn, CheckCheckpointKeys)                      \
  X("LT124", "state-dict-kept", kOn, CheckStateDictKept)                             \
  X("LT125", "backward-with-create-graph", kOn, CheckCreateGraph)                    \
  X("LT126", "exception-kept", kOn, CheckExceptionKept)                              \
  X("LT127", "whole-module-saved", kPreview, CheckWholeModule)                       \
  X("LT128", "param-group-added-in-loop", kOn, CheckParamGroups)                     \
  X("LT129", "cycle-over-loader", kOn, CheckCycle)                                   \
  X("LT130", "dataset-that-caches-items", kPreview, CheckDatasetCache)               \
  X("LT131", "trace-in-loop", kOn, CheckTraceInLoop)                                 \
  X("LT132", "figure-not-closed", kOn, CheckFigures)                                 \
  X("LT133", "evaluation-in-training-mode", kOn, CheckTrainMode)                     \
  X("LT134", "running-sum-differentiated", kOn, CheckRunningSum)                     \
  X("LT135", "metric-never-reset", kOn, CheckMetricReset)                            \
  X("LT136", "unused-parameters-under-ddp", kOn, CheckUnusedParameters)              \
  X("LT137", "nccl-without-own-device", kOn, CheckNcclDevice)                        \
  X("LT138", "hidden-state-with-graph", kOn, CheckHiddenState)

#define X(code, name, enabled, function) void function(const Scope& scope, Reporter& report);
LOWTIDE_LINT_RULES(X)
#undef X

// ---- shared by several rules

// Assignments to `path` inside `outer` that do not themselves read it: a fresh start.
// One in the other branch of an `if` around `at`, or under a test for None, only sets it up.
bool ResetInside(const Module& m, NodeId outer, Atom path, NodeId at = 0);
// The outermost loop around `id` through which what `path` names survives; 0 when each iteration starts it anew.
NodeId SurvivesLoop(const Module& m, NodeId id, Atom path);
// The loops through which it survives end before the optimizer steps: gradient accumulation within one step.
bool DiesWithStep(const Module& m, const Flow& flow, NodeId loop);
bool IsTestFile(std::string_view path);
// The function's own calls say that it is one training step: it differentiates, and is no loop itself.
bool IsStepFunction(const Module& m, const Flow& flow, int function);
// A hook that a framework calls with autograd off, or whose sums it differentiates: Lightning, Trainer and the like.
bool IsFrameworkHook(const Module& m, int function);
// `for batch in loader`, also through enumerate and progress bars.
bool IsDataLoop(const Module& m, const Flow& flow, NodeId loop);
// A count, a size, a number of hits: no loss, whatever it was returned with.
bool IsCountName(std::string_view name);
// A word of the name is one of `words`: `batch_iou` has the word `iou`.
bool HasWord(std::string_view name, std::initializer_list<std::string_view> words);
// An accuracy or the like: computed from comparisons or in NumPy, it has no graph.
bool IsMetricValue(const Module& m, NodeId expression);
std::string Quoted(const Module& m, NodeId node);  // `text`, cut when long
bool DerivesFromDataset(const Module& m, int cls);
// The text of the class that starts at byte `start`, up to the next statement of the file, with members that were not parsed.
std::string_view WholeClass(const Module& m, size_t start);

}  // namespace lowtide::lint
