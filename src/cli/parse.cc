// The only file that includes CLI11 (it compiles slowly): options into plain structs, then one call per verb.
#include "cli/parse.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>

#include "base/error.h"
#include "base/terminal.h"
#include "base/units.h"
#include "cli/checkpoint.h"
#include "cli/color.h"
#include "cli/doctor.h"
#include "cli/explain.h"
#include "cli/export.h"
#include "cli/lint.h"
#include "cli/plan.h"
#include "cli/report.h"
#include "cli/run.h"
#include "cli/snapshot.h"
#include "cli/verdict.h"
#include "cli/watch.h"
#include "finding/version.h"

namespace lowtide::cli {
namespace {

// What a verb's subcommand needs: where to hang its options, and where to leave the work to be done once parsed.
struct Context {
  CLI::App& app;
  CommonOptions& common;
  std::function<int()>& work;
  const std::vector<std::string>& command;  // what follows a verb that starts programs: SCRIPT ARGS, or `--` COMMAND
  const bool& is_command;                   // it came after `--`
};

// Reads sizes such as 24GiB into bytes.
CLI::Validator Size() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        auto bytes = ParseBytes(text);
        if (!bytes) return text + " is not a size such as 24GB or 80GiB";
        text = std::to_string(*bytes);
        return {};
      },
      "SIZE");
}

CLI::IsMember Severities() { return CLI::IsMember({"note", "warning", "error"}); }

void AddRun(Context context) {
  auto* verb = context.app.add_subcommand("run", "run a script, record every step, say whether it will live and why not");
  auto options = std::make_shared<RunOptions>();
  verb->footer("lowtide run [OPTIONS] SCRIPT [ARGS...]\nlowtide run [OPTIONS] -m MODULE [ARGS...]\n"
               "lowtide run [OPTIONS] -- COMMAND...      (torchrun, accelerate, a shell script)");
  verb->add_option("-m", options->module, "run a module, as python -m does");
  verb->add_option("-o,--output", options->folder, "folder of the record (default lowtide-runs/SCRIPT-TIME)");
  verb->add_flag("-f,--force", options->force, "overwrite a record that is there");
  verb->add_flag("-q,--quiet", options->quiet, "print nothing, neither line nor report");
  verb->add_option("--steps", options->steps, "end the script cleanly after this many steps");
  verb->add_option("--fail-on", options->fail_on, "exit with 1 when a finding is at least this severe")->check(Severities());
  verb->add_option("--capacity", options->capacity, "memory of each device, where it is not found")->transform(Size());
  verb->add_option("--exit-at", options->exit_at, "end the script at a step (it saves if it can) when this share of the memory is in use, or a leak is about to fill it; exit code 143")
      ->check(CLI::Range(0.001, 0.99));
  verb->add_flag("--resume", options->resume, "start the script again when it failed or was ended so; it goes on from its last checkpoint");
  verb->add_option("--restarts", options->restarts, "how often --resume may start it again (default 3)")->check(CLI::Range(1, 1000))->needs("--resume");
  verb->add_option("--python", options->python, "the interpreter that runs the script");
  verb->add_flag("--holders,!--no-holders", options->census, "ask who holds the memory once it grows (default on)");
  verb->callback([=] {
    options->command = context.command;
    options->is_command = context.is_command;
    if (options->command.empty() && options->module.empty()) throw CLI::RequiredError("SCRIPT, -m MODULE or -- COMMAND");
    context.work = [=] { return Run(*options, context.common); };
  });
}

void AddReport(Context context) {
  auto* verb = context.app.add_subcommand("report", "the report of a recorded run, also of one that was killed");
  auto options = std::make_shared<ReportOptions>();
  verb->add_option("folder", options->folder, "the run's folder")->required();
  verb->add_option("--format", options->format, "text, json, html or sarif")->check(CLI::IsMember({"text", "json", "html", "sarif"}));
  verb->add_option("-o,--output", options->output, "write to this file");
  verb->add_option("--fail-on", options->fail_on, "exit with 1 when a finding is at least this severe")->check(Severities());
  verb->add_option("--capacity", options->capacity, "memory of each device, where it was not recorded")->transform(Size());
  verb->add_flag("--hide-sources", options->hide_sources, "html: leave source lines and paths out");
  verb->callback([=] { context.work = [=] { return Report(*options, context.common); }; });
}

