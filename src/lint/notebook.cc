// The only file that reads notebooks' JSON.
#include "lint/notebook.h"

#include <strings.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "lint/suppress_scan.h"

namespace lowtide::lint {
namespace {

// Reads characters and tells where it is: the parser takes no character beyond a string's closing quote
// before it hands the string over, so that is where the string ends in the file.
struct TellingIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at = nullptr;
  const char** told = nullptr;

  reference operator*() const { return *at; }
  TellingIterator& operator++() {
    *told = ++at;
    return *this;
  }
  TellingIterator operator++(int) {
    TellingIterator old = *this;
    ++*this;
    return old;
  }
  bool operator==(const TellingIterator& other) const { return at == other.at; }
  bool operator!=(const TellingIterator& other) const { return at != other.at; }
};

// Cell magics whose body is Python; what other magics hold is another language.
bool BodyIsPython(std::string_view magic) {
  for (const char* name : {"capture", "debug", "ipytest", "prun", "pypy", "python", "python3", "time",
                           "timeit", "memray_flamegraph", "memit", "mprun", "heat"}) {
    if (magic == name) return true;
  }
  return false;
}

// Where a magic begins in a line that begins a statement: `%...`, `!...`, `?x`, `x?`, `x = !...`; npos:
// nowhere.
size_t MagicStart(std::string_view line) {
  size_t first = line.find_first_not_of(" \t");
  if (first == std::string_view::npos) return first;
  if (line[first] == '%' || line[first] == '!' || line[first] == '?') return first;
  size_t last = line.find_last_not_of(" \t");
  if (line[last] == '?' && line.find('#') == std::string_view::npos) return first;
  size_t equals =
      line.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789., \t[]", first);
  if (equals == std::string_view::npos || line[equals] != '=') return std::string_view::npos;
  size_t value = line.find_first_not_of(" \t", equals + 1);
  bool is_magic = value != std::string_view::npos && (line[value] == '!' || line[value] == '%');
  return is_magic ? value : std::string_view::npos;
}

std::string_view LineAt(std::string_view text, size_t start) {
  return text.substr(start, std::min(text.find_first_of("\r\n", start), text.size()) - start);
}

// The opening quote of the JSON string that ends before `end`.
size_t OpeningQuote(std::string_view json, size_t end) {
  for (size_t at = end - 1; at-- > 0;) {
    if (json[at] != '"') continue;
    size_t slashes = 0;
    while (slashes < at && json[at - 1 - slashes] == '\\') ++slashes;
    if (slashes % 2 == 0) return at;
  }
  return 0;
}

}  // namespace

// Follows the path of keys down to the cells' sources; everything else (outputs, images) passes by unstored.
class Notebook::Sax : public nlohmann::json_sax<nlohmann::json> {
 public:
  Sax(Notebook& notebook, std::string_view json, const char* const& at)
      : notebook_(notebook), json_(json), at_(at) {}

  bool saw_cells = false, is_python = true;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }

  bool string(string_t& value) override {
    bool in_cell = path_.size() >= 3 && path_[0] == "cells" && path_[1] == "[";
    if (in_cell && path_.size() == 3 && path_[2] == "cell_type") type_ = value;
    bool piece =
        in_cell && path_[2] == "source" && (path_.size() == 3 || (path_.size() == 4 && path_[3] == "["));
    if (piece) {
      size_t end = static_cast<size_t>(at_ - json_.data());
      pieces_.push_back({OpeningQuote(json_, end), end, std::move(value), 0});
    }
    bool language = path_.size() == 3 && path_[0] == "metadata" &&
                    ((path_[1] == "kernelspec" && path_[2] == "language") ||
                     (path_[1] == "language_info" && path_[2] == "name"));
    if (language) is_python = is_python && ::strcasestr(value.c_str(), "python");
    return true;
  }
  bool start_object(size_t) override {
    if (path_.size() == 2 && path_[0] == "cells") ++cell_;
    path_.emplace_back();
    return true;
  }
  bool key(string_t& name) override {
    path_.back() = name;
    return true;
  }
  bool end_object() override {
    path_.pop_back();
    if (path_.size() != 2 || path_[0] != "cells") return true;
    if (type_ == "code") notebook_.AddCell(cell_, std::move(pieces_));
    type_.clear();
    pieces_.clear();
    return true;
  }
  bool start_array(size_t) override {
    if (path_.size() == 1 && path_[0] == "cells") saw_cells = true;
    path_.emplace_back("[");
    return true;
  }
  bool end_array() override {
    path_.pop_back();
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    throw Error("is no notebook: broken JSON", "open it in Jupyter and save it again, or exclude it", {},
                position);
  }

 private:
  Notebook& notebook_;
  std::string_view json_;
  const char* const& at_;
  std::vector<std::string> path_;  // per open container its current key, "[" for arrays
  std::string type_;
  std::vector<Line> pieces_;
  int cell_ = 0;
};

