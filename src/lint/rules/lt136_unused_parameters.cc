#include "lint/rules.h"

// LT136: a layer that forward() cannot reach, in a model under DistributedDataParallel.
namespace lowtide::lint {
namespace {

// How often `word` stands in `text` as a word of its own.
int Occurrences(std::string_view text, std::string_view word) {
  auto part = [](char c) { return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c & 0x80); };
  int count = 0;
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + word.size())) {
    size_t end = at + word.size();
    if ((at == 0 || !part(text[at - 1])) && (end == text.size() || !part(text[end]))) ++count;
  }
  return count;
}

bool HasParameters(const std::string& layer) {
  std::string_view name = layer;
  if (!name.starts_with("torch.nn.")) return false;
  name = name.substr(name.rfind('.') + 1);
  for (std::string_view kind : {"Linear", "Bilinear", "Embedding", "EmbeddingBag", "LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell", "MultiheadAttention",
                                "TransformerEncoderLayer", "TransformerDecoderLayer"}) {
    if (name == kind) return true;
  }
  return name.starts_with("Conv");
}

bool DerivedInFile(const Module& m, Atom cls) {
  for (const ClassInfo& other : m.classes()) {
    for (Atom base : other.bases) {
      if (base == cls) return true;
    }
  }
  return false;
}

// `self.name = nn.Linear(...)` in the constructor's own block, and `name` nowhere else in the file.
NodeId UnreachedLayer(const Module& m, const ClassInfo& cls) {
  auto init = cls.methods.find(kA___init__);
  if (init == cls.methods.end() || cls.bases.size() != 1 || cls.bases[0] != kA_Module || DerivedInFile(m, cls.name)) return 0;
  std::string_view body = WholeClass(m, m[cls.node].start);
  if (body.find("def forward(") == body.npos) return 0;
  for (std::string_view sign : {"children", "_modules", "getattr", "__dict__", "vars(", "modules(", "jit"}) {
    if (body.find(sign) != body.npos) return 0;
  }
  NodeId block = m.functions()[init->second].body;
  for (NodeId statement = m.First(block); statement; statement = m.Next(statement)) {
    NodeId assignment = m.KindOf(statement) == Kind::kExpressionStatement ? m.First(statement) : 0;
    if (!assignment || m.KindOf(assignment) != Kind::kAssignment) continue;
    NodeId left = m.Child(assignment, Field::k_left), right = m.Child(assignment, Field::k_right);
    if (!left || !right || m.KindOf(left) != Kind::kAttribute || m.KindOf(right) != Kind::kCall) continue;
    if (m.RootName(left) != kA_self || m.KindOf(m.Child(left, Field::k_object)) != Kind::kIdentifier) continue;
    if (HasParameters(m.Qualified(m.Callee(right))) && Occurrences(m.text(), m.Name(m.LastName(left))) == 1) return assignment;
  }
  return 0;
}

bool AsksForNothingSpecial(const Module& m, NodeId call) {
  NodeId list = m.Child(call, Field::k_arguments);
  for (NodeId argument = list ? m.First(list) : 0; argument; argument = m.Next(argument)) {
    if (m.KindOf(argument) == Kind::kDictSplat || m.KindOf(argument) == Kind::kListSplat) return false;
    std::string_view text = m.Text(argument);
    if (text.starts_with("find_unused_parameters") || text.starts_with("static_graph")) return false;
  }
  return true;
}

}  // namespace

void CheckUnusedParameters(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  if (m.text().find("requires_grad") != std::string_view::npos || IsTestFile(m.path())) return;
  for (NodeId call : m.Calls({kA_DistributedDataParallel, kA_DDP})) {
    NodeId model = m.Argument(call, 0, kA_module);
    if (!model || !AsksForNothingSpecial(m, call)) continue;
    Atom name = scope.flow.InstanceClass(model);
    int cls = name ? m.FindClass(name) : -1;
    NodeId layer = cls >= 0 ? UnreachedLayer(m, m.classes()[cls]) : 0;
    if (!layer) continue;
    std::string left = Quoted(m, m.Child(layer, Field::k_left)), line = std::to_string(m.Line(m[call].start));
    std::string of(m.Name(name));
    report.Add(layer, Severity::kError,
               {left + " of `" + of + "` is never used, and DistributedDataParallel (line " + line +
                    ") waits for the gradients of its parameters: the second step raises RuntimeError",
                "`" + of + "` 的 " + left + " 从未被使用，而 DistributedDataParallel（第 " + line + " 行）会等待其参数的梯度：第二步会抛出 RuntimeError"},
               {"remove the layer; if it is used only at times, wrap with find_unused_parameters=True",
                "删除该层；如果只是有时使用，包装时加上 find_unused_parameters=True"});
  }
}

}  // namespace lowtide::lint
