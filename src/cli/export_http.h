#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "report/openmetrics.h"

namespace lowtide::cli {

// Serves metric families on http://ADDRESS/metrics in Prometheus' text format, by prometheus-cpp. Only
// export_http.cc includes that library; a lowtide built without it throws Error, saying what to install.
class MetricsServer {
 public:
  // `address` is HOST:PORT, [IPv6]:PORT or PORT (of 127.0.0.1); port 0 takes a free one. `collect` is called
  // in the server's threads. Throws Error when the address is no address, in use, or not permitted.
  MetricsServer(const std::string& address, std::function<std::vector<report::MetricFamily>()> collect);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  const std::string& url() const { return url_; }

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::string url_;
};

}  // namespace lowtide::cli
