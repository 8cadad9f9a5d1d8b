#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>

#include "base/error.h"
#include "series/table.h"

namespace lowtide::series {

double UnitOf(std::string_view unit) {
  std::string lower;
  for (char c : unit)
    if (c != ' ') lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (lower == "b" || lower == "byte" || lower == "bytes") return 1;
  if (lower.empty()) return 0;
  bool binary = lower.size() >= 2 && lower[1] == 'i';
  std::string_view rest = std::string_view(lower).substr(binary ? 2 : 1);
  if (!rest.empty() && rest != "b" && rest != "bytes" && rest != "byte") return 0;
  double base = binary ? 1024 : 1000;
  switch (lower[0]) {
    case 'k':
      return base;
    case 'm':
      return base * base;
    case 'g':
      return base * base * base;
    case 't':
      return base * base * base * base;
    default:
      return 0;
  }
}

double ParseAmount(std::string_view text, double unit) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '"')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '"')) text.remove_suffix(1);
  std::string plain;
  size_t i = 0;
  for (; i < text.size() && (std::isdigit(static_cast<unsigned char>(text[i])) ||
                             std::string_view(".,+-eE_").find(text[i]) != std::string_view::npos);
       ++i) {
    bool exponent = (text[i] == 'e' || text[i] == 'E');
    if (exponent && (i + 1 >= text.size() || !(std::isdigit(static_cast<unsigned char>(text[i + 1])) ||
                                               text[i + 1] == '-' || text[i + 1] == '+')))
      break;
    if (text[i] != ',' && text[i] != '_' && !(text[i] == '+' && plain.empty())) plain += text[i];
  }
  double value = 0;
  auto [end, error] = std::from_chars(plain.data(), plain.data() + plain.size(), value);
  if (error != std::errc() || end != plain.data() + plain.size() || !std::isfinite(value))
    return Point::kUnknown;
  std::string_view rest = text.substr(i);
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  if (rest.empty()) return value * unit;
  double own = UnitOf(rest);
  return own > 0 ? value * own : Point::kUnknown;
}

