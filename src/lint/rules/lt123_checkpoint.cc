#include <string>
#include <vector>

#include "lint/rules.h"

// LT123: a checkpoint that says at which epoch to go on, without the optimizer's state.
namespace lowtide::lint {
namespace {

struct Keys {
  bool known = false, epoch = false, model = false, optimizer = false, whole_module = false;
};

// What stands under "model": not a path to it, or its name.
bool MayBeWeights(const Module& m, const Flow& flow, NodeId value) {
  if (!value || flow.Of(value).flags & (kModel | kState)) return true;
  std::string_view text = m.Text(value);
  return HasHint(text, {"state_dict", "weights", "param", "model", "net"}) && !HasHint(text, {"name", "path", "file", "config", "arch", "args"});
}

// `start_epoch = checkpoint["epoch"] + 1`: this file goes on from a checkpoint, it does not only read the weights. Told by
// the text, for that line may stand in a function that is not parsed.
bool Resumes(const Module& m) {
  std::string_view text = m.text();
  for (size_t start = 0; start < text.size();) {
    size_t end = std::min(text.find('\n', start), text.size()), equals = text.substr(start, end - start).find('=');
    std::string_view line = text.substr(start, end - start);
    start = end + 1;
    if (equals == line.npos || line.substr(0, equals).find('[') != line.npos || line.substr(0, equals).find('(') != line.npos) continue;
    std::string_view left = line.substr(0, equals), right = line.substr(equals + 1);
    size_t key = right.find("[\"") != right.npos ? right.find("[\"") : right.find("['");
    if (key == right.npos) key = right.find(".get(");
    if (key == right.npos || !HasHint(left, {"epoch", "step", "iter", "start", "begin", "resume"})) continue;
    // What is read comes from a checkpoint, not from settings.
    bool loaded = HasHint(right.substr(0, key), {"ckpt", "check", "state", "resume", "saved", "snapshot", "load", "pth", "dict"});
    if (loaded && HasHint(right.substr(key, 24), {"epoch", "step", "iter"})) return true;
  }
  return false;
}

Keys KeysOf(const Module& m, const Flow& flow, NodeId dict) {
  Keys keys;
  auto see = [&](std::string_view key, NodeId value) {
    if (HasWord(key, {"epoch", "epochs", "step", "steps", "iter", "iters", "iteration", "iterations"})) keys.epoch = true;
    if (HasHint(key, {"model", "state_dict", "net", "weights", "params", "generator", "encoder"}) && !HasHint(key, {"optim"}) && MayBeWeights(m, flow, value)) keys.model = true;
    if (HasHint(key, {"optim", "opt", "trainer", "solver"})) keys.optimizer = true;
    if (value && HasHint(m.Text(value), {"optim", "trainer", "accelerator"})) keys.optimizer = true;
    if (value && flow.Of(value).flags & kModel) keys.whole_module = true;
    if (value && m.KindOf(value) == Kind::kIdentifier && HasHint(m.Text(value), {"model", "net"}) && !HasHint(m.Text(value), {"state", "weight", "dict", "name", "path"})) {
      keys.whole_module = true;
    }
  };
  if (m.KindOf(dict) == Kind::kDict) {
    keys.known = true;
    for (NodeId pair : m.Children(dict)) {
      if (m.KindOf(pair) != Kind::kPair) return {};  // ** brings keys of its own
      NodeId key = m.Child(pair, Field::k_key), value = m.Child(pair, Field::k_value);
      if (!key || m.KindOf(key) != Kind::kString) return {};
      see(Unquote(m.Text(key)), value);
    }
  } else if (m.KindOf(dict) == Kind::kCall && m.CalleeName(dict) == kA_dict) {
    keys.known = true;
    for (NodeId argument : m.Children(m.Child(dict, Field::k_arguments))) {
      if (m.KindOf(argument) != Kind::kKeywordArgument) return {};
      see(m.Text(m.Child(argument, Field::k_name)), m.Child(argument, Field::k_value));
    }
  }
  return keys;
}

}  // namespace

void CheckCheckpointKeys(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  if (IsTestFile(m.path())) return;
  for (NodeId call : m.Calls(kA_save)) {
    if (!m.IsTorch(m.Callee(call))) continue;
    NodeId saved = m.Argument(call, 0, kA_obj);
    if (!saved) continue;
    int function = m.FunctionOf(call);
    NodeId dict = saved, assigned = 0;
    if (m.KindOf(saved) == Kind::kIdentifier) {
      for (NodeId id : m.Nodes(Kind::kAssignment)) {
        NodeId left = m.Child(id, Field::k_left), right = m.Child(id, Field::k_right);
        if (id < call && right && m.FunctionOf(id) == function && m.Path(left) == m[saved].atom) dict = right, assigned = id;
      }
    }
    Keys keys = KeysOf(m, scope.flow, dict);
    if (!keys.known || !keys.epoch || !keys.model || keys.optimizer) continue;
    if (assigned) {  // keys added afterwards
      bool more = false;
      for (NodeId id : m.Nodes(Kind::kAssignment)) {
        NodeId left = m.Child(id, Field::k_left);
        more |= id > assigned && id < call && left && m.KindOf(left) == Kind::kSubscript && m.Path(m.Child(left, Field::k_value)) == m[saved].atom;
      }
      for (NodeId other : m.Calls(kA_update)) more |= other > assigned && other < call && m.Path(m.Receiver(other)) == m[saved].atom;
      if (more) continue;
    }
    if (!keys.whole_module && !Resumes(m)) continue;
    // Something trains here: an optimizer whose state would be lost.
    if (!m.Has(kA_optimizer) && !m.Has(kA_optim)) continue;
    // Saved apart, into a file of its own.
    bool apart = false;
    for (NodeId other : m.Calls(kA_save)) apart |= other != call && HasHint(m.Text(m.Child(other, Field::k_arguments)), {"optim"});
    if (apart) continue;
    report.Add(call, Severity::kWarning,
               {std::string("this checkpoint says where training stood, but leaves out the optimizer's state") +
                   (keys.whole_module ? ", and pickles the module itself, which ties it to the source tree" : "") + ": resuming from it is not the same run",
               std::string("这个检查点记录了训练进度，却没有优化器状态") + (keys.whole_module ? "，还序列化了模块本身，因而依赖源代码" : "") + "：由它恢复的不是同一次训练"},
               {"save model.state_dict(), optimizer.state_dict(), the scheduler's and every RNG's state, and a version number",
               "保存 model.state_dict()、optimizer.state_dict()、调度器与各随机数生成器的状态，以及版本号"});
  }
}

}  // namespace lowtide::lint
