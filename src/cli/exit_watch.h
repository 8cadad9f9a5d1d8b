#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "record/ring_reader.h"
#include "report/phrases.h"
#include "verdict/judgement.h"

namespace lowtide::cli {

// Whether a live run is about to run out of memory, and if so asks all of its ranks to end at the same step:
// the script's GracefulExit saves first, where it has one.
class ExitWatch {
 public:
  // `share` of the tightest limit (host, cgroup, device) at which to end; 0: never.
  ExitWatch(double share, const std::string& lang) : share_(share), words_(lang) {}

  // `rings`: of all ranks on this machine, as of now. Looks once a second. Returns why the run was asked to
  // end, at the one call that did it; else "".
  std::string Look(const std::vector<record::Ring*>& rings);
  // A leak is certain: ends the run when what is left is less than a minute, or a few steps.
  std::string Leak(const std::vector<record::Ring*>& rings, const verdict::Judgement& judgement);

 private:
  // The step at which all ranks were asked to end; 0: nothing trains yet.
  uint64_t Ask(const std::vector<record::Ring*>& rings, record::StopReason reason);

  double share_;
  report::Words words_;
  bool asked_ = false;
  std::chrono::steady_clock::time_point next_{};
};

// The limit that is closest to full, above `pid` and of the devices in `rings`: share in use, and its name.
struct TightestLimit {
  double share = 0;
  std::string name;
};
TightestLimit FindTightest(const std::vector<record::Ring*>& rings, const report::Words& words, const char* proc_root = "");

}  // namespace lowtide::cli
