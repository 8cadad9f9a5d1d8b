#include "cli/ranks_exits.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <vector>

#include "base/signals.h"

namespace lowtide::cli {
namespace {

constexpr int kSliceMilliseconds = 50;  // how late a new process is taken up, and the end of the run noticed

int OpenPidfd(int pid) {
#ifdef SYS_pidfd_open
  return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
#else
  return -1;
#endif
}

}  // namespace

ExitTimes::~ExitTimes() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  for (const auto& [pid, fd] : open_) ::close(fd);
}

void ExitTimes::Watch(int pid) {
  std::lock_guard lock(mutex_);
  if (open_.count(pid) || ended_.count(pid)) return;
  int fd = OpenPidfd(pid);
  if (fd < 0) return;
  open_[pid] = fd;
  if (thread_.joinable()) return;
  const SignalsBlocked blocked;  // they are for the main thread
  thread_ = std::thread([this] { Run(); });
}

std::optional<ExitTimes::Clock::time_point> ExitTimes::Ended(int pid) {
  std::lock_guard lock(mutex_);
  auto at = ended_.find(pid);
  return at == ended_.end() ? std::nullopt : std::optional(at->second);
}

void ExitTimes::Run() {
  while (!stop_) {
    std::vector<pollfd> fds;
    std::vector<int> pids;
    {
      std::lock_guard lock(mutex_);
      for (const auto& [pid, fd] : open_) fds.push_back({fd, POLLIN, 0}), pids.push_back(pid);
    }
    if (::poll(fds.data(), fds.size(), kSliceMilliseconds) <= 0) continue;
    auto now = Clock::now();
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < fds.size(); ++i) {
      if (!fds[i].revents) continue;
      ::close(fds[i].fd);
      open_.erase(pids[i]);
      ended_[pids[i]] = now;
      ++count_;
    }
  }
}

}  // namespace lowtide::cli
