#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "series/point.h"

// Generated series with known truth, for tests and benchmarks: healthy, bounded and leaking runs under the
// noise that training shows (none, Gaussian, variable lengths, buckets, gradient accumulation, sawtooth,
// correlated).
namespace lowtide::verdict::testing {

struct Case {
  std::string family, noise;
  bool leak = false;
  bool linear_cache =
      false;         // until it is full, a cache that fills at constant speed is the same series as a leak
  double slope = 0;  // bytes per step at the end, of leaks
  double z = 0;      // growth over the run against the noise of its slope: Gaussian least squares
  double capacity = 0;
  std::string pool = "cuda:0";
  double quantum = 512;
  std::vector<series::Point> points;
};

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  static const std::vector<std::string>& Healthy() {
    static const std::vector<std::string> names{
        "flat",       "warmup",       "step",       "twosteps", "decreasing", "gc_short",
        "gc_long",    "sorted_epoch", "valspike",   "valstep",  "cache_exp",  "cache_zipf",
        "cache_late", "rss_cow",      "rss_log",    "rss_trim", "rss_walk",   "curriculum",
        "restart",    "missing",      "correlated", "capacity"};
    return names;
  }
  static const std::vector<std::string>& Leaks() {
    static const std::vector<std::string> names{
        "l_step",   "l_late",  "l_log",        "l_val",      "l_epoch",  "l_rare",
        "l_random", "l_quad",  "l_decreasing", "l_gcmix",    "l_sorted", "l_curriculum",
        "l_rss",    "l_other", "l_restart",    "l_valspike", "l_warmup"};
    return names;
  }

  // `readings` samples of one family. `strength`: growth over the run in units of the noise's spread (leaks).
  Case Make(const std::string& family, size_t readings, double strength = 5) {
    Start(family, readings);
    std::vector<double> extra(n_, 0.0), lift(n_, 0.0);
    bool leak = family.starts_with("l_");
    if (family == "warmup" || family == "l_warmup") Warmup(lift);
    if (family == "step" || family == "valstep") Steps(lift, 1, 0.1, 0.9);
    if (family == "twosteps" || family == "curriculum" || family == "l_curriculum")
      Steps(lift, 2 + Int(0, 1), 0.05, 0.9);
    if (family == "decreasing" || family == "l_decreasing")
      for (size_t i = 0; i < n_; ++i) lift[i] -= 3 * sigma_ * Progress(i) * (leak ? 0.3 : 1);
    if (family == "gc_short" || family == "l_gcmix")
      Sawtooth(extra, Uniform(6, 40), Uniform(0.5, 3) * std::max(sigma_, 1e6));
    if (family == "gc_long") Sawtooth(extra, n_ * Uniform(0.12, 0.4), Uniform(1, 20) * std::max(sigma_, 1e6));
    if (family == "sorted_epoch" || family == "l_sorted")
      SortNoise(static_cast<size_t>(n_ * Uniform(0.05, 0.3)));
    if (family == "valspike" || family == "l_valspike") Spikes(extra);
    if (family == "cache_exp")
      Fill(lift, [t = Uniform(0.05, 0.6)](double x) { return 1 - std::exp(-x / t); });
    if (family == "cache_zipf") Fill(lift, [p = Uniform(0.35, 0.65)](double x) { return std::pow(x, p); });
    if (family == "cache_late") Fill(lift, [c = Uniform(0.2, 0.8)](double x) { return std::min(x, c) / c; });
    if (family == "rss_log")
      Fill(lift, [c = Uniform(0.005, 0.1)](double x) { return std::log1p(x / c) / std::log1p(1 / c); });
    if (family == "rss_cow") Fill(lift, [t = Uniform(0.05, 0.4)](double x) { return 1 - std::exp(-x / t); });
    if (family == "rss_walk" || family == "l_rss" || family == "rss_cow" || family == "rss_log")
      Walk(lift, family == "rss_walk" ? 0.3 : 0.08);
    if (family == "rss_trim") Trim(lift);
    if (family.starts_with("rss") || family == "l_rss") case_.pool = "host", case_.quantum = 4096;
    if (family == "l_other") case_.pool = "device-other:0", case_.quantum = 1 << 20;
    if (leak) Leak(family, strength, lift);
    Emit(family, extra, lift);
    return case_;
  }

