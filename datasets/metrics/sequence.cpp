// SPDX-License-Identifier: Apache-2.0
#include "metrics/sequence.h"

#include <bit>
#include <cmath>
#include <unordered_map>

#include "core/check.h"

namespace kvgauge::metrics {
namespace {

using Word = uint64_t;
constexpr size_t kBits = 64;

size_t WordsFor(size_t columns) { return (columns + kBits - 1) / kBits; }

// A row of the LCS table is kept as its horizontal steps: bit j of row i is 0 where
// T[i][j + 1] = T[i][j] + 1. The row of no elements is all ones. One addition with carry makes the
// next row (Hyyro 2004).
class LcsRows {
 public:
  explicit LcsRows(const std::vector<int>& y) : words_(WordsFor(y.size())), match_(words_) {
    for (size_t j = 0; j < y.size(); ++j) places_[y[j]].push_back(j);
  }

  size_t words() const { return words_; }

  // `next` may be `row`.
  void Step(const Word* row, int element, Word* next) {
    const auto found = places_.find(element);
    if (found == places_.end()) {
      std::copy(row, row + words_, next);
      return;
    }
    for (const size_t j : found->second) match_[j / kBits] |= Word{1} << (j % kBits);
    Word carry = 0;
    for (size_t w = 0; w < words_; ++w) {
      const Word v = row[w];
      const Word taken = v & match_[w];
      Word sum = v + taken;
      Word out = sum < v ? 1 : 0;
      sum += carry;
      out |= sum < carry ? 1 : 0;
      carry = out;
      next[w] = sum | (v & ~match_[w]);
    }
    for (const size_t j : found->second) match_[j / kBits] = 0;
  }

