#include "cli/report.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "base/mapped_file.h"
#include "cli/color.h"
#include "cli/fail_on.h"
#include "cli/judge.h"
#include "report/html.h"
#include "report/sarif.h"
#include "report/text.h"

namespace lowtide::cli {
namespace {

std::string Render(const report::RunView& view, const ReportOptions& options, const CommonOptions& common) {
  if (options.format == "json") return finding::ToJson(view.document);
  if (options.format == "sarif") return report::ToSarif(view.document.findings, std::filesystem::current_path().string());
  if (options.format == "html") {
    report::HtmlOptions html;
    html.lang = common.lang;
    html.hide_sources = options.hide_sources;
    return report::ToHtml(view, html);
  }
  Terminal terminal = options.output.empty() ? TerminalFor(STDOUT_FILENO, common) : Terminal{};
  return report::ToText(view, terminal, common.lang);
}

}  // namespace

int Report(const ReportOptions& options, const CommonOptions& common) {
  report::RunView view = JudgeFolder(options.folder, {options.capacity});
  view.folder_display = options.folder;
  std::string text = Render(view, options, common);
  if (options.output.empty()) {
    fmt::print("{}", text);
  } else {
    WriteFileAtomically(options.output, text);
  }
  return FailOn(view.document.findings, options.fail_on, 0);
}

}  // namespace lowtide::cli