void AddWatch(Context context) {
  auto* verb = context.app.add_subcommand("watch", "the live view of a run: every rank and pool, trend and verdict");
  auto options = std::make_shared<WatchOptions>();
  verb->add_option("folder", options->folder, "the run's folder (default: the newest in lowtide-runs/)");
  verb->add_flag("--once", options->once, "print what is known now and leave");
  verb->add_option("--format", options->format, "text, or with --once json")->check(CLI::IsMember({"text", "json"}));
  verb->add_option("--interval", options->interval, "seconds between two looks (default 1, into a file or pipe 10)")
      ->check(CLI::PositiveNumber);
  verb->callback([=] { context.work = [=] { return Watch(*options, context.common); }; });
}

void AddExport(Context context) {
  auto* verb = context.app.add_subcommand("export", "figures and verdicts of all ranks here, for Prometheus and TensorBoard");
  auto options = std::make_shared<ExportOptions>();
  verb->add_option("folders", options->places, "run folders, or folders of runs (default: lowtide-runs)");
  verb->add_option("--listen", options->listen, "serve http://HOST:PORT/metrics; port 0 takes a free one");
  verb->add_option("--textfile", options->textfile, "keep this file up to date, for node_exporter's textfile collector (*.prom)");
  verb->add_option("--tensorboard", options->tensorboard, "keep event files of all series in this folder");
  verb->add_flag("--once", options->once, "one look, then leave; printed unless it goes to a file");
  verb->add_option("--format", options->format, "of what --once prints: prometheus or openmetrics")
      ->check(CLI::IsMember({"prometheus", "openmetrics"}));
  verb->add_option("--interval", options->interval, "seconds between two looks (default 5)")->check(CLI::Range(0.1, 3600.0));
  verb->callback([=] { context.work = [=] { return Export(*options, context.common); }; });
}

void AddVerdict(Context context) {
  auto* verb = context.app.add_subcommand("verdict", "judge any series of memory figures: CSV, nvidia-smi log, training log");
  auto options = std::make_shared<VerdictOptions>();
  verb->add_option("file", options->file, "the file; - is standard input")->required();
  verb->add_option("--format", options->format, "text or json")->check(CLI::IsMember({"text", "json"}));
  verb->add_option("--capacity", options->capacity, "memory there is, such as 24GiB")->transform(Size());
  verb->add_option("--fail-on", options->fail_on, "exit with 1 when a finding is at least this severe")->check(Severities());
  verb->callback([=] { context.work = [=] { return Verdict(*options, context.common); }; });
}

void AddSnapshot(Context context) {
  auto* verb = context.app.add_subcommand("snapshot", "explain CUDA memory snapshots: peak, out of memory, leaks, other settings");
  auto options = std::make_shared<SnapshotOptions>();
  verb->add_option("files", options->files, "snapshots (pickle, .gz, .zip, JSON, HTML); several are ranks of one job")->required();
  verb->add_option("--format", options->format, "text, json, html, speedscope or trace")
      ->check(CLI::IsMember({"text", "json", "html", "speedscope", "trace"}));
  verb->add_option("-o,--output", options->output, "write to this file");
  verb->add_option("--diff", options->diff, "an earlier snapshot to compare with, by stack and by line");
  verb->add_option("--replay", options->replay, "what if: allocator settings as in PYTORCH_CUDA_ALLOC_CONF, or best");
  verb->add_option("--capacity", options->capacity, "memory of each device, such as 24GiB; may be smaller than it was")->transform(Size());
  verb->add_option("--fail-on", options->fail_on, "exit with 1 when a finding is at least this severe (default error)")->check(Severities());
  verb->add_flag("--hide-sources", options->hide_sources, "leave source lines and paths out");
  verb->add_option("--threads", options->threads, "threads that read (default: 2 where there are)")->check(CLI::Range(1, 16));
  verb->callback([=] { context.work = [=] { return Snapshot(*options, context.common); }; });
}

// Lists of codes and patterns: "--select LT101,LT2", also given several times.
template <typename T>
void AddList(CLI::App* verb, const char* name, T& list, const char* help) {
  verb->add_option(name, list, help)->delimiter(',')->allow_extra_args(false);
}

