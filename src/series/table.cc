#include "series/table.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/mapped_file.h"

namespace lowtide::series {

Series& TableBuilder::SeriesOf(const std::string& pool, int rank) {
  auto [it, fresh] = index_.try_emplace({pool, rank}, table_.series.size());
  if (fresh) {
    if (table_.series.size() >= 4096) throw Error("more than 4096 series", "split the file by rank");
    table_.series.push_back({});
    table_.series.back().pool = pool, table_.series.back().rank = rank;
  }
  return table_.series[it->second];
}

void TableBuilder::AddPoint(const std::string& pool, const Row& row, double value, double peak,
                            double reserved) {
  Series& series = SeriesOf(pool, row.rank);
  Point p{static_cast<uint64_t>(row.step), row.time_s, value, peak, reserved, row.phase};
  Phase& before = phase_.try_emplace({pool, row.rank}, Phase::kStep).first->second;
  if (row.phase != Phase::kStep && row.phase != before) series.marks.push_back({row.phase, p.step});
  before = row.phase;
  series.points.push_back(p);
  if (std::isfinite(row.total) && !pool.starts_with("device-other")) series.capacity = row.total;
}

void TableBuilder::Add(const Row& given) {
  Row row = given;
  if (!std::isfinite(row.step)) row.step = static_cast<double>(next_step_[{row.rank, row.device}]++);
  if (row.step < 0 || row.step > 9e15) return Skip("step out of range");
  auto has = [](double v) { return std::isfinite(v); };
  std::string device = std::to_string(std::max(0, row.device));
  bool any = false;
  auto add = [&](const std::string& pool, double value, double peak = Point::kUnknown,
                 double reserved = Point::kUnknown) {
    if (value < 0 && !pool.starts_with("device-other")) return Skip("negative figure");
    AddPoint(pool, row, value, peak, reserved);
    any = true;
  };
  if (has(row.allocated)) {
    add("cuda:" + device, row.allocated, row.peak, row.reserved);
  } else if (has(row.peak)) {
    add("cuda:" + device, row.peak);
    SeriesOf("cuda:" + device, row.rank).running_maximum = true;
  } else if (has(row.reserved)) {
    add("cuda:" + device, row.reserved);
    SeriesOf("cuda:" + device, row.rank).running_maximum = true;  // only grows by design
  }
  if (has(row.used) && has(row.reserved))
    add("device-other:" + device, row.used - row.reserved);
  else if (has(row.used) && !has(row.allocated))
    add("cuda:" + device, row.used), SeriesOf("cuda:" + device, row.rank).driver = true;
  if (has(row.rss)) add("host", row.rss);
  if (has(row.value)) add("host", row.value), SeriesOf("host", row.rank).nameless = true;
  for (auto& [pool, value] : row.pools)
    if (has(value)) add(pool, value);
  if (any)
    ++table_.rows;
  else
    Skip("row without a memory figure");
}

namespace {

// The largest power of two that divides every figure: what the file's figures were rounded to.
double QuantumOfPoints(const Series& series) {
  uint64_t bits = 0;
  for (auto& p : series.points) {
    if (p.value != std::floor(p.value) || std::abs(p.value) > 9e15) return 1;
    bits |= static_cast<uint64_t>(std::abs(p.value));
  }
  uint64_t quantum = bits & (~bits + 1);
  return static_cast<double>(std::clamp<uint64_t>(quantum, 1, 1 << 20));
}

}  // namespace

Table TableBuilder::Finish(std::string format) {
  table_.format = std::move(format);
  for (auto& series : table_.series) {
    double own = series.nameless ? 1 : QuantumOf(series.pool);
    series.quantum = std::max(QuantumOfPoints(series), own);
    if (series.nameless && series.quantum > 1) continue;
    // Readings all a multiple of less than the pool's unit were not rounded to it.
    if (series.pool == "device-other:0" && QuantumOfPoints(series) < 512) series.quantum = own;
  }
  return std::move(table_);
}

Table ParseTable(std::string_view text, const std::string& name) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  if (text.empty())
    throw Error("the file is empty",
                "give a CSV with columns step,allocated, an nvidia-smi log, or a training log", name);
  if (text.find('\0') != std::string_view::npos)
    throw Error("this is a binary file, not a table of memory figures",
                "give a CSV or a log; a folder of a run is read by `lowtide report`, a snapshot by `lowtide "
                "snapshot`",
                name, text.find('\0'));
  if (auto table = ParseCsv(text, name)) return *table;
  if (auto table = ParseLog(text)) return *table;
  throw Error(
      "no memory figures found",
      "give a CSV whose first line names its columns (step,allocated[,reserved][,peak][,rss][,used][,rank]), "
      "nvidia-smi --query-gpu=timestamp,index,memory.used,memory.total --format=csv, or log lines like "
      "\"step 100 allocated: 12.3 GB\"",
      name, 0);
}

Table ReadTable(const std::string& path) { return ParseTable(ReadFile(path), path); }

}  // namespace lowtide::series
