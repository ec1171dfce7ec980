// SPDX-License-Identifier: Apache-2.0
#include "methods/seal_rule.h"

#include <algorithm>
#include <cmath>

#include "kernels/attention.h"

namespace kvgauge {

SealRule SealWhole(const KvCodec& codec, int64_t keep_recent) {
  return {.unit = SealUnit(codec), .keep_recent = keep_recent};
}

double StreamBytes(const KvCodec& codec, const SealRule& seal, int64_t sinks, int64_t entries) {
  constexpr int64_t kOutlierBytes = 4;
  const int64_t body = std::max<int64_t>(0, entries - sinks - seal.keep_recent);
  const int64_t sealed = codec.coded() ? body / seal.unit * seal.unit : 0;
  double bytes = static_cast<double>((entries - sealed) * codec.dim * SizeOf(codec.dtype));
  if (sealed == 0) return bytes;
  bytes += static_cast<double>(CodedBytes(codec, sealed).logical());
  return bytes + codec.outlier_share * static_cast<double>(sealed * codec.dim * kOutlierBytes);
}

int64_t PlannedStreamBytes(const KvCodec& codec, const SealRule& seal, int64_t sinks,
                           int64_t entries, int64_t fresh) {
  constexpr double kOutliersOfRanges = 0.05;  // of numbers; unknown before they are coded
  constexpr int64_t kOutlierBytes = 4, kPositionBytes = 4;
  // The last page is part filled, and what is written next may need another.
  const auto whole = [](int64_t n) { return (n + kKvPageEntries - 1) / kKvPageEntries + 1; };
  const int64_t waiting = sinks + seal.keep_recent + seal.unit + fresh;
  const int64_t floats = (sinks > 0) + whole(codec.coded() ? std::min(entries, waiting) : entries);
  const int64_t page = kKvPageEntries * codec.dim;
  int64_t bytes = floats * page * SizeOf(codec.dtype) + entries * kPositionBytes;
  if (!codec.coded()) return bytes;
  KvCodec alone = codec;
  alone.rank = 0;
  const int64_t pages = whole(entries);
  bytes += pages * CodedBytes(alone, kKvPageEntries).logical();
  bytes += pages * (kKvPageEntries + codec.dim) * codec.rank * SizeOf(DType::kF16);
  if (codec.has_outliers()) {
    const double share = codec.outlier_share > 0 ? codec.outlier_share : kOutliersOfRanges;
    const double outliers = std::ceil(share * static_cast<double>(page));
    bytes += pages * kOutlierBytes * (1 + static_cast<int64_t>(outliers));
  }
  return bytes;
}

}  // namespace kvgauge
