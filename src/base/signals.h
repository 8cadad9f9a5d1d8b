#pragma once

#include <csignal>
#include <string>

namespace lowtide {

// "SIGTERM"; "signal 42" where it has no name.
std::string SignalName(int signal);

// Whether it says that native code failed (SIGSEGV, SIGABRT...), rather than that somebody asked the process to end.
constexpr bool IsCrash(int signal) {
  return signal == SIGILL || signal == SIGABRT || signal == SIGBUS || signal == SIGFPE || signal == SIGSEGV || signal == SIGSYS;
}

// While it lives the calling thread gets no signal, and the threads that it starts get none ever: in a process that is not
// ours, and in one with handlers, signals are for the threads that know of them.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace lowtide
