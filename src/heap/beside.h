#pragma once

#include <sched.h>
#include <signal.h>

#include <exception>
#include <functional>
#include <system_error>
#include <thread>
#include <utility>

namespace lowtide::heap {

// Work on our own arrays that is done beside what the calling thread goes on with, where there is a processor for
// it; otherwise when it is waited for. The work must touch nothing of the interpreter's.
class Beside {
 public:
  explicit Beside(std::function<void()> work) : work_(std::move(work)) {
    cpu_set_t usable;
    CPU_ZERO(&usable);
    if (sched_getaffinity(0, sizeof usable, &usable) != 0 || CPU_COUNT(&usable) < 2) return;
    // The process's signals are for its own threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread_ = std::thread([this] { Run(); });
    } catch (const std::system_error&) {  // no thread to be had
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~Beside() {
    if (thread_.joinable()) thread_.join();
  }
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

  // Waits until the work is done; throws what it threw.
  void Wait() {
    if (thread_.joinable())
      thread_.join();
    else
      Run();
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  void Run() {
    try {
      if (work_) std::exchange(work_, nullptr)();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  std::function<void()> work_;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace lowtide::heap
