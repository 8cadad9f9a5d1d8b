#pragma once

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <functional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/signals.h"

namespace lowtide::heap {

// Work on our own arrays that is done beside what the calling thread goes on with. The work must touch nothing of the
// interpreter's.
class Beside {
 public:
  enum Where {
    kSpareProcessor,  // where there is a processor for it; otherwise when it is waited for
    kAnyProcessor,    // on the calling thread's, if need be, whose time it then shares: nobody waits soon
  };

  explicit Beside(std::function<void()> work, Where where = kSpareProcessor) : work_(std::move(work)) {
    if (where == kSpareProcessor && !Spare()) return;
    const SignalsBlocked blocked;
    try {
      thread_ = std::thread([this] { Run(); });
      started_ = true;
    } catch (const std::system_error&) {  // no thread to be had
    }
  }
  ~Beside() { Join(); }
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

  // Whether the work is done.
  bool Done() const { return done_.load(std::memory_order_acquire); }
  // Whether it is under way. False as well where no thread could be had: then Wait does it.
  bool Runs() const { return started_ && !Done() && owner_ == ::getpid(); }
  // In a forked child that was made before the work was done: it never will be.
  bool Lost() const { return started_ && owner_ != ::getpid() && !Done(); }

  // Waits until the work is done; throws what it threw.
  void Wait() {
    Join();
    if (!Done()) Run();
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  static bool Spare() {
    cpu_set_t usable;
    CPU_ZERO(&usable);
    return sched_getaffinity(0, sizeof usable, &usable) == 0 && CPU_COUNT(&usable) >= 2;
  }

  void Join() {
    if (!thread_.joinable()) return;
    if (owner_ == ::getpid())
      thread_.join();
    else  // a forked child has no such thread: its handle must not be touched
      static_cast<void>(new std::thread(std::move(thread_)));
  }

  void Run() {
    try {
      if (work_) std::exchange(work_, nullptr)();
    } catch (...) {
      failure_ = std::current_exception();
    }
    done_.store(true, std::memory_order_release);
  }

  std::function<void()> work_;
  std::exception_ptr failure_;
  std::atomic<bool> done_{false};
  const pid_t owner_ = ::getpid();
  bool started_ = false;
  std::thread thread_;
};

}  // namespace lowtide::heap
