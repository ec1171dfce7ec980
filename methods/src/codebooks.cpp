// SPDX-License-Identifier: Apache-2.0
#include "methods/codebooks.h"

#include <algorithm>
#include <cmath>

#include "core/rng.h"

namespace kvgauge {
namespace {

int64_t StageNumbers(const CodewordShape& shape) { return shape.numbers() / shape.stages; }

// One stage of a code, and rows to learn it from: what the stages before leave, in pairs where
// words commute.
class WordStage {
 public:
  WordStage(const CodewordShape& shape, float* words) : shape_(shape), words_(words) {}

  double Number(int64_t run, int64_t code, int64_t d) const {
    const int64_t width = shape_.width;
    if (!shape_.commuting) {
      return words_[((run << shape_.bits) + code) * width + d];
    }
    const int64_t half = shape_.bits / 2, pairs = shape_.dim / 2;
    const bool second = shape_.apart == 1 ? d % 2 == 1 : d >= shape_.apart;
    const int64_t pair = shape_.apart == 1 ? d / 2 : d % shape_.apart;
    const int64_t a = code >> half, b = code & ((int64_t{1} << half) - 1);
    const auto at = [&](int64_t which, int64_t part) -> double {
      return words_[(which * 2 + part) * pairs + pair];
    };
    return second ? at(b, 0) + at(a, 1) : at(a, 0) - at(b, 1);
  }

  int64_t Nearest(int64_t run, const double* row) const {
    int64_t best = 0;
    double least = 0;
    for (int64_t code = 0; code < int64_t{1} << shape_.bits; ++code) {
      double distance = 0;
      for (int64_t d = 0; d < shape_.width; ++d) {
        const double off = row[d] - Number(run, code, d);
        distance += off * off;
      }
      if (code == 0 || distance < least) best = code, least = distance;
    }
    return best;
  }

  // rows [n][dim] of which each has a word of the run.
  void Move(int64_t run, std::span<const double> rows, std::span<const int64_t> codes) {
    if (shape_.commuting) return Solve(rows, codes);
    const int64_t width = shape_.width, count = int64_t{1} << shape_.bits;
    std::vector<double> sums(static_cast<size_t>(count * width)),
        members(static_cast<size_t>(count));
    for (size_t i = 0; i < codes.size(); ++i) {
      members[static_cast<size_t>(codes[i])] += 1;
      const double* row = rows.data() + static_cast<int64_t>(i) * shape_.dim + run * width;
      for (int64_t d = 0; d < width; ++d) sums[static_cast<size_t>(codes[i] * width + d)] += row[d];
    }
    for (int64_t code = 0; code < count; ++code) {
      const double n = members[static_cast<size_t>(code)];
      for (int64_t d = 0; d < width && n > 0; ++d) {
        words_[((run << shape_.bits) + code) * width + d] =
            static_cast<float>(sums[static_cast<size_t>(code * width + d)] / n);
      }
    }
  }

 private:
  // All pairs have the same matrix: of x_0, y_0, x_1, y_1 .. by the numbers of rows of each word.
  void Solve(std::span<const double> rows, std::span<const int64_t> codes) {
    const int64_t half = shape_.bits / 2, halves = int64_t{1} << half, n = 2 * halves;
    const int64_t pairs = shape_.dim / 2;
    std::vector<double> matrix(static_cast<size_t>(n * n)), right(static_cast<size_t>(n * pairs));
    for (size_t i = 0; i < codes.size(); ++i) {
      const int64_t a = codes[i] >> half, b = codes[i] & (halves - 1);
      const int64_t xa = 2 * a, ya = 2 * a + 1, xb = 2 * b, yb = 2 * b + 1;
      const auto add = [&](int64_t r, int64_t c, double v) {
        matrix[static_cast<size_t>(r * n + c)] += v;
      };
      // (x_a - y_b)^2 and (x_b + y_a)^2.
      add(xa, xa, 1), add(yb, yb, 1), add(xa, yb, -1), add(yb, xa, -1);
      add(xb, xb, 1), add(ya, ya, 1), add(xb, ya, 1), add(ya, xb, 1);
      const double* row = rows.data() + static_cast<int64_t>(i) * shape_.dim;
      for (int64_t p = 0; p < pairs; ++p) {
        const int64_t d = shape_.apart == 1 ? 2 * p : p;
        const double first = row[d], second = row[d + shape_.apart];
        right[static_cast<size_t>(xa * pairs + p)] += first;
        right[static_cast<size_t>(yb * pairs + p)] -= first;
        right[static_cast<size_t>(xb * pairs + p)] += second;
        right[static_cast<size_t>(ya * pairs + p)] += second;
      }
    }
    // A little towards where the words are: those that nobody is near to stay.
    const double hold = 1e-6 * static_cast<double>(codes.size()) / static_cast<double>(halves);
    for (int64_t r = 0; r < n; ++r) {
      matrix[static_cast<size_t>(r * n + r)] += hold;
      for (int64_t p = 0; p < pairs; ++p) {
        right[static_cast<size_t>(r * pairs + p)] += hold * double{words_[r * pairs + p]};
      }
    }
    // Cholesky, in place.
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t c = 0; c <= r; ++c) {
        double sum = matrix[static_cast<size_t>(r * n + c)];
        for (int64_t k = 0; k < c; ++k) {
          sum -= matrix[static_cast<size_t>(r * n + k)] * matrix[static_cast<size_t>(c * n + k)];
        }
        matrix[static_cast<size_t>(r * n + c)] = r == c
                                                     ? std::sqrt(std::max(sum, 1e-300))
                                                     : sum / matrix[static_cast<size_t>(c * n + c)];
      }
    }
    for (int64_t p = 0; p < pairs; ++p) {
      const auto at = [&](int64_t r) -> double& {
        return right[static_cast<size_t>(r * pairs + p)];
      };
      for (int64_t r = 0; r < n; ++r) {
        for (int64_t k = 0; k < r; ++k) at(r) -= matrix[static_cast<size_t>(r * n + k)] * at(k);
        at(r) /= matrix[static_cast<size_t>(r * n + r)];
      }
      for (int64_t r = n - 1; r >= 0; --r) {
        for (int64_t k = r + 1; k < n; ++k) at(r) -= matrix[static_cast<size_t>(k * n + r)] * at(k);
        at(r) /= matrix[static_cast<size_t>(r * n + r)];
      }
      for (int64_t r = 0; r < n; ++r) words_[r * pairs + p] = static_cast<float>(at(r));
    }
  }

