// SPDX-License-Identifier: Apache-2.0
#include "methods/layouts/transformed.h"

#include <cmath>
#include <utility>

#include "core/strings.h"

namespace kvgauge {

Status CheckBasisSizes(const std::string& name, const BasisChange& change, int64_t kv_heads,
                       int64_t dim) {
  if (change.empty()) return {};
  if ((change.heads != 1 && change.heads != kv_heads) || change.dim != dim || change.stored < dim) {
    return BadInput(StrCat(name, " [", change.heads, ", ", change.dim, ", ", change.stored,
                           "]: must be [1, ", dim, ", ", dim, "] or [", kv_heads, ", ", dim, ", ",
                           dim, "], or have longer rows"));
  }
  const int64_t numbers = change.heads * dim * change.stored;
  for (const std::vector<float>* matrices : {change.there.get(), &change.way_back()}) {
    if (std::ssize(*matrices) != numbers) {
      return BadInput(StrCat(name, ": ", matrices->size(), " numbers; right is ", numbers));
    }
  }
  return {};
}

Status CheckBasisChange(const std::string& name, const BasisChange& change, int64_t kv_heads,
                        int64_t dim) {
  KVG_TRY(CheckBasisSizes(name, change, kv_heads, dim));
  if (change.empty()) return {};
  const int64_t stored = change.stored;
  for (const std::vector<float>* matrices : {change.there.get(), &change.way_back()}) {
    for (size_t i = 0; i < matrices->size(); ++i) {
      if (std::isfinite((*matrices)[i])) continue;
      return BadInput(StrCat(name, ": number ", i, " is ", (*matrices)[i]));
    }
  }
  for (int64_t h = 0; h < change.heads; ++h) {
    const float* there = change.there->data() + h * dim * stored;
    const float* back = change.way_back().data() + h * dim * stored;
    for (int64_t i = 0; i < dim; ++i) {
      for (int64_t j = 0; j < dim; ++j) {
        double product = 0;
        for (int64_t k = 0; k < stored; ++k) {
          product += double{there[i * stored + k]} * back[j * stored + k];
        }
        if (std::abs(product - (i == j ? 1 : 0)) <= kBasisTolerance) continue;
        return BadInput(StrCat(name, ", head ", h, ": row ", i, " times row ", j, " is ", product,
                               ", which must be ", i == j ? 1 : 0, " within ", kBasisTolerance,
                               change.back == nullptr ? "; an orthogonal matrix has that"
                                                      : "; the second matrix undoes the first"));
      }
    }
  }
  return {};
}

Transformed::Transformed(Coded layout, BasisChange of_keys, BasisChange of_values)
    : Coded(std::move(layout)), key_change(std::move(of_keys)), value_change(std::move(of_values)) {
  if (!key_change.empty()) keys.dim = key_change.stored;
  if (!value_change.empty()) values.dim = value_change.stored;
}

StoreTraits Transformed::traits() const {
  StoreTraits traits = Coded::traits();
  traits.plain = traits.exact = false;
  return traits;
}

Status Transformed::Check(const StoreUse& use) const {
  const ModelShape& shape = *use.shape;
  // Numbers that were made here are right; to multiply them out for each layer and row is slow.
  const auto check = [&](const char* side, const BasisChange& change, int64_t dim) {
    if (!change.source.empty()) {
      return CheckBasisChange(change.source, change, shape.kv_heads, dim);
    }
    return CheckBasisSizes(StrCat(side, " matrices of layer ", use.layer), change, shape.kv_heads,
                           dim);
  };
  KVG_TRY(check("key", key_change, shape.key_dim));
  KVG_TRY(check("value", value_change, shape.value_dim));
  return Coded::Check(use);
}

int64_t Transformed::EntryBits(const ModelShape&) const {
  return EntryCodeBits(keys) + EntryCodeBits(values);
}

}  // namespace kvgauge
