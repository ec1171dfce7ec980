// SPDX-License-Identifier: Apache-2.0
#include "cpu/codec/codec_side.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/rng.h"
#include "cpu/split_work.h"

namespace kvgauge {
namespace {

constexpr float kLargestF16 = 65504.0f;

uint32_t Outlier(int64_t place, float value) {
  return static_cast<uint32_t>(place) << 16 |
         F32ToF16(std::clamp(value, -kLargestF16, kLargestF16));
}

constexpr int64_t kMostNumbers = 1024;  // of a vector
static_assert(kMostNumbers >= kCodePageEntries);

// Marks the per_side smallest and largest of n numbers; of equal ones the first counts as smaller.
void MarkExtremes(const float* x, int64_t n, int64_t per_side, uint8_t* taken) {
  constexpr int64_t kFew = 4;
  if (per_side <= kFew && 2 * per_side <= n) {
    for (int64_t k = 0; k < per_side; ++k) {
      int64_t low = -1, high = -1;
      for (int64_t i = 0; i < n; ++i) {
        if (taken[i] != 0) continue;
        if (low < 0 || x[i] < x[low]) low = i;
        if (high < 0 || x[i] >= x[high]) high = i;
      }
      taken[low] = taken[high] = 1;
    }
    return;
  }
  // (value, index) as one integer: the order of floats is that of their bits, but for the signs.
  uint64_t order[kMostNumbers];
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(x[i] + 0.0f);  // one zero
    const uint32_t ascending = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
    order[i] = uint64_t{ascending} << 32 | static_cast<uint64_t>(i);
  }
  const int64_t low = std::min(per_side, n), high = std::max(low, n - per_side);
  std::nth_element(order, order + low, order + n);
  if (high < n) std::nth_element(order + low, order + high, order + n);
  for (int64_t i = 0; i < n; ++i) {
    if (i < low || i >= high) taken[order[i] & 0xffffffffu] = 1;
  }
}

// A vector on its way through TakeFromVector.
struct VectorScratch {
  std::vector<float> numbers;
  std::vector<uint8_t> taken;
};

// Works on one vector x[0], x[stride], ...: place_of(i) is where number i stands in the page.
template <class PlaceOf>
void TakeFromVector(float* x, int64_t stride, int64_t n, int64_t per_side, PlaceOf place_of,
                    VectorScratch& scratch, Outliers* found) {
  scratch.numbers.resize(static_cast<size_t>(n));
  scratch.taken.assign(static_cast<size_t>(n), 0);
  float* numbers = scratch.numbers.data();
  uint8_t* taken = scratch.taken.data();
  for (int64_t i = 0; i < n; ++i) numbers[i] = x[i * stride];
  MarkExtremes(numbers, n, per_side, taken);
  int64_t rest = n;
  for (int64_t i = 0; i < n; ++i) {
    if (taken[i] == 0) continue;
    found->push_back(Outlier(place_of(i), numbers[i]));
    numbers[i] = 0.0f;
    --rest;
  }
  // Sixteen interleaved chains, joined by halves.
  float chains[16] = {};
  for (int64_t i = 0; i < n; ++i) chains[i % 16] += numbers[i];
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) chains[i] += chains[i + half];
  }
  const float mean = rest > 0 ? chains[0] / static_cast<float>(rest) : 0.0f;
  for (int64_t i = 0; i < n; ++i) {
    if (taken[i] != 0) x[i * stride] = mean;
  }
}

// rows [count][n] become orthonormal; one that depends on those before it becomes 0.
void Orthonormalize(const CodecKernels& kernels, float* rows, int64_t count, int64_t n) {
  constexpr float kDependent = 1e-5f;
  for (int64_t r = 0; r < count; ++r) {
    float* row = rows + r * n;
    const float before = std::sqrt(kernels.dot(row, row, n));
    for (int pass = 0; pass < 2; ++pass) {
      for (int64_t q = 0; q < r; ++q) {
        kernels.add_scaled(-kernels.dot(rows + q * n, row, n), rows + q * n, n, row);
      }
    }
    const float after = std::sqrt(kernels.dot(row, row, n));
    const float scale = after > kDependent * before ? 1.0f / after : 0.0f;
    for (int64_t i = 0; i < n; ++i) row[i] *= scale;
  }
}

}  // namespace

