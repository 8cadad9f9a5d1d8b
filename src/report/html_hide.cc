#include "report/html_hide.h"

#include <algorithm>
#include <cctype>
#include <sstream>

namespace lowtide::report {
namespace {

bool IsWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

class Redactor {
 public:
  Redactor(const RunView& view, const Words& words) : mark_(words.Get(Phrase::kHidden)) {
    AddWords(view.command);
    AddFile(view.folder);
    AddFile(view.folder_display);
    for (const auto& holder : view.document.holders) {
      AddFile(holder.file);
      Add(holder.path);
      Add(holder.root);
      AddWords(holder.path);
    }
    for (const auto& finding : view.document.findings) {
      for (const auto& where : finding.where) {
        AddFile(where.file);
        AddWords(where.object_path);
      }
    }
    // Longer ones first: a path before the name that ends it.
    std::sort(secrets_.begin(), secrets_.end(),
              [](auto& a, auto& b) { return a.size() != b.size() ? a.size() > b.size() : a < b; });
    secrets_.erase(std::unique(secrets_.begin(), secrets_.end()), secrets_.end());
  }

  std::string Hide(std::string text) const {
    for (size_t begin = 0; (begin = text.find('`', begin)) != std::string::npos;) {
      size_t end = text.find('`', begin + 1);
      if (end == std::string::npos) break;
      text.replace(begin, end + 1 - begin, mark_);
      begin += mark_.size();
    }
    for (const std::string& secret : secrets_) Replace(text, secret);
    return text;
  }

 private:
  void Add(const std::string& text) {
    bool number = std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
    if (text.size() >= 3 && !number) secrets_.push_back(text);
  }

  void AddWords(const std::string& text) {
    Add(text);
    std::istringstream in(text);
    for (std::string word; in >> word;) AddFile(word);
  }

  void AddFile(const std::string& file) {
    Add(file);
    size_t slash = file.find_last_of('/');
    std::string name = slash == std::string::npos ? file : file.substr(slash + 1);
    Add(name);
    Add(name.substr(0, name.find_last_of('.')));
  }

  void Replace(std::string& text, const std::string& secret) const {
    for (size_t at = 0; (at = text.find(secret, at)) != std::string::npos;) {
      size_t end = at + secret.size();
      bool inside = (at > 0 && IsWord(text[at - 1]) && IsWord(secret.front())) ||
                    (end < text.size() && IsWord(text[end]) && IsWord(secret.back()));
      if (inside) {
        ++at;
      } else {
        text.replace(at, secret.size(), mark_);
        at += mark_.size();
      }
    }
  }

  std::string mark_;
  std::vector<std::string> secrets_;
};

}  // namespace

RunView HideSources(const RunView& view, const Words& words) {
  Redactor redactor(view, words);
  RunView out = view;
  out.command.clear();
  out.folder.clear();
  out.folder_display.clear();
  for (auto& rank : out.ranks) rank.ended = redactor.Hide(rank.ended);
  for (auto& row : out.document.verdicts) {
    row.reason = redactor.Hide(row.reason);
    row.reason_zh = redactor.Hide(row.reason_zh);
  }
  for (auto& holder : out.document.holders) {
    holder.path = words.Get(Phrase::kHidden);
    holder.root.clear();
    holder.type.clear();
    holder.file.clear();
    holder.line = 0;
    holder.help = redactor.Hide(holder.help);
    holder.help_zh = redactor.Hide(holder.help_zh);
  }
  for (auto& finding : out.document.findings) {
    for (std::string* text : {&finding.message, &finding.message_zh, &finding.help, &finding.help_zh}) {
      *text = redactor.Hide(*text);
    }
    finding.where.clear();
    finding.fix.reset();
    for (auto& evidence : finding.evidence) evidence.name = redactor.Hide(evidence.name);
  }
  return out;
}

}  // namespace lowtide::report
