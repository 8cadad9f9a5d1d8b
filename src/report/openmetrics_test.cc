#include "report/openmetrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

namespace lowtide::report {
namespace {

FleetMetrics Fleet() {
  PoolMetrics cpu;
  cpu.pool = "cpu";
  cpu.now = 1500, cpu.floor = 1000, cpu.capacity = 1e12, cpu.reserved = 2048;
  cpu.growth = 40.5, cpu.growth_lower = 40, cpu.growth_upper = 41;
  cpu.steps_to_oom = 1e6, cpu.seconds_to_oom = 3600;
  cpu.verdict = "leak", cpu.watch = true, cpu.alarm = true;
  PoolMetrics fds;
  fds.pool = "fds";
  fds.now = 12, fds.floor = 12, fds.growth = 1, fds.capacity = 1024, fds.verdict = "healthy";
  RankMetrics rank;
  rank.rank = 3, rank.host = "node", rank.running = true, rank.steps = 1234567, rank.start_time = 1.7e9,
  rank.record_age = 0.25;
  rank.step_seconds = 0.125, rank.torn = 1, rank.overwritten = 2, rank.uncounted = 3, rank.pools = {cpu, fds};
  RunMetrics run;
  run.run = "train-1", run.script = "train.py", run.ranks = {rank}, run.unreadable_files = 1;
  run.findings[{"LT201", "error"}] = 2;
  return {{run}, 4, 0.5};
}

bool Has(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST(OpenMetrics, SamplesHaveTheirLabelsAndValues) {
  std::string text = ToPrometheusText(Families(Fleet()));
  EXPECT_TRUE(Has(text, "lowtide_pool_bytes{run=\"train-1\",rank=\"3\",pool=\"cpu\"} 1500")) << text;
  EXPECT_TRUE(Has(text, "lowtide_pool_growth_bytes_per_step{run=\"train-1\",rank=\"3\",pool=\"cpu\"} 40.5"));
  EXPECT_TRUE(Has(text, "lowtide_steps_total{run=\"train-1\",rank=\"3\"} 1234567"));
  EXPECT_TRUE(Has(text, "lowtide_findings{run=\"train-1\",code=\"LT201\",severity=\"error\"} 2"));
  EXPECT_TRUE(Has(text, "lowtide_runs_left_out 4"));
  EXPECT_TRUE(Has(text, "# TYPE lowtide_steps_total counter"));
}

TEST(OpenMetrics, AVerdictIsAStateSet) {
  auto families = Families(Fleet());
  auto verdicts = std::find_if(families.begin(), families.end(),
                               [](const auto& f) { return f.name == std::string("lowtide_pool_verdict"); });
  ASSERT_NE(verdicts, families.end());
  EXPECT_EQ(verdicts->samples.size(), 14u);
  double on = 0;
  for (const auto& sample : verdicts->samples) on += sample.value;
  EXPECT_EQ(on, 2) << "one verdict a pool";
}

TEST(OpenMetrics, DescriptorsAreNoBytes) {
  std::string text = ToPrometheusText(Families(Fleet()));
  EXPECT_TRUE(Has(text, "lowtide_open_descriptors{run=\"train-1\",rank=\"3\"} 12"));
  EXPECT_EQ(text.find("bytes{run=\"train-1\",rank=\"3\",pool=\"fds\"}"), std::string::npos);
}

TEST(OpenMetrics, WhatIsNotKnownHasNoSample) {
  FleetMetrics fleet = Fleet();
  fleet.runs[0].ranks[0].pools[0].seconds_to_oom = std::nullopt;
  fleet.runs[0].ranks[0].pools[0].growth = std::numeric_limits<double>::quiet_NaN();
  std::string text = ToPrometheusText(Families(fleet));
  EXPECT_EQ(text.find("lowtide_pool_time_to_oom_seconds"), std::string::npos) << "nor a head";
  EXPECT_EQ(text.find("lowtide_pool_growth_bytes_per_step"), std::string::npos);
  EXPECT_EQ(text.find("nan"), std::string::npos);
}

TEST(OpenMetrics, NamesAreEscapedAndMadeUtf8) {
  FleetMetrics fleet = Fleet();
  fleet.runs[0].run = "a\"b\\c\nd";
  fleet.runs[0].script = "caf\xe9.py";
  fleet.runs[0].ranks[0].host = std::string(5000, 'x');
  std::string text = ToPrometheusText(Families(fleet));
  EXPECT_TRUE(Has(text, "lowtide_run_info{run=\"a\\\"b\\\\c\\nd\",script=\"caf\xEF\xBF\xBD.py\"} 1")) << text;
  EXPECT_EQ(text.find(std::string(300, 'x')), std::string::npos);
}

TEST(OpenMetrics, TheOpenMetricsTextNamesFamiliesItsWay) {
  std::string text = ToOpenMetrics(Families(Fleet()));
  EXPECT_TRUE(Has(text, "# TYPE lowtide_steps counter"));
  EXPECT_TRUE(Has(text, "# TYPE lowtide_run info"));
  EXPECT_TRUE(Has(text, "# UNIT lowtide_pool_bytes bytes"));
  EXPECT_TRUE(text.ends_with("\n# EOF\n"));
}

// docs/metrics.md and the code say the same.
TEST(OpenMetrics, TheDocsListExactlyWhatIsExported) {
  std::ifstream page(LOWTIDE_SOURCE_DIR "/docs/metrics.md");
  ASSERT_TRUE(page);
  std::vector<std::string> rows, expected;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("| `lowtide_")) rows.push_back(line);
  }
  for (const MetricFamily& family : MetricCatalogue()) {
    const char* kind = family.kind == MetricKind::kCounter ? "counter"
                       : family.kind == MetricKind::kInfo  ? "info"
                                                           : "gauge";
    expected.push_back(std::string("| `") + family.name + "` | " + kind + " | " + family.labels + " | " +
                       family.help + " |");
  }
  EXPECT_EQ(rows, expected);
}

TEST(OpenMetrics, EveryFamilyIsExportedWithItsLabels) {
  std::set<std::string> seen;
  for (const MetricFamily& family : Families(Fleet())) {
    seen.insert(family.name);
    for (const MetricSample& sample : family.samples) {
      std::string labels;
      for (const auto& [name, value] : sample.labels) labels += (labels.empty() ? "" : ", ") + name;
      EXPECT_EQ(labels, family.labels) << family.name;
    }
    std::string name = family.name, unit = family.unit;
    EXPECT_TRUE(name.ends_with(unit)) << name;
    EXPECT_EQ(name.ends_with("_total"), family.kind == MetricKind::kCounter) << name;
  }
  for (const MetricFamily& family : MetricCatalogue())
    EXPECT_TRUE(seen.count(family.name)) << family.name << " is never exported";
}

}  // namespace
}  // namespace lowtide::report