Outliers TakeOutliers(const KvCodec& codec, float* rows) {
  Outliers found;
  const int64_t dim = codec.dim;
  const auto place = [](int64_t entry, int64_t c) { return c * kCodePageEntries + entry; };
  if (codec.kind == KvCodecKind::kCodebook && codec.axis == CodeAxis::kChannel) {
    const float *low = codec.channel_low.f32(), *high = codec.channel_high.f32();
    for (int64_t e = 0; e < kCodePageEntries; ++e) {
      for (int64_t c = 0; c < dim; ++c) {
        const float x = rows[e * dim + c];
        if (x < low[c] || x > high[c]) found.push_back(Outlier(place(e, c), x));
      }
    }
  } else {
    const bool by_token = codec.axis == CodeAxis::kToken;
    const int64_t n = by_token ? dim : kCodePageEntries;
    const int64_t vectors = by_token ? kCodePageEntries : dim;
    const auto per_side =
        static_cast<int64_t>(std::floor(codec.outlier_share * static_cast<double>(n) / 2 + 0.5));
    VectorScratch scratch;
    for (int64_t v = 0; per_side > 0 && v < vectors; ++v) {
      if (by_token) {
        TakeFromVector(
            rows + v * dim, 1, n, per_side, [&](int64_t i) { return place(v, i); }, scratch,
            &found);
      } else {
        TakeFromVector(
            rows + v, dim, n, per_side, [&](int64_t i) { return place(i, v); }, scratch, &found);
      }
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

void WriteOutliers(const Outliers& outliers, void* block) {
  auto* to = static_cast<uint8_t*>(block);
  const auto count = static_cast<uint32_t>(outliers.size());
  std::memcpy(to, &count, sizeof count);
  for (size_t i = 0; i < outliers.size(); ++i) {
    const uint16_t pair[2] = {static_cast<uint16_t>(outliers[i] >> 16),
                              static_cast<uint16_t>(outliers[i])};
    std::memcpy(to + 4 + 4 * i, pair, sizeof pair);
  }
}

int64_t CountOutliers(const void* block) {
  uint32_t count = 0;
  if (block != nullptr) std::memcpy(&count, block, sizeof count);
  return count;
}

void ApplyOutliers(const CodedLayout& layout, const void* block, float* tile) {
  const int64_t count = CountOutliers(block);
  const auto* from = static_cast<const uint8_t*>(block);
  const bool keys = layout.side == KvSide::kKeys;
  for (int64_t i = 0; i < count; ++i) {
    uint16_t pair[2];
    std::memcpy(pair, from + 4 + 4 * i, sizeof pair);
    const int place = pair[0], dim = place / kCodePageEntries, entry = place % kCodePageEntries;
    tile[keys ? int64_t{place} : int64_t{entry} * layout.width + dim] = F16ToF32(pair[1]);
  }
}

LowRank FitLowRank(const CodecKernels& kernels, ThreadSettings threads, float* error, int64_t n,
                   int64_t dim, int64_t rank) {
  LowRank fit;
  fit.latents.resize(static_cast<size_t>(rank * n));
  fit.basis.resize(static_cast<size_t>(rank * dim));
  // Into the range of squares, exactly.
  float largest = 0;
  for (int64_t i = 0; i < n * dim; ++i) largest = std::max(largest, std::abs(error[i]));
  if (largest == 0) return fit;
  const int exponent = std::clamp(std::ilogb(largest), -100, 100);
  const float down = std::ldexp(1.0f, -exponent), up = std::ldexp(1.0f, exponent);
  for (int64_t i = 0; i < n * dim; ++i) error[i] *= down;

  Rng rng(kLowRankSeed, 0);
  for (float& v : fit.basis) v = static_cast<float>(rng.NextGaussian());
  float *latents = fit.latents.data(), *basis = fit.basis.data();
  const double dot_ns = 0.2 * static_cast<double>(dim);
  for (int round = 0; round < kLowRankRounds; ++round) {
    Orthonormalize(kernels, basis, rank, dim);
    SplitWork(threads, n, dot_ns * static_cast<double>(rank), [&](int64_t i) {
      for (int64_t r = 0; r < rank; ++r) {
        latents[r * n + i] = kernels.dot(error + i * dim, basis + r * dim, dim);
      }
    });
    Orthonormalize(kernels, latents, rank, n);
    SplitWork(threads, rank, dot_ns * static_cast<double>(n), [&](int64_t r) {
      float* row = basis + r * dim;
      std::fill_n(row, dim, 0.0f);
      for (int64_t i = 0; i < n; ++i) {
        kernels.add_scaled(latents[r * n + i], error + i * dim, dim, row);
      }
    });
  }
  for (float& v : fit.basis) v *= up;
  return fit;
}

}  // namespace kvgauge
