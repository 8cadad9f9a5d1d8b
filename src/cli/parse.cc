// The only file that includes CLI11 (it compiles slowly): options into plain structs, then one call per verb.
#include "cli/parse.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>

#include "base/error.h"
#include "base/terminal.h"
#include "cli/explain.h"
#include "finding/version.h"

namespace lowtide::cli {
namespace {

// What a verb's subcommand needs: where to hang its options, and where to leave the work to be done once parsed.
struct Context {
  CLI::App& app;
  CommonOptions& common;
  std::function<int()>& work;
};

void AddExplain(Context context) {
  auto* verb = context.app.add_subcommand("explain", "what a finding means, why, and what to do (all codes without one)");
  auto options = std::make_shared<ExplainOptions>();
  verb->add_option("code", options->code, "a code such as LT201");
  verb->callback([=] { context.work = [=] { return Explain(*options, context.common); }; });
}

// One line per verb, in the order of the help text.
constexpr void (*kVerbs[])(Context) = {
    AddExplain,
};

int Report(const Error& error, const CommonOptions& common) {
  auto mode = common.color == "always" ? ColorMode::kAlways : common.color == "never" ? ColorMode::kNever : ColorMode::kAuto;
  fmt::print(stderr, "{} {}\n", Terminal::For(2, mode).Red("lowtide:"), error.what());
  return 2;
}

}  // namespace

int Main(int argc, char** argv) {
  CLI::App app{"lowtide tells whether a PyTorch training run will live, what holds its memory, and what to change.",
               "lowtide"};
  app.set_version_flag("--version", std::string("lowtide ") + kVersion);
  app.require_subcommand(1);
  CommonOptions common;
  app.add_option("--color", common.color, "when to use colour")->check(CLI::IsMember({"auto", "always", "never"}));
  app.add_option("--lang", common.lang, "language of messages")->check(CLI::IsMember({"en", "zh"}));
  app.fallthrough();
  std::function<int()> work;
  for (auto add : kVerbs) add({app, common, work});
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    return work();
  } catch (const Error& error) {
    return Report(error, common);
  } catch (const std::bad_alloc&) {
    return Report(Error("out of memory", "run it where more memory is free"), common);
  } catch (const std::exception& error) {
    return Report(Error(fmt::format("internal error: {}", error.what()), "please report this with the command line"), common);
  }
}

}  // namespace lowtide::cli
