// SPDX-License-Identifier: Apache-2.0
// Mean and covariance of a prompt's queries before rotation, a query head at a time, folded chunk
// by chunk: sums of what chunks differ by from their own means, so that nothing large cancels.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops.h"
#include "runner/model.h"

namespace kvgauge {

// Means and covariances of the rows from position `from` on. One thread.
class QueryMoments {
 public:
  QueryMoments(const ModelConfig& config, int64_t from, const LayerDevices& devices);

  int64_t from() const { return from_; }
  // q: [rows, query_heads, key_dim], rotated, of the tokens from `begin` on; `places`: as the cache
  // has them.
  void Add(int64_t layer, const Tensor& q, int64_t begin, const RopeFrequencies& frequencies,
           const RopePlaces* places = nullptr);
  // Precondition: a row was added.
  Tensor Mean(int64_t layer) const;                  // [query_heads, key_dim]
  void Covariance(int64_t layer, Tensor out) const;  // [query_heads, key_dim, key_dim]

  int64_t bytes() const;
  // With working memory for chunks of `rows` rows.
  static int64_t PlannedBytes(const ModelConfig& config, int64_t rows);

 private:
  Tensor Products(int64_t layer) const;

  const ModelConfig& config_;
  int64_t from_;
  const LayerDevices devices_;
  std::vector<int64_t> rows_;             // [layers] folded so far
  std::vector<Buffer> means_, products_;  // [layers]
  std::vector<Buffer> units_;             // of each device: the identity, [key_dim, key_dim]
  std::vector<Buffer> work_;              // of each device
};

}  // namespace kvgauge
