// SPDX-License-Identifier: Apache-2.0
// Random projections on the host, and what a stage made of them.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "fake_view.h"

namespace kvgauge {

class FakeWeights final : public WeightView {
 public:
  struct Basis {
    int64_t first_head, heads, rank;
    std::vector<float> values;
  };

  // `all`: those of queries and outputs, too.
  FakeWeights(const ModelShape& shape, bool with_bias, bool all = false)
      : shape_(shape), ops_(std::move(*MakeOps("cpu", ThreadSettings{1}))) {
    for (int64_t l = 0; l < shape.layers; ++l) {
      for (const Matrix m : {Matrix::kKey, Matrix::kValue}) {
        const auto seed = static_cast<uint64_t>(10 * l + (m == Matrix::kKey ? 1 : 2));
        const int64_t rows = shape.kv_heads * shape.key_dim;
        weights[{l, m}] = RandomValues(rows * shape.hidden_size, seed);
        if (with_bias) biases[{l, m}] = RandomValues(rows, seed + 5);
      }
      if (!all) continue;
      const int64_t rows = shape.query_heads * shape.key_dim;
      weights[{l, Matrix::kQuery}] =
          RandomValues(rows * shape.hidden_size, static_cast<uint64_t>(10 * l + 3));
      weights[{l, Matrix::kOutput}] =
          RandomValues(shape.query_heads * shape.value_dim * shape.hidden_size,
                       static_cast<uint64_t>(10 * l + 4));
    }
  }

  const ModelShape& shape() const override { return shape_; }
  Ops& ops() const override { return *ops_; }
  Result<Tensor> Read(int64_t layer, Matrix matrix) override {
    const std::vector<float>& w = weights.at({layer, matrix});
    const int64_t width =
        matrix == Matrix::kOutput ? shape_.query_heads * shape_.value_dim : shape_.hidden_size;
    return View(w, {static_cast<int64_t>(w.size()) / width, width});
  }
  Status Write(int64_t layer, Matrix matrix, const Tensor& t) override {
    const bool output = matrix == Matrix::kOutput;
    const int64_t heads = output || matrix == Matrix::kQuery ? query_heads_ : heads_;
    EXPECT_EQ(t.shape[output ? 1 : 0], heads * shape_.key_dim);
    written[{layer, matrix}] = Floats(t);
    return {};
  }
  Status MeanEntries(const EntryMeans& told) override {
    means = told;
    return {};
  }
  Result<Tensor> ReadBias(int64_t layer, Matrix matrix) override {
    const auto found = biases.find({layer, matrix});
    if (found == biases.end()) return Tensor();
    return View(found->second, {static_cast<int64_t>(found->second.size())});
  }
  Status WriteBias(int64_t layer, Matrix matrix, const Tensor& t) override {
    EXPECT_EQ(t.shape[0], (matrix == Matrix::kQuery ? query_heads_ : heads_) * shape_.key_dim);
    written_biases[{layer, matrix}] = Floats(t);
    return {};
  }
  Status SetHeads(int64_t query_heads, int64_t kv_heads) override {
    query_heads_ = query_heads;
    heads_ = kv_heads;
    return {};
  }
  Status ShareCaches(std::span<const int64_t> of_layers) override {
    reads.assign(of_layers.begin(), of_layers.end());
    return {};
  }
  Status WriteBasis(int64_t layer, KvSide side, int64_t first_head, int64_t heads,
                    const Tensor& basis) override {
    bases[{layer, side}].push_back({first_head, heads, basis.shape[1], Floats(basis)});
    return {};
  }

  int64_t heads() const { return heads_; }
  int64_t query_heads() const { return query_heads_; }

  using Key = std::pair<int64_t, Matrix>;
  std::map<Key, std::vector<float>> weights, biases, written, written_biases;
  std::map<std::pair<int64_t, KvSide>, std::vector<Basis>> bases;
  std::vector<int64_t> reads;       // as ShareCaches was told
  std::optional<EntryMeans> means;  // as MeanEntries was

 private:
  ModelShape shape_;
  std::unique_ptr<Ops> ops_;
  int64_t heads_ = shape_.kv_heads, query_heads_ = shape_.query_heads;
};

}  // namespace kvgauge
