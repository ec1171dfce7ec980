// SPDX-License-Identifier: Apache-2.0
// Side-cars of coded pages on the cpu: outliers and the low-rank correction. The same code for all
// instruction sets, around kernels that give the same bits.
#pragma once

#include <cstdint>
#include <vector>

#include "core/threads.h"
#include "cpu/codec/codec_kernels.h"

namespace kvgauge {

inline constexpr int kLowRankRounds = 3;
inline constexpr uint64_t kLowRankSeed = 1;

// One outlier: its place in the upper half, its f16 value in the lower.
using Outliers = std::vector<uint32_t>;

// What Encode keeps out of one page, in ascending places. rows: [64, dim] contiguous; outliers by
// share are replaced by the mean of the rest of their vector.
Outliers TakeOutliers(const KvCodec& codec, float* rows);

void WriteOutliers(const Outliers& outliers, void* block);
int64_t CountOutliers(const void* block);
void ApplyOutliers(const CodedLayout& layout, const void* block, float* tile);

// error [n, dim] is about sum over r of latents[r][i] * basis[r][c]. Overwrites error.
struct LowRank {
  std::vector<float> latents;  // [rank][n]
  std::vector<float> basis;    // [rank][dim]
};
LowRank FitLowRank(const CodecKernels& kernels, ThreadSettings threads, float* error, int64_t n,
                   int64_t dim, int64_t rank);

}  // namespace kvgauge
