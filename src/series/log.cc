#include <algorithm>
#include <array>
#include <cmath>

#include "series/table.h"

// Free text of training programs: the step and every memory figure that a line names. No regular expressions:
// lines may be megabytes long and hostile.
namespace lowtide::series {
namespace {

bool IsWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

enum class Figure { kAllocated, kReserved, kPeak, kRss, kUsed, kAnyMemory, kStep, kRank };

struct Keyword {
  std::string_view text;  // lower case, words joined by one blank
  Figure figure;
};
// Longer ones first: "max memory allocated" is not "memory allocated".
constexpr Keyword kKeywords[] = {
    {"max memory allocated", Figure::kPeak},
    {"max_memory_allocated", Figure::kPeak},
    {"max mem allocated", Figure::kPeak},
    {"max memory reserved", Figure::kReserved},
    {"max_memory_reserved", Figure::kReserved},
    {"peak memory", Figure::kPeak},
    {"max allocated", Figure::kPeak},
    {"max reserved", Figure::kReserved},
    {"peak allocated", Figure::kPeak},
    {"peak mem", Figure::kPeak},
    {"max_mem", Figure::kPeak},
    {"max mem", Figure::kPeak},
    {"memory allocated", Figure::kAllocated},
    {"memory_allocated", Figure::kAllocated},
    {"mem_allocated", Figure::kAllocated},
    {"mem allocated", Figure::kAllocated},
    {"memory reserved", Figure::kReserved},
    {"memory_reserved", Figure::kReserved},
    {"mem_reserved", Figure::kReserved},
    {"allocated", Figure::kAllocated},
    {"reserved", Figure::kReserved},
    {"cached", Figure::kReserved},
    {"alloc", Figure::kAllocated},
    {"rss", Figure::kRss},
    {"gpu memory", Figure::kAnyMemory},
    {"gpu_mem", Figure::kAnyMemory},
    {"gpu mem", Figure::kAnyMemory},
    {"memory used", Figure::kUsed},
    {"memory_used", Figure::kUsed},
    {"memory usage", Figure::kAnyMemory},
    {"memory", Figure::kAnyMemory},
    {"mem", Figure::kAnyMemory},
    {"global_step", Figure::kStep},
    {"global step", Figure::kStep},
    {"iteration", Figure::kStep},
    {"steps", Figure::kStep},
    {"step", Figure::kStep},
    {"iter", Figure::kStep},
    {"it", Figure::kStep},
    {"rank", Figure::kRank},
};

// The number after position `at` (through ':', '=', blanks, quotes, brackets and up to a few letters-free
// characters).
struct Number {
  double value = Point::kUnknown;
  bool has_unit = false;
  size_t end = 0;
};
Number NumberAfter(std::string_view line, size_t at) {
  Number out;
  size_t i = at, limit = std::min(line.size(), at + 6);
  while (i < limit && std::string_view(" :=\"'[(\t").find(line[i]) != std::string_view::npos) ++i;
  size_t start = i;
  while (i < line.size() &&
         (IsDigit(line[i]) || (line[i] == '.' && i + 1 < line.size() && IsDigit(line[i + 1])) ||
          (line[i] == ',' && i + 3 < line.size() && IsDigit(line[i + 1]) && IsDigit(line[i + 2]) &&
           IsDigit(line[i + 3]) && (i + 4 >= line.size() || !IsDigit(line[i + 4]))))) {
    ++i;
    if (i - start > 24) return out;
  }
  if (i == start || !IsDigit(line[start])) return out;
  std::string_view digits = line.substr(start, i - start);
  out.value = ParseAmount(digits);
  size_t u = i;
  if (u < line.size() && line[u] == ' ') ++u;
  size_t v = u;
  while (v < line.size() && std::isalpha(static_cast<unsigned char>(line[v])) && v - u < 6) ++v;
  double unit = UnitOf(line.substr(u, v - u));
  // A bare letter after a blank is the next word ("mem: 12 b" is not seen, "mem: 12 G" is).
  if (unit > 0 && !(u > i && v - u == 1 && unit == 1)) out.value *= unit, out.has_unit = true, i = v;
  out.end = i;
  return out;
}

class LineReader {
 public:
  // False: the line names no memory figure.
  bool Read(std::string_view line, Row& row) {
    lower_.clear();
    for (char c : line)
      lower_ += c == '-' ? ' ' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    bool any = false;
    for (size_t i = 0; i < lower_.size();) {
      if (!IsWord(lower_[i]) || (i > 0 && IsWord(lower_[i - 1]))) {
        ++i;
        continue;
      }
      const Keyword* found = nullptr;
      for (auto& k : kKeywords) {
        if (lower_.compare(i, k.text.size(), k.text) != 0) continue;
        size_t end = i + k.text.size();
        if (end < lower_.size() && IsWord(lower_[end]) && !(IsDigit(lower_[end]) && k.text == "mem") &&
            !UnitSuffix(end))
          continue;
        found = &k;
        break;
      }
      if (!found) {
        while (i < lower_.size() && IsWord(lower_[i])) ++i;
        continue;
      }
      size_t end = i + found->text.size();
      double unit = UnitSuffix(end);
      while (end < lower_.size() && IsWord(lower_[end]) && !IsDigit(lower_[end])) ++end;
      if (!unit) unit = UnitInBrackets(end);
      auto number = NumberAfter(line, end);
      if (std::isfinite(number.value))
        any |= Put(row, found->figure, number, unit), i = std::max(number.end, end);
      else
        i = end;
    }
    return any;
  }

