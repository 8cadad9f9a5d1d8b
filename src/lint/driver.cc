#include "lint/driver.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>

#include "base/error.h"
#include "base/mapped_file.h"
#include "lint/cache.h"
#include "lint/driver_baseline.h"
#include "lint/driver_diagnose.h"
#include "lint/driver_diff.h"
#include "lint/driver_fix.h"
#include "lint/driver_parallel.h"
#include "lint/driver_select.h"
#include "lint/notebook.h"
#include "lint/suppress.h"
#include "lint/suppress_scan.h"

namespace lowtide::lint {
namespace {

constexpr uint32_t kHasDirectives = 1;          // a cache entry's flags
constexpr uint64_t kNotebookBytes = 256 << 20;  // notebooks carry images

// One file on its way through the two phases.
struct Work {
  Target target;
  Selection selection;
  std::string stored;  // standard input's text; files are read again when they have something to tell
  bool is_stdin = false, has_directives = false, failed = false, cached = false;
  uint64_t content = 0;
  ModuleFacts facts;
  FileReport report;
  std::string problem;
  size_t suppressed = 0, withdrawn = 0;
};

bool IsNotebook(const std::string& path) { return path.ends_with(".ipynb"); }

// The folder that names in fingerprints and caches are relative to: the nearest one upwards from here that
// holds a repository or a pyproject.toml, else the current one.
std::string ProjectRoot() {
  std::string here = AbsolutePath(".");
  for (std::filesystem::path at = here; at != at.root_path(); at = at.parent_path()) {
    if (::access((at / ".git").c_str(), F_OK) == 0 || ::access((at / "pyproject.toml").c_str(), F_OK) == 0)
      return at.string();
  }
  return here;
}

class Driver {
 public:
  explicit Driver(const DriverOptions& options)
      : options_(options),
        configs_(options.isolated),
        jobs_(Jobs(options.jobs)),
        root_(ProjectRoot()),
        cache_(CacheFile()) {}

  Report Run() {
    line_ = ChoiceOf(options_);  // throws for an unknown code
    Find();
    Choose();
    ParallelFor(work_.size(), jobs_, [&](size_t i) { Guarded(work_[i], [&] { Analyse(work_[i]); }); });
    std::vector<const ModuleFacts*> all;
    for (const Work& work : work_) {
      if (!work.failed) all.push_back(&work.facts);
    }
    index_ = Index(all);
    ParallelFor(work_.size(), jobs_, [&](size_t i) { Guarded(work_[i], [&] { Check(work_[i]); }); });
    cache_.Save();
    Gather();
    return std::move(out_);
  }

 private:
  std::string CacheFile() const {
    std::string folder = options_.cache ? CacheFolder(options_.cache_folder) : "";
    return folder.empty() ? "" : fmt::format("{}/lint-{:016x}.cache", folder, ContentHash(root_));
  }

  template <typename F>
  void Guarded(Work& work, F&& step) {
    if (work.failed) return;
    try {
      step();
    } catch (const Error& error) {
      work.failed = true;
      work.problem = error.In(work.target.path).what();
    } catch (const std::exception& error) {
      work.failed = true;
      work.problem = Error(fmt::format("not checked: {}", error.what()), "", work.target.path).what();
    }
  }

  void Find() {
    std::vector<std::string> paths = options_.paths;
    bool standard_input = std::erase(paths, "-") > 0;
    Discovered found = Discover(paths, options_.discover, configs_);
    for (Target& target : found.targets) work_.emplace_back().target = std::move(target);
    out_.problems = std::move(found.problems);
    out_.notes = std::move(found.notes);
    if (standard_input) AddStandardInput();
    std::string first = !paths.empty() && work_.empty() ? AbsolutePath(paths[0]) : "";
    const Config* nearest =
        !work_.empty() ? work_[0].target.config : &configs_.For(first.empty() ? AbsolutePath(".") : first);
    out_.fail_on = nearest->fail_on;
    baseline_ = options_.baseline;
    if (baseline_.empty() && options_.write_baseline.empty() && nearest->baseline) {
      baseline_ = (std::filesystem::path(nearest->folder) / *nearest->baseline).string();
    }
  }

