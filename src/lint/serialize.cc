#include <cstring>
#include <type_traits>

#include "finding/version.h"
#include "lint/facts.h"
#include "lint_sources.h"

// ModuleFacts as bytes for the cache: a header that ties them to this build, then every field in order. Reading checks
// each length against what is left, so a cut or foreign file is refused, never followed.
namespace lowtide::lint {
namespace {

// Changes with every source of the checker (rules, flow, layout), of themselves: the build hashes them.
uint64_t Stamp() { return HashName(std::string(kVersion) + "#" + std::to_string(kSourcesHash)); }

class Writer {
 public:
  template <typename T>
    requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
  void operator()(const T& value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void operator()(const std::string& text) {
    (*this)(static_cast<uint32_t>(text.size()));
    out += text;
  }
  template <typename T>
  void operator()(const std::vector<T>& items) {
    (*this)(static_cast<uint32_t>(items.size()));
    for (const T& item : items) Visit(*this, const_cast<T&>(item));
  }
  template <typename T>
  void operator()(const std::optional<T>& item) {
    (*this)(item.has_value());
    if (item) Visit(*this, const_cast<T&>(*item));
  }
  std::string out;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : left(bytes) {}
  template <typename T>
    requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
  void operator()(T& value) {
    if (left.size() < sizeof value) return Fail();
    std::memcpy(&value, left.data(), sizeof value);
    left.remove_prefix(sizeof value);
  }
  void operator()(bool& value) {
    uint8_t byte = 0;
    (*this)(byte);
    value = byte != 0;
  }
  void operator()(std::string& text) {
    uint32_t size = 0;
    (*this)(size);
    if (size > left.size()) return Fail();
    text.assign(left.substr(0, size));
    left.remove_prefix(size);
  }
  template <typename T>
  void operator()(std::vector<T>& items) {
    uint32_t size = 0;
    (*this)(size);
    if (size > left.size()) return Fail();  // every item takes a byte at least
    items.resize(size);
    for (T& item : items) {
      Visit(*this, item);
      if (!ok) return;
    }
  }
  template <typename T>
  void operator()(std::optional<T>& item) {
    bool has = false;
    (*this)(has);
    if (has) Visit(*this, item.emplace());
  }
  void Fail() {
    ok = false;
    left = {};
  }
  std::string_view left;
  bool ok = true;
};

template <typename Io, typename T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::string>)
void Visit(Io& io, T& value) {
  io(value);
}

template <typename Io>
void Visit(Io& io, ReturnFacts& f) {
  io(f.flags), io(f.params), io(f.dep), io(f.dep_class), io(f.element);
}
template <typename Io>
void Visit(Io& io, FunctionFacts& f) {
  io(f.name), io(f.cls), io(f.flags), io(f.keeps), io(f.stores), io(f.parameters), io(f.returns_tuple), io(f.decorators), io(f.returns);
}
template <typename Io>
void Visit(Io& io, CallFacts& f) {
  io(f.callee), io(f.caller), io(f.flags);
}
template <typename Io>
void Visit(Io& io, ClassFacts& f) {
  io(f.name), io(f.bases);
}
template <typename Io>
void Visit(Io& io, LoaderFacts& f) {
  io(f.dataset), io(f.workers);
}
template <typename Io>
void Visit(Io& io, Edit& e) {
  io(e.start), io(e.end), io(e.replacement);
}
template <typename Io>
void Visit(Io& io, Fix& f) {
  io(f.safe), io(f.title), io(f.edits), io(f.title_zh);
}
template <typename Io>
void Visit(Io& io, Query& q) {
  io(q.ask), io(q.confirm), io(q.number), io(q.given), io(q.name), io(q.cls);
}
template <typename Io>
void Visit(Io& io, Pending& p) {
  Diagnostic& d = p.diagnostic;
  io(p.rule), io(d.code), io(d.severity), io(d.message), io(d.message_zh), io(d.help), io(d.help_zh), io(d.start), io(d.end), io(d.line), io(d.column), io(d.end_line), io(d.end_column);
  io(d.fix), io(p.queries);
}
template <typename Io>
void Visit(Io& io, ModuleFacts::Data& d) {
  io(d.path), io(d.stem), io(d.functions), io(d.classes), io(d.calls), io(d.imports), io(d.loaders), io(d.pending);
}

}  // namespace

std::string ModuleFacts::Serialize() const {
  Writer writer;
  writer(Stamp());
  Visit(writer, const_cast<Data&>(data()));
  return std::move(writer.out);
}

std::optional<ModuleFacts> ModuleFacts::Deserialize(std::string_view bytes) {
  Reader reader(bytes);
  uint64_t stamp = 0;
  reader(stamp);
  if (!reader.ok || stamp != Stamp()) return std::nullopt;
  ModuleFacts facts;
  Visit(reader, facts.data());
  if (!reader.ok || !reader.left.empty()) return std::nullopt;
  for (const CallFacts& call : facts.data().calls) {
    if (call.caller >= facts.data().functions.size()) return std::nullopt;
  }
  for (const Pending& pending : facts.data().pending) {
    if (pending.rule >= kRuleCount) return std::nullopt;
  }
  return facts;
}

}  // namespace lowtide::lint