void AddLintSelection(CLI::App* verb, const std::shared_ptr<LintOptions>& options) {
  lint::DriverOptions& driver = options->driver;
  verb->add_option_function<std::vector<std::string>>(
          "--select", [&driver](const std::vector<std::string>& codes) { driver.select = codes; },
          "rules to check instead of the default ones: codes, prefixes, ALL")
      ->delimiter(',')
      ->allow_extra_args(false);
  AddList(verb, "--extend-select", driver.extend_select, "rules to check as well");
  AddList(verb, "--ignore", driver.ignore, "rules not to check");
  verb->add_option_function<std::vector<std::string>>(
          "--per-file-ignores",
          [&driver](const std::vector<std::string>& items) {
            for (const auto& item : items) {
              size_t colon = item.rfind(':');
              if (colon == std::string::npos) throw CLI::ValidationError("--per-file-ignores", "write PATTERN:CODE");
              driver.per_file_ignores.emplace_back(item.substr(0, colon), item.substr(colon + 1));
            }
          },
          "rules not to check in some files: PATTERN:CODE")
      ->delimiter(',')
      ->allow_extra_args(false);
  verb->add_flag("--preview,!--no-preview", options->preview, "also the rules that are still tried out");
  verb->add_flag("!--no-noqa", driver.respect_noqa, "report what # noqa comments suppress, too");
  verb->add_option_function<std::vector<std::string>>(
          "--exclude",
          [&driver](const std::vector<std::string>& patterns) {
            driver.discover.exclude = patterns;
            driver.discover.has_exclude = true;
          },
          "files and folders to leave out, instead of the default ones")
      ->delimiter(',')
      ->allow_extra_args(false);
  AddList(verb, "--extend-exclude", driver.discover.extend_exclude, "files and folders to leave out as well");
  verb->add_flag("--force-exclude", driver.discover.force_exclude, "leave them out even where they are named");
  verb->add_flag("!--no-respect-gitignore", driver.discover.respect_gitignore, "check what .gitignore names, too");
  verb->add_flag("--isolated", driver.isolated, "read no pyproject.toml");
}

void AddLint(Context context) {
  auto* verb = context.app.add_subcommand("lint", "find memory mistakes in training code, without running it");
  auto options = std::make_shared<LintOptions>();
  lint::DriverOptions& driver = options->driver;
  verb->add_option("paths", driver.paths, "files, folders, notebooks; - is standard input (default: this folder)");
  verb->add_option("--stdin-filename", driver.stdin_filename, "the name of what comes from standard input");
  verb->add_option("--output-format,--format", options->format, "how findings are written")
      ->check(CLI::IsMember({"text", "concise", "json", "sarif", "github", "gitlab", "junit"}));
  verb->add_option("-o,--output", options->output, "write them to this file");
  AddLintSelection(verb, options);
  verb->add_flag("--fix", options->fix, "carry out the fixes that keep results the same");
  verb->add_flag("--unsafe-fixes", driver.unsafe_fixes, "and those that may change them");
  verb->add_flag("--diff", options->diff, "show what --fix would do, change nothing");
  verb->add_option("--baseline", driver.baseline, "a file of findings that are known and not reported");
  verb->add_option("--write-baseline", driver.write_baseline, "write everything found into such a file");
  verb->add_option("--fail-on", options->fail_on, "exit with 1 when a finding is at least this severe (default error)")->check(Severities());
  verb->add_flag("--exit-zero", options->exit_zero, "exit with 0 whatever was found");
  verb->add_flag("--statistics", options->statistics, "count per rule instead of a list");
  verb->add_flag("-q,--quiet", options->quiet, "no closing lines");
  verb->add_option("--cache-dir", driver.cache_folder, "folder of the cache (default $XDG_CACHE_HOME/lowtide)");
  verb->add_flag("!--no-cache", driver.cache, "neither read nor write a cache");
  verb->add_option("-j,--jobs", driver.jobs, "threads (default: one per core)")->check(CLI::Range(1, 256));
  verb->add_option("--max-file-size", options->max_megabytes, "MB; larger files are not checked")->check(CLI::Range(1, 256));
  verb->add_flag("--lsp", options->lsp, "serve an editor: the Language Server Protocol on standard input and output");
  verb->callback([=] { context.work = [=] { return Lint(*options, context.common); }; });
}

