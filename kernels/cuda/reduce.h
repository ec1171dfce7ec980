// SPDX-License-Identifier: Apache-2.0
// Sums and extremes over the threads that share a row. A team is a warp, or a whole block; which of
// the two depends on the length of the row alone, and so does the order of every sum.
#pragma once

#include "cuda/device/simt.h"

namespace kvgauge::cuda {

inline constexpr int kBlockThreads = 256;
inline constexpr int kBlockWarps = kBlockThreads / kWarp;
// Rows up to this long are a warp's.
inline constexpr int64_t kWarpRow = 1024;

struct WarpTeam {
  static constexpr int kThreads = kWarp;
  static constexpr int kTeams = kBlockWarps;  // of a block
  KVG_MEMBER static int index() { return Lane(); }
  KVG_MEMBER static int64_t row() { return BlockX() * kTeams + WarpIndex(); }
  template <class T, class Fold>
  KVG_MEMBER static T Reduce(T value, Fold fold) {
    return WarpReduce(value, fold);
  }
};

struct BlockTeam {
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kTeams = 1;
  KVG_MEMBER static int index() { return Thread(); }
  KVG_MEMBER static int64_t row() { return BlockX(); }
  template <class T, class Fold>
  KVG_MEMBER static T Reduce(T value, Fold fold) {
    KVG_SHARED(T, parts, kBlockWarps);
    value = WarpTeam::Reduce(value, fold);
    if (Lane() == 0) parts[WarpIndex()] = value;
    SyncBlock();
    value = parts[0];
    for (int w = 1; w < kBlockWarps; ++w) value = fold(value, parts[w]);
    SyncBlock();  // before parts is used again
    return value;
  }
};

template <class Team, class T>
KVG_DEVICE T TeamSum(T value) {
  return Team::Reduce(value, [](T a, T b) { return a + b; });
}
// NaN wins.
template <class Team>
KVG_DEVICE float TeamMax(float value) {
  return Team::Reduce(value, [](float a, float b) { return a > b || a != a ? a : b; });
}

}  // namespace kvgauge::cuda
