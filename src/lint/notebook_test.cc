#include "lint/notebook.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lowtide::lint {
namespace {

const char kNotebook[] = R"({
 "cells": [
  {"cell_type": "markdown", "source": ["# Title\n"]},
  {"cell_type": "code", "outputs": [{"data": {"source": ["no\n"]}}], "source": [
    "import torch\n",
    "%matplotlib inline\n",
    "if x:\n",
    "    !pip install \"it's\n",
    "y = !ls\n",
    "caf\u00e9 = \"\\n\""
   ], "metadata": {}},
  {"source": "total = 0\ntotal += loss\n", "cell_type": "code"},
  {"cell_type": "code", "source": ["%%bash\n", "rm -rf 'x\n"]},
  {"cell_type": "code", "source": ["%%time\n", "z = (1\n", "     % 2)\n"]}
 ],
 "metadata": {"kernelspec": {"language": "python"}},
 "nbformat": 4
}
)";

TEST(Notebook, JoinsCodeCellsAndBlanksMagics) {
  Notebook notebook(kNotebook);
  EXPECT_EQ(notebook.source(),
            "import torch\n0                 \nif x:\n    0                 \ny = 0  \ncaf\u00e9 = \"\\n\"\n"
            "total = 0\ntotal += loss\n\n"
            "      \n         \n\n"
            "0     \nz = (1\n     % 2)\n\n");
  EXPECT_EQ(notebook.At(1).cell, 2);
  EXPECT_EQ(notebook.At(6).line, 6u);
  EXPECT_EQ(notebook.At(8).cell, 3);
  EXPECT_EQ(notebook.At(8).line, 2u);
  EXPECT_EQ(notebook.At(14).cell, 5);
  EXPECT_EQ(notebook.At(14).line, 2u);
}

// Applies "replace `from` by `to`" and gives the difference to the old JSON as (removed, added).
std::pair<std::string, std::string> Change(const std::string& json, const std::string& from,
                                           const std::string& to) {
  Notebook notebook(json);
  size_t at = notebook.source().find(from);
  auto result =
      notebook.Apply(json, {{static_cast<uint32_t>(at), static_cast<uint32_t>(at + from.size()), to}});
  if (!result) return {"refused", ""};
  Notebook reread(*result);
  std::string expected = notebook.source();
  expected.replace(at, from.size(), to);
  EXPECT_EQ(reread.source(), expected);
  size_t head = 0, tail = 0, most = std::min(json.size(), result->size());
  while (head < most && json[head] == (*result)[head]) ++head;
  while (tail < most - head && json[json.size() - 1 - tail] == (*result)[result->size() - 1 - tail]) ++tail;
  return {json.substr(head, json.size() - head - tail), result->substr(head, result->size() - head - tail)};
}

TEST(Notebook, EditsTouchTheirLineAlone) {
  using P = std::pair<std::string, std::string>;
  EXPECT_EQ(Change(kNotebook, "loss", "loss.item()"), (P{"", ".item()"}));
  EXPECT_EQ(Change(kNotebook, "if x:\n", "if x:\n    a\n"), (P{"", "a\\n\",\n    \"    "}));
  EXPECT_EQ(Change(kNotebook, "if x:\n", ""), (P{"if x:\\n\",\n    \"", ""}));
  EXPECT_EQ(Change(kNotebook, "z = (1", "z = (3"), (P{"1", "3"}));
}

TEST(Notebook, EditsInMagicsOrAcrossCellsAreRefused) {
  EXPECT_EQ(Change(kNotebook, "y = 0", "y = 1").first, "refused");
  EXPECT_EQ(Change(kNotebook, "\"\\n\"\ntotal", "x").first, "refused");
}

TEST(Notebook, OtherLanguagesHaveNoSource) {
  EXPECT_EQ(
      Notebook(
          R"({"cells": [{"cell_type": "code", "source": "x"}], "metadata": {"language_info": {"name": "julia"}}})")
          .source(),
      "");
}

TEST(Notebook, BrokenOnesAreErrors) {
  std::string deep(100000, '[');
  for (const std::string& json :
       {std::string(), std::string("{"), std::string("[]"), std::string("{\"worksheets\": []}"), deep,
        std::string(kNotebook).substr(0, 300), std::string("{\"cells\": [{\"source\": \"\\ud800\"}]}")}) {
    EXPECT_THROW(Notebook{json}, Error) << json.substr(0, 40);
  }
  EXPECT_EQ(Notebook("{\"cells\": [1, [], {\"source\": {\"a\": \"b\"}, \"cell_type\": \"code\"}]}").source(),
            "\n");
}

}  // namespace
}  // namespace lowtide::lint