void AddPlanModel(CLI::App* verb, const std::shared_ptr<PlanOptions>& options) {
  verb->add_option("model", options->model, "a config.json, a folder with one, or a known name such as llama3.1-8b");
  verb->add_option("--params", options->params, "count of parameters, such as 7B");
  verb->add_option("--layers", options->layers, "layers");
  verb->add_option("--hidden", options->hidden, "hidden size");
  verb->add_option("--heads", options->heads, "attention heads");
  verb->add_option("--kv-heads", options->kv_heads, "key-value heads");
  verb->add_option("--head-dim", options->head_dim, "size of a head");
  verb->add_option("--ffn", options->ffn, "inner size of the MLP");
  verb->add_option("--vocab", options->vocab, "size of the vocabulary");
  verb->add_option("--experts", options->experts, "experts per layer");
  verb->add_option("--experts-per-token", options->experts_per_token, "experts that a token goes to");
  verb->add_option("--expert-ffn", options->expert_ffn, "inner size of an expert");
  verb->add_option("--tied", options->tied, "whether head and embedding are one: true or false");
  verb->add_option("--lora-rank", options->lora_rank, "LoRA on every linear map, the rest frozen");
  verb->add_option("--base-bits", options->base_bits, "bits of a frozen weight under LoRA (default 16)");
}

void AddPlanJob(CLI::App* verb, const std::shared_ptr<PlanOptions>& options) {
  verb->add_option("--gpus", options->gpus, "GPUs, all together");
  verb->add_option("--gpus-per-node", options->gpus_per_node, "GPUs of one machine (default 8)");
  verb->add_option("--gpu", options->gpu, "kind of GPU: h100, a100-80, 4090 ...");
  verb->add_option("--gpu-memory", options->gpu_memory, "memory of a GPU, such as 80GiB")->transform(Size());
  verb->add_option("--strategy", options->strategy, "single, ddp, zero1, zero2, zero3, fsdp, hsdp or megatron (default: choose)");
  verb->add_option("--tp", options->tp, "tensor-parallel GPUs");
  verb->add_option("--pp", options->pp, "pipeline stages");
  verb->add_option("--cp", options->cp, "context-parallel GPUs");
  verb->add_option("--ep", options->ep, "expert-parallel GPUs");
  verb->add_option("--shard", options->shard, "GPUs that share one copy of the states (hsdp)");
  verb->add_flag("--sequence-parallel", options->sequence_parallel, "norms split over the tensor-parallel GPUs, too");
  verb->add_flag("--distributed-optimizer", options->distributed_optimizer, "megatron: optimizer split over data-parallel GPUs");
  verb->add_option("--offload", options->offload, "what lies on the CPU: none, optimizer, parameters or all");
  verb->add_option("--precision", options->precision, "bf16, fp16, fp8 (mixed), fp32, bf16-pure or bf16-master (default bf16)");
  verb->add_option("--optimizer", options->optimizer, "adamw, adam8bit, sgd, momentum, adafactor, lion or muon");
  verb->add_flag("--optimizer-in-backward", options->optimizer_in_backward, "step each weight inside the backward pass");
  verb->add_flag("--foreach", options->foreach, "the optimizer's step makes temporaries for all weights at once");
  verb->add_option("--checkpoint", options->checkpoint, "activations: none, selective, full or offload (default: choose)");
  verb->add_option("--code", options->code, "eager (Hugging Face), compile or fused kernels (default eager; megatron fused)");
  verb->add_option("--logits", options->logits, "whole, fused (or compiled) or chunked loss");
  verb->add_option("--attention", options->attention, "flash, or eager with its s x s scores");
  verb->add_option("--micro-batch", options->micro_batch, "sequences per GPU and pass (default 1)");
  verb->add_option("--seq-len", options->seq_len, "tokens of a sequence (default 2048)");
  verb->add_option("--accumulate", options->accumulate, "micro batches per step");
}

void AddPlan(Context context) {
  auto* verb = context.app.add_subcommand("plan", "memory per GPU before the run: each term, which strategies fit, which is cheapest");
  auto options = std::make_shared<PlanOptions>();
  verb->footer("lowtide plan llama3.1-8b --gpus 8 --gpu h100\nlowtide plan config.json --gpus 64 --gpu a100-80 --seq-len 8192\n"
               "lowtide plan [OPTIONS] --measure SCRIPT [ARGS...]");
  AddPlanModel(verb, options);
  AddPlanJob(verb, options);
  verb->add_flag("--states-only", options->states_only, "only weights, gradients and optimizer");
  verb->add_option("--counting", options->counting, "lowtide, or deepspeed: states as its estimators count them");
  verb->add_option("--largest-layer", options->largest_layer, "its parameters, for --counting deepspeed");
  verb->add_option("--format", options->format, "text or json")->check(CLI::IsMember({"text", "json"}));
  verb->add_flag("--measure", options->measure, "last option: run the script that follows for a few steps, and correct the plan");
  verb->add_option("--steps", options->steps, "steps of --measure (default 4)")->check(CLI::Range(2, 1000));
  verb->add_option("--python", options->python, "the interpreter of --measure");
  verb->callback([=] {
    options->command = context.command;
    if (options->measure && options->command.empty()) throw CLI::RequiredError("SCRIPT after --measure");
    context.work = [=] { return Plan(*options, context.common); };
  });
}

