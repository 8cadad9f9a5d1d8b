#include "cli/ranks_stack.h"

#include <fmt/core.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace lowtide::cli {
namespace {

namespace fs = std::filesystem;

// Bit `signal` of a mask of /proc/<pid>/status.
bool Handles(int pid, int signal) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("SigCgt:", 0) != 0) continue;
    unsigned long long mask = std::strtoull(line.c_str() + 7, nullptr, 16);
    return signal > 0 && signal <= 64 && (mask >> (signal - 1) & 1);
  }
  return false;
}

bool IsUsers(const std::string& file) {
  for (const char* part : {"/site-packages/", "/dist-packages/", "/lib/python", "/lowtide/_", "<"}) {
    if (file.find(part) != std::string::npos) return false;
  }
  return true;
}

// `  File "train.py", line 31 in step`
bool Parse(const std::string& line, StackFrame& frame) {
  size_t open = line.find("File \""), close = line.find("\", line ");
  if (open == std::string::npos || close == std::string::npos || close < open + 6) return false;
  frame.file = line.substr(open + 6, close - open - 6);
  frame.line = std::atoi(line.c_str() + close + 8);
  size_t in = line.find(" in ", close);
  frame.function = in == std::string::npos ? "" : line.substr(in + 4);
  return true;
}

}  // namespace

uint64_t SizeOfStacks(const std::string& folder, const RankFacts& facts) {
  std::error_code failure;
  auto size = fs::file_size(fs::path(folder) / facts.stack_file, failure);
  return failure || facts.stack_file.empty() ? 0 : static_cast<uint64_t>(size);
}

bool AskForStack(const RankFacts& facts) {
  if (facts.stack_signal <= 0 || facts.stack_file.empty() || !Handles(facts.pid, facts.stack_signal)) return false;
  return ::syscall(SYS_tgkill, facts.pid, facts.pid, facts.stack_signal) == 0;  // its main thread
}

StackFrame InnermostFrame(const std::string& folder, const RankFacts& facts, uint64_t offset) {
  StackFrame first, frame;
  if (facts.stack_file.empty()) return first;
  std::ifstream file(fs::path(folder) / facts.stack_file);
  file.seekg(static_cast<std::streamoff>(offset));
  size_t count = 0;
  for (std::string line; count < 400 && std::getline(file, line); ++count) {
    if (!Parse(line, frame)) continue;
    if (IsUsers(frame.file)) return frame;
    if (first.file.empty()) first = frame;
  }
  return first;
}

}  // namespace lowtide::cli