namespace {

enum class Column {
  kNone,
  kStep,
  kTime,
  kRank,
  kDevice,
  kPhase,
  kAllocated,
  kReserved,
  kPeak,
  kRss,
  kUsed,
  kTotal,
  kValue,
  kPool
};

struct Heading {
  Column column = Column::kNone;
  double unit = 1;
  std::string pool;
};

std::string_view Trim(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t' || s.front() == '"' || s.front() == '\''))
    s.remove_prefix(1);
  while (!s.empty() &&
         (s.back() == ' ' || s.back() == '\t' || s.back() == '"' || s.back() == '\'' || s.back() == '\r'))
    s.remove_suffix(1);
  return s;
}

struct Alias {
  std::string_view name;
  Column column;
};
constexpr Alias kAliases[] = {
    {"step", Column::kStep},
    {"global_step", Column::kStep},
    {"iteration", Column::kStep},
    {"iter", Column::kStep},
    {"it", Column::kStep},
    {"batch", Column::kStep},
    {"steps", Column::kStep},
    {"_step", Column::kStep},
    {"time", Column::kTime},
    {"time_s", Column::kTime},
    {"seconds", Column::kTime},
    {"timestamp", Column::kTime},
    {"_timestamp", Column::kTime},
    {"t", Column::kTime},
    {"wall_time", Column::kTime},
    {"rank", Column::kRank},
    {"local_rank", Column::kRank},
    {"index", Column::kDevice},
    {"device", Column::kDevice},
    {"gpu", Column::kDevice},
    {"phase", Column::kPhase},
    {"stage", Column::kPhase},
    {"mode", Column::kPhase},
    {"allocated", Column::kAllocated},
    {"memory_allocated", Column::kAllocated},
    {"alloc", Column::kAllocated},
    {"cuda_allocated", Column::kAllocated},
    {"gpu_allocated", Column::kAllocated},
    {"mem_allocated", Column::kAllocated},
    {"active", Column::kAllocated},
    {"reserved", Column::kReserved},
    {"memory_reserved", Column::kReserved},
    {"cached", Column::kReserved},
    {"cuda_reserved", Column::kReserved},
    {"mem_reserved", Column::kReserved},
    {"gpu_reserved", Column::kReserved},
    {"peak", Column::kPeak},
    {"max_memory_allocated", Column::kPeak},
    {"max_allocated", Column::kPeak},
    {"peak_allocated", Column::kPeak},
    {"max_mem", Column::kPeak},
    {"rss", Column::kRss},
    {"host_rss", Column::kRss},
    {"uss", Column::kRss},
    {"cpu_rss", Column::kRss},
    {"ram", Column::kRss},
    {"used", Column::kUsed},
    {"memory.used", Column::kUsed},
    {"memory_used", Column::kUsed},
    {"device_used", Column::kUsed},
    {"gpu_used", Column::kUsed},
    {"total", Column::kTotal},
    {"memory.total", Column::kTotal},
    {"capacity", Column::kTotal},
    {"value", Column::kValue},
    {"memory", Column::kValue},
    {"mem", Column::kValue},
    {"bytes", Column::kValue},
    {"usage", Column::kValue},
    {"mem_usage", Column::kValue},
    {"heap", Column::kPool},
    {"cpu", Column::kPool},
    {"workers", Column::kPool},
    {"shm", Column::kPool},
    {"fds", Column::kPool},
};

// "memory.used [MiB]", "allocated_mb", "reserved (GB)", "value_bytes".
Heading ParseHeading(std::string_view cell) {
  std::string name;
  for (char c : Trim(cell)) name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  Heading h;
  auto find = [&](std::string_view text) {
    for (auto& alias : kAliases)
      if (alias.name == text) {
        h.column = alias.column;
        if (h.column == Column::kPool) h.pool = text;
        return true;
      }
    return false;
  };
  if (find(name)) return h;
  for (char open : {'[', '(', '_', ' ', '/'}) {
    size_t at = name.rfind(open);
    if (at == std::string::npos || at == 0) continue;
    std::string unit = name.substr(at + 1);
    while (!unit.empty() && (unit.back() == ']' || unit.back() == ')')) unit.pop_back();
    // Headings of scripts say mb and mean what they divided by: 1024 * 1024 as often as not; MiB is said when
    // it is meant.
    double factor = UnitOf(unit);
    if (factor <= 0) continue;
    std::string base(Trim(name.substr(0, at)));
    while (!base.empty() && (base.back() == '_' || base.back() == ' ')) base.pop_back();
    if (find(base)) {
      h.unit = factor;
      return h;
    }
  }
  if (name.starts_with("cuda:") || name.starts_with("device-other:")) h.column = Column::kPool, h.pool = name;
  return h;
}

void Split(std::string_view line, char delimiter, std::vector<std::string_view>& cells) {
  cells.clear();
  size_t start = 0;
  bool quoted = false;
  for (size_t i = 0; i <= line.size(); ++i) {
    if (i < line.size() && line[i] == '"') quoted = !quoted;
    if (i < line.size() && (quoted || line[i] != delimiter)) continue;
    cells.push_back(Trim(line.substr(start, i - start)));
    start = i + 1;
  }
}

bool IsMemory(Column c) { return c >= Column::kAllocated && c != Column::kTotal; }

// "2024/05/01 12:00:00.123", "2024-05-01T12:00:00", or seconds.
double ParseTime(std::string_view text) {
  int y, mo, d, h, mi;
  double s;
  std::string copy(text);
  for (auto& c : copy)
    if (c == '/' || c == 'T' || c == '-') c = ' ';
  if (std::sscanf(copy.c_str(), "%d %d %d %d:%d:%lf", &y, &mo, &d, &h, &mi, &s) == 6) {
    std::tm tm{};
    tm.tm_year = y - 1900, tm.tm_mon = mo - 1, tm.tm_mday = d, tm.tm_hour = h, tm.tm_min = mi;
    return static_cast<double>(timegm(&tm)) + s;
  }
  return ParseAmount(text);
}

class Reader {
 public:
  bool TryHeader(std::string_view line) {
    for (char delimiter : {',', '\t', ';', '|'}) {
      Split(line, delimiter, cells_);
      headings_.clear();
      int memory = 0, numbers = 0, other = 0;
      for (auto cell : cells_) {
        headings_.push_back(ParseHeading(cell));
        memory += IsMemory(headings_.back().column);
        other += headings_.back().column != Column::kNone;
        numbers += std::isfinite(ParseAmount(cell));
      }
      if (memory > 0 && numbers == 0 && (cells_.size() > 1 || other == static_cast<int>(cells_.size()))) {
        delimiter_ = delimiter, header_ = line;
        return true;
      }
      // No names, but numbers: step,value or value.
      if (numbers == static_cast<int>(cells_.size()) &&
          (numbers == 2 || (numbers == 1 && delimiter == ','))) {
        headings_.assign(cells_.size(), {});
        headings_.back().column = Column::kValue;
        if (numbers == 2) headings_.front().column = Column::kStep;
        delimiter_ = delimiter;
        Add(line);
        return true;
      }
    }
    return false;
  }

