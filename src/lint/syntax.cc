#include "lint/syntax.h"

#include <tree_sitter/api.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>

#include "lint/arena.h"

extern "C" const TSLanguage* tree_sitter_python(void);

namespace lowtide::lint {
namespace {

// Grammar symbols and fields to ours, made once.
struct Tables {
  std::vector<Kind> kinds;
  std::vector<bool> kept;  // named, and no comment
  std::vector<Field> fields;
};

const Tables& GetTables() {
  static const Tables tables = [] {
    const TSLanguage* language = tree_sitter_python();
    std::unordered_map<std::string, Kind> kinds = {
#define X(name, text) {text, Kind::k##name},
        LOWTIDE_LINT_KINDS(X)
#undef X
    };
    std::unordered_map<std::string, Field> fields = {
#define X(name) {#name, Field::k_##name},
        LOWTIDE_LINT_FIELDS(X)
#undef X
    };
    Tables made;
    uint32_t symbols = ts_language_symbol_count(language);
    for (uint32_t i = 0; i < symbols; ++i) {
      const char* name = ts_language_symbol_name(language, static_cast<TSSymbol>(i));
      bool named = ts_language_symbol_type(language, static_cast<TSSymbol>(i)) == TSSymbolTypeRegular;
      auto found = named ? kinds.find(name) : kinds.end();
      made.kinds.push_back(found == kinds.end() ? Kind::kOther : found->second);
      made.kept.push_back(named && std::strcmp(name, "comment") != 0 && std::strcmp(name, "line_continuation") != 0 &&
                          std::strcmp(name, "string_start") != 0 && std::strcmp(name, "string_end") != 0);
    }
    made.fields.push_back(Field::kNone);
    for (uint32_t i = 1; i <= ts_language_field_count(language); ++i) {
      auto found = fields.find(ts_language_field_name_for_id(language, static_cast<TSFieldId>(i)));
      made.fields.push_back(found == fields.end() ? Field::kNone : found->second);
    }
    return made;
  }();
  return tables;
}

constexpr TSSymbol kErrorSymbol = static_cast<TSSymbol>(-1);

// Copies the tree that `cursor` stands on into `tree.nodes`, without recursion.
class Flattener {
 public:
  Flattener(Tree& tree, TSTreeCursor& cursor) : tree_(tree), cursor_(cursor), tables_(GetTables()) {}

  void Run() {
    bool entering = true;
    int depth = 0;
    while (true) {
      if (entering) {
        Enter();
        if (depth < kMaxDepth && ts_tree_cursor_goto_first_child(&cursor_)) {
          ++depth;
          continue;
        }
      }
      Leave();
      if (ts_tree_cursor_goto_next_sibling(&cursor_)) {
        entering = true;
      } else if (depth > 0 && ts_tree_cursor_goto_parent(&cursor_)) {
        --depth;
        entering = false;
      } else {
        break;
      }
    }
  }

 private:
  void Enter() {
    TSNode node = ts_tree_cursor_current_node(&cursor_);
    TSSymbol symbol = ts_node_symbol(node);
    bool error = symbol == kErrorSymbol;
    if (!error && (symbol >= tables_.kept.size() || !tables_.kept[symbol])) {
      stack_.push_back(kSkipped);
      return;
    }
    Node made{};
    made.start = ts_node_start_byte(node);
    made.end = ts_node_end_byte(node);
    made.kind = error ? Kind::kError : tables_.kinds[symbol];
    made.parent = parent_;
    made.field = tables_.fields[ts_tree_cursor_current_field_id(&cursor_)];
    made.depth = static_cast<uint16_t>(stack_.size());
    if (made.kind == Kind::kIdentifier) {
      made.atom = tree_.atoms.Intern(tree_.text.substr(made.start, made.end - made.start));
    }
    NodeId id = static_cast<NodeId>(tree_.nodes.size());
    tree_.nodes.push_back(made);
    stack_.push_back(id);
    parent_ = id;
  }

  void Leave() {
    NodeId id = stack_.back();
    stack_.pop_back();
    if (id == kSkipped) return;
    tree_.nodes[id].last = static_cast<NodeId>(tree_.nodes.size());
    parent_ = tree_.nodes[id].parent;
  }

  static constexpr NodeId kSkipped = UINT32_MAX;
  Tree& tree_;
  TSTreeCursor& cursor_;
  const Tables& tables_;
  std::vector<NodeId> stack_;
  NodeId parent_ = 0;
};

// Files up to this size are parsed in an arena, which frees nothing before the end; larger ones with malloc.
constexpr size_t kArenaLimit = 4 << 20;

}  // namespace

Tree Parse(std::string_view text, const std::vector<Range>& ranges) {
  Tree tree;
  tree.text = text;
  if (text.size() >= UINT32_MAX / 8) return tree;
  std::vector<TSRange> included;
  size_t bytes = ranges.empty() ? text.size() : 0;
  for (const Range& range : ranges) {
    included.push_back({{range.first_line, 0}, {range.last_line, 0}, range.start, range.end});
    bytes += range.end - range.start;
  }
  // Declared first: the parser and its tree die in it.
  bool in_arena = bytes <= kArenaLimit;
  ParseArena arena(in_arena);
  std::unique_ptr<TSParser, void (*)(TSParser*)> parser(ts_parser_new(), ts_parser_delete);
  ts_parser_set_language(parser.get(), tree_sitter_python());
  // Error recovery is superlinear on hostile text: 10 s, and 10 s more per MB, then the file is given up.
  ts_parser_set_timeout_micros(parser.get(), 10'000'000 + text.size() * 10);
  ts_parser_set_included_ranges(parser.get(), included.data(), static_cast<uint32_t>(included.size()));
  TSTree* parsed = ts_parser_parse_string(parser.get(), nullptr, text.data(), static_cast<uint32_t>(text.size()));
  if (!parsed) return tree;
  TSTreeCursor cursor = ts_tree_cursor_new(ts_tree_root_node(parsed));
  tree.nodes.reserve(bytes / 6 + 16);
  Flattener(tree, cursor).Run();
  ts_tree_cursor_delete(&cursor);
  if (!in_arena) ts_tree_delete(parsed);  // an arena drops it without a walk
  return tree;
}

}  // namespace lowtide::lint
