#include "lint/driver_diff.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

namespace lowtide::lint {
namespace {

using Lines = std::vector<std::string_view>;
constexpr int kMostDifferences = 2000;
constexpr size_t kContext = 3;

Lines Split(std::string_view text) {
  Lines lines;
  while (!text.empty()) {
    size_t end = text.find('\n');
    end = end == std::string_view::npos ? text.size() : end + 1;
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return lines;
}

// Per line of each side: whether it stands in the common subsequence.
struct Marks {
  std::vector<bool> kept_before, kept_after;
};

void MarkRange(Marks& marks, size_t before, size_t after, size_t count) {
  std::fill_n(marks.kept_before.begin() + static_cast<long>(before), count, true);
  std::fill_n(marks.kept_after.begin() + static_cast<long>(after), count, true);
}

// The furthest-reaching paths of each number of differences d are kept; then the path is walked back.
void Myers(const Lines& a, const Lines& b, size_t head, int n, int m, Marks& marks) {
  std::vector<std::vector<int>> trace;
  std::vector<int> furthest(2 * static_cast<size_t>(kMostDifferences) + 3, 0);
  const int middle = kMostDifferences + 1;
  auto same = [&](int x, int y) {
    return a[head + static_cast<size_t>(x)] == b[head + static_cast<size_t>(y)];
  };
  auto goes_down = [&](const std::vector<int>& v, int d, int k) {
    return k == -d || (k != d && v[middle + k - 1] < v[middle + k + 1]);
  };
  int found = -1;
  for (int d = 0; d <= kMostDifferences && found < 0; ++d) {
    trace.emplace_back(furthest.begin() + middle - d - 1, furthest.begin() + middle + d + 2);
    for (int k = -d; k <= d; k += 2) {
      int x = goes_down(furthest, d, k) ? furthest[middle + k + 1] : furthest[middle + k - 1] + 1;
      int y = x - k;
      while (x < n && y < m && y >= 0 && same(x, y)) ++x, ++y;
      furthest[middle + k] = x;
      if (x >= n && y >= m) {
        found = d;
        break;
      }
    }
  }
  if (found < 0) return;  // too different: all of it is replaced
  int x = n, y = m;
  for (int d = found; d >= 0; --d) {
    const std::vector<int>& row = trace[static_cast<size_t>(d)];
    auto at = [&](int k) { return row[static_cast<size_t>(k + d + 1)]; };
    int k = x - y;
    bool down = k == -d || (k != d && at(k - 1) < at(k + 1));
    int from_x = d == 0 ? 0 : down ? at(k + 1) : at(k - 1);
    int from_y = d == 0 ? 0 : from_x - (down ? k + 1 : k - 1);
    while (x > from_x && y > from_y &&
           (d == 0 || (x > (down ? from_x : from_x + 1) || y > (down ? from_y + 1 : from_y)))) {
      --x, --y;
      MarkRange(marks, head + static_cast<size_t>(x), head + static_cast<size_t>(y), 1);
    }
    x = from_x, y = from_y;
  }
}

void AppendLine(std::string& out, char sign, std::string_view line) {
  (out += sign) += line;
  if (!line.ends_with('\n')) out += "\n\\ No newline at end of file\n";
}

std::string Range(size_t start, size_t count) {
  return count == 1 ? fmt::format("{}", start + 1) : fmt::format("{},{}", count ? start + 1 : start, count);
}

}  // namespace

std::string UnifiedDiff(std::string_view before, std::string_view after, const std::string& path) {
  if (before == after) return "";
  Lines a = Split(before), b = Split(after);
  size_t head = 0, tail = 0, most = std::min(a.size(), b.size());
  while (head < most && a[head] == b[head]) ++head;
  while (tail < most - head && a[a.size() - 1 - tail] == b[b.size() - 1 - tail]) ++tail;
  Marks marks{std::vector<bool>(a.size()), std::vector<bool>(b.size())};
  MarkRange(marks, 0, 0, head);
  MarkRange(marks, a.size() - tail, b.size() - tail, tail);
  Myers(a, b, head, static_cast<int>(a.size() - head - tail), static_cast<int>(b.size() - head - tail),
        marks);

  std::string out = fmt::format("--- {0}\n+++ {0}\n", path);
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    while (i < a.size() && j < b.size() && marks.kept_before[i] && marks.kept_after[j]) ++i, ++j;
    if (i == a.size() && j == b.size()) break;
    size_t lead = std::min({kContext, i, j}), from_a = i - lead, from_b = j - lead;
    std::string body;
    for (size_t c = from_a; c < i; ++c) AppendLine(body, ' ', a[c]);
    while (i < a.size() || j < b.size()) {
      if (i < a.size() && !marks.kept_before[i]) {
        AppendLine(body, '-', a[i++]);
      } else if (j < b.size() && !marks.kept_after[j]) {
        AppendLine(body, '+', b[j++]);
      } else {
        size_t more = 0;  // kept lines up to the next change
        while (i + more < a.size() && j + more < b.size() && marks.kept_before[i + more] &&
               marks.kept_after[j + more])
          ++more;
        bool end = i + more == a.size() && j + more == b.size();
        size_t take = end || more > 2 * kContext ? std::min(kContext, more) : more;
        for (size_t c = 0; c < take; ++c, ++i, ++j) AppendLine(body, ' ', a[i]);
        if (take < more || end) break;
      }
    }
    out += fmt::format("@@ -{} +{} @@\n", Range(from_a, i - from_a), Range(from_b, j - from_b)) + body;
  }
  return out;
}

}  // namespace lowtide::lint
