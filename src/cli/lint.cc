#include "cli/lint.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/terminal.h"
#include "cli/color.h"
#include "lint/lsp.h"
#include "report/lint_report.h"

namespace lowtide::cli {
namespace {

using finding::Severity;

lint::DriverOptions DriverOptionsOf(const LintOptions& options) {
  lint::DriverOptions driver = options.driver;
  if (driver.paths.empty()) driver.paths = {"."};
  if (options.preview) driver.preview = options.preview > 0;
  driver.max_bytes = options.max_megabytes << 20;
  if (options.diff)
    driver.fixing = lint::DriverOptions::Fixing::kDiff;
  else if (options.fix || driver.unsafe_fixes)
    driver.fixing = lint::DriverOptions::Fixing::kWrite;
  return driver;
}

std::string Formatted(const LintOptions& options, const lint::Report& report, const Terminal& terminal,
                      const std::string& lang) {
  if (options.format == "json") return report::LintJson(report);
  if (options.format == "sarif") return report::LintSarif(report);
  if (options.format == "github") return report::LintGithub(report);
  if (options.format == "gitlab") return report::LintGitlab(report);
  if (options.format == "junit") return report::LintJunit(report);
  if (options.statistics) return report::LintStatistics(report);
  return options.format == "concise" ? report::LintConcise(report, terminal)
                                     : report::LintText(report, terminal, lang);
}

void Write(std::FILE* stream, const std::string& text) { std::fwrite(text.data(), 1, text.size(), stream); }

bool AnyAtLeast(const lint::Report& report, Severity least) {
  return std::any_of(report.files.begin(), report.files.end(), [&](const lint::FileReport& file) {
    return std::any_of(file.items.begin(), file.items.end(),
                       [&](const lint::Located& item) { return item.diagnostic.severity >= least; });
  });
}

int ExitCode(const LintOptions& options, const lint::Report& report) {
  if (!report.problems.empty()) return 2;
  if (options.exit_zero) return 0;
  if (options.diff) {
    return std::any_of(report.files.begin(), report.files.end(),
                       [](const lint::FileReport& file) { return !file.diff.empty(); });
  }
  std::string least = !options.fail_on.empty() ? options.fail_on : report.fail_on.value_or("error");
  return AnyAtLeast(report, finding::ParseSeverity(least).value_or(Severity::kError)) ? 1 : 0;
}

// Fixed standard input and diffs own standard output; what is left to say goes to standard error then.
bool WriteFixedText(const LintOptions& options, const lint::Report& report) {
  bool reads_stdin =
      std::find(options.driver.paths.begin(), options.driver.paths.end(), "-") != options.driver.paths.end();
  bool any = options.diff || (reads_stdin && (options.fix || options.driver.unsafe_fixes));
  for (const lint::FileReport& file : report.files) Write(stdout, options.diff ? file.diff : file.fixed_text);
  return any;
}

}  // namespace

int Lint(const LintOptions& options, const CommonOptions& common) {
  if (options.lsp) return lint::ServeLanguage(DriverOptionsOf(options), 0, 1);
  lint::Report report = lint::Run(DriverOptionsOf(options));
  Terminal errors = TerminalFor(2, common);
  for (const std::string& problem : report.problems)
    PrintError("{} {}\n", errors.Red("lowtide:"), problem);
  for (const std::string& note : report.notes) PrintError("{} {}\n", errors.Cyan("note:"), note);
  if (!options.driver.write_baseline.empty()) {
    size_t known = 0;
    for (const lint::FileReport& file : report.files) known += file.items.size();
    PrintError("{} findings written to {}; check with --baseline {}\n", known,
               options.driver.write_baseline, options.driver.write_baseline);
    return report.problems.empty() ? 0 : 2;
  }
  bool stdout_taken = WriteFixedText(options, report);
  std::FILE* stream = stdout_taken ? stderr : stdout;
  Terminal terminal = TerminalFor(stdout_taken ? 2 : 1, common);
  if (!options.output.empty()) terminal.color = false;
  std::string text = options.diff ? "" : Formatted(options, report, terminal, common.lang);
  bool for_people = options.format == "text" || options.format == "concise";
  if (for_people && !options.quiet && !options.statistics && (report.checked || !report.problems.empty())) {
    text += report::LintSummary(report, terminal, options.driver.unsafe_fixes, common.lang);
  }
  if (options.output.empty())
    Write(stream, text);
  else
    WriteFileAtomically(options.output, text);
  return ExitCode(options, report);
}

}  // namespace lowtide::cli
