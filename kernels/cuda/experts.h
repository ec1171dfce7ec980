// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts: who is chosen, and the rows of a product by the matrix each of them chose.
// Grids follow from shapes alone, so the host never learns a choice.
#pragma once

#include "cuda/device/context.h"
#include "kernels/select.h"

namespace kvgauge::cuda {

void LaunchChooseExperts(Context& context, const Tensor& logits, const ExpertRule& rule,
                         const Tensor& correction, const Tensor& index, const Tensor& weight);

// Rows of one tile of a product: `count` of them, from `first` on in the order; matrix -1: none.
struct ChosenTile {
  int32_t matrix, first, count;
};

// The rows of a product in the order of their matrices, cut into tiles.
struct ChosenRows {
  const int32_t* order = nullptr;  // [rows] row of the result; row / share is that of x
  const ChosenTile* tiles = nullptr;
  int64_t tile_count = 0;  // as many as there can be
  int64_t share = 1;
};

// choice: [rows] on the device. Lies in `scratch`.
ChosenRows ArrangeRows(const int32_t* choice, int64_t rows, int64_t share, int64_t matrices,
                       int64_t tile_rows, ScratchScope& scratch, Stream stream);

}  // namespace kvgauge::cuda
