#pragma once

#include <string>
#include <vector>

namespace lowtide::cli {

// A terminal redrawn in place: its alternate screen without cursor and echo, given back as it was at destruction, at
// Ctrl-C, and while the program is stopped by Ctrl-Z. One at a time.
class Screen {
 public:
  // `fd` is a terminal; keys are read from standard input when that is one too.
  explicit Screen(int fd);
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  struct Size {
    int columns = 80, rows = 24;
  };
  Size size() const;

  // Replaces what is shown. Lines must not be wider than the terminal.
  void Draw(const std::vector<std::string>& lines);

  enum class Event { kTime, kResize, kQuit };
  // Waits until time is up, the terminal changed its size, or the user wants to leave (q, Ctrl-C, SIGTERM, SIGHUP).
  Event Wait(int milliseconds);

 private:
  void Enter();
  void Leave();

  int fd_;
  bool entered_ = false, keys_ = false;
};

}  // namespace lowtide::cli
