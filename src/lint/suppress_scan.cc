#include "lint/suppress_scan.h"

#include <algorithm>

namespace lowtide::lint {
namespace {

class Scanner {
 public:
  Scanner(std::string_view text, const std::function<bool(size_t)>& skip) : text_(text), skip_(skip) {
    NewLine(0);
  }

  LineScan Run() {
    while (at_ < text_.size()) {
      char c = text_[at_];
      if (skip_ && at_ == scan_.line_starts.back() && scan_.fresh.back() && skip_(at_)) {
        SkipLine();
      } else if (IsLineEnd()) {
        EndLine();
      } else if (c == '#') {
        Comment();
      } else if (c == '\'' || c == '"') {
        String(c);
      } else if (c == '\\' && at_ + 1 < text_.size() && (text_[at_ + 1] == '\n' || text_[at_ + 1] == '\r')) {
        ++at_;
        continued_ = true;
        EndLine();
        continued_ = false;
      } else {
        if (c == '(' || c == '[' || c == '{') ++depth_;
        if ((c == ')' || c == ']' || c == '}') && depth_ > 0) --depth_;
        ++at_;
      }
    }
    scan_.comment_allowed.push_back(true);
    return std::move(scan_);
  }

 private:
  bool IsLineEnd() const { return text_[at_] == '\n' || text_[at_] == '\r'; }

  void NewLine(size_t start) {
    scan_.line_starts.push_back(static_cast<uint32_t>(start));
    scan_.fresh.push_back(!in_string_ && depth_ == 0 && !continued_);
  }

  // Moves over one line end, of any kind.
  void EndLine() {
    scan_.comment_allowed.push_back(!in_string_ && !continued_);
    at_ += text_[at_] == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n' ? 2 : 1;
    NewLine(at_);
  }

  void SkipLine() {
    for (bool more = true; more && at_ < text_.size();) {
      at_ = std::min(text_.find_first_of("\r\n", at_), text_.size());
      more = at_ > 0 && text_[at_ - 1] == '\\';
      continued_ = more;
      if (at_ < text_.size()) EndLine();
    }
    continued_ = false;
  }

  void Comment() {
    size_t end = std::min(text_.find_first_of("\r\n", at_), text_.size());
    scan_.comments.push_back({static_cast<uint32_t>(at_), static_cast<uint32_t>(end),
                              static_cast<uint32_t>(scan_.line_starts.size())});
    at_ = end;
  }

  void String(char quote) {
    bool triple = at_ + 2 < text_.size() && text_[at_ + 1] == quote && text_[at_ + 2] == quote;
    at_ += triple ? 3 : 1;
    in_string_ = true;
    while (at_ < text_.size()) {
      if (text_[at_] == '\\') {
        ++at_;
        if (at_ < text_.size() && !IsLineEnd())
          ++at_;
        else if (at_ < text_.size())
          EndLine();
      } else if (IsLineEnd()) {
        if (!triple) break;  // an unterminated string ends with its line
        EndLine();
      } else if (text_[at_] == quote && !triple) {
        ++at_;
        break;
      } else if (text_[at_] == quote && text_.substr(at_ + 1, 2) == std::string_view(triple_[quote == '"'])) {
        at_ += 3;
        break;
      } else {
        ++at_;
      }
    }
    in_string_ = false;
  }

  static constexpr const char* triple_[2] = {"''", "\"\""};
  std::string_view text_;
  const std::function<bool(size_t)>& skip_;
  LineScan scan_;
  size_t at_ = 0;
  int depth_ = 0;
  bool in_string_ = false, continued_ = false;
};

}  // namespace

LineScan ScanLines(std::string_view text, const std::function<bool(size_t)>& skip) {
  return Scanner(text, skip).Run();
}

std::vector<uint32_t> LineStarts(std::string_view text) {
  std::vector<uint32_t> starts{0};
  for (size_t at = text.find_first_of("\r\n"); at != std::string_view::npos;
       at = text.find_first_of("\r\n", at)) {
    at += text[at] == '\r' && at + 1 < text.size() && text[at + 1] == '\n' ? 2 : 1;
    starts.push_back(static_cast<uint32_t>(at));
  }
  return starts;
}

}  // namespace lowtide::lint
