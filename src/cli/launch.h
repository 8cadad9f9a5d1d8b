#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

namespace lowtide::cli {

// What to start: a script or module under a Python interpreter, or any command (torchrun, accelerate, a shell script).
struct Launch {
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::string>> environment;  // set in the child, on top of ours
};

// The interpreter that runs scripts: `wanted` if given, else $LOWTIDE_PYTHON, else the python beside our own binary,
// else python3 of $PATH. Throws Error when there is none.
std::string FindPython(const std::string& wanted);

// The installed `lowtide` Python package (the folder with __init__.py and _inject/). Throws Error when it is missing.
std::string FindPackage(const std::string& python);

// A child that has our standard streams and terminal. Signals sent to us go on to it; Ctrl-C and Ctrl-\ reach it by
// the terminal as they would without us.
class Child {
 public:
  // Throws Error when the command cannot be started (no such file, not executable).
  explicit Child(const Launch& launch);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  // Waits up to `milliseconds` for the child to end; true once it has.
  bool Wait(int milliseconds);
  // The exit code as a shell gives it: the child's own, or 128 + N after signal N. Only after Wait returned true.
  int exit_code() const { return exit_code_; }
  int signal() const { return signal_; }  // 0: it exited by itself
  // Whether somebody asked this run to end (Ctrl-C, SIGTERM, a hang-up) while the child lived.
  static bool AskedToEnd();

 private:
  pid_t pid_ = -1;
  int pidfd_ = -1;
  bool ended_ = false;
  int exit_code_ = 0;
  int signal_ = 0;
};

}  // namespace lowtide::cli
