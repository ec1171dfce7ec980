// SPDX-License-Identifier: Apache-2.0
#include "methods/layouts/transformed.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/strings.h"

namespace kvgauge {

int64_t BasisChange::width(int64_t head) const {
  return cut() ? kept[static_cast<size_t>(heads == 1 ? 0 : head)] : stored;
}

int64_t BasisChange::begin(int64_t head) const {
  const int64_t own = heads == 1 ? 0 : head;
  if (!cut()) return own * dim * stored;
  return dim * std::accumulate(kept.begin(), kept.begin() + own, int64_t{0});
}

namespace {

// Numbers of all matrices of one way.
int64_t NumbersOf(const BasisChange& change) {
  return change.begin(change.heads - 1) + change.dim * change.width(change.heads - 1);
}

Status CheckCutSizes(const std::string& name, const BasisChange& change, int64_t kv_heads,
                     int64_t dim) {
  const bool fits = (change.heads == 1 || change.heads == kv_heads) && change.dim == dim &&
                    std::ssize(change.kept) == change.heads;
  const bool widths = std::all_of(change.kept.begin(), change.kept.end(),
                                  [&](int64_t width) { return width >= 1 && width <= dim; });
  if (fits && widths &&
      *std::max_element(change.kept.begin(), change.kept.end()) == change.stored) {
    return {};
  }
  return BadInput(StrCat(name, ": ", change.kept.size(), " of ", change.heads, " heads keep 1 to ",
                         change.stored, " of ", change.dim, " numbers; right are 1 or ", kv_heads,
                         " heads with 1 to ", dim));
}

}  // namespace

Status CheckBasisSizes(const std::string& name, const BasisChange& change, int64_t kv_heads,
                       int64_t dim) {
  if (change.empty()) return {};
  if (change.cut()) {
    KVG_TRY(CheckCutSizes(name, change, kv_heads, dim));
  } else if ((change.heads != 1 && change.heads != kv_heads) || change.dim != dim ||
             change.stored < dim) {
    const std::string heads = kv_heads == 1 ? "1 head" : StrCat("1 or ", kv_heads, " heads");
    return BadInput(StrCat(name, " [", change.heads, ", ", change.dim, ", ", change.stored,
                           "] (heads, rows, columns): right are ", heads, ", ", dim, " rows, and ",
                           dim, " columns or more"));
  }
  const int64_t numbers = NumbersOf(change);
  for (const std::vector<float>* matrices : {change.there.get(), &change.way_back()}) {
    if (std::ssize(*matrices) != numbers) {
      return BadInput(StrCat(name, ": ", matrices->size(), " numbers; right is ", numbers));
    }
  }
  return {};
}

namespace {

// Columns of [dim, width] one after the other: each of length 1 or 0, orthogonal to the others.
Status CheckCutColumns(const std::string& name, const BasisChange& change) {
  for (int64_t h = 0; h < change.heads; ++h) {
    const int64_t width = change.width(h);
    const float* there = change.there->data() + change.begin(h);
    const float* back = change.way_back().data() + change.begin(h);
    for (int64_t i = 0; i < width; ++i) {
      for (int64_t j = 0; j < width; ++j) {
        double product = 0;
        for (int64_t d = 0; d < change.dim; ++d) {
          product += double{there[d * width + i]} * back[d * width + j];
        }
        if (std::abs(product) <= kBasisTolerance) continue;
        if (i == j && std::abs(product - 1) <= kBasisTolerance) continue;
        return BadInput(StrCat(name, ", head ", h, ": column ", i, " times column ", j, " is ",
                               product, "; columns of directions have products of 0, and of 1 ",
                               "with themselves, within ", kBasisTolerance));
      }
    }
  }
  return {};
}

}  // namespace

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
  if (change.cut()) return CheckCutColumns(name, change);
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

namespace {

// The bits of an entry's codes on that side: the mean of the heads where they keep unlike widths.
double SideBits(const BasisChange& change, const KvCodec& codec, const ModelShape& shape) {
  if (!change.cut()) return static_cast<double>(EntryCodeBits(codec));
  double sum = 0;
  for (int64_t h = 0; h < shape.kv_heads; ++h) sum += static_cast<double>(change.width(h));
  return sum / static_cast<double>(shape.kv_heads) * static_cast<double>(CodeBits(codec));
}

}  // namespace

double Transformed::HeadBytes(const ModelShape& shape, int64_t entries) const {
  if (!key_change.cut() && !value_change.cut()) return Coded::HeadBytes(shape, entries);
  double sum = 0;
  for (int64_t h = 0; h < shape.kv_heads; ++h) {
    KvCodec key = keys, value = values;
    if (key_change.cut()) key.dim = key_change.width(h);
    if (value_change.cut()) value.dim = value_change.width(h);
    sum += StreamBytes(key, seal_keys, sinks, entries) +
           StreamBytes(value, seal_values, sinks, entries);
  }
  return sum / static_cast<double>(shape.kv_heads);
}

int64_t Transformed::EntryBits(const ModelShape& shape) const {
  return std::llround(SideBits(key_change, keys, shape) + SideBits(value_change, values, shape));
}

}  // namespace kvgauge
