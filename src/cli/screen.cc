#include "cli/screen.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <csignal>
#include <string_view>

namespace lowtide::cli {
namespace {

volatile std::sig_atomic_t g_quit = 0, g_resized = 0, g_stop = 0;
termios g_before;  // of standard input

void OnSignal(int number) {
  if (number == SIGWINCH || number == SIGCONT) {
    g_resized = 1;
  } else if (number == SIGTSTP) {
    g_stop = 1;
  } else {
    g_quit = 1;
  }
}

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGCONT, SIGTSTP};

sigset_t SignalSet() {
  sigset_t set;
  sigemptyset(&set);
  for (int number : kSignals) sigaddset(&set, number);
  return set;
}

void Handle(int number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigaction(number, &action, nullptr);
}

void WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

Screen::Screen(int fd) : fd_(fd) {
  // Signals are let in only while Wait sleeps: none comes between a look at the flags and the sleep.
  sigset_t set = SignalSet();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  g_quit = 0;
  g_resized = 0;
  g_stop = 0;
  for (int number : kSignals) Handle(number, OnSignal);
  keys_ = ::isatty(STDIN_FILENO) && ::tcgetattr(STDIN_FILENO, &g_before) == 0;
  Enter();
}

Screen::~Screen() {
  Leave();
  for (int number : kSignals) Handle(number, SIG_DFL);
  sigset_t set = SignalSet();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void Screen::Enter() {
  entered_ = true;
  if (keys_) {
    termios raw = g_before;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  }
  WriteAll(fd_, "\x1b[?1049h\x1b[?25l\x1b[2J");
}

void Screen::Leave() {
  if (!entered_) return;
  entered_ = false;
  WriteAll(fd_, "\x1b[?25h\x1b[?1049l");
  if (keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &g_before);
}

Screen::Size Screen::size() const {
  winsize size{};
  if (::ioctl(fd_, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {size.ws_col, size.ws_row};
}

void Screen::Draw(const std::vector<std::string>& lines) {
  auto rows = static_cast<size_t>(size().rows);
  std::string frame = "\x1b[H";
  for (size_t i = 0; i < lines.size() && i < rows; ++i) {
    if (i) frame += "\r\n";
    frame += lines[i] + "\x1b[K";
  }
  WriteAll(fd_, frame + "\x1b[J");
}

Screen::Event Screen::Wait(int milliseconds) {
  pollfd keys{STDIN_FILENO, POLLIN, 0};
  timespec time{milliseconds / 1000, milliseconds % 1000 * 1'000'000L};
  sigset_t open;
  pthread_sigmask(SIG_SETMASK, nullptr, &open);
  for (int number : kSignals) sigdelset(&open, number);
  int ready = ::ppoll(&keys, keys_ ? 1 : 0, &time, &open);
  if (ready > 0) {
    char key = 0;
    ssize_t got = ::read(STDIN_FILENO, &key, 1);
    if (got == 1 && (key == 'q' || key == 'Q')) g_quit = 1;
    if (got <= 0) keys_ = false;  // the terminal went away
  }
  if (g_stop) {
    g_stop = 0;
    Leave();
    ::raise(SIGSTOP);
    Enter();
    g_resized = 1;
  }
  if (g_quit) return Event::kQuit;
  bool resized = g_resized;
  g_resized = 0;
  return resized ? Event::kResize : Event::kTime;
}

}  // namespace lowtide::cli
