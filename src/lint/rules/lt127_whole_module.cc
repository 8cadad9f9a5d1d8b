#include "lint/rules.h"

// LT127 (preview): torch.save of a module object pickles its class by name: it loads only beside the same source.
namespace lowtide::lint {

void CheckWholeModule(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  if (IsTestFile(m.path())) return;
  for (NodeId call : m.Calls(kA_save)) {
    NodeId saved = m.Argument(call, 0, kA_obj);
    if (!saved || !m.IsTorch(m.Callee(call))) continue;
    Kind kind = m.KindOf(saved);
    if (kind != Kind::kIdentifier && kind != Kind::kAttribute) continue;
    const Value& value = scope.flow.Of(saved);
    std::string_view name = m.Name(m.LastName(saved));
    if (!(value.flags & kModel) || value.flags & (kState | kContainer | kNumber) || HasHint(name, {"state", "dict", "ckpt", "checkpoint", "weight"})) continue;
    report.Add(call, Severity::kNote, {Quoted(m, saved) + " is pickled whole, with the names of its classes: it loads only beside the same source, and only with weights_only=False",
               Quoted(m, saved) + " 被整体序列化，连同类名：只能与相同的源代码一起、且以 weights_only=False 加载"},
               {"save " + std::string(m.Text(saved)) + ".state_dict()",
               "保存 " + std::string(m.Text(saved)) + ".state_dict()"});
  }
}

}  // namespace lowtide::lint