 private:
  double Uniform(double a, double b) { return a + (b - a) * std::uniform_real_distribution<>()(random_); }
  int Int(int a, int b) { return std::uniform_int_distribution<>(a, b)(random_); }
  double Normal() { return std::normal_distribution<>()(random_); }
  double Progress(size_t i) const { return static_cast<double>(i) / static_cast<double>(n_ - 1); }

  void Start(const std::string& family, size_t readings) {
    case_ = Case{};
    case_.family = family, case_.leak = family.starts_with("l_"), case_.linear_cache = family == "cache_late";
    n_ = readings;
    const int every[] = {1, 1, 1, 2, 5, 10, 20, 50};
    every_ = every[Int(0, 7)];
    case_.capacity = std::pow(2.0, Int(34, 37));
    base_ = case_.capacity * Uniform(0.15, 0.6);
    const char* kinds[] = {"exact", "gauss", "varlen", "bucket", "ga", "saw", "exact", "ar"};
    case_.noise = family == "correlated" ? "ar" : kinds[Int(0, 6)];
    if (family.find("sorted") != std::string::npos) case_.noise = "varlen";
    if (family == "l_other") case_.noise = "exact";
    MakeNoise();
  }

  void MakeNoise() {
    noise_.assign(n_, 0.0);
    double scale = base_ * std::pow(10.0, Uniform(-2.7, -0.8));
    const std::string& kind = case_.noise;
    int period = Int(2, 16);
    double phase = Uniform(0, 10), state = 0, rho = std::exp(-1 / Uniform(2, 12));
    std::vector<double> buckets;
    for (int i = 0, k = Int(3, 8); i < k; ++i) buckets.push_back(Uniform(0, 3));
    for (size_t i = 0; i < n_; ++i) {
      double& v = noise_[i];
      if (kind == "exact") v = 512.0 * Int(-1, 1), sigma_ = 400;
      if (kind == "gauss") v = scale * Normal();
      if (kind == "varlen") v = scale * std::exp(0.6 * Normal());
      if (kind == "bucket")
        v = scale * buckets[static_cast<size_t>(Int(0, static_cast<int>(buckets.size()) - 1))];
      if (kind == "ga") v = scale * ((static_cast<int>(i) % period) ? 0.7 : 0.0) + 0.3 * scale * Normal();
      if (kind == "saw")
        v = scale * (std::fmod(static_cast<double>(i) + phase, period + 3.7) / (period + 3.7)) +
            0.2 * scale * Normal();
      if (kind == "ar") state = rho * state + std::sqrt(1 - rho * rho) * Normal(), v = scale * state;
    }
    if (kind == "exact") return;
    double mean = 0, ss = 0;
    for (double v : noise_) mean += v / static_cast<double>(n_);
    for (double v : noise_) ss += (v - mean) * (v - mean) / static_cast<double>(n_);
    sigma_ = std::sqrt(ss);
  }

  void SortNoise(size_t epoch) {
    epoch = std::max<size_t>(epoch, 16);
    for (size_t a = 0; a < n_; a += epoch)
      std::sort(noise_.begin() + static_cast<long>(a),
                noise_.begin() + static_cast<long>(std::min(n_, a + epoch)));
  }
  void Warmup(std::vector<double>& lift) {
    double tau = Uniform(2, 30), height = Uniform(0.05, 0.5) * base_;
    for (size_t i = 0; i < n_; ++i) lift[i] -= height * std::exp(-static_cast<double>(i) / tau);
  }
  void Steps(std::vector<double>& lift, int count, double from, double to) {
    for (int k = 0; k < count; ++k) {
      double at = Uniform(from, to), height = Uniform(0.5, 6) * std::max(sigma_, 1e7);
      for (size_t i = 0; i < n_; ++i) lift[i] += Progress(i) > at ? height : 0;
    }
  }
  void Sawtooth(std::vector<double>& extra, double period, double height) {
    double left = period * Uniform(0, 1), length = period;
    for (size_t i = 0; i < n_; ++i) {
      extra[i] += height * (1 - left / length) * length / period;
      if (--left <= 0) left = length = period * Uniform(0.8, 1.25);
    }
  }
  void Spikes(std::vector<double>& extra) {
    int every = Int(15, 80);
    for (size_t i = 0; i < n_; ++i)
      if (static_cast<int>(i) % every == every - 1) extra[i] += 0.3 * base_;
  }
  template <typename F>
  void Fill(std::vector<double>& lift, F f) {
    double height = Uniform(2, 40) * std::max(sigma_, 1e6);
    height = std::min(height, 0.5 * base_);
    for (size_t i = 0; i < n_; ++i) lift[i] += height * f(Progress(i));
  }
  void Walk(std::vector<double>& lift, double size) {
    double at = 0, step = size * std::max(sigma_, 4e6) / std::sqrt(static_cast<double>(n_)) * 3;
    for (size_t i = 0; i < n_; ++i) at += step * Normal(), lift[i] += at;
  }
  void Trim(std::vector<double>& lift) {
    double at = 0, step = std::max(sigma_, 4e6) * 0.05;
    for (size_t i = 0; i < n_; ++i) {
      at += step * std::exp(0.5 * Normal());
      if (Uniform(0, 1) < 0.02) at *= Uniform(0, 0.3);
      lift[i] += at;
    }
  }