  void AddStandardInput() {
    Work work;
    work.is_stdin = true;
    work.stored = ReadFile("-");
    work.target.path = options_.stdin_filename.empty() ? "-" : options_.stdin_filename;
    work.target.absolute = AbsolutePath(options_.stdin_filename.empty() ? "stdin" : options_.stdin_filename);
    work.target.config = &configs_.For(std::filesystem::path(work.target.absolute).parent_path().string());
    if (!options_.stdin_filename.empty() && options_.discover.force_exclude &&
        !IsWanted(work.target.absolute, options_.discover, configs_))
      return;
    work_.push_back(std::move(work));
  }

  // The rules for each file; a configuration with an unknown code is told once and counts as defaults.
  void Choose() {
    std::set<const Config*> told;
    for (Work& work : work_) {
      const Config& config = *work.target.config;
      try {
        work.selection = SelectFor(config, line_, work.target.absolute);
      } catch (const Error& error) {
        if (told.insert(&config).second) out_.problems.push_back(error.In(config.file).what());
        work.selection = SelectFor(Config{}, line_, work.target.absolute);
      }
    }
    for (const std::string& problem : configs_.problems()) out_.problems.push_back(problem);
  }

  // What is checked: the file's bytes, or a notebook's code cells.
  static std::string SourceOf(const std::string& path, const std::string& stored) {
    return IsNotebook(path) ? Notebook(stored).source() : stored;
  }

  void Analyse(Work& work) {
    const std::string& path = work.target.path;
    if (work.is_stdin) {
      std::string source = SourceOf(path, work.stored);
      work.has_directives = !FindDirectives(source).empty();
      work.facts = Analyze({path, source});
      return;
    }
    auto stamp = Stamp::Of(work.target.absolute);
    if (!stamp) throw Error("cannot read the file", "check its permissions", path);
    uint64_t most = IsNotebook(path) ? std::max(options_.max_bytes, kNotebookBytes) : options_.max_bytes;
    if (stamp->size > most) {
      throw Error(fmt::format("not checked: {} MB is more than --max-file-size allows", stamp->size >> 20),
                  "exclude the file, or raise --max-file-size (MB)", path);
    }
    uint64_t name = ContentHash(work.target.absolute + '\0' + path);
    if (auto hit = cache_.FindByStamp(name, *stamp); hit && FromCache(work, *hit)) return;
    std::string stored = ReadFile(work.target.absolute);
    work.content = ContentHash(stored);
    if (auto hit = cache_.FindByContent(name, *stamp, work.content); hit && FromCache(work, *hit)) return;
    std::string source = SourceOf(path, stored);
    work.has_directives = !FindDirectives(source).empty();
    work.facts = Analyze({path, source});
    cache_.Put(name, *stamp, work.content, work.has_directives ? kHasDirectives : 0, work.facts.Serialize());
  }

  bool FromCache(Work& work, const Cache::Hit& hit) {
    auto facts = ModuleFacts::Deserialize(hit.facts);
    if (!facts) return false;
    work.facts = std::move(*facts);
    work.has_directives = hit.flags & kHasDirectives;
    work.content = hit.content;
    work.cached = true;
    return true;
  }

  std::vector<Diagnostic> DiagnoseWork(const Work& work, std::string_view source, const ModuleFacts& facts,
                                       size_t& suppressed) const {
    return Diagnose(source, facts, index_, work.selection, options_.respect_noqa, suppressed);
  }

  void Check(Work& work) {
    if (work.is_stdin && options_.fixing == DriverOptions::Fixing::kWrite)
      work.report.fixed_text = work.stored;
    if (!work.has_directives) {
      if (Resolve(work.facts, index_, work.selection.rules).empty()) return;
    }
    std::string stored = work.is_stdin ? std::move(work.stored) : ReadFile(work.target.absolute);
    std::string source = SourceOf(work.target.path, stored);
    // A file that changed since it was read: what is shown must belong to what was judged.
    if (!work.is_stdin && ContentHash(stored) != work.content)
      work.facts = Analyze({work.target.path, source});
    std::vector<Diagnostic> found = DiagnoseWork(work, source, work.facts, work.suppressed);
    if (options_.fixing != DriverOptions::Fixing::kNone) found = Fix(work, stored, source, std::move(found));
    Place(work, stored, source, std::move(found));
  }

