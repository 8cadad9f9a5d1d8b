#include "lint/rules.h"

#include <string>

namespace lowtide::lint {

const Rule kRules[] = {
#define X(code, name, enabled, function) {code, name, Default::enabled, function},
    LOWTIDE_LINT_RULES(X)
#undef X
};
const int kRuleCount = static_cast<int>(std::size(kRules));

RuleSet RuleSet::Defaults(bool preview) {
  RuleSet set;
  for (int i = 0; i < kRuleCount; ++i) set.bits_[i] = kRules[i].enabled == Default::kOn || (preview && kRules[i].enabled == Default::kPreview);
  return set;
}

RuleSet RuleSet::All() {
  RuleSet set;
  for (int i = 0; i < kRuleCount; ++i) set.bits_[i] = true;
  return set;
}

bool RuleSet::Set(std::string_view selector, bool value) {
  bool any = false;
  for (int i = 0; i < kRuleCount; ++i) {
    bool match = selector == "ALL" || (!selector.empty() && std::string_view(kRules[i].code).substr(0, selector.size()) == selector);
    if (match) bits_[i] = value;
    any |= match;
  }
  return any;
}

bool RuleSet::Add(std::string_view selector) { return Set(selector, true); }
bool RuleSet::Remove(std::string_view selector) { return Set(selector, false); }

bool RuleSet::Has(std::string_view code) const {
  for (int i = 0; i < kRuleCount; ++i) {
    if (code == kRules[i].code) return bits_[i];
  }
  return false;
}

namespace {

// `x = first` in the other branch of an `if` around `at`, or under `if x is None`.
bool OnlySetsUp(const Module& m, NodeId assignment, NodeId at, Atom path) {
  if (!at) return false;
  for (NodeId statement = m.Ancestor(assignment, {Kind::kIf}); statement; statement = m.Ancestor(statement, {Kind::kIf})) {
    if (m.Inside(at, statement)) {
      NodeId mine = assignment, theirs = at;
      while (m[mine].parent != statement) mine = m[mine].parent;
      while (m[theirs].parent != statement) theirs = m[theirs].parent;
      return mine != theirs;
    }
    NodeId test = m.Child(statement, Field::k_condition);
    std::string_view text = test ? m.Text(test) : std::string_view();
    if (test && m.HasPath(test, path) && (text.find("None") != text.npos || text.find("not ") != text.npos || text.find("== 0") != text.npos)) return true;
  }
  return false;
}

}  // namespace

bool ResetInside(const Module& m, NodeId outer, Atom path, NodeId at) {
  NodeId body = m.Child(outer, Field::k_body);
  if (!body) body = outer;
  for (NodeId id = body; id < m[body].last; ++id) {
    switch (m.KindOf(id)) {
      case Kind::kAssignment: {
        NodeId left = m.Child(id, Field::k_left), right = m.Child(id, Field::k_right);
        if (!left || !right || m.HasPath(right, path) || OnlySetsUp(m, id, at, path)) break;
        if (m.Path(left) == path) return true;
        if (m.KindOf(left) == Kind::kPatternList || m.KindOf(left) == Kind::kTuplePattern) {
          for (NodeId part = m.First(left); part; part = m.Next(part)) {
            if (m.Path(part) == path) return true;
          }
        }
        break;
      }
      case Kind::kFor: {
        NodeId left = m.Child(id, Field::k_left);
        if (left && m.HasPath(left, path)) return true;
        break;
      }
      case Kind::kDelete:
        if (m.HasPath(id, path)) return true;
        break;
      case Kind::kCall: {
        Atom name = m.CalleeName(id);
        bool empties = name == kA_clear || name == kA_pop || name == kA_popleft || name == kA_reset || name == kA_zero_;
        if (empties && m.Path(m.Receiver(id)) == path) return true;
        break;
      }
      default: break;
    }
  }
  return false;
}

NodeId SurvivesLoop(const Module& m, NodeId id, Atom path) {
  NodeId survives = 0;
  for (NodeId loop = m.EnclosingLoop(id); loop; loop = m.EnclosingLoop(loop)) {
    if (ResetInside(m, loop, path, id)) break;
    NodeId left = m.KindOf(loop) == Kind::kFor ? m.Child(loop, Field::k_left) : 0;
    if (left && m.HasPath(left, path)) break;
    survives = loop;
  }
  return survives;
}

bool HasWord(std::string_view name, std::initializer_list<std::string_view> words) {
  for (size_t at = 0; at <= name.size();) {
    size_t end = std::min(name.find('_', at), name.size());
    for (std::string_view word : words) {
      if (name.substr(at, end - at).size() == word.size() && HasHint(name.substr(at, end - at), {word})) return true;
    }
    at = end + 1;
  }
  return false;
}

bool DiesWithStep(const Module& m, const Flow& flow, NodeId loop) {
  if (CallsStep(m, flow, m.Child(loop, Field::k_body))) return false;
  // train_step(batches): what it adds up over the parts of one step goes with its frame.
  if (int function = m.FunctionOf(loop); function > 0 && HasWord(m.Name(m.functions()[function].name), {"step"})) return true;
  // for _ in range(accumulation_steps): ...; optimizer.step() in a function that takes one step
  NodeId items = m.KindOf(loop) == Kind::kFor ? m.Child(loop, Field::k_right) : 0;
  if (int function = m.FunctionOf(loop); items && function > 0 && HasHint(m.Text(items), {"accum", "micro", "grad_acc"})) {
    for (NodeId after = m.Next(loop); after; after = m.Next(after)) {
      if (CallsStep(m, flow, after)) return true;
    }
  }
  for (NodeId up = m.EnclosingLoop(loop); up; up = m.EnclosingLoop(up)) {
    if (CallsStep(m, flow, m.Child(up, Field::k_body))) return true;
  }
  return false;
}

bool IsTestFile(std::string_view path) {
  size_t slash = path.rfind('/');
  std::string_view name = slash == std::string_view::npos ? path : path.substr(slash + 1);
  return name.starts_with("test_") || name.ends_with("_test.py") || name == "conftest.py" || path.find("/tests/") != std::string_view::npos ||
         path.starts_with("tests/") || path.find("/testing/") != std::string_view::npos || path.find("/unittests/") != std::string_view::npos;
}

bool IsStepFunction(const Module& m, const Flow& flow, int function) {
  if (function <= 0) return false;
  const FunctionInfo& info = m.functions()[function];
  std::string_view name = m.Name(info.name);
  if (name == "training_step" && info.owner >= 0) return true;
  return CallsBackward(m, flow, info.body, 2);
}

bool IsFrameworkHook(const Module& m, int f) {
  if (f <= 0) return false;
  const FunctionInfo& function = m.functions()[f];
  for (Atom parameter : function.parameters) {
    if (parameter == kA_batch_idx || parameter == kA_dataloader_idx) return true;
  }
  int cls = m.ClassOf(function.body ? function.body : function.node);
  if (cls < 0) return false;
  if (m.IsLightning(cls)) return true;
  std::string_view name = m.Name(function.name);
  const ClassInfo& info = m.classes()[cls];
  bool own = info.bases.empty() || (info.bases.size() == 1 && info.bases[0] == kA_object);
  bool hook = name.ends_with("_step") || name.find("_epoch_") != name.npos || name.find("_batch_") != name.npos || name.starts_with("on_");
  if (m.IsNnModule(cls) && (hook || name == "forward")) return true;
  if (own || m.IsNnModule(cls)) return false;
  if (hook) return true;
  bool whole = name == "evaluate" || name == "predict" || name == "prediction_loop" || name == "evaluation_loop" || name == "validate" || name == "test";
  return whole && HasHint(m.Name(info.bases[0]), {"trainer", "module", "model", "callback", "task", "lit", "system"});
}

bool IsDataLoop(const Module& m, const Flow& flow, NodeId loop) {
  if (!loop || m.KindOf(loop) != Kind::kFor) return false;
  NodeId items = m.Child(loop, Field::k_right);
  if (!items) return false;
  if (flow.Of(items).flags & kLoader) return true;
  for (NodeId id = items; id < m[items].last; ++id) {
    if (m.KindOf(id) != Kind::kIdentifier) continue;
    if (HintsOf(m.Name(m[id].atom)) & kHintLoader || HasHint(m.Name(m[id].atom), {"loader", "batch", "dataset", "_dl", "data"})) return true;
  }
  return false;
}

bool IsCountName(std::string_view name) {
  return HasHint(name, {"num_", "count", "size", "tokens", "correct", "n_", "total_words", "length", "_len", "hits", "steps", "grad_norm", "gnorm"}) || name == "n" || name.ends_with("_n");
}

bool IsMetricValue(const Module& m, NodeId expression) {
  while (expression && (m.KindOf(expression) == Kind::kCall || m.KindOf(expression) == Kind::kSubscript)) {
    expression = m.KindOf(expression) == Kind::kCall ? m.Receiver(expression) : m.Child(expression, Field::k_value);
  }
  if (!expression) return false;
  return HasWord(m.Name(m.LastName(expression)), {"iou", "miou", "acc", "acc1", "acc5", "accuracy", "f1", "auc", "precision", "recall", "correct",
                                                  "bleu", "wer", "cer", "top1", "top5", "prec1", "prec5"});
}

std::string Quoted(const Module& m, NodeId node) {
  std::string text(m.Text(node));
  std::string clean;
  for (char c : text) {
    if (c == '\n' || c == '\r' || c == '\t') c = ' ';
    if (c == ' ' && !clean.empty() && clean.back() == ' ') continue;
    clean += c;
  }
  if (clean.size() > 60) clean = clean.substr(0, 57) + "...";
  return "`" + clean + "`";
}

bool DerivesFromDataset(const Module& m, int cls) {
  if (cls < 0) return false;
  if (m.DerivesFrom(cls, {kA_Dataset, kA_IterableDataset, kA_VisionDataset, kA_TensorDataset})) return true;
  for (Atom base : m.classes()[cls].bases) {
    if (m.Name(base).ends_with("Dataset")) return true;
  }
  return false;
}

std::string_view WholeClass(const Module& m, size_t start) {
  std::string_view text = m.text().substr(start);
  for (size_t at = text.find('\n'); at != text.npos; at = text.find('\n', at + 1)) {
    char c = at + 1 < text.size() ? text[at + 1] : ' ';
    if (c != ' ' && c != '\t' && c != '\n' && c != '\r' && c != '#' && c != ')') return text.substr(0, at);
  }
  return text;
}

}  // namespace lowtide::lint
