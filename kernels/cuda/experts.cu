// SPDX-License-Identifier: Apache-2.0
#include "cuda/experts.h"
#include "cuda/reduce.h"

namespace kvgauge::cuda {
namespace {

// NaN counts as nothing, so that somebody is chosen whatever the logits are.
KVG_DEVICE double Rank(double share) { return share != share ? 0 : share; }

constexpr double kOut = -__builtin_inf();
constexpr double kLowest = -1.7976931348623157e308;

KVG_DEVICE double Sigmoid(float logit) { return 1 / (1 + Exp(-static_cast<double>(logit))); }

// The largest of [0, n) in `values` by a warp, the first among equals; kOut is out of the question.
KVG_DEVICE int32_t FirstLargest(const double* values, int64_t n) {
  double most = kOut;
  int64_t at = n;
  for (int64_t i = Lane(); i < n; i += kWarp) {
    const double rank = Rank(values[i]);
    if (rank > most) {
      most = rank;
      at = i;
    }
  }
  const double best = WarpMax(most);
  return WarpMin(static_cast<int32_t>(most == best ? at : n));
}

struct Choice {
  const float* logits;
  const float* correction;  // [experts]; null: shares are a softmax
  int64_t rows, experts, stride, k, groups, top_groups;
  bool renormalize;
  double scaling;
  bool in_turn;
  double tolerance;
  double* share;   // [rows, experts] scratch: what is chosen by; kOut once it is chosen
  double* best;    // [rows, groups] scratch
  double* value;   // [rows, k] scratch: shares in the order they are found
  int32_t* found;  // [rows, k] scratch: and whose they are
  int32_t* index;
  float* weight;
};

// What a row's experts are chosen by, of softmax.
KVG_DEVICE void SoftmaxShares(const Choice& c, const float* logits, double* share) {
  float most = logits[0];
  for (int64_t e = Lane(); e < c.experts; e += kWarp) most = Most(most, logits[e]);
  most = WarpMax(most);
  double total = 0;
  for (int64_t e = Lane(); e < c.experts; e += kWarp) {
    share[e] = Exp(static_cast<double>(logits[e]) - static_cast<double>(most));
    total += share[e];
  }
  total = WarpSum(total);
  for (int64_t e = Lane(); e < c.experts; e += kWarp) share[e] /= total;
}

// What a group is worth.
KVG_DEVICE double GroupRank(const Choice& c, const double* share, int64_t size) {
  double top = Rank(share[0]), second = kOut;
  for (int64_t e = 1; e < size; ++e) {
    const double rank = Rank(share[e]);
    second = Most(second, rank < top ? rank : top);
    top = Most(top, rank);
  }
  return c.correction != nullptr && size > 1 ? top + second : top;
}

// What the largest of `left` has of a softmax over those that are near it, by a warp.
KVG_DEVICE double ShareOfNear(const Choice& c, const double* left, double most) {
  double total = 0;
  for (int64_t e = Lane(); e < c.experts; e += kWarp) {
    const double size = left[e] < 0 ? -left[e] : left[e];
    const double behind = (most - left[e]) / (size > most ? size : most);
    if (left[e] > kOut && !(behind > c.tolerance)) total += Exp(left[e] - most);
  }
  return 1 / WarpSum(total);
}

// A warp has a row.
KVG_KERNEL(kBlockThreads) ChooseExpertsKernel(Choice c) {
  const int64_t row = BlockX() * kBlockWarps + WarpIndex();
  if (row >= c.rows) return;  // the whole warp
  const float* logits = c.logits + row * c.stride;
  double* share = c.share + row * c.experts;
  if (c.in_turn) {
    // A logit that is not a number, or minus infinity, comes behind all that are left.
    for (int64_t e = Lane(); e < c.experts; e += kWarp) {
      const auto logit = static_cast<double>(logits[e]);
      share[e] = logit > kLowest ? logit : kLowest;
    }
  } else if (c.correction == nullptr) {
    SoftmaxShares(c, logits, share);
  } else {
    for (int64_t e = Lane(); e < c.experts; e += kWarp) {
      share[e] = Sigmoid(logits[e]) + static_cast<double>(c.correction[e]);
    }
  }
  SyncWarp();
  if (c.top_groups < c.groups) {
    double* best = c.best + row * c.groups;
    const int64_t size = c.experts / c.groups;
    for (int64_t g = Lane(); g < c.groups; g += kWarp) {
      best[g] = GroupRank(c, share + g * size, size);
    }
    SyncWarp();
    for (int64_t i = 0; i < c.top_groups; ++i) {
      const int32_t g = FirstLargest(best, c.groups);
      SyncWarp();
      if (Lane() == 0) best[g] = kOut;
      SyncWarp();
    }
    for (int64_t e = Lane(); e < c.experts; e += kWarp) {
      if (best[e / size] > kOut) share[e] = 0;
    }
    SyncWarp();
  }
  double* value = c.value + row * c.k;
  int32_t* found = c.found + row * c.k;
  for (int64_t j = 0; j < c.k; ++j) {
    const int32_t e = FirstLargest(share, c.experts);
    const double near = c.in_turn ? ShareOfNear(c, share, share[e]) : 0;
    SyncWarp();
    if (Lane() == 0) {
      value[j] = c.in_turn ? near : c.correction != nullptr ? Sigmoid(logits[e]) : share[e];
      found[j] = e;
      share[e] = kOut;
    }
    SyncWarp();
  }
  // In ascending order of expert, sums too.
  int32_t* index = c.index + row * c.k;
  double chosen = 0;
  for (int64_t place = 0; place < c.k; ++place) {
    int64_t at = 0;
    for (int64_t j = 0; j < c.k; ++j) {
      int64_t before = 0;
      for (int64_t o = 0; o < c.k; ++o) before += found[o] < found[j];
      if (before == place) at = j;
    }
    chosen += value[at];
    if (Lane() == 0) index[place] = found[at];
  }
  double factor = c.in_turn ? 1 : c.renormalize && c.k > 1 ? 1 / (chosen + 1e-20) : c.scaling;
  if (c.correction != nullptr && c.renormalize && c.k > 1) factor *= c.scaling;
  SyncWarp();
  for (int64_t j = Lane(); j < c.k; j += kWarp) {
    int64_t place = 0;
    for (int64_t o = 0; o < c.k; ++o) place += found[o] < found[j];
    c.weight[row * c.k + place] = static_cast<float>(value[j] * factor);
  }
}

// One block. begin: [matrices + 1] scratch.
KVG_KERNEL(kBlockThreads)
ArrangeRowsKernel(const int32_t* choice, int64_t rows, int64_t matrices, int64_t tile_rows,
                  int32_t* begin, int32_t* order, ChosenTile* tiles, int64_t tile_count) {
  const uint32_t lower = (uint32_t{1} << Lane()) - 1;
  for (int64_t e = WarpIndex(); e < matrices; e += kBlockWarps) {
    int32_t count = 0;
    for (int64_t base = 0; base < rows; base += kWarp) {
      const int64_t i = base + Lane();
      count += PopCount(Ballot(i < rows && choice[i] == e));
    }
    if (Lane() == 0) begin[e + 1] = count;
  }
  SyncBlock();
  if (Thread() == 0) {
    begin[0] = 0;
    int64_t next = 0;
    for (int64_t e = 0; e < matrices; ++e) {
      const int32_t first = begin[e], count = begin[e + 1];
      begin[e + 1] = first + count;
      for (int32_t done = 0; done < count; done += static_cast<int32_t>(tile_rows)) {
        tiles[next++] = {static_cast<int32_t>(e), first + done,
                         Least(count - done, static_cast<int32_t>(tile_rows))};
      }
    }
    for (; next < tile_count; ++next) tiles[next] = {-1, 0, 0};
  }
  SyncBlock();
  for (int64_t e = WarpIndex(); e < matrices; e += kBlockWarps) {
    if (begin[e] == begin[e + 1]) continue;
    int32_t at = begin[e];
    for (int64_t base = 0; base < rows; base += kWarp) {
      const int64_t i = base + Lane();
      const bool mine = i < rows && choice[i] == e;
      const uint32_t bits = Ballot(mine);
      if (mine) order[at + PopCount(bits & lower)] = static_cast<int32_t>(i);
      at += PopCount(bits);
    }
  }
}

}  // namespace

void LaunchChooseExperts(Context& context, const Tensor& logits, const ExpertRule& rule,
                         const Tensor& correction, const Tensor& index, const Tensor& weight) {
  const int64_t rows = logits.shape[0], experts = logits.shape[1], k = index.shape[1];
  ScratchScope scratch(context);
  const Choice choice = {.logits = logits.f32(),
                         .correction = correction.empty() ? nullptr : correction.f32(),
                         .rows = rows,
                         .experts = experts,
                         .stride = logits.stride[0],
                         .k = k,
                         .groups = rule.groups,
                         .top_groups = rule.top_groups,
                         .renormalize = rule.renormalize,
                         .scaling = rule.scaling,
                         .in_turn = rule.in_turn,
                         .tolerance = rule.tolerance,
                         .share = scratch.Take<double>(rows * experts),
                         .best = scratch.Take<double>(rows * rule.groups),
                         .value = scratch.Take<double>(rows * k),
                         .found = scratch.Take<int32_t>(rows * k),
                         .index = index.i32(),
                         .weight = weight.f32()};
  KVG_LAUNCH(ChooseExpertsKernel, {.grid_x = CeilDiv(rows, kBlockWarps), .threads = kBlockThreads},
             context.stream(), choice);
}

ChosenRows ArrangeRows(const int32_t* choice, int64_t rows, int64_t share, int64_t matrices,
                       int64_t tile_rows, ScratchScope& scratch, Stream stream) {
  // Each matrix has one tile that is not full, at most, and no tile is empty.
  const int64_t tile_count = Least(rows, rows / tile_rows + matrices);
  auto* begin = scratch.Take<int32_t>(matrices + 1);
  auto* order = scratch.Take<int32_t>(rows);
  auto* tiles = scratch.Take<ChosenTile>(tile_count);
  KVG_LAUNCH(ArrangeRowsKernel, {.threads = kBlockThreads}, stream, choice, rows, matrices,
             tile_rows, begin, order, tiles, tile_count);
  return {.order = order, .tiles = tiles, .tile_count = tile_count, .share = share};
}

}  // namespace kvgauge::cuda
