// SPDX-License-Identifier: Apache-2.0
// Key and value projections at a lower rank, for prepare stages whose caches hold latents.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "methods/stages.h"

namespace kvgauge {

// f32 numbers of working memory, freed with the buffer.
Buffer AllocateFloats(Ops& ops, int64_t numbers);

// Fills in, for the rows of one group of KV heads ([rows, columns], a bias as one more column), an
// orthonormal `basis` [rows, rank] and the rows' coordinates in it, `inner` [rank, columns].
using BasisOfRows = std::function<Status(const Tensor& part, int64_t group, const Tensor& basis,
                                         const Tensor& inner)>;

struct LowRankOptions {
  int64_t heads = 1;      // KV heads of a group
  bool hadamard = false;  // the basis that is written is turned, so that latents are alike in size
};

// Replaces a projection of a layer by what bases hold of it, and writes the bases. ranks: [groups];
// at most as many as rows and columns.
Status LowerRank(WeightView& weights, int64_t layer, KvSide side, std::span<const int64_t> ranks,
                 const LowRankOptions& options, const BasisOfRows& basis_of);

// The first left singular vectors of `part`, and what goes with them: diag(s) * vt.
void TakeLeadingVectors(Ops& ops, const Tensor& part, const Tensor& basis, const Tensor& inner);
// The first of `directions` (host, one a row) as columns, and the coordinates of `part` in them.
void TakeDirections(Ops& ops, const Tensor& directions, const Tensor& part, const Tensor& basis,
                    const Tensor& inner);

// The eigenvectors of sum / tokens, one a row, the largest eigenvalue first; and the eigenvalues.
// sum: second moments over tokens, [dims, dims].
void MomentDirections(Ops& ops, const std::vector<double>& sum, int64_t tokens,
                      std::vector<float>& directions, std::vector<float>& energy);

}  // namespace kvgauge
