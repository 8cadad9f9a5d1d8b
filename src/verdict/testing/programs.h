#pragma once

#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "verdict/engine.h"

// Small training programs as lists of births and deaths: exact series with the ledger that goes with them.
namespace lowtide::verdict::testing {

class Program {
 public:
  explicit Program(uint64_t seed = 1) : random_(seed) {}

  // A block born now; returns its handle.
  uint64_t Make(double bytes, series::Phase phase = series::Phase::kStep) {
    blocks_[++last_] = {step_, phase, bytes};
    total_ += bytes;
    return last_;
  }
  void Free(uint64_t handle) {
    auto it = blocks_.find(handle);
    if (it == blocks_.end()) return;
    total_ -= it->second.bytes;
    blocks_.erase(it);
  }
  uint64_t step() const { return step_; }
  std::mt19937_64& random() { return random_; }
  // The event that comes after this step.
  void Mark(series::Phase phase) { marks_.push_back(phase); }

  // Runs `body` once a step; what it says is the pool at the step's end.
  Judgement Run(uint64_t steps, EngineOptions options, bool with_ledger,
                const std::function<void(Program&)>& body) {
    Engine engine(options);
    uint64_t next_look = 24;
    for (step_ = 1; step_ <= steps; ++step_) {
      body(*this);
      for (auto phase : marks_) engine.AddMark(phase, step_);
      marks_.clear();
      series::Point point;
      point.step = step_, point.time_s = 0.01 * static_cast<double>(step_), point.value = total_;
      engine.Add(point);
      if (with_ledger && (step_ >= next_look || step_ == steps)) {
        next_look = step_ + std::max<uint64_t>(8, step_ / 4);
        engine.SetLedger(Rows());
      }
    }
    return engine.Judge(true);
  }

 private:
  struct Block {
    uint64_t birth;
    series::Phase phase;
    double bytes;
  };

  std::vector<LedgerRow> Rows() const {
    std::map<std::pair<uint64_t, int>, LedgerRow> rows;
    for (auto& [handle, block] : blocks_) {
      auto& row = rows[{block.birth, static_cast<int>(block.phase)}];
      row.first_birth_step = row.last_birth_step = block.birth;
      row.phase = block.phase;
      row.bytes_alive += block.bytes, row.blocks_alive += 1;
    }
    std::vector<LedgerRow> out;
    for (auto& [key, row] : rows) out.push_back(row);
    return out;
  }

