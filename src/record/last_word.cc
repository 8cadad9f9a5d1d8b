#include "record/last_word.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>

#include "base/signals.h"
#include "lowtide/record/host.h"

namespace lowtide::record {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGHUP,  SIGQUIT, SIGALRM, SIGXCPU, SIGUSR1, SIGUSR2,
                            SIGABRT, SIGSEGV, SIGBUS,  SIGFPE,  SIGILL,  SIGSYS};
constexpr int kMostSignals = 32;

std::atomic<FileHeader*> header_of_process{nullptr};
struct sigaction actions_before[kMostSignals];

// Whether it happens once more when the handler returns, at its own place: the processor raised it. What was sent, by the
// kernel as well (a hang-up, a limit), has to be sent again.
bool IsFault(int signal, const siginfo_t* info) {
  const bool kind = signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGILL;
  return kind && info != nullptr && info->si_code > 0;
}

// First the action that was there before, for what may happen in here.
void Note(int signal, siginfo_t* info, void*) {
  const int error = errno;
  ::sigaction(signal, &actions_before[signal], nullptr);
  FileHeader* header = header_of_process.load(std::memory_order_acquire);
  if (header != nullptr && header->pid == ::getpid() && header->exit_state == ExitState::kRunning) {
    header->exit_code = -signal;
    header->exit_mono_ns = MonotonicNs();
    __atomic_store_n(&header->exit_state, ExitState::kSignal, __ATOMIC_RELEASE);
  }
  if (!IsFault(signal, info)) ::raise(signal);
  errno = error;
}

}  // namespace

void LeaveLastWord(FileHeader* header) noexcept {
  header_of_process.store(header, std::memory_order_release);
  static bool installed = false;
  if (header == nullptr || installed) return;
  installed = true;
  for (const int signal : kSignals) {
    struct sigaction& before = actions_before[signal];
    if (::sigaction(signal, nullptr, &before) != 0) continue;
    const bool handled = (before.sa_flags & SA_SIGINFO) != 0 || (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN);
    if (handled ? !IsCrash(signal) : before.sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_sigaction = &Note;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace lowtide::record
