#include "lint/rules.h"

// LT133: a model that is evaluated in training mode: nothing calls eval().
namespace lowtide::lint {
namespace {

bool Mentions(std::string_view text, std::initializer_list<std::string_view> signs) {
  for (std::string_view sign : signs) {
    if (text.find(sign) != text.npos) return true;
  }
  return false;
}

// Other ways to choose the mode: train(False), a framework that does it, a functional call with its own flag.
bool ModeIsSetOtherwise(const Module& m) {
  for (NodeId call : m.Calls(kA_train)) {
    if (m.Receiver(call) && m.Argument(call, 0)) return true;
    NodeId list = m.Child(call, Field::k_arguments);
    if (m.Receiver(call) && list && m.First(list)) return true;
  }
  for (const auto& [bound, target] : m.imports()) {
    if (HasHint(target, {"lightning", "ignite", "fastai", "catalyst", "transformers", "accelerate", "deepspeed", "mmcv", "mmengine", "skorch", "jax", "haiku"})) return true;
  }
  return Mentions(m.text(), {".eval(", ".eval)", "eval_mode", "\"eval\"", "'eval'", "training = False", "training=False", "train_mode", "set_mode", "jit.load", "onnxruntime"});
}

// The mode matters: the file builds layers that look at it, or switches the model to training mode.
bool ModeMatters(const Module& m, const Flow& flow) {
  if (Mentions(m.text(), {"nn.Dropout", "nn.BatchNorm", "F.dropout", "torchvision.models", "models.resnet", "models.vgg", "models.densenet"})) return true;
  for (NodeId call : m.Calls(kA_train)) {
    if (m.Receiver(call) && flow.Of(m.Receiver(call)).flags & kModel) return true;
  }
  return false;
}

// The model's call within a loop over data.
NodeId EvaluatedCall(const Module& m, const Flow& flow, int function) {
  const FunctionInfo& info = m.functions()[function];
  for (NodeId call : m.Nodes(Kind::kCall)) {
    if (!m.Inside(call, info.body) || m.FunctionOf(call) != function || !m.Argument(call, 0)) continue;
    NodeId callee = m.Callee(call);
    Kind kind = m.KindOf(callee);
    if (kind != Kind::kIdentifier && kind != Kind::kAttribute) continue;
    if (!(flow.Of(callee).flags & kModel) || flow.Of(callee).flags & kLossFn || m.IsTorch(callee)) continue;
    if (m.LastName(callee) == kA_self || IsBuilderName(m.Name(m.LastName(callee)))) continue;
    if (IsDataLoop(m, flow, m.EnclosingLoop(call))) return call;
  }
  return 0;
}

}  // namespace

void CheckTrainMode(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  const Flow& flow = scope.flow;
  if (m.Has(kA_eval) || !m.Has(kA_backward) || IsTestFile(m.path())) return;
  bool asked = false;
  for (size_t f = 1; f < m.functions().size(); ++f) {
    const FunctionInfo& info = m.functions()[f];
    std::string_view name = m.Name(info.name);
    if (!info.body || !LooksLikeEvaluation(name) || name.starts_with("test_")) continue;
    if (HasHint(name, {"dropout", "uncertain", "monte", "mc_", "adapt", "fewshot", "few_shot"}) || IsFrameworkHook(m, static_cast<int>(f))) continue;
    if (m.FindCall(info.body, {kA_train}) || CallsBackward(m, flow, info.body) || CallsStep(m, flow, info.body)) continue;
    NodeId forward = EvaluatedCall(m, flow, static_cast<int>(f));
    if (!forward) continue;
    if (!asked && (ModeIsSetOtherwise(m) || !ModeMatters(m, flow))) return;
    asked = true;
    std::string model(m.Text(m.Callee(forward))), where(name);
    report
        .Add(forward, Severity::kWarning,
             {"`" + where + "` runs `" + model + "` in training mode: nothing calls eval(), so dropout stays on and batch norm learns from the evaluation data",
              "`" + where + "` 在训练模式下运行 `" + model + "`：没有任何地方调用 eval()，dropout 仍然开启，批归一化还会从评估数据中更新统计量"},
             {"call " + model + ".eval() before the loop and " + model + ".train() when training goes on",
              "在循环之前调用 " + model + ".eval()，继续训练时再调用 " + model + ".train()"})
        .Needs({Ask::kNoProjectCall, false, 255, 0, HashName("eval"), 0});
  }
}

}  // namespace lowtide::lint
