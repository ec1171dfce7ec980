// SPDX-License-Identifier: Apache-2.0
// Low-rank additions to the projections around attention (LoRA), for some rows of a pass.
//
// A projection W of such a row x gives W x + scale * up (down x). They are added as float32 behind
// the projection of the whole pass, so other rows keep their bits.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/ops.h"
#include "methods/gate_scorer.h"

namespace kvgauge {

// Their weights on one device, and working memory. One thread.
class RowAdapters {
 public:
  // "layers.3.q.down" [rank, in] and "layers.3.q.up" [out, rank], of q, k, v and o.
  static GateTables::Dims DimsOf(const ModelShape& shape, int64_t rank);
  static std::string Table(int64_t layer, char projection, bool up);
  // Bytes of the weights, and of working memory for so many rows.
  static int64_t WeightBytes(const ModelShape& shape, int64_t rank);
  static int64_t WorkingBytes(const ModelShape& shape, int64_t rank, int64_t rows);

  // Ops outlives them. Precondition: the tables were checked.
  RowAdapters(const GateTables& tables, const ModelShape& shape, int64_t rank, float scale,
              Ops& ops);

  // x: [rows, hidden_size], what the projections read. qkv: [rows, ..] f32, where the queries, keys
  // and values of all heads come first, in that order.
  void AddToHeads(int64_t layer, const Tensor& x, const Tensor& qkv);
  // attended: [rows, query_heads * value_dim]; out: [rows, hidden_size] f32.
  void AddToOutput(int64_t layer, const Tensor& attended, const Tensor& out);

 private:
  struct Layer {
    std::unique_ptr<PackedMatrix> down, output_down;  // the first of q, k and v, stacked
    std::unique_ptr<PackedMatrix> up[3], output_up;
  };

  // x as f32, and what `down` makes of it, scaled: [rows, ranks].
  Tensor Narrowed(const Tensor& x, const PackedMatrix& down);

  Ops& ops_;
  const int64_t rank_;
  const float scale_;
  std::vector<Layer> layers_;
  Buffer wide_, narrow_;
};

}  // namespace kvgauge
