// SPDX-License-Identifier: Apache-2.0
// Random key and value projections on the host, and what a stage made of them.
#pragma once

#include <map>
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

  FakeWeights(const ModelShape& shape, bool with_bias)
      : shape_(shape), ops_(std::move(*MakeOps("cpu", ThreadSettings{1}))) {
    for (int64_t l = 0; l < shape.layers; ++l) {
      for (const Matrix m : {Matrix::kKey, Matrix::kValue}) {
        const auto seed = static_cast<uint64_t>(10 * l + (m == Matrix::kKey ? 1 : 2));
        const int64_t rows = shape.kv_heads * shape.key_dim;
        weights[{l, m}] = RandomValues(rows * shape.hidden_size, seed);
        if (with_bias) biases[{l, m}] = RandomValues(rows, seed + 5);
      }
    }
  }

  const ModelShape& shape() const override { return shape_; }
  Ops& ops() const override { return *ops_; }
  Result<Tensor> Read(int64_t layer, Matrix matrix) override {
    const std::vector<float>& w = weights.at({layer, matrix});
    return View(w, {static_cast<int64_t>(w.size()) / shape_.hidden_size, shape_.hidden_size});
  }
  Status Write(int64_t layer, Matrix matrix, const Tensor& t) override {
    EXPECT_EQ(t.shape[0], heads_ * shape_.key_dim);
    written[{layer, matrix}] = Floats(t);
    return {};
  }
  Result<Tensor> ReadBias(int64_t layer, Matrix matrix) override {
    const auto found = biases.find({layer, matrix});
    if (found == biases.end()) return Tensor();
    return View(found->second, {static_cast<int64_t>(found->second.size())});
  }
  Status WriteBias(int64_t layer, Matrix matrix, const Tensor& t) override {
    EXPECT_EQ(t.shape[0], heads_ * shape_.key_dim);
    written_biases[{layer, matrix}] = Floats(t);
    return {};
  }
  Status SetKvHeads(int64_t kv_heads) override {
    heads_ = kv_heads;
    return {};
  }
  Status WriteBasis(int64_t layer, KvSide side, int64_t first_head, int64_t heads,
                    const Tensor& basis) override {
    bases[{layer, side}].push_back({first_head, heads, basis.shape[1], Floats(basis)});
    return {};
  }

  int64_t heads() const { return heads_; }

  using Key = std::pair<int64_t, Matrix>;
  std::map<Key, std::vector<float>> weights, biases, written, written_biases;
  std::map<std::pair<int64_t, KvSide>, std::vector<Basis>> bases;

 private:
  ModelShape shape_;
  std::unique_ptr<Ops> ops_;
  int64_t heads_ = shape_.kv_heads;
};

}  // namespace kvgauge
