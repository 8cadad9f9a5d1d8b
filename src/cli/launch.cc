#include "cli/launch.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/error.h"

namespace lowtide::cli {
namespace {

namespace fs = std::filesystem;

std::string OwnFolder() {
  std::error_code error;
  fs::path self = fs::read_symlink("/proc/self/exe", error);
  return error ? "" : self.parent_path().string();
}

bool Executable(const std::string& path) { return ::access(path.c_str(), X_OK) == 0 && !fs::is_directory(path); }

std::string InPath(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::string rest = path ? path : "/usr/local/bin:/usr/bin:/bin";
  for (size_t at = 0; at <= rest.size();) {
    size_t end = std::min(rest.find(':', at), rest.size());
    std::string candidate = rest.substr(at, end - at) + "/" + name;
    if (end > at && Executable(candidate)) return candidate;
    at = end + 1;
  }
  return "";
}

bool IsPackage(const fs::path& folder) { return fs::exists(folder / "_inject" / "sitecustomize.py"); }

std::string Capture(const std::vector<std::string>& argv) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return "";
  pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(ends[1], 1);
    int null = ::open("/dev/null", O_WRONLY);
    ::dup2(null, 2);
    std::vector<char*> pointers;
    for (const auto& word : argv) pointers.push_back(const_cast<char*>(word.c_str()));
    pointers.push_back(nullptr);
    ::execvp(pointers[0], pointers.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  std::string out;
  char buffer[4096];
  for (ssize_t got; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;) out.append(buffer, static_cast<size_t>(got));
  ::close(ends[0]);
  if (pid > 0) ::waitpid(pid, nullptr, 0);
  while (!out.empty() && std::isspace(static_cast<unsigned char>(out.back()))) out.pop_back();
  return out;
}

std::atomic<pid_t> g_child{0};
std::atomic<bool> g_asked_to_end{false};
bool g_leads_session = false;

// The terminal sends its signals (Ctrl-C) to the whole foreground group, so the child has those already; one that somebody
// sent to us alone (kill, a batch system) is passed on, and so is a hang-up where we lead the session: it comes to the leader
// alone.
void Forward(int signal, siginfo_t* info, void*) {
  if (signal != SIGUSR1 && signal != SIGUSR2) g_asked_to_end = true;
  pid_t pid = g_child.load();
  const bool ours = info->si_code != SI_KERNEL || (signal == SIGHUP && g_leads_session);
  if (pid && ours) ::kill(pid, signal);
}

void InstallSignals() {
  g_leads_session = ::getsid(0) == ::getpid();
  struct sigaction action {};
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  action.sa_sigaction = Forward;
  for (int signal : {SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2}) ::sigaction(signal, &action, nullptr);
}

[[noreturn]] void Exec(const Launch& launch, int report) {
  for (const auto& [name, value] : launch.environment) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> argv;
  for (const auto& word : launch.argv) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  int error = errno;
  [[maybe_unused]] ssize_t put = ::write(report, &error, sizeof error);
  ::_exit(127);
}

}  // namespace

std::string FindPython(const std::string& wanted) {
  const char* environment = std::getenv("LOWTIDE_PYTHON");
  if (!wanted.empty()) {
    std::string found = wanted.find('/') == std::string::npos ? InPath(wanted) : wanted;
    if (found.empty() || !Executable(found)) throw Error(fmt::format("no interpreter {}", wanted), "check --python");
    return found;
  }
  if (environment && Executable(environment)) return environment;
  std::string own = OwnFolder();
  for (const char* name : {"python", "python3"}) {
    if (!own.empty() && Executable(own + "/" + name)) return own + "/" + name;
  }
  for (const char* name : {"python3", "python"}) {
    if (std::string found = InPath(name); !found.empty()) return found;
  }
  throw Error("no Python interpreter found", "activate the environment that the script runs in, or name it with --python");
}

std::string FindPackage(const std::string& python) {
  fs::path own = OwnFolder();
  if (IsPackage(own.parent_path())) return own.parent_path();  // a developer's tree: python/lowtide/bin/lowtide
  std::error_code error;
  for (const char* lib : {"lib", "lib64"}) {
    for (const auto& entry : fs::directory_iterator(own.parent_path() / lib, error)) {
      for (const char* site : {"site-packages", "dist-packages"}) {
        fs::path candidate = entry.path() / site / "lowtide";
        if (entry.path().filename().string().rfind("python3", 0) == 0 && IsPackage(candidate)) return candidate;
      }
    }
  }
  std::string said = Capture({python, "-c", "import lowtide, os; print(os.path.dirname(lowtide.__file__))"});
  if (!said.empty() && IsPackage(said)) return said;
  throw Error("the Python package lowtide is not installed beside this binary",
              fmt::format("pip install lowtide into the environment of {}", python));
}

Child::Child(const Launch& launch) {
  int report[2];
  if (::pipe2(report, O_CLOEXEC) != 0) throw Error(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  pid_ = ::fork();
  if (pid_ < 0) {
    int error = errno;
    ::close(report[0]);
    ::close(report[1]);
    throw Error(fmt::format("cannot start a process: {}", std::strerror(error)), "free some memory or processes");
  }
  if (pid_ == 0) Exec(launch, report[1]);
  g_child = pid_;
  InstallSignals();
  ::close(report[1]);
  int error = 0;
  bool failed = ::read(report[0], &error, sizeof error) == sizeof error;
  ::close(report[0]);
  if (failed) {
    ::waitpid(pid_, nullptr, 0);
    g_child = 0;
    throw Error(fmt::format("cannot run {}: {}", launch.argv[0], std::strerror(error)), "check the command's name and path");
  }
  pidfd_ = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
}

bool Child::AskedToEnd() { return g_asked_to_end; }

Child::~Child() {
  if (pidfd_ >= 0) ::close(pidfd_);
}

bool Child::Wait(int milliseconds) {
  if (ended_) return true;
  if (pidfd_ >= 0) {
    pollfd ready{pidfd_, POLLIN, 0};
    ::poll(&ready, 1, milliseconds);
  } else {
    ::usleep(static_cast<useconds_t>(milliseconds) * 1000);
  }
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return false;
  ended_ = true;
  g_child = 0;
  signal_ = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  exit_code_ = signal_ ? 128 + signal_ : WEXITSTATUS(status);
  return true;
}

}  // namespace lowtide::cli
