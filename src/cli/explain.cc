#include "cli/explain.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "cli/color.h"
#include "finding/catalogue.h"
#include "finding/pages.h"
#include "report/markdown.h"

namespace lowtide::cli {
namespace {

void ListCodes(bool chinese) {
  for (const finding::Code* code = finding::kCodes; code->code; ++code) {
    fmt::print("{}  {:<8} {:<40} {}\n", code->code, finding::SeverityName(code->severity), code->name,
               chinese ? code->title_zh : code->title);
  }
}

}  // namespace

int Explain(const ExplainOptions& options, const CommonOptions& common) {
  if (options.code.empty()) {
    ListCodes(common.lang == "zh");
    return 0;
  }
  std::string wanted = options.code;
  std::transform(wanted.begin(), wanted.end(), wanted.begin(), [](unsigned char c) { return std::toupper(c); });
  const finding::Code* code = finding::FindCode(wanted);
  if (!code) throw Error(fmt::format("there is no finding {}", wanted), "`lowtide explain` lists all of them");
  if (common.lang == "zh") fmt::print("{} {}: {}\n\n", code->code, code->name, code->title_zh);
  if (const char* page = finding::FindPage(code->code)) {
    // As written into a pipe or a file; set for a reader's eyes on a terminal.
    Terminal terminal = TerminalFor(STDOUT_FILENO, common);
    bool for_eyes = terminal.color || ::isatty(STDOUT_FILENO);
    fmt::print("{}", for_eyes ? report::MarkdownToTerminal(page, terminal) : page);
  } else {
    fmt::print("{} {}: {}\n", code->code, code->name, code->title);
  }
  return 0;
}

}  // namespace lowtide::cli