  void Add(std::string_view line) {
    if (line == header_) return;  // nvidia-smi in a loop of calls, logs put together
    Split(line, delimiter_, cells_);
    Row row;
    bool bad_step = false, broken = cells_.size() > headings_.size();
    for (size_t i = 0; i < cells_.size() && i < headings_.size(); ++i) {
      auto cell = cells_[i];
      auto& h = headings_[i];
      if (h.column == Column::kPhase) {
        if (auto phase = ParsePhase(cell)) row.phase = *phase;
        continue;
      }
      if (h.column == Column::kTime) {
        row.time_s = ParseTime(cell);
        continue;
      }
      double value = h.column == Column::kNone ? 0 : ParseAmount(cell, h.unit);
      if (h.column == Column::kStep && !std::isfinite(value)) bad_step = true;
      if (IsMemory(h.column) && !cell.empty() && !std::isfinite(value))
        builder_.Skip("cell that is no number");
      Put(row, h, value);
    }
    if (broken) return builder_.Skip("row with more cells than columns");
    if (bad_step) return builder_.Skip("row whose step is no number");
    builder_.Add(row);
  }

  TableBuilder& builder() { return builder_; }
  bool nvidia_smi() const { return header_.find("memory.used") != std::string_view::npos; }

 private:
  static void Put(Row& row, const Heading& h, double value) {
    switch (h.column) {
      case Column::kStep:
        row.step = value;
        break;
      case Column::kRank:
        row.rank = std::isfinite(value) ? static_cast<int>(std::clamp(value, 0.0, 1e6)) : 0;
        break;
      case Column::kDevice:
        row.device = std::isfinite(value) ? static_cast<int>(std::clamp(value, 0.0, 1e6)) : -1;
        break;
      case Column::kAllocated:
        row.allocated = value;
        break;
      case Column::kReserved:
        row.reserved = value;
        break;
      case Column::kPeak:
        row.peak = value;
        break;
      case Column::kRss:
        row.rss = value;
        break;
      case Column::kUsed:
        row.used = value;
        break;
      case Column::kTotal:
        row.total = value;
        break;
      case Column::kValue:
        row.value = value;
        break;
      case Column::kPool:
        row.pools[h.pool] = value;
        break;
      default:
        break;
    }
  }

  std::vector<Heading> headings_;
  std::vector<std::string_view> cells_;
  char delimiter_ = ',';
  std::string_view header_;
  TableBuilder builder_;
};

}  // namespace

std::optional<Table> ParseCsv(std::string_view text, const std::string& name) {
  Reader reader;
  bool have_header = false;
  uint64_t number = 0, tried = 0;
  while (!text.empty()) {
    size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (line.empty()) continue;
    if (line.front() == '#') {
      // "# step,allocated" is a header of a comment-minded writer.
      if (!have_header && reader.TryHeader(Trim(line.substr(1)))) have_header = true;
      continue;
    }
    if (!have_header) {
      have_header = reader.TryHeader(line);
      if (!have_header && ++tried > 20) return std::nullopt;
      continue;
    }
    reader.Add(line);
  }
  if (!have_header) return std::nullopt;
  if (reader.builder().rows() == 0)
    throw Error("the header is there, but no row has a figure",
                "check that the columns hold numbers (bytes, or with a unit such as MiB)",
                fmt::format("{}:{}", name, number));
  return reader.builder().Finish(reader.nvidia_smi() ? "nvidia-smi" : "csv");
}

}  // namespace lowtide::series