 private:
  // "allocated_mb"
  double UnitSuffix(size_t at) const {
    if (at >= lower_.size() || lower_[at] != '_') return 0;
    size_t end = at + 1;
    while (end < lower_.size() && std::isalpha(static_cast<unsigned char>(lower_[end]))) ++end;
    return UnitOf(std::string_view(lower_).substr(at + 1, end - at - 1));
  }
  // "allocated (MB): 12"
  double UnitInBrackets(size_t& at) const {
    size_t i = at;
    while (i < lower_.size() && lower_[i] == ' ') ++i;
    if (i >= lower_.size() || (lower_[i] != '(' && lower_[i] != '[')) return 0;
    size_t close = lower_.find(lower_[i] == '(' ? ')' : ']', i);
    if (close == std::string::npos || close - i > 8) return 0;
    double unit = UnitOf(std::string_view(lower_).substr(i + 1, close - i - 1));
    if (unit > 0) at = close + 1;
    return unit;
  }

  static bool Put(Row& row, Figure figure, const Number& number, double unit) {
    auto set = [&](double& into, double scale) {
      if (std::isfinite(into)) return false;  // the first of a kind on a line counts
      into = number.value * (number.has_unit ? 1 : unit > 0 ? unit : scale);
      return true;
    };
    // Without a unit detectron2 and mmengine print MiB; whole bytes are told by their size.
    double guess = number.value < 4e6 ? 1 << 20 : 1;
    switch (figure) {
      case Figure::kStep:
        if (!std::isfinite(row.step) && !number.has_unit) row.step = number.value;
        return false;
      case Figure::kRank:
        if (!number.has_unit && number.value < 1e6) row.rank = static_cast<int>(number.value);
        return false;
      case Figure::kAllocated:
        return set(row.allocated, guess);
      case Figure::kReserved:
        return set(row.reserved, guess);
      case Figure::kPeak:
        return set(row.peak, guess);
      case Figure::kRss:
        return set(row.rss, guess);
      case Figure::kUsed:
        return set(row.used, guess);
      case Figure::kAnyMemory:
        return set(row.used, guess);
    }
    return false;
  }

  std::string lower_;
};

// "[Iter 120/5000]", "Epoch [1][50/7330]", "[120/5000]": a counter in brackets.
double BracketStep(std::string_view line) {
  for (size_t i = 0; i + 2 < line.size(); ++i) {
    if (line[i] != '[' && line[i] != '(') continue;
    size_t j = i + 1;
    while (j < line.size() && line[j] == ' ') ++j;
    size_t start = j;
    while (j < line.size() && IsDigit(line[j])) ++j;
    if (j > start && j - start < 16 && j < line.size() && line[j] == '/')
      return ParseAmount(line.substr(start, j - start));
  }
  return Point::kUnknown;
}

}  // namespace

std::optional<Table> ParseLog(std::string_view text) {
  TableBuilder builder;
  LineReader reader;
  uint64_t stepless = 0;
  std::vector<Row> rows;
  while (!text.empty()) {
    size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.size() > 8192) line = line.substr(0, 8192);
    Row row;
    if (!reader.Read(line, row)) {
      builder.Skip("line without a memory figure");
      continue;
    }
    if (!std::isfinite(row.step)) row.step = BracketStep(line);
    stepless += !std::isfinite(row.step);
    rows.push_back(row);
  }
  if (rows.empty()) return std::nullopt;
  // Some lines have steps: those without are other reports (a summary, a start-up line).
  bool drop_stepless = stepless * 2 < rows.size();
  double offset = 0, last = -1;
  for (auto& row : rows) {
    if (!std::isfinite(row.step)) {
      if (drop_stepless)
        builder.Skip("figure without a step");
      else
        builder.Add(row);
      continue;
    }
    // Counters that start anew each epoch ([50/7330]) go on instead of being a restart.
    if (row.step + offset < last && row.step < 0.2 * (last - offset)) offset = last;
    row.step += offset;
    last = std::max(last, row.step);
    builder.Add(row);
  }
  if (builder.rows() == 0) return std::nullopt;
  return builder.Finish("log");
}

}  // namespace lowtide::series
