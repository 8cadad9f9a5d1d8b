#include "cli/export_http.h"

#include <fmt/core.h>

#include "base/error.h"

#ifdef LOWTIDE_PROMETHEUS
#include <netdb.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#endif

namespace lowtide::cli {

#ifdef LOWTIDE_PROMETHEUS
namespace {

class Families : public prometheus::Collectable {
 public:
  explicit Families(std::function<std::vector<report::MetricFamily>()> collect)
      : collect_(std::move(collect)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> out;
    for (report::MetricFamily& family : collect_()) {
      bool counter = family.kind == report::MetricKind::kCounter;
      auto type = counter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge;
      auto& to = out.emplace_back(prometheus::MetricFamily{family.name, family.help, type, {}});
      for (report::MetricSample& sample : family.samples) {
        prometheus::ClientMetric metric;
        for (auto& [name, value] : sample.labels) metric.label.push_back({std::move(name), std::move(value)});
        (counter ? metric.counter.value : metric.gauge.value) = sample.value;
        to.metric.push_back(std::move(metric));
      }
    }
    return out;
  }

 private:
  std::function<std::vector<report::MetricFamily>()> collect_;
};

struct Address {
  std::string host = "127.0.0.1", port;
};

Address Split(const std::string& text) {
  Address address;
  size_t colon = text.rfind(':');
  address.port = text.substr(colon == std::string::npos ? 0 : colon + 1);
  std::string host = colon == std::string::npos ? "" : text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  if (colon != std::string::npos) address.host = host.empty() ? "0.0.0.0" : host;
  unsigned number = 65536;
  auto [end, bad] = std::from_chars(address.port.data(), address.port.data() + address.port.size(), number);
  if (bad != std::errc() || end != address.port.data() + address.port.size() || number > 65535) {
    throw Error(fmt::format("{} is no address to listen at", text),
                "write HOST:PORT, such as --listen 127.0.0.1:9464");
  }
  return address;
}

std::string Advice(int failure) {
  if (failure == EADDRINUSE) return "another program serves there: name another port, or 0 for a free one";
  if (failure == EACCES || failure == EPERM) return "ports below 1024 are for root: name a higher one";
  return "name an address of this machine, such as 127.0.0.1 or 0.0.0.0";
}

// The server's library only says "possible problem binding to port": the reason is asked of the system
// beforehand. Returns the address in numbers.
std::string CheckedAddress(const Address& address) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (int problem = ::getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found); problem != 0) {
    throw Error(fmt::format("no such host: {} ({})", address.host, ::gai_strerror(problem)), Advice(0));
  }
  std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  char numbers[NI_MAXHOST] = {};
  ::getnameinfo(found->ai_addr, found->ai_addrlen, numbers, sizeof numbers, nullptr, 0, NI_NUMERICHOST);
  int fd = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  bool bound = fd >= 0 && ::bind(fd, found->ai_addr, found->ai_addrlen) == 0 && ::listen(fd, 1) == 0;
  int failure = errno;
  if (fd >= 0) ::close(fd);
  if (!bound)
    throw Error(fmt::format("cannot listen at {}:{}: {}", address.host, address.port, std::strerror(failure)),
                Advice(failure));
  return found->ai_family == AF_INET6 ? fmt::format("[{}]", numbers) : numbers;
}

}  // namespace

struct MetricsServer::State {
  std::shared_ptr<Families> families;
  std::unique_ptr<prometheus::Exposer> exposer;
};

MetricsServer::MetricsServer(const std::string& address,
                             std::function<std::vector<report::MetricFamily>()> collect)
    : state_(std::make_unique<State>()) {
  Address split = Split(address);
  std::string host = CheckedAddress(split);
  state_->families = std::make_shared<Families>(std::move(collect));
  try {
    state_->exposer = std::make_unique<prometheus::Exposer>(fmt::format("{}:{}", host, split.port));
  } catch (const std::exception& problem) {
    throw Error(fmt::format("cannot serve at {}: {}", address, problem.what()), Advice(0));
  }
  state_->exposer->RegisterCollectable(state_->families);
  auto ports = state_->exposer->GetListeningPorts();
  url_ = fmt::format("http://{}:{}/metrics", host, ports.empty() ? split.port : std::to_string(ports[0]));
}

MetricsServer::~MetricsServer() = default;

#else

struct MetricsServer::State {};

MetricsServer::MetricsServer(const std::string&, std::function<std::vector<report::MetricFamily>()>) {
  throw Error("this lowtide was built without prometheus-cpp and cannot serve metrics itself",
              "install it (Debian: prometheus-cpp-dev) and build lowtide again, or let node_exporter serve "
              "what --textfile writes");
}

MetricsServer::~MetricsServer() = default;

#endif

}  // namespace lowtide::cli
