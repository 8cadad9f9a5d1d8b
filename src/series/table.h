#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "series/point.h"

namespace lowtide::series {

// One pool of one rank, as a file of readings shows it.
struct Series {
  std::string pool;
  int rank = 0;
  std::vector<Point> points;                      // in the file's order: a step that goes back is a restart
  std::vector<std::pair<Phase, uint64_t>> marks;  // events, with the step of the point they came before
  double quantum = 1;                             // the unit in which the figures move
  std::optional<double> capacity;                 // the file itself may tell (nvidia-smi's memory.total)
  bool running_maximum = false;                   // a peak since the start, not a level
  bool driver = false;                            // the driver's figure of the whole device
  bool nameless = false;                          // the file does not say what the figure is
};

// What a text file of memory figures holds.
struct Table {
  std::string format;  // "csv", "nvidia-smi", "log"
  std::vector<Series> series;
  uint64_t rows = 0;                        // that gave a reading
  std::map<std::string, uint64_t> skipped;  // reason -> how many rows or cells
};

// Reads CSV (columns step, allocated, reserved, peak, rss, used, rank, phase, time or names like them, any
// order, with units), nvidia-smi --query-gpu CSV, or log lines of training programs that carry memory
// figures; "-" is standard input. Throws Error (file, line, remedy) when nothing can be read.
Table ReadTable(const std::string& path);
Table ParseTable(std::string_view text, const std::string& name);

// --- for the parsers
// ---------------------------------------------------------------------------------------------

// The figures of one row; NaN where absent.
struct Row {
  double step = Point::kUnknown, time_s = Point::kUnknown;
  int rank = 0, device = -1;
  Phase phase = Phase::kStep;
  double allocated = Point::kUnknown, reserved = Point::kUnknown, peak = Point::kUnknown,
         rss = Point::kUnknown, used = Point::kUnknown, total = Point::kUnknown, value = Point::kUnknown;
  std::map<std::string, double> pools;  // columns named like a pool: heap, cpu, workers, shm, fds
};

// Collects rows into series: allocated -> cuda:N, used - reserved -> device-other:N, rss -> host, ...
class TableBuilder {
 public:
  void Add(const Row& row);
  void Skip(const std::string& reason) { ++table_.skipped[reason]; }
  uint64_t rows() const { return table_.rows; }
  Table Finish(std::string format);

 private:
  Series& SeriesOf(const std::string& pool, int rank);
  void AddPoint(const std::string& pool, const Row& row, double value, double peak, double reserved);

  Table table_;
  std::map<std::pair<std::string, int>, size_t> index_;
  std::map<std::pair<int, int>, uint64_t> next_step_;  // of rows without a step, by rank and device
  std::map<std::pair<std::string, int>, Phase> phase_;
};

std::optional<Table> ParseCsv(std::string_view text, const std::string& name);  // nullopt: not a table
std::optional<Table> ParseLog(std::string_view text);                           // nullopt: no memory figures

// "1234", "12.5 GB", "34.5GiB", "1,234 MiB"; a plain number is times `unit`. NaN when it is no number.
double ParseAmount(std::string_view text, double unit = 1);
// Bytes of "MiB", "GB", "k", "bytes" ...; 0 when it is no unit. Case of the i decides: MB is 1e6, MiB 2^20.
double UnitOf(std::string_view unit);

}  // namespace lowtide::series