  const CodewordShape& shape_;
  float* words_;
};

}  // namespace

int64_t CodewordShape::numbers() const {
  const int64_t words = int64_t{1} << (commuting ? bits / 2 : bits);
  return stages * (commuting ? 1 : runs()) * words * width;
}

std::vector<float> DrawnWords(const CodewordShape& shape, uint64_t seed, uint64_t stream) {
  Rng rng(seed, stream);
  // The variance that a stage leaves of a number, and has itself. Commuting words are sums of two.
  const double left = std::exp2(-2.0 * shape.bits / static_cast<double>(shape.width));
  std::vector<float> words;
  for (int64_t stage = 0; stage < shape.stages; ++stage) {
    const double variance = (1 - left) * std::pow(left, static_cast<double>(stage));
    const double size = std::sqrt(shape.commuting ? variance / 2 : variance);
    for (int64_t i = 0; i < StageNumbers(shape); ++i) {
      words.push_back(static_cast<float>(size * rng.NextGaussian()));
    }
  }
  return words;
}

std::vector<float> LearnedWords(const CodewordShape& shape, std::span<const float> rows, int rounds,
                                uint64_t seed, uint64_t stream) {
  std::vector<float> words = DrawnWords(shape, seed, stream);
  std::vector<double> rest(rows.begin(), rows.end());
  const auto n = std::ssize(rest) / shape.dim;
  if (n == 0) return words;
  std::vector<int64_t> codes(static_cast<size_t>(n));
  for (int64_t stage = 0; stage < shape.stages; ++stage) {
    float* of_stage = words.data() + stage * StageNumbers(shape);
    double drawn = 0, held = 0;
    for (int64_t i = 0; i < StageNumbers(shape); ++i) drawn += double{of_stage[i]} * of_stage[i];
    for (const double v : rest) held += v * v;
    drawn /= static_cast<double>(StageNumbers(shape)) / (shape.commuting ? 2 : 1);
    held /= static_cast<double>(rest.size());
    const double factor = std::sqrt(held / drawn);
    for (int64_t i = 0; i < StageNumbers(shape); ++i) {
      of_stage[i] = static_cast<float>(of_stage[i] * factor);
    }
    WordStage words_of(shape, of_stage);
    for (int64_t run = 0; run < shape.runs(); ++run) {
      const auto assign = [&] {
        for (int64_t i = 0; i < n; ++i) {
          codes[static_cast<size_t>(i)] =
              words_of.Nearest(run, rest.data() + i * shape.dim + run * shape.width);
        }
      };
      for (int round = 0; round < rounds; ++round) {
        assign();
        words_of.Move(run, rest, codes);
      }
      assign();
      for (int64_t i = 0; i < n; ++i) {
        double* row = rest.data() + i * shape.dim + run * shape.width;
        for (int64_t d = 0; d < shape.width; ++d) {
          row[d] -= words_of.Number(run, codes[static_cast<size_t>(i)], d);
        }
      }
    }
  }
  return words;
}

}  // namespace kvgauge
