// SPDX-License-Identifier: Apache-2.0
// Coded entries in other coordinates: of a row x of a head, x * there is stored, and attention
// turns queries and weighted sums instead of entries (x = stored * back^T).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "methods/layouts/coded.h"

namespace kvgauge {

// The matrices of one side of a layer.
struct BasisChange {
  using Matrices = std::shared_ptr<const std::vector<float>>;

  Matrices there;      // [heads, dim, stored]; null: entries stay in their own coordinates
  Matrices back;       // of that shape; null: `there`, whose rows are orthonormal
  int64_t heads = 1;   // 1: all KV heads have the same
  int64_t dim = 0;     // of the model
  int64_t stored = 0;  // numbers of an entry: `dim` at least, or the most of `kept`
  // Fewer numbers than the model's, each head as many as it says: what their directions do not hold
  // is lost. Matrices are then [dim, kept[h]] one after the other, whose columns are orthonormal or
  // zero. [heads]; empty: all are stored.
  std::vector<int64_t> kept = {};
  bool constant = true;     // of the model or the method; false: found in this sequence
  std::string source = {};  // file and table, for messages; empty: they were made here

  bool empty() const { return there == nullptr; }
  bool cut() const { return !kept.empty(); }
  const std::vector<float>& way_back() const { return back == nullptr ? *there : *back; }
  // Numbers of an entry of a head, and where its matrix begins.
  int64_t width(int64_t head) const;
  int64_t begin(int64_t head) const;
};

// How far there * back^T may be from the identity, in any number.
inline constexpr float kBasisTolerance = 2e-3f;

// `name`: of the matrices, for messages. The second looks at every number as well as at sizes.
Status CheckBasisSizes(const std::string& name, const BasisChange& change, int64_t kv_heads,
                       int64_t dim);
Status CheckBasisChange(const std::string& name, const BasisChange& change, int64_t kv_heads,
                        int64_t dim);

struct Transformed final : Coded {
  // Codecs have the dims of what is stored.
  Transformed(Coded layout, BasisChange key_change, BasisChange value_change);
  Transformed() = default;

  BasisChange key_change, value_change;
  const BasisChange& change(KvSide side) const {
    return side == KvSide::kKeys ? key_change : value_change;
  }

  static constexpr std::string_view kId = "transformed";
  std::string_view id() const override { return kId; }
  StoreTraits traits() const override;
  Status Check(const StoreUse& use) const override;
  double HeadBytes(const ModelShape& shape, int64_t entries) const override;
  int64_t EntryBits(const ModelShape& shape) const override;
};

}  // namespace kvgauge
