// The two text formats. They differ in what a family is called (OpenMetrics: without `_total` and `_info`),
// in the types that they know, and in how they end. Labels are escaped alike: backslash, quote, newline.
#include <fmt/core.h>

#include <cmath>
#include <string_view>

#include "report/openmetrics.h"

namespace lowtide::report {
namespace {

void AddEscaped(std::string& out, std::string_view text) {
  for (char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else {
      if (c == '\\' || c == '"') out += '\\';
      out += c;
    }
  }
}

// Whole numbers without an exponent, others with every digit that counts.
std::string Number(double value) {
  if (value == std::floor(value) && std::fabs(value) < 9e15)
    return std::to_string(static_cast<int64_t>(value));
  return fmt::format("{}", value);
}

void AddSamples(std::string& out, const MetricFamily& family) {
  for (const MetricSample& sample : family.samples) {
    out += family.name;
    char before = '{';
    for (const auto& [name, value] : sample.labels) {
      out += before;
      out += name;
      out += "=\"";
      AddEscaped(out, value);
      out += '"';
      before = ',';
    }
    if (!sample.labels.empty()) out += '}';
    out += ' ';
    out += Number(sample.value);
    out += '\n';
  }
}

std::string_view Without(std::string_view name, std::string_view end) {
  return name.ends_with(end) ? name.substr(0, name.size() - end.size()) : name;
}

}  // namespace

std::string ToPrometheusText(const std::vector<MetricFamily>& families) {
  std::string out;
  for (const MetricFamily& family : families) {
    const char* type = family.kind == MetricKind::kCounter ? "counter" : "gauge";
    out += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", family.name, family.help, type);
    AddSamples(out, family);
  }
  return out;
}

std::string ToOpenMetrics(const std::vector<MetricFamily>& families) {
  std::string out;
  for (const MetricFamily& family : families) {
    std::string_view name = family.name;
    const char* type = "gauge";
    if (family.kind == MetricKind::kCounter) {
      name = Without(name, "_total");
      type = "counter";
    } else if (family.kind == MetricKind::kInfo) {
      name = Without(name, "_info");
      type = "info";
    }
    out += fmt::format("# TYPE {} {}\n", name, type);
    if (*family.unit) out += fmt::format("# UNIT {} {}\n", name, family.unit);
    out += fmt::format("# HELP {} {}\n", name, family.help);
    AddSamples(out, family);
  }
  return out + "# EOF\n";
}

}  // namespace lowtide::report
