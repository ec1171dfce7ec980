// SPDX-License-Identifier: Apache-2.0
#include "kernels/window_sums.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace kvgauge {
namespace {

// out[i] = a[i] + b[i + by], or b[i - by]; a[i] where there is no such row. `out` may be `a`.
void AddShifted(Ops& ops, const Tensor& a, const Tensor& b, int64_t by, WindowSide side,
                const Tensor& out) {
  const int64_t n = a.shape[0], both = std::max<int64_t>(n - by, 0);
  const bool ahead = side == WindowSide::kAhead;
  const int64_t at = ahead ? 0 : n - both, from = ahead ? n - both : 0;
  if (both > 0) {
    ops.rows->Combine(a.Slice(at, at + both), b.Slice(from, from + both), Binary::kAdd,
                      out.Slice(at, at + both));
  }
  if (both == n || out.data == a.data) return;
  const int64_t rest = ahead ? both : 0;
  ops.memory->Copy(a.Slice(rest, rest + n - both), out.Slice(rest, rest + n - both));
}

}  // namespace

void WindowSums(Ops& ops, const Tensor& x, int64_t width, WindowSide side, const Tensor& spare,
                const Tensor& out) {
  const int64_t n = x.shape[0];
  KVG_CHECK(width >= 1 && spare.shape[0] == 2 * n && out.shape[0] == n, "wrong shapes of windows");
  if (n == 0) return;
  // `sums` over `length` rows, doubled each time; `out` takes those whose bit the width has.
  Tensor sums = x, free = spare.Slice(0, n), next = spare.Slice(n, 2 * n);
  int64_t done = 0;
  for (int64_t length = 1; length <= width; length *= 2) {
    if ((width & length) != 0) {
      if (done == 0) {
        ops.memory->Copy(sums, out);
      } else {
        AddShifted(ops, out, sums, done, side, out);
      }
      done += length;
    }
    if (2 * length > width) break;
    AddShifted(ops, sums, sums, length, side, free);
    sums = free;
    std::swap(free, next);
  }
}

}  // namespace kvgauge
