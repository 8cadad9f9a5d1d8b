#include "lint/report.h"

namespace lowtide::lint {

Pending& Reporter::AddAt(uint32_t start, uint32_t end, finding::Severity severity, Said message, Said help) {
  const Module& m = scope_.module;
  Pending& pending = out_.emplace_back();
  pending.rule = rule_;
  Diagnostic& d = pending.diagnostic;
  d.code = code_;
  d.severity = severity;
  d.message = std::move(message.en), d.message_zh = std::move(message.zh);
  d.help = std::move(help.en), d.help_zh = std::move(help.zh);
  d.start = start;
  d.end = end;
  d.line = m.Line(start);
  d.column = m.Column(start);
  d.end_line = m.Line(end);
  d.end_column = m.Column(end);
  return pending;
}

Pending& Reporter::Add(NodeId node, finding::Severity severity, Said message, Said help) {
  const Node& n = scope_.module[node];
  return AddAt(n.start, n.end, severity, std::move(message), std::move(help));
}

bool MayBeAttached(const Scope&, const Value& value) {
  if (value.flags & kGrad) return true;
  return value.dep != 0 && !(value.flags & (kNumber | kTensor | kInstance));
}

bool NeedAttached(const Scope& scope, const Value& value, Pending& pending) {
  if (!MayBeAttached(scope, value)) return false;
  if (!value.dep || value.flags & kInstance) return true;
  const Dep& dep = scope.flow.DepOf(value);
  Query query;
  query.ask = Ask::kAttached;
  query.confirm = !(value.flags & kGrad);
  query.number = dep.element;
  query.given = dep.given ? 1 : 0;
  query.name = HashName(scope.module.Name(dep.name));
  query.cls = dep.cls ? HashName(scope.module.Name(dep.cls)) : 0;
  pending.Needs(query);
  return true;
}

Fix AppendText(const Module& m, NodeId node, std::string_view suffix, bool safe, Said title) {
  Kind kind = m.KindOf(node);
  bool simple = kind == Kind::kIdentifier || kind == Kind::kAttribute || kind == Kind::kSubscript || kind == Kind::kCall ||
                kind == Kind::kParenthesized;
  if (!simple) return WrapText(m, node, "(", ")" + std::string(suffix), safe, std::move(title));
  return {safe, std::move(title.en), {{m[node].end, m[node].end, std::string(suffix)}}, std::move(title.zh)};
}

Fix WrapText(const Module& m, NodeId node, std::string_view before, std::string_view after, bool safe, Said title) {
  return {safe,
          std::move(title.en),
          {{m[node].start, m[node].start, std::string(before)}, {m[node].end, m[node].end, std::string(after)}},
          std::move(title.zh)};
}

Fix InsertLineBefore(const Module& m, NodeId statement, std::string_view line, bool safe, Said title) {
  uint32_t start = m[statement].start, begin = start;
  while (begin > 0 && m.text()[begin - 1] != '\n') --begin;
  std::string indent(m.text().substr(begin, start - begin));
  return {safe, std::move(title.en), {{start, start, std::string(line) + "\n" + indent}}, std::move(title.zh)};
}

}  // namespace lowtide::lint
