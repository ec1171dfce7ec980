// SPDX-License-Identifier: Apache-2.0
// Gates of a pass: what they give the entries of its rows, folded as the layers' inputs come.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "methods/needs.h"
#include "runner/model.h"

namespace kvgauge {

// One thread. Rows may come again.
class GateFolds {
 public:
  // For gates that some stage declared. `rows`: the most that are held at a time.
  GateFolds(const ModelConfig& config, const ModelShape& shape, std::span<const GateNeed> gates,
            int64_t rows, Ops& ops);

  bool empty() const { return gates_.empty(); }
  // x: [rows, hidden_size], f32 or the type of the weights: rows [at, at + rows) of those held. A
  // gate of the rows of one layer passes the other layers over.
  void Fold(int64_t layer, const Tensor& x, int64_t at);
  // [kv_heads, rows held]. Precondition: declared.
  Tensor Of(const Gate& gate, int64_t layer) const;
  // What a gate gave the entries that were held before these rows, [kv_heads, entries], copied;
  // empty where nothing was given.
  void Give(const Gate& gate, int64_t layer, const Tensor& before);
  Tensor Before(const Gate& gate, int64_t layer) const;
  int64_t bytes() const;
  // Bytes of the gates' weights, which all sequences of a model share in their bytes.
  int64_t weight_bytes() const;

 private:
  struct Given {
    Buffer numbers;  // [kv_heads, entries]
    int64_t entries = 0;
  };
  struct Folded {
    std::shared_ptr<const Gate> gate;
    std::unique_ptr<LoadedGate> loaded;
    Buffer numbers;                        // [layers, kv_heads, rows]
    std::map<int64_t, Given> before = {};  // by layer
  };
  size_t IndexOf(const Gate& gate) const;

  const ModelConfig& config_;
  const int64_t kv_heads_, rows_;
  Ops& ops_;
  std::vector<Folded> gates_;
  Buffer wide_, part_, unit_;
};

}  // namespace kvgauge
