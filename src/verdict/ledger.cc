#include "verdict/ledger.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace lowtide::verdict {

void Ledger::Look(double step, std::span<const LedgerRow> rows) {
  Snapshot look{step, {}};
  for (auto& row : rows)
    if (row.bytes_alive > 0 && row.last_birth_step >= row.first_birth_step) look.rows.push_back(row);
  std::sort(look.rows.begin(), look.rows.end(),
            [](auto& a, auto& b) { return a.first_birth_step < b.first_birth_step; });
  while (look.rows.size() > kRows) {  // neighbours of one phase as one
    std::vector<LedgerRow> merged;
    for (size_t i = 0; i < look.rows.size(); ++i) {
      if (i % 2 && merged.back().phase == look.rows[i].phase) {
        auto& into = merged.back();
        into.last_birth_step = std::max(into.last_birth_step, look.rows[i].last_birth_step);
        into.bytes_alive += look.rows[i].bytes_alive;
        into.blocks_alive += look.rows[i].blocks_alive;
      } else {
        merged.push_back(look.rows[i]);
      }
    }
    if (merged.size() == look.rows.size()) break;
    look.rows = std::move(merged);
  }
  if (!looks_.empty() && looks_.back().step >= step) {
    if (looks_.back().step > step)
      looks_.clear();  // a restart
    else
      looks_.pop_back();
  }
  looks_.push_back(std::move(look));
  if (looks_.size() <= kLooks) return;
  // Keep the newest, and of the others those that spread best: drop the one that leaves the most even ratios.
  size_t drop = 1;
  double best = 1e300;
  for (size_t i = 0; i + 1 < looks_.size(); ++i) {
    double before = i ? looks_[i - 1].step : looks_[0].step / 2,
           ratio = (looks_[i + 1].step + 1) / (before + 1);
    if (ratio < best) best = ratio, drop = i;
  }
  looks_.erase(looks_.begin() + static_cast<long>(drop));
}

namespace {

// Bytes alive of births in [from, to), rows spread evenly over their steps.
double Alive(const std::vector<LedgerRow>& rows, double from, double to) {
  double sum = 0;
  for (auto& row : rows) {
    double first = static_cast<double>(row.first_birth_step),
           last = static_cast<double>(row.last_birth_step) + 1;
    double overlap = std::min(to, last) - std::max(from, first);
    if (overlap > 0) sum += row.bytes_alive * overlap / (last - first);
  }
  return sum;
}

// Bytes per step of the births in [from, to): from the first birth to the last, the first one's own bytes not
// counted, so that births every 25 steps give the same rate wherever the ends fall.
double RateOf(const std::vector<LedgerRow>& rows, double from, double to) {
  double first = 1e300, last = -1e300, bytes = 0, first_bytes = 0;
  for (auto& row : rows) {
    double birth = (static_cast<double>(row.first_birth_step) + static_cast<double>(row.last_birth_step)) / 2;
    if (birth < from || birth >= to) continue;
    if (birth < first) first = birth, first_bytes = 0;
    if (birth == first) first_bytes += row.bytes_alive;
    last = std::max(last, birth);
    bytes += row.bytes_alive;
  }
  return last > first ? (bytes - first_bytes) / (last - first) : Alive(rows, from, to) / (to - from);
}

int RowsIn(const std::vector<LedgerRow>& rows, double from, double to) {
  int n = 0;
  for (auto& row : rows)
    n += static_cast<double>(row.first_birth_step) < to && static_cast<double>(row.last_birth_step) >= from;
  return n;
}

std::optional<series::Phase> PhaseOf(const std::vector<LedgerRow>& rows, double from, double to) {
  std::array<double, 5> bytes{};
  double total = 0;
  for (auto& row : rows) {
    if (static_cast<double>(row.first_birth_step) < from || static_cast<double>(row.last_birth_step) >= to)
      continue;
    bytes[static_cast<size_t>(row.phase)] += row.bytes_alive;
    total += row.bytes_alive;
  }
  for (size_t i = 0; i < bytes.size(); ++i)
    if (total > 0 && bytes[i] >= 0.8 * total) return static_cast<series::Phase>(i);
  return std::nullopt;
}

}  // namespace