void AddDoctor(Context context) {
  auto* verb = context.app.add_subcommand("doctor", "what this machine and this PyTorch can be watched for, and what not");
  auto options = std::make_shared<DoctorOptions>();
  verb->add_option("--format", options->format, "text or json")->check(CLI::IsMember({"text", "json"}));
  verb->add_option("--python", options->python, "the interpreter to look at");
  verb->callback([=] { context.work = [=] { return Doctor(*options, context.common); }; });
}

void AddCheckpoint(Context context) {
  auto* verb = context.app.add_subcommand("checkpoint", "what a checkpoint folder holds, and whether it is whole");
  auto options = std::make_shared<CheckpointOptions>();
  verb->add_option("action", options->action, "verify, list or show")->required()->check(CLI::IsMember({"verify", "list", "show"}));
  verb->add_option("path", options->path, "a checkpoint, or a folder of them")->required();
  verb->add_option("--format", options->format, "text or json")->check(CLI::IsMember({"text", "json"}));
  verb->callback([=] { context.work = [=] { return Checkpoint(*options, context.common); }; });
}

void AddExplain(Context context) {
  auto* verb = context.app.add_subcommand("explain", "what a finding means, why, and what to do (all codes without one)");
  auto options = std::make_shared<ExplainOptions>();
  verb->add_option("code", options->code, "a code such as LT201");
  verb->callback([=] { context.work = [=] { return Explain(*options, context.common); }; });
}

// One line per verb, in the order of the help text.
constexpr void (*kVerbs[])(Context) = {
    AddRun,
    AddReport,
    AddWatch,
    AddExport,
    AddVerdict,
    AddSnapshot,
    AddLint,
    AddPlan,
    AddCheckpoint,
    AddDoctor,
    AddExplain,
};

int Fail(const Error& error, const CommonOptions& common) {
  PrintError("{} {}\n", TerminalFor(2, common).Red("lowtide:"), error.what());
  return 2;
}

bool TakesValue(CLI::App* verb, const std::string& word) {
  const CLI::Option* option = verb->get_option_no_throw(word);
  return option && option->get_expected_min() > 0 && word.find('=') == std::string::npos;
}

// A verb that starts a program owns the words up to the script; the rest belongs to the script, whatever it looks like.
// Moves that rest from `words` to `command`; true when it came after `--`.
bool SplitCommand(CLI::App& app, std::vector<std::string>& words, std::vector<std::string>& command) {
  auto at = words.begin();
  if (auto measure = std::find(at, words.end(), "--measure"); measure != words.end() && std::find(at, measure, "plan") != measure && std::find(at, measure, "run") == measure) {
    command.assign(measure + 1, words.end());
    words.erase(measure + 1, words.end());
    return false;
  }
  CLI::App* verb = nullptr;
  for (; at != words.end(); ++at) {
    if (!verb) {
      if (*at == "run") verb = app.get_subcommand(*at);
      if (!verb && at->rfind("-", 0) != 0) return false;
      if (!verb && TakesValue(&app, *at) && at + 1 != words.end()) ++at;
      continue;
    }
    bool module = *at == "-m";
    if (*at == "--" || at->rfind("-", 0) != 0 || *at == "-") break;
    if ((TakesValue(verb, *at) || TakesValue(&app, *at)) && at + 1 != words.end()) ++at;
    if (module && at != words.end()) {
      ++at;
      break;
    }
  }
  bool after_dashes = at != words.end() && *at == "--";
  command.assign(at + (after_dashes ? 1 : 0), words.end());
  words.erase(at, words.end());
  return after_dashes;
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
  std::vector<std::string> words(argv + 1, argv + argc), command;
  bool is_command = false;
  for (auto add : kVerbs) add({app, common, work, command, is_command});
  try {
    is_command = SplitCommand(app, words, command);
    std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    return work();
  } catch (const Error& error) {
    return Fail(error, common);
  } catch (const std::bad_alloc&) {
    return Fail(Error("out of memory", "run it where more memory is free"), common);
  } catch (const std::exception& error) {
    return Fail(Error(fmt::format("internal error: {}", error.what()), "please report this with the command line"), common);
  }
}

}  // namespace lowtide::cli
