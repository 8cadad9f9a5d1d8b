// Writes the rings of many ranks as their processes would, for tests and benchmarks of what reads them.
//
//   ring_fleet FOLDER [ranks=N] [first=RANK] [rate=STEPS A SECOND, 0: at once] [steps=N, 0: until SIGTERM]
//   [leak=RANK, -1: none]
//              [host=NAME] [script=NAME] [entries=N, steps that a ring keeps] [open=1: leave without a word
//              of the end]
//
// Rank `leak` keeps 64 KiB more of CPU tensors after each step; all others are level. Prints "ready", and the
// steps written when it leaves.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "record/ledger.h"
#include "record/looks.h"
#include "lowtide/record/ring_writer.h"

namespace {

using namespace lowtide::record;

constexpr int64_t kLevel = 50 << 20, kKept = 64 << 10, kDevice = 4ll << 30;

volatile std::sig_atomic_t g_end = 0;

int64_t Now(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return time.tv_sec * 1'000'000'000ll + time.tv_nsec;
}

struct Rank {
  RingWriter ring;
  LedgerClock clock;
  int64_t cpu = 0;
  uint64_t next_look = 8;
};

std::map<std::string, std::string> Options(int argc, char** argv) {
  std::map<std::string, std::string> options{
      {"ranks", "1"},        {"first", "0"},         {"rate", "0"},        {"steps", "0"}, {"leak", "-1"},
      {"host", "simulated"}, {"script", "train.py"}, {"entries", "16384"}, {"open", "0"}};
  for (int i = 2; i < argc; ++i) {
    const char* equals = std::strchr(argv[i], '=');
    if (equals) options[std::string(argv[i], static_cast<size_t>(equals - argv[i]))] = equals + 1;
  }
  if (options["host"] == "here") {
    char name[64] = {};
    gethostname(name, sizeof name - 1);
    options["host"] = name;
  }
  return options;
}

void Begin(Rank& rank, const std::string& folder, int number, int world,
           std::map<std::string, std::string>& options) {
  RingSizes sizes;
  sizes.steps = static_cast<uint32_t>(std::stoul(options["entries"]));
  if (sizes.steps < 16384)
    sizes.devices = sizes.steps, sizes.workers = 64, sizes.marks = 256, sizes.series = 256;
  std::string path = folder + "/rank" + std::to_string(number) + ".ring";
  if (int failure = rank.ring.Create(path.c_str(), sizes)) {
    std::fprintf(stderr, "%s: %s\n", path.c_str(), std::strerror(failure));
    std::exit(2);
  }
  FileHeader* head = rank.ring.header();
  head->pid = getpid();
  head->rank = number, head->local_rank = number, head->world_size = world;
  head->role = Role::kTrainer;
  head->start_wall_ns = Now(CLOCK_REALTIME);
  head->start_mono_ns = Now(CLOCK_MONOTONIC);
  head->capabilities = kCapAllocCpu | kCapFreeCpu | kCapReport | kCapDeviceReport | kCapProc;
  head->host_total_bytes = 64ll << 30;
  head->cgroup_limit_bytes = kAbsent;
  head->devices[0].type = 1, head->devices[0].used = 1, head->devices[0].capacity_bytes = 16ll << 30;
  std::snprintf(head->hostname, sizeof head->hostname, "%s", options["host"].c_str());
  std::snprintf(head->script, sizeof head->script, "%s", options["script"].c_str());
  std::snprintf(head->torch_version, sizeof head->torch_version, "simulated");
  rank.ring.Publish();
  Count<1>(rank.ring.shards()[0], rank.clock, kLevel, {0, 0});
  rank.cpu = kLevel;
}

void Step(Rank& rank, uint64_t step, int64_t time_ns, bool leaks) {
  if (leaks) {
    Count<1>(rank.ring.shards()[0], rank.clock, kKept, {static_cast<uint32_t>(step - 1), 0});
    rank.cpu += kKept;
  }
  while ((step >> rank.clock.shift) >= kLedgerBuckets) ++rank.clock.shift;
  rank.clock.step = static_cast<uint32_t>(step);
  StepRecord record{};
  record.step = step;
  record.mono_ns = time_ns;
  record.cpu_bytes = rank.cpu;
  record.cpu_peak_bytes = rank.cpu + (10 << 20);
  record.heap_bytes = step % 8 ? kAbsent : rank.cpu + (30 << 20);
  record.python_blocks = step % 8 ? kAbsent : 400'000;
  record.rss_bytes = step % 4 ? kAbsent : rank.cpu + (300 << 20);
  record.shared_bytes = step % 4 ? kAbsent : 100 << 20;
  record.shm_used_bytes = record.shm_tensor_bytes = 0;
  record.cpu_blocks = 1;
  record.fds = step % 4 ? -1 : 12;
  record.source = StepSource::kOptimizer;
  DeviceRecord device{};
  device.step = step, device.mono_ns = time_ns, device.type = 1;
  device.allocated_bytes = kDevice, device.reserved_bytes = kDevice + kDevice / 8,
  device.peak_bytes = kDevice + (1 << 20);
  device.used_bytes = device.total_bytes = kAbsent;
  rank.ring.Write(device);
  rank.ring.header()->last_step = step;
  rank.ring.Write(record);
  if (step % 100 == 0) {
    MarkRecord mark{};
    mark.step = step, mark.mono_ns = time_ns, mark.kind = MarkKind::kEpoch, mark.edge = MarkEdge::kEnd;
    rank.ring.Write(mark);
  }
  if (step >= rank.next_look) {
    WriteLook(rank.ring, step);
    rank.next_look = step + std::max<uint64_t>(8, step / 12);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fputs("usage: ring_fleet FOLDER [name=value...]\n", stderr), 2;
  auto options = Options(argc, argv);
  auto number = [&](const char* name) { return std::stoll(options[name]); };
  const int count = static_cast<int>(number("ranks")), first = static_cast<int>(number("first"));
  const double rate = std::stod(options["rate"]);
  const auto limit = static_cast<uint64_t>(number("steps"));
  struct sigaction action {};
  action.sa_handler = [](int) { g_end = 1; };
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);

  std::vector<std::unique_ptr<Rank>> ranks;
  for (int i = 0; i < count; ++i) {
    ranks.push_back(std::make_unique<Rank>());
    Begin(*ranks.back(), argv[1], first + i, first + count, options);
  }
  std::puts("ready");
  std::fflush(stdout);
  const int64_t started = Now(CLOCK_MONOTONIC);
  uint64_t step = 0;
  while (!g_end && (limit == 0 || step < limit)) {
    const auto due =
        rate > 0 ? static_cast<uint64_t>(static_cast<double>(Now(CLOCK_MONOTONIC) - started) * 1e-9 * rate)
                 : step + 1;
    for (; step < due && (limit == 0 || step < limit); ++step) {
      const int64_t time_ns =
          rate > 0 ? Now(CLOCK_MONOTONIC) : started + static_cast<int64_t>(step) * 10'000'000;
      for (int i = 0; i < count; ++i)
        Step(*ranks[static_cast<size_t>(i)], step + 1, time_ns, first + i == number("leak"));
    }
    if (rate > 0) usleep(5000);
  }
  for (auto& rank : ranks) {
    if (number("open")) break;
    rank->ring.header()->exit_state = ExitState::kClean;
    rank->ring.header()->exit_mono_ns = Now(CLOCK_MONOTONIC);
  }
  std::printf("steps %llu\n", static_cast<unsigned long long>(step));
  return 0;
}