Notebook::Notebook(std::string_view json) {
  const char* at = json.data();
  Sax sax(*this, json, at);
  TellingIterator first{json.data(), &at}, last{json.data() + json.size(), &at};
  nlohmann::json::sax_parse(first, last, &sax);
  if (!sax.saw_cells) {
    throw Error("is no notebook of format 4: it has no cells",
                "convert it with `jupyter nbconvert --to notebook`, or exclude it");
  }
  if (!sax.is_python) {
    source_.clear();
    cells_.clear();
  }
}

void Notebook::AddCell(int number, std::vector<Line> pieces) {
  Cell cell{number, lines_ + 1, static_cast<uint32_t>(source_.size()), 0, std::move(pieces)};
  for (Line& piece : cell.pieces) {
    piece.at = static_cast<uint32_t>(source_.size());
    source_ += piece.text;
  }
  cell.end = static_cast<uint32_t>(source_.size());
  BlankMagics(cell);
  source_ += '\n';
  cells_.push_back(std::move(cell));
}

// Magics become `0` and blanks of the same length: an expression that says nothing, and every offset stays.
void Notebook::BlankMagics(Cell& cell) {
  std::string_view text = std::string_view(source_).substr(cell.start);
  std::string clean(text);
  auto blank = [&](size_t from, size_t to, bool expression) {
    for (size_t i = from; i < to; ++i) {
      if (clean[i] != '\n' && clean[i] != '\r') clean[i] = ' ';
    }
    if (expression) clean[from] = '0';
  };
  size_t first = text.find_first_not_of(" \t\r\n");
  bool cell_magic = first != std::string_view::npos && text.substr(first).starts_with("%%");
  bool all = false;
  if (cell_magic) {
    size_t name_end = std::min(text.find_first_of(" \t\r\n", first), text.size());
    all = !BodyIsPython(text.substr(first + 2, name_end - first - 2));
  }
  std::vector<std::pair<size_t, size_t>> magics;  // line start, magic start
  LineScan scan = ScanLines(text, [&](size_t start) {
    std::string_view line = LineAt(text, start);
    size_t magic = MagicStart(line);
    if (magic == std::string_view::npos) return false;
    magics.emplace_back(start, start + magic);
    return true;
  });
  size_t lines = scan.line_starts.size();
  blanked_.resize(lines_ + lines, all);
  if (all) blank(0, clean.size(), false);
  for (auto [start, magic] : all ? decltype(magics){} : magics) {
    size_t line =
        std::lower_bound(scan.line_starts.begin(), scan.line_starts.end(), start) - scan.line_starts.begin();
    size_t after = line + 1;
    while (after < lines && !scan.fresh[after]) ++after;
    blank(magic, after < lines ? scan.line_starts[after] : clean.size(), true);
    std::fill(blanked_.begin() + static_cast<long>(lines_ + line),
              blanked_.begin() + static_cast<long>(lines_ + after), true);
  }
  source_.replace(cell.start, clean.size(), clean);
  lines_ += static_cast<uint32_t>(lines);
}

Notebook::Place Notebook::At(uint32_t source_line) const {
  auto after = std::upper_bound(cells_.begin(), cells_.end(), source_line,
                                [](uint32_t line, const Cell& cell) { return line < cell.first_line; });
  if (after == cells_.begin()) return {1, source_line};
  const Cell& cell = *std::prev(after);
  return {cell.number, source_line - cell.first_line + 1};
}

}  // namespace lowtide::lint
