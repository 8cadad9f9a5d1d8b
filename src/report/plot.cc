#include "report/plot.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "report/phrases.h"

namespace lowtide::report {
namespace {

constexpr int kRows = 6;
constexpr int kLabel = 9;  // columns left of the plot

std::string Utf8(unsigned code) {
  return {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 63)),
          static_cast<char>(0x80 | (code & 63))};
}

// A grid of dots, two wide and four high in each character (Unicode block 2800), or one each in ASCII.
class Canvas {
 public:
  Canvas(int columns, bool braille)
      : columns_(columns), wide_(braille ? 2 : 1), high_(braille ? 4 : 1), cells_(static_cast<size_t>(columns) * kRows) {}

  int width() const { return columns_ * wide_; }
  int height() const { return kRows * high_; }

  // `y` counts from the bottom.
  void Dot(int x, int y, bool edge) {
    static constexpr uint8_t kBits[4][2] = {{1, 8}, {2, 16}, {4, 32}, {64, 128}};
    int down = height() - 1 - std::clamp(y, 0, height() - 1);
    Cell& cell = cells_[static_cast<size_t>(down / high_ * columns_ + x / wide_)];
    cell.bits |= wide_ == 2 ? kBits[down % 4][x % 2] : 1;
    cell.edge |= edge;
  }

  std::string Row(int row, const Terminal& terminal) const {
    std::string line;
    for (int column = 0; column < columns_;) {
      int end = column;
      const auto& first = cells_[static_cast<size_t>(row * columns_ + column)];
      std::string run;
      for (; end < columns_; ++end) {
        const Cell& cell = cells_[static_cast<size_t>(row * columns_ + end)];
        if (cell.edge != first.edge) break;
        run += cell.bits == 0 ? " " : wide_ == 2 ? Utf8(0x2800u + cell.bits) : cell.edge ? "_" : ".";
      }
      line += first.edge ? terminal.Red(run) : terminal.Dim(run);
      column = end;
    }
    return line;
  }

 private:
  struct Cell {
    uint8_t bits = 0;
    bool edge = false;
  };
  int columns_, wide_, high_;
  std::vector<Cell> cells_;
};

struct Range {
  double low = INFINITY, high = -INFINITY;
  void Add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

void Draw(const SeriesView& series, const Range& range, Canvas& canvas) {
  double first = static_cast<double>(series.points.front().step);
  double span = std::max(1.0, static_cast<double>(series.points.back().step) - first);
  double scale = range.high > range.low ? (canvas.height() - 1) / (range.high - range.low) : 0;
  auto row = [&](double value) { return static_cast<int>(std::lround((value - range.low) * scale)); };
  std::vector<Range> columns(static_cast<size_t>(canvas.width()));
  std::vector<double> edge(columns.size(), NAN);
  for (const auto& point : series.points) {
    auto x = static_cast<size_t>((static_cast<double>(point.step) - first) / span * (canvas.width() - 1));
    columns[x].Add(point.value);
    edge[x] = point.low;
  }
  for (size_t x = 0; x < columns.size(); ++x) {
    if (columns[x].low <= columns[x].high) {
      for (int y = row(columns[x].low); y <= row(columns[x].high); ++y) canvas.Dot(static_cast<int>(x), y, false);
    }
    if (x > 0 && std::isnan(edge[x])) edge[x] = edge[x - 1];
    if (std::isfinite(edge[x])) canvas.Dot(static_cast<int>(x), row(edge[x]), true);
  }
}

}  // namespace

std::string PlotSeries(const SeriesView& series, const Terminal& terminal) {
  if (series.points.size() < 2) return "";
  Range range;
  for (const auto& point : series.points) {
    range.Add(point.value);
    range.Add(point.low);
  }
  if (range.low > range.high) return "";
  int columns = std::clamp(terminal.width - kLabel - 5, 16, 72);
  Canvas canvas(columns, terminal.unicode);
  Draw(series, range, canvas);
  std::string out;
  const char* bar = terminal.unicode ? "│" : "|";
  for (int row = 0; row < kRows; ++row) {
    double figure = row == 0 ? range.high : range.low;
    std::string label = row == 0 || row == kRows - 1 ? Words::Amount(series.pool, figure) : "";
    out += fmt::format("  {:>{}} {}{}\n", label, kLabel, terminal.Dim(bar), canvas.Row(row, terminal));
  }
  std::string first = FormatCount(series.points.front().step), last = FormatCount(series.points.back().step);
  std::string axis = fmt::format("{}{:>{}}", first, last, std::max(0, columns - static_cast<int>(first.size())));
  return out + fmt::format("  {:>{}}  {}\n", "", kLabel, terminal.Dim(axis));
}

std::string Sparkline(const std::vector<double>& values, int columns, const Terminal& terminal) {
  static constexpr std::string_view kAscii = "_.:-=+*#";
  Range range;
  for (double value : values) range.Add(value);
  std::string out;
  auto size = static_cast<int>(values.size());
  int used = std::min(columns, size);
  for (int i = 0; i < used; ++i) {
    // The largest of the values that share a column.
    Range cell;
    for (int j = i * size / used; j < (i + 1) * size / used; ++j) cell.Add(values[static_cast<size_t>(j)]);
    double share = range.high > range.low ? (cell.high - range.low) / (range.high - range.low) : 0;
    int level = std::isfinite(share) ? std::clamp(static_cast<int>(std::lround(share * 7)), 0, 7) : 0;
    out += terminal.unicode ? Utf8(0x2581u + static_cast<unsigned>(level)) : std::string(1, kAscii[static_cast<size_t>(level)]);
  }
  return std::string(static_cast<size_t>(columns - used), ' ') + out;
}

}  // namespace lowtide::report