  void Leak(const std::string& family, double strength, std::vector<double>& lift) {
    double noise = family == "l_other" ? 3e5 : case_.noise == "exact" ? 2e5 : sigma_;
    double growth = std::min(strength * noise, 0.6 * base_),
           onset = family == "l_late" ? Uniform(0.2, 0.6) : 0;
    std::vector<double> shape(n_, 0.0);
    int events = family == "l_val"     ? Int(12, 60)
                 : family == "l_epoch" ? Int(6, 14)
                 : family == "l_log"   ? Int(60, 200)
                                       : 0;
    double interval = events ? static_cast<double>(n_) / events : 1, at = 0;
    for (size_t i = 0; i < n_; ++i) {
      double x = Progress(i);
      if (family == "l_quad")
        shape[i] = x * x;
      else if (events)
        shape[i] = std::floor(static_cast<double>(i) / interval) / events;
      else if (family == "l_rare")
        shape[i] = at += (Uniform(0, 1) < 25.0 / static_cast<double>(n_) ? 1.0 / 25 : 0);
      else if (family == "l_random")
        shape[i] = at += -std::log(Uniform(1e-9, 1)) / static_cast<double>(n_);
      else
        shape[i] = std::max(0.0, x - onset) / (1 - onset);
    }
    for (size_t i = 0; i < n_; ++i) lift[i] += growth * shape[i];
    double steps = static_cast<double>((n_ - 1) * static_cast<size_t>(every_));
    case_.slope = growth / steps / (1 - onset) * (family == "l_quad" ? 2 : 1);
    if (family == "l_rare" || family == "l_random") case_.slope *= at;
    double sd = case_.noise == "exact" ? (family == "l_other" ? 3e5 : 400) : sigma_;
    case_.z = growth / sd * std::sqrt(static_cast<double>(n_) / 12);
  }

  void Emit(const std::string& family, const std::vector<double>& extra, const std::vector<double>& lift) {
    double activations = base_ * Uniform(0.1, 0.9), top = 0;
    size_t again =
        family.find("restart") != std::string::npos ? static_cast<size_t>(n_ * Uniform(0.2, 0.7)) : n_;
    double restart_lift = again < n_ ? lift[again] : 0;
    std::vector<double> peaks;
    for (size_t i = 0; i < n_; ++i) {
      if (family == "missing" && i % 7 == 3 && Uniform(0, 1) < 0.5) continue;
      size_t shown = i >= again ? i - again / 4 : i;
      double v = base_ + noise_[i] + extra[i] + lift[i] - (i >= again ? restart_lift : 0);
      v = std::max(0.0, std::round(v / case_.quantum) * case_.quantum);
      // Longer sequences lift the peak more than what is left at the step's end.
      double peak =
          v + activations + (case_.noise == "varlen" || case_.noise == "bucket" ? 2 * noise_[i] : 0);
      series::Point p;
      p.step = shown * static_cast<uint64_t>(every_);
      p.value = v;
      if (case_.pool.starts_with("cuda")) p.peak = peak;
      top = std::max(top, std::max(peak, v));
      case_.points.push_back(p);
    }
    if (family == "capacity")
      case_.capacity = top / 0.98;
    else
      case_.capacity = std::max(case_.capacity, top * 1.2);
  }

  std::mt19937_64 random_;
  Case case_;
  size_t n_ = 0;
  int every_ = 1;
  double base_ = 0, sigma_ = 0;
  std::vector<double> noise_;
};

}  // namespace lowtide::verdict::testing