 private:
  size_t words_;
  std::vector<Word> match_;  // zero between steps
  std::unordered_map<int, std::vector<size_t>> places_;
};

// T[i][columns] from row i.
int64_t CountSteps(const Word* row, size_t columns) {
  int64_t ones = 0;
  size_t w = 0;
  for (; (w + 1) * kBits <= columns; ++w) ones += std::popcount(row[w]);
  if (const size_t rest = columns % kBits; rest != 0) {
    ones += std::popcount(row[w] & ((Word{1} << rest) - 1));
  }
  return static_cast<int64_t>(columns) - ones;
}

bool StepsAt(const Word* row, size_t column) {
  return ((row[column / kBits] >> (column % kBits)) & 1) == 0;
}

struct Range {
  size_t a_begin, a_end, b_begin, b_end;
};

// Total size of the blocks that difflib finds: the longest common run, earliest in a and then in b,
// and the same again on both sides of it.
int64_t MatchedCharacters(TextView a, TextView b) {
  std::unordered_map<char32_t, std::vector<size_t>> places;
  for (size_t j = 0; j < b.size(); ++j) places[b[j]].push_back(j);
  if (b.size() >= 200) {
    const size_t most = b.size() / 100 + 1;
    std::erase_if(places, [&](const auto& entry) { return entry.second.size() > most; });
  }
  int64_t matched = 0;
  std::vector<Range> open = {{0, a.size(), 0, b.size()}};
  // run_before[j + 1] is the length of the common run that ends at (i - 1, j).
  std::vector<size_t> run_before(b.size() + 1, 0), run(b.size() + 1, 0);
  std::vector<size_t> set_before, set;
  while (!open.empty()) {
    const Range range = open.back();
    open.pop_back();
    size_t best_a = range.a_begin, best_b = range.b_begin, size = 0;
    for (size_t i = range.a_begin; i < range.a_end; ++i) {
      if (const auto found = places.find(a[i]); found != places.end()) {
        for (const size_t j : found->second) {
          if (j < range.b_begin) continue;
          if (j >= range.b_end) break;
          const size_t length = run_before[j] + 1;
          run[j + 1] = length;
          set.push_back(j + 1);
          if (length > size) {
            size = length;
            best_a = i + 1 - length;
            best_b = j + 1 - length;
          }
        }
      }
      for (const size_t at : set_before) run_before[at] = 0;
      set_before.clear();
      std::swap(run, run_before);
      std::swap(set, set_before);
    }
    for (const size_t at : set_before) run_before[at] = 0;
    set_before.clear();
    // Frequent characters begin no run, but may lengthen one, even one of no length.
    while (best_a > range.a_begin && best_b > range.b_begin && a[best_a - 1] == b[best_b - 1]) {
      --best_a;
      --best_b;
      ++size;
    }
    while (best_a + size < range.a_end && best_b + size < range.b_end &&
           a[best_a + size] == b[best_b + size]) {
      ++size;
    }
    if (size == 0) continue;
    matched += static_cast<int64_t>(size);
    if (range.a_begin < best_a && range.b_begin < best_b) {
      open.push_back({range.a_begin, best_a, range.b_begin, best_b});
    }
    if (best_a + size < range.a_end && best_b + size < range.b_end) {
      open.push_back({best_a + size, range.a_end, best_b + size, range.b_end});
    }
  }
  return matched;
}

}  // namespace

int64_t LcsLength(const std::vector<int>& x, const std::vector<int>& y) {
  LcsRows rows(y);
  std::vector<Word> row(rows.words(), ~Word{0});
  for (const int element : x) rows.Step(row.data(), element, row.data());
  return CountSteps(row.data(), y.size());
}

std::vector<LcsMatch> LcsMatches(const std::vector<int>& x, const std::vector<int>& y) {
  if (x.empty() || y.empty()) return {};
  LcsRows rows(y);
  const size_t words = rows.words();
  std::vector<Word> table(words * (x.size() + 1), ~Word{0});
  const auto row = [&](size_t i) { return table.data() + i * words; };
  for (size_t i = 0; i < x.size(); ++i) rows.Step(row(i), x[i], row(i + 1));

  std::vector<LcsMatch> matches;
  size_t i = x.size(), j = y.size();
  int64_t here = CountSteps(row(i), j);       // T[i][j]
  int64_t above = CountSteps(row(i - 1), j);  // T[i - 1][j]
  while (i > 0 && j > 0) {
    const int64_t left = here - (StepsAt(row(i), j - 1) ? 1 : 0);
    const int64_t above_left = above - (StepsAt(row(i - 1), j - 1) ? 1 : 0);
    if (x[i - 1] == y[j - 1]) {
      matches.push_back({static_cast<int>(i - 1), static_cast<int>(j - 1)});
      --i;
      --j;
      here = above_left;
      if (i > 0) above = CountSteps(row(i - 1), j);
    } else if (above > left) {
      --i;
      here = above;
      if (i > 0) above = CountSteps(row(i - 1), j);
    } else {
      --j;
      here = left;
      above = above_left;
    }
  }
  return matches;
}

int64_t EditDistance(TextView a, TextView b) {
  while (!a.empty() && !b.empty() && a.front() == b.front()) {
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  while (!a.empty() && !b.empty() && a.back() == b.back()) {
    a.remove_suffix(1);
    b.remove_suffix(1);
  }
  if (a.size() > b.size()) std::swap(a, b);
  if (a.empty()) return static_cast<int64_t>(b.size());

  // Myers 1999 in blocks: a column of the table is kept as its vertical steps up and down.
  const size_t words = WordsFor(a.size());
  std::unordered_map<char32_t, std::vector<Word>> places;
  for (size_t i = 0; i < a.size(); ++i) {
    std::vector<Word>& bits = places[a[i]];
    if (bits.empty()) bits.resize(words);
    bits[i / kBits] |= Word{1} << (i % kBits);
  }
  const std::vector<Word> nowhere(words, 0);
  std::vector<Word> up(words, ~Word{0}), down(words, 0);
  const Word last = Word{1} << ((a.size() - 1) % kBits);
  auto distance = static_cast<int64_t>(a.size());
  for (const char32_t c : b) {
    const auto found = places.find(c);
    const std::vector<Word>& match = found == places.end() ? nowhere : found->second;
    Word up_carry = 1, down_carry = 0;
    for (size_t w = 0; w < words; ++w) {
      const Word x = match[w] | down_carry;
      const Word diagonal = (((x & up[w]) + up[w]) ^ up[w]) | x | down[w];
      Word right_up = down[w] | ~(diagonal | up[w]);
      Word right_down = diagonal & up[w];
      if (w + 1 == words) {
        distance += (right_up & last) != 0 ? 1 : 0;
        distance -= (right_down & last) != 0 ? 1 : 0;
      }
      const Word up_out = right_up >> (kBits - 1), down_out = right_down >> (kBits - 1);
      right_up = (right_up << 1) | up_carry;
      right_down = (right_down << 1) | down_carry;
      up_carry = up_out;
      down_carry = down_out;
      up[w] = right_down | ~(diagonal | right_up);
      down[w] = right_up & diagonal;
    }
  }
  return distance;
}

int FuzzRatio(TextView a, TextView b) {
  if (a == b) return 100;
  if (a.empty() || b.empty()) return 0;
  const double ratio =
      2.0 * static_cast<double>(MatchedCharacters(a, b)) / static_cast<double>(a.size() + b.size());
  return static_cast<int>(std::nearbyint(100 * ratio));  // ties to even, like Python's round
}

int FuzzRatioLevenshtein(TextView a, TextView b) {
  if (a == b) return 100;
  if (a.empty() || b.empty()) return 0;
  const std::vector<int> x(a.begin(), a.end()), y(b.begin(), b.end());
  const auto both = static_cast<double>(a.size() + b.size());
  // The package's own form: one less the share of insertions and deletions.
  const double edits = both - 2.0 * static_cast<double>(LcsLength(x, y));
  return static_cast<int>(std::nearbyint(100 * (1.0 - edits / both)));
}

}  // namespace kvgauge::metrics
