#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

namespace lowtide::cli {

// When processes end, to some milliseconds: launchers end all ranks a moment after the first one died, and only the order
// tells which one it was. A thread sleeps on their pidfds; without pidfds (Linux before 5.3) nothing is known.
class ExitTimes {
 public:
  using Clock = std::chrono::steady_clock;

  ExitTimes() = default;
  ~ExitTimes();
  ExitTimes(const ExitTimes&) = delete;
  ExitTimes& operator=(const ExitTimes&) = delete;

  void Watch(int pid);
  std::optional<Clock::time_point> Ended(int pid);
  size_t Count() const { return count_; }  // that have ended

 private:
  void Run();

  std::mutex mutex_;
  std::map<int, int> open_;  // pid -> pidfd of processes that run
  std::map<int, Clock::time_point> ended_;
  std::atomic<bool> stop_{false};
  std::atomic<size_t> count_{0};
  std::thread thread_;
};

}  // namespace lowtide::cli