LedgerVerdict Ledger::Decide(double first_step, std::optional<double> growth_upper) const {
  LedgerVerdict out;
  if (looks_.empty()) return out;
  const Snapshot& now = looks_.back();
  double span = now.step - first_step + 1;
  if (span < 40) return out;
  // Young births are not yet known to stay, the first ones are the start-up's.
  double young = std::max(4.0, 0.15 * span), begin = first_step + std::max(3.0, 0.05 * span),
         end = now.step + 1 - young;
  constexpr int kParts = 6;
  std::array<double, kParts> part{};
  double each = (end - begin) / kParts;
  for (int i = 0; i < kParts; ++i) part[i] = Alive(now.rows, begin + i * each, begin + (i + 1) * each);
  double old = 0, recent_rate = Alive(now.rows, end, now.step - 1) / std::max(1.0, now.step - 1 - end);
  for (double p : part) old += p;
  // Births that were old at an earlier look and still alive: did they die since?
  double died = 0, lived = 0;
  for (auto& look : looks_) {
    if (look.step > now.step - young || look.step - young <= begin) continue;
    double then = Alive(look.rows, begin, look.step - young),
           still = Alive(now.rows, begin, look.step - young);
    if (then > lived + died) lived = still, died = std::max(0.0, then - still);
  }
  out.survivors = old;
  // Where do survivors begin? The onset is the first part from which on every part has some.
  double typical = 0;
  std::array<double, kParts> sorted = part;
  std::sort(sorted.begin(), sorted.end());
  typical = sorted[kParts - 2];
  int onset = kParts;
  while (onset > 0 && part[onset - 1] >= 0.4 * typical && part[onset - 1] > 0) --onset;
  int parts = kParts - onset;
  double from = begin + onset * each;
  if (old <= 0) {
    out.kind = recent_rate > 0 ? LedgerVerdict::kBounded : LedgerVerdict::kNone;
    return out;
  }
  double rate = parts > 0 ? RateOf(now.rows, from, end) : 0;
  // The youngest part may still hold a buffer's births: with enough parts, the others decide where they
  // agree.
  if (parts >= 4 && part[kParts - 1] > 1.3 * part[kParts - 2]) rate = RateOf(now.rows, from, end - each);
  if (parts == 0) {  // survivors among early births only
    out.kind = LedgerVerdict::kWarmup;
    return out;
  }
  bool many = RowsIn(now.rows, from, end) >= std::max(4, parts);
  // Births survive at a falling rate the older they are: they do die, only later.
  double first_half = Alive(now.rows, from, (from + end) / 2),
         second_half = Alive(now.rows, (from + end) / 2, end);
  out.old_share = second_half > 0 ? first_half / second_half : 1;
  bool fading = second_half < 0.4 * first_half, dying = out.old_share < 0.5 || died > 0.5 * (died + lived);
  bool grows = !growth_upper || *growth_upper >= 0.4 * rate;
  out.bytes_per_step = rate;
  out.onset = from;
  if (onset == 0) out.onset = first_step;
  out.phase = PhaseOf(now.rows, from, end);
  double spread = 0;
  for (int i = onset; i < kParts; ++i) spread += std::pow(part[i] / each - rate, 2);
  double error = parts > 1 ? std::sqrt(spread / (parts - 1) / parts) : 0.25 * rate;
  out.low = rate - 2.2 * error - 0.01 * rate, out.high = rate + 2.2 * error + 0.01 * rate;
  if (!grows || fading || dying)
    out.kind = parts <= 1 && !dying ? LedgerVerdict::kWarmup : LedgerVerdict::kBounded;
  else if (many && parts >= 4)
    out.kind = LedgerVerdict::kLeak;
  return out;  // else undecided: a late start, or too few births
}

}  // namespace lowtide::verdict
