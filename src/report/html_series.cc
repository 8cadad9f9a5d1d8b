#include "report/html_series.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"

namespace lowtide::report {
namespace {

using Point = SeriesView::Point;

constexpr size_t kPointsPerSeries = 3000;
constexpr size_t kPointsPerPage = 200'000;  // about 4 MB
constexpr size_t kFewestPoints = 200;

constexpr Phrase kScriptWords[] = {Phrase::kJsStep,     Phrase::kJsValue,    Phrase::kJsLow,   Phrase::kJsLimit,
                                   Phrase::kJsOnset,    Phrase::kJsProjection, Phrase::kJsToLimit, Phrase::kJsRecorded,
                                   Phrase::kJsReset,    Phrase::kJsHelp,     Phrase::kJsChart, Phrase::kJsWhichRank,
                                   Phrase::kRank};

const finding::VerdictRow* RowOf(const RunView& view, const SeriesView& series) {
  for (const auto& row : view.document.verdicts) {
    if (row.pool == series.pool && row.rank == series.rank) return &row;
  }
  return nullptr;
}

template <typename Get>
void WriteColumn(JsonWriter& json, const char* key, const std::vector<Point>& points, Get get) {
  json.Key(key).BeginArray();
  for (const Point& point : points) json.Value(std::round(get(point)));
  json.EndArray();
}

void WritePhases(JsonWriter& json, const RunView& view, int rank, const Words& words) {
  json.Key("phases").BeginArray();
  for (const RankView& view_of_rank : view.ranks) {
    if (view_of_rank.rank != rank) continue;
    for (const PhaseSpan& span : view_of_rank.phases) {
      json.BeginObject().Field("kind", span.phase).Field("name", words.During(span.phase));
      json.Field("first", span.first_step).Field("last", span.last_step).EndObject();
    }
  }
  json.EndArray();
}

void WriteSeries(JsonWriter& json, const RunView& view, const SeriesView& series, size_t limit, const Words& words) {
  json.BeginObject().Field("name", words.Pool(series.pool)).Field("rank", series.rank);
  json.Field("unit", series.pool == "fds" ? "" : "B").Field("capacity", series.capacity);
  if (const auto* row = RowOf(view, series)) {
    json.Field("verdict", row->verdict);
    bool leak = row->verdict == "leak";
    json.Field("onset", leak ? row->onset_step : std::nullopt);
    if (leak && row->steps_to_oom && !series.points.empty()) {
      json.Field("oom_step", static_cast<double>(series.points.back().step) + std::max(0.0, *row->steps_to_oom));
    }
  }
  std::vector<Point> points = Thin(series.points, limit);
  WriteColumn(json, "steps", points, [](const Point& point) { return static_cast<double>(point.step); });
  WriteColumn(json, "values", points, [](const Point& point) { return point.value; });
  WriteColumn(json, "lows", points, [](const Point& point) { return point.low; });
  WritePhases(json, view, series.rank, words);
  json.EndObject();
}

}  // namespace

std::vector<Point> Thin(const std::vector<Point>& points, size_t limit) {
  if (points.size() <= limit || limit < 4) return points;
  size_t buckets = limit / 4;
  double first = static_cast<double>(points.front().step);
  double width = (static_cast<double>(points.back().step) - first + 1) / static_cast<double>(buckets);
  std::vector<Point> out;
  for (size_t begin = 0; begin < points.size();) {
    double bucket = std::floor((static_cast<double>(points[begin].step) - first) / width);
    size_t end = begin, low = begin, high = begin;
    for (; end < points.size() && std::floor((static_cast<double>(points[end].step) - first) / width) <= bucket; ++end) {
      if (points[end].value < points[low].value) low = end;
      if (points[end].value > points[high].value) high = end;
    }
    size_t kept[] = {begin, std::min(low, high), std::max(low, high), end - 1};
    for (size_t i = 0; i < 4; ++i) {
      if (i == 0 || kept[i] != kept[i - 1]) out.push_back(points[kept[i]]);
    }
    begin = end;
  }
  return out;
}

std::string ChartData(const RunView& view, const Words& words) {
  size_t share = kPointsPerPage / std::max<size_t>(1, view.series.size());
  size_t limit = std::clamp(share, kFewestPoints, kPointsPerSeries);
  JsonWriter json;
  json.BeginObject().Key("words").BeginObject();
  for (Phrase phrase : kScriptWords) json.Field(kTranslations[static_cast<int>(phrase)].name, words.Get(phrase));
  json.EndObject().Key("series").BeginArray();
  for (const SeriesView& series : view.series) WriteSeries(json, view, series, limit, words);
  json.EndArray().EndObject();
  return json.Take();
}

}  // namespace lowtide::report
