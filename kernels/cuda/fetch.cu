// SPDX-License-Identifier: Apache-2.0
#include "cuda/device/simt.h"
#include "cuda/fetch_kernels.h"

namespace kvgauge::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kAtOnce = 4;  // loads of a thread on their way

KVG_DEVICE bool IsRead(const PageCopy& copy) {
  if (copy.read == nullptr) return true;
  uint64_t any = 0;
  for (int g = 0; g < copy.group; ++g) any |= copy.read[g][copy.page];
  return any != 0;
}

KVG_KERNEL(kThreads) CopyWholeKernel(const PageCopy* copies, int64_t count) {
  for (int64_t i = BlockX(); i < count; i += GridX()) {
    const PageCopy copy = copies[i];
    if (!IsRead(copy)) continue;
    const auto* const from = static_cast<const Uint4*>(copy.from);
    auto* const to = static_cast<Uint4*>(copy.to);
    const int64_t lines = copy.size_bytes / 16;
    for (int64_t at = Thread(); at < lines; at += kAtOnce * kThreads) {
      Uint4 held[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (at + k * kThreads < lines) held[k] = from[at + k * kThreads];
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (at + k * kThreads < lines) to[at + k * kThreads] = held[k];
      }
    }
  }
}

}  // namespace

void CopyWholePages(const PageCopy* copies, int64_t count, int most_blocks, Stream stream) {
  KVG_LAUNCH(CopyWholeKernel, {.grid_x = Least<int64_t>(count, most_blocks), .threads = kThreads},
             stream, copies, count);
}

}  // namespace kvgauge::cuda
