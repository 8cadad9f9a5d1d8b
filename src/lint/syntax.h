#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lint/atoms.h"
#include "lint/scan.h"

// The syntax tree of one file as a flat array in preorder: children follow their parent, a subtree is a range of
// indexes, so every walk is a loop. Only named nodes of the grammar are kept, without comments.
namespace lowtide::lint {

// Grammar symbols that rules look at; the rest is kOther. Names are tree-sitter-python's.
#define LOWTIDE_LINT_KINDS(X)                                                                                       \
  X(Module, "module") X(Block, "block") X(ExpressionStatement, "expression_statement") X(Assignment, "assignment") \
  X(AugmentedAssignment, "augmented_assignment") X(Call, "call") X(Attribute, "attribute")                         \
  X(Identifier, "identifier") X(Subscript, "subscript") X(Slice, "slice") X(ArgumentList, "argument_list")         \
  X(KeywordArgument, "keyword_argument") X(Function, "function_definition") X(Class, "class_definition")           \
  X(Decorated, "decorated_definition") X(Decorator, "decorator") X(For, "for_statement")                           \
  X(While, "while_statement") X(If, "if_statement") X(Elif, "elif_clause") X(Else, "else_clause")                  \
  X(With, "with_statement") X(WithClause, "with_clause") X(WithItem, "with_item") X(Try, "try_statement")          \
  X(Except, "except_clause") X(ExceptGroup, "except_group_clause") X(Finally, "finally_clause")                    \
  X(Return, "return_statement") X(Yield, "yield") X(Delete, "delete_statement") X(Raise, "raise_statement")        \
  X(Break, "break_statement") X(Continue, "continue_statement") X(Pass, "pass_statement")                          \
  X(Assert, "assert_statement") X(Global, "global_statement") X(Nonlocal, "nonlocal_statement")                    \
  X(Import, "import_statement") X(ImportFrom, "import_from_statement") X(FutureImport, "future_import_statement")  \
  X(AliasedImport, "aliased_import") X(DottedName, "dotted_name") X(RelativeImport, "relative_import")             \
  X(WildcardImport, "wildcard_import") X(Lambda, "lambda") X(Parameters, "parameters")                             \
  X(LambdaParameters, "lambda_parameters") X(DefaultParameter, "default_parameter")                                \
  X(TypedParameter, "typed_parameter") X(TypedDefaultParameter, "typed_default_parameter")                         \
  X(ListSplatPattern, "list_splat_pattern") X(DictSplatPattern, "dictionary_splat_pattern")                        \
  X(PatternList, "pattern_list") X(TuplePattern, "tuple_pattern") X(ListPattern, "list_pattern")                   \
  X(ExpressionList, "expression_list") X(Tuple, "tuple") X(List, "list") X(Set, "set") X(Dict, "dictionary")       \
  X(Pair, "pair") X(ListComp, "list_comprehension") X(DictComp, "dictionary_comprehension")                        \
  X(SetComp, "set_comprehension") X(Generator, "generator_expression") X(ForIn, "for_in_clause")                   \
  X(IfClause, "if_clause") X(Binary, "binary_operator") X(Unary, "unary_operator") X(BoolOp, "boolean_operator")   \
  X(Not, "not_operator") X(Compare, "comparison_operator") X(Conditional, "conditional_expression")                \
  X(Parenthesized, "parenthesized_expression") X(Named, "named_expression") X(Await, "await")                      \
  X(String, "string") X(ConcatString, "concatenated_string") X(Interpolation, "interpolation")                     \
  X(StringContent, "string_content") X(Integer, "integer") X(Float, "float") X(True, "true") X(False, "false")     \
  X(None, "none") X(ListSplat, "list_splat") X(DictSplat, "dictionary_splat") X(AsPattern, "as_pattern")           \
  X(AsTarget, "as_pattern_target") X(Type, "type") X(Match, "match_statement") X(Case, "case_clause")              \
  X(FormatExpression, "format_expression") X(Error, "ERROR")

enum class Kind : uint8_t {
  kOther,
#define X(name, text) k##name,
  LOWTIDE_LINT_KINDS(X)
#undef X
};

#define LOWTIDE_LINT_FIELDS(X)                                                                                  \
  X(alias) X(alternative) X(argument) X(arguments) X(attribute) X(body) X(condition) X(consequence) X(definition) \
  X(function) X(left) X(module_name) X(name) X(object) X(parameters) X(return_type) X(right) X(subscript)       \
  X(superclasses) X(type) X(value) X(key)

enum class Field : uint8_t {
  kNone,
#define X(name) k_##name,
  LOWTIDE_LINT_FIELDS(X)
#undef X
};

using NodeId = uint32_t;  // 0 is the module's node, and "none" wherever a child is asked for

struct Node {
  uint32_t start, end;  // bytes
  NodeId parent;
  NodeId last;  // one past the last node of the subtree
  Atom atom;    // identifiers only
  Kind kind;
  Field field;
  uint16_t depth;
};

// Nodes deeper than this are left out, so that recursion over a tree is bounded whatever the input.
inline constexpr int kMaxDepth = 200;

struct Tree {
  std::string_view text;
  std::vector<Node> nodes;  // empty when the text could not be parsed at all
  AtomTable atoms;
};

// `text` must outlive the tree. Thread-safe. A byte-order mark is skipped; errors become kError nodes. With `ranges`
// (sorted, whole lines) only those are parsed, as if the rest were not there; positions stay those of the text.
Tree Parse(std::string_view text, const std::vector<Range>& ranges = {});

}  // namespace lowtide::lint
