#include <algorithm>
#include <vector>

#include "lint/rules.h"

// LT108: what an autograd Function saves and its backward never reads; outputs or inputs kept on ctx itself.
namespace lowtide::lint {
namespace {

struct Use {
  bool all = false;  // saved_tensors is handed on as a whole
  bool any = false;
  std::vector<bool> used;
};

bool ReadElsewhere(const Module& m, NodeId body, Atom name, NodeId except) {
  for (NodeId id = body; id < m[body].last; ++id) {
    if (m.KindOf(id) == Kind::kIdentifier && m[id].atom == name && !m.Inside(id, except)) {
      // not an attribute's or keyword's name
      if (m[id].field == Field::k_attribute) continue;
      NodeId up = m[id].parent;
      if (m.KindOf(up) == Kind::kKeywordArgument && m[id].field == Field::k_name) continue;
      if (m.KindOf(up) == Kind::kAssignment && m[id].field == Field::k_left) continue;
      return true;
    }
  }
  return false;
}

// How backward reads ctx.saved_tensors.
Use HowUsed(const Module& m, NodeId body, size_t saved) {
  Use use;
  use.used.assign(saved, false);
  for (NodeId id = body; id < m[body].last; ++id) {
    if (m.KindOf(id) != Kind::kAttribute || (m.LastName(id) != kA_saved_tensors && m.LastName(id) != kA_saved_variables)) continue;
    use.any = true;
    NodeId up = m[id].parent;
    if (m.KindOf(up) == Kind::kSubscript && m[id].field == Field::k_value) {
      NodeId index = m.Child(up, Field::k_subscript);
      std::string_view text = index ? m.Text(index) : std::string_view();
      if (index && m.KindOf(index) == Kind::kInteger && text.size() == 1 && static_cast<size_t>(text[0] - '0') < saved) use.used[text[0] - '0'] = true;
      else use.all = true;
      continue;
    }
    NodeId left = m.KindOf(up) == Kind::kAssignment ? m.Child(up, Field::k_left) : 0;
    if (!left || m.Child(up, Field::k_right) != id) {
      use.all = true;
      continue;
    }
    Kind kind = m.KindOf(left);
    if (kind != Kind::kPatternList && kind != Kind::kTuplePattern && kind != Kind::kListPattern) {
      use.all = true;  // saved = ctx.saved_tensors
      continue;
    }
    std::vector<NodeId> names = m.Children(left);
    if (names.size() != saved || std::any_of(names.begin(), names.end(), [&](NodeId n) { return m.KindOf(n) != Kind::kIdentifier; })) {
      use.all = true;
      continue;
    }
    for (size_t i = 0; i < names.size(); ++i) {
      if (ReadElsewhere(m, body, m[names[i]].atom, up)) use.used[i] = true;
    }
  }
  return use;
}

bool Returns(const Module& m, int function, Atom name) {
  for (NodeId ret : m.Nodes(Kind::kReturn)) {
    NodeId value = m.First(ret);
    if (m.FunctionOf(ret) != function || !value) continue;
    if (m.KindOf(value) == Kind::kIdentifier && m[value].atom == name) return true;
    if (m.KindOf(value) != Kind::kExpressionList && m.KindOf(value) != Kind::kTuple) continue;
    for (NodeId part : m.Children(value)) {
      if (m.KindOf(part) == Kind::kIdentifier && m[part].atom == name) return true;
    }
  }
  return false;
}

// A view of the output: save_for_backward breaks the cycle for the output itself, not for its views.
void CheckView(const Module& m, Reporter& report, const ClassInfo& cls, int function, NodeId argument) {
  NodeId base = 0;
  if (m.KindOf(argument) == Kind::kCall) {
    Atom name = m.CalleeName(argument);
    bool view = name == kA_view || name == kA_reshape || name == kA_flatten || name == kA_t || name == kA_transpose || name == kA_permute ||
                name == kA_squeeze || name == kA_unsqueeze || name == kA_view_as || name == kA_expand;
    if (view) base = m.Receiver(argument);
  } else if (m.KindOf(argument) == Kind::kSubscript) {
    base = m.Child(argument, Field::k_value);
  }
  if (!base || m.KindOf(base) != Kind::kIdentifier) return;
  const FunctionInfo& info = m.functions()[function];
  bool input = std::find(info.parameters.begin(), info.parameters.end(), m[base].atom) != info.parameters.end();
  if (input || !Returns(m, function, m[base].atom)) return;
  report.Add(argument, Severity::kWarning,
             {"`" + std::string(m.Name(cls.name)) + "` saves a view of its output `" + std::string(m.Text(base)) +
                 "`: the view is no output, so output and graph refer to each other and stay",
               "`" + std::string(m.Name(cls.name)) + "` 保存了输出 `" + std::string(m.Text(base)) + "` 的视图：视图不是输出，输出与计算图互相引用而无法释放"},
             {"save the output itself and take the view in backward",
               "保存输出本身，在 backward 中再取视图"});
}

void CheckClass(const Scope& scope, Reporter& report, const ClassInfo& cls) {
  const Module& m = scope.module;
  auto forward = cls.methods.find(kA_forward), backward = cls.methods.find(kA_backward);
  auto setup = cls.methods.find(kA_setup_context);
  if (forward == cls.methods.end() || backward == cls.methods.end()) return;
  NodeId back = m.functions()[backward->second].body;
  if (!back) return;
  bool read_by_others = cls.methods.count(kA_jvp) || cls.methods.count(kA_vmap);
  for (NodeId call : m.Calls(kA_save_for_backward)) {
    int in = m.FunctionOf(call);
    if (in != forward->second && (setup == cls.methods.end() || in != setup->second)) continue;
    std::vector<NodeId> saved;
    bool starred = false;
    for (NodeId argument : m.Children(m.Child(call, Field::k_arguments))) {
      starred |= m.KindOf(argument) == Kind::kListSplat || m.KindOf(argument) == Kind::kDictSplat;
      saved.push_back(argument);
    }
    if (starred || saved.empty() || read_by_others) continue;
    // Several calls of save_for_backward: which one counts depends on the branch.
    size_t calls = 0;
    for (NodeId other : m.Calls(kA_save_for_backward)) calls += m.FunctionOf(other) == in;
    for (NodeId argument : saved) CheckView(m, report, cls, in, argument);
    Use use = HowUsed(m, back, saved.size());
    if (use.all || (calls > 1 && use.any)) continue;
    bool raises = false;  // a backward that only refuses
    for (NodeId id = back; id < m[back].last; ++id) raises |= m.KindOf(id) == Kind::kRaise;
    std::string unused;
    int count = 0;
    for (size_t i = 0; i < saved.size(); ++i) {
      if (use.used[i] || m.KindOf(saved[i]) == Kind::kNone) continue;
      unused += (count++ ? ", " : "") + std::string("`") + std::string(m.Text(saved[i])) + "`";
    }
    if (!count || (raises && !use.any)) continue;
    report.Add(call, Severity::kWarning,
               {"`" + std::string(m.Name(cls.name)) + "` saves " + unused + " for backward, which never reads " + (count > 1 ? "them" : "it") +
                   ": held from forward to backward for nothing",
               "`" + std::string(m.Name(cls.name)) + "` 为反向保存了 " + unused + "，而 backward 从未读取：从前向到反向白白占用内存"},
               {"save only what backward uses",
               "只保存 backward 用到的张量"});
  }
  // An input or output as an attribute of ctx is not freed with the graph: a reference cycle when it is an output.
  const FunctionInfo& info = m.functions()[forward->second];
  for (NodeId id : m.Nodes(Kind::kAssignment)) {
    if (m.FunctionOf(id) != forward->second) continue;
    NodeId left = m.Child(id, Field::k_left), right = m.Child(id, Field::k_right);
    if (!left || !right || m.KindOf(left) != Kind::kAttribute || m.KindOf(right) != Kind::kIdentifier) continue;
    if (info.parameters.empty() || m.RootName(left) != info.parameters[0]) continue;
    Atom name = m[right].atom;
    bool output = false;
    for (NodeId ret : m.Nodes(Kind::kReturn)) {
      if (m.FunctionOf(ret) != forward->second || !m.First(ret)) continue;
      NodeId value = m.First(ret);
      if (m.KindOf(value) == Kind::kIdentifier) output |= m[value].atom == name;
      if (m.KindOf(value) == Kind::kExpressionList || m.KindOf(value) == Kind::kTuple) {
        for (NodeId part : m.Children(value)) output |= m.KindOf(part) == Kind::kIdentifier && m[part].atom == name;
      }
    }
    const Value& value = scope.flow.Of(right);
    if (!output || !(value.flags & (kTensor | kGrad))) continue;
    report.Add(id, Severity::kWarning,
               {"`" + std::string(m.Name(cls.name)) + "` keeps its output `" + std::string(m.Name(name)) +
                   "` as an attribute of ctx: output and graph refer to each other, and only the garbage collector frees them",
               "`" + std::string(m.Name(cls.name)) + "` 把输出 `" + std::string(m.Name(name)) + "` 存为 ctx 的属性：输出与计算图互相引用，只有垃圾回收才能释放"},
               {"pass it through ctx.save_for_backward(), which breaks the cycle and checks in-place changes",
               "改用 ctx.save_for_backward()：它会断开循环引用，并检查原地修改"});
  }
}

}  // namespace

void CheckSavedForBackward(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  if (!m.Has(kA_backward) || !m.Has(kA_forward)) return;
  for (const ClassInfo& cls : m.classes()) {
    bool function = std::any_of(cls.bases.begin(), cls.bases.end(), [&](Atom base) { return base == kA_Function || m.Name(base).ends_with("Function"); });
    if (function) CheckClass(scope, report, cls);
  }
}

}  // namespace lowtide::lint