  std::vector<Diagnostic> Fix(Work& work, std::string& stored, std::string& source,
                              std::vector<Diagnostic> found) {
    bool any = std::any_of(found.begin(), found.end(), [&](const Diagnostic& one) {
      return one.fix && (one.fix->safe || options_.unsafe_fixes);
    });
    if (!any) return found;
    bool notebook = IsNotebook(work.target.path);
    std::vector<Diagnostic> left = std::move(found);
    FixRules rules;
    rules.unsafe = options_.unsafe_fixes;
    rules.check = [&](std::string_view text) {
      size_t ignored = 0;
      left = DiagnoseWork(work, text, Analyze({work.target.path, text}), ignored);
      return left;
    };
    rules.apply = [&](Fixing& fixing, const std::vector<Edit>& edits) {
      if (!notebook) {
        fixing.source = fixing.stored = ApplyEdits(fixing.source, edits);
        return true;
      }
      auto next = Notebook(fixing.stored).Apply(fixing.stored, edits);
      if (!next) return false;
      fixing.source = Notebook(*next).source();
      fixing.stored = std::move(*next);
      return true;
    };
    Fixing fixing{stored, source};
    FixAll(fixing, rules);
    work.report.fixed = fixing.fixed;
    work.withdrawn = fixing.withdrawn;
    if (options_.fixing == DriverOptions::Fixing::kDiff) {
      work.report.diff = UnifiedDiff(stored, fixing.stored, work.target.path);
    } else if (work.is_stdin) {
      work.report.fixed_text = fixing.stored;
    } else if (fixing.stored != stored) {
      ReplaceFile(work.target.absolute, stored, fixing.stored);
    }
    stored = std::move(fixing.stored);
    source = std::move(fixing.source);
    size_t ignored = 0;
    return DiagnoseWork(work, source, Analyze({work.target.path, source}), ignored);
  }

  static void Place(Work& work, const std::string& stored, std::string& source,
                    std::vector<Diagnostic> found) {
    std::optional<Notebook> notebook;
    if (!found.empty() && IsNotebook(work.target.path)) notebook.emplace(stored);
    for (Diagnostic& one : found) {
      Located item;
      item.line = one.line, item.end_line = one.end_line;
      if (notebook) {
        Notebook::Place place = notebook->At(one.line), end = notebook->At(one.end_line);
        item.cell = place.cell;
        item.line = place.line;
        item.end_line = end.cell == place.cell ? end.line : place.line;
      }
      item.diagnostic = std::move(one);
      work.report.items.push_back(std::move(item));
    }
    if (!work.report.items.empty()) work.report.text = std::move(source);
  }

  void Gather() {
    for (Work& work : work_) {
      if (!work.problem.empty()) out_.problems.push_back(work.problem);
      if (!work.failed) ++out_.checked;
      out_.cached += work.cached;
      out_.suppressed += work.suppressed;
      out_.fixed += work.report.fixed;
      if (work.withdrawn) {
        out_.notes.push_back(
            fmt::format("{}: {} fix(es) not carried out: the file would not have been Python after",
                        work.target.path, work.withdrawn));
      }
      FileReport& report = work.report;
      if (report.items.empty() && !report.fixed && report.diff.empty() && report.fixed_text.empty()) continue;
      report.path = work.target.path;
      report.absolute = work.target.absolute;
      out_.files.push_back(std::move(report));
    }
    std::sort(out_.files.begin(), out_.files.end(),
              [](const FileReport& a, const FileReport& b) { return a.path < b.path; });
    Fingerprint(out_.files, root_);
    if (!options_.write_baseline.empty())
      WriteFileAtomically(options_.write_baseline, WriteBaseline(out_.files));
    if (!baseline_.empty()) TakeBaselineOut();
    for (const FileReport& file : out_.files) {
      for (const Located& item : file.items) {
        if (item.diagnostic.fix) ++(item.diagnostic.fix->safe ? out_.fixable : out_.unsafe_fixable);
      }
    }
  }

  void TakeBaselineOut() {
    std::set<std::string> known = ReadBaseline(baseline_);
    for (FileReport& file : out_.files) {
      out_.in_baseline +=
          std::erase_if(file.items, [&](const Located& item) { return known.count(item.fingerprint) > 0; });
    }
  }

  const DriverOptions& options_;
  LineChoice line_;
  ConfigFinder configs_;
  int jobs_;
  std::string root_;
  Cache cache_;
  std::vector<Work> work_;
  Index index_;
  std::string baseline_;
  Report out_;
};

}  // namespace

Report Run(const DriverOptions& options) { return Driver(options).Run(); }

std::string ShownPath(const FileReport& file, const Located& item) {
  return item.cell ? fmt::format("{}:cell {}", file.path, item.cell) : file.path;
}

}  // namespace lowtide::lint