  std::mt19937_64 random_;
  std::map<uint64_t, Block> blocks_;
  uint64_t last_ = 0, step_ = 0;
  double total_ = 0;
  std::vector<series::Phase> marks_;
};

struct NamedProgram {
  std::string name;
  bool leak;
  double rate;                                          // bytes per step, of leaks
  series::Phase phase;                                  // of leaks
  std::function<std::function<void(Program&)>()> make;  // a fresh body
};

inline std::vector<NamedProgram> Programs() {
  using series::Phase;
  auto model = [](Program& p) {
    if (p.step() == 1) p.Make(300000), p.Make(600000);  // weights, optimizer state
  };
  std::vector<NamedProgram> out;
  auto add = [&](std::string name, bool leak, double rate, Phase phase,
                 std::function<std::function<void(Program&)>()> make) {
    out.push_back({std::move(name), leak, rate, phase, std::move(make)});
  };
  for (double bytes : {96.0, 8192.0, 131072.0})
    add("leak every step " + std::to_string(static_cast<int>(bytes)), true, bytes, Phase::kStep,
        [=] { return [=](Program& p) { model(p), p.Make(bytes); }; });
  for (int every : {5, 10, 25})
    add("leak every " + std::to_string(every), true, 400000.0 / every, Phase::kStep, [=] {
      return [=](Program& p) {
        model(p);
        if (p.step() % every == 0) p.Make(400000);
      };
    });
  for (int every : {20, 25, 30})
    add("validation leak every " + std::to_string(every), true, 530000.0 / every, Phase::kValidation, [=] {
      return [=](Program& p) {
        model(p);
        if (p.step() % every == 0) p.Make(530000, Phase::kValidation), p.Mark(Phase::kValidation);
      };
    });
  add("leak of random size", true, 20000, Phase::kStep, [=] {
    return [=](Program& p) {
      model(p), p.Make(512 * std::ceil(std::exponential_distribution<>(1.0 / 39)(p.random())));
    };
  });
  add("leak from step 90", true, 40960, Phase::kStep, [=] {
    return [=](Program& p) {
      model(p);
      if (p.step() >= 90) p.Make(40960);
    };
  });
  add("leak and a buffer of 40", true, 16384, Phase::kStep, [=] {
    auto queue = std::make_shared<std::vector<uint64_t>>();
    return [=](Program& p) {
      model(p), p.Make(16384), queue->push_back(p.Make(65536));
      if (queue->size() > 40) p.Free(queue->front()), queue->erase(queue->begin());
    };
  });
  add("warm-up in stairs", false, 0, Phase::kStep, [=] {
    return [=](Program& p) {
      model(p);
      if (p.step() == 40 || p.step() == 110) p.Make(250000);
    };
  });
  for (size_t length : {30, 90, 130, 200})
    add("buffer of " + std::to_string(length), false, 0, Phase::kStep, [=] {
      auto queue = std::make_shared<std::vector<uint64_t>>();
      return [=](Program& p) {
        model(p), queue->push_back(p.Make(11264));
        if (queue->size() > length) p.Free(queue->front()), queue->erase(queue->begin());
      };
    });
  for (int cap : {20, 40})
    add("cache of " + std::to_string(cap) + ", random eviction", false, 0, Phase::kStep, [=] {
      auto cache = std::make_shared<std::vector<uint64_t>>();
      return [=](Program& p) {
        model(p);
        double bytes = 512 * std::uniform_int_distribution<>(20, 90)(p.random());
        if (cache->size() < static_cast<size_t>(cap)) return cache->push_back(p.Make(bytes));
        size_t victim = std::uniform_int_distribution<size_t>(0, cache->size() - 1)(p.random());
        p.Free((*cache)[victim]), (*cache)[victim] = p.Make(bytes);
      };
    });
  add("cache of 60 keys", false, 0, Phase::kStep, [=] {
    auto keys = std::make_shared<std::map<int, uint64_t>>();
    return [=](Program& p) {
      model(p);
      int key = std::uniform_int_distribution<>(0, 59)(p.random());
      if (!keys->count(key)) (*keys)[key] = p.Make(32768);
    };
  });
  add("variable lengths", false, 0, Phase::kStep, [=] {
    auto kept = std::make_shared<uint64_t>(0);
    return [=](Program& p) {
      model(p), p.Free(*kept), *kept = p.Make(512 * std::uniform_int_distribution<>(1, 40)(p.random()));
    };
  });
  add("validation outputs replaced", false, 0, Phase::kStep, [=] {
    auto kept = std::make_shared<uint64_t>(0);
    return [=](Program& p) {
      model(p);
      if (p.step() % 45 == 0)
        p.Free(*kept), *kept = p.Make(1300000, Phase::kValidation), p.Mark(Phase::kValidation);
    };
  });
  for (auto steps : {std::vector<uint64_t>{30, 170}, std::vector<uint64_t>{30, 215},
                     std::vector<uint64_t>{140}, std::vector<uint64_t>{12, 160, 280}})
    add("collected at " + std::to_string(steps.back()), false, 0, Phase::kStep, [=] {
      auto garbage = std::make_shared<std::vector<uint64_t>>();
      return [=](Program& p) {
        model(p), garbage->push_back(p.Make(81920));
        if (std::find(steps.begin(), steps.end(), p.step()) == steps.end()) return;
        for (auto handle : *garbage) p.Free(handle);
        garbage->clear();
      };
    });
  return out;
}

}  // namespace lowtide::verdict::testing
