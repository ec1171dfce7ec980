// SPDX-License-Identifier: Apache-2.0
#include "methods/directions.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/strings.h"
#include "methods/layouts/transformed.h"
#include "methods/tensors.h"

namespace kvgauge {

// Products of a row with all rows, columns innermost: that of a wide layer is a billion numbers.
Status CheckOrthogonal(std::string_view name, std::span<const float> squares, int64_t dim) {
  std::vector<float> columns(static_cast<size_t>(dim * dim)), products(static_cast<size_t>(dim));
  for (size_t square = 0; square * columns.size() < squares.size(); ++square) {
    const float* rows = squares.data() + square * columns.size();
    for (int64_t i = 0; i < dim; ++i) {
      for (int64_t j = 0; j < dim; ++j) {
        columns[static_cast<size_t>(j * dim + i)] = rows[i * dim + j];
      }
    }
    for (int64_t i = 0; i < dim; ++i) {
      std::fill(products.begin(), products.end(), 0.0f);
      for (int64_t k = 0; k < dim; ++k) {
        const float number = rows[i * dim + k];
        const float* column = columns.data() + k * dim;
        for (int64_t j = 0; j <= i; ++j) products[static_cast<size_t>(j)] += number * column[j];
      }
      for (int64_t j = 0; j <= i; ++j) {
        const float product = products[static_cast<size_t>(j)];
        const int right = i == j ? 1 : 0;
        if (std::abs(product - static_cast<float>(right)) <= kBasisTolerance) continue;
        return BadInput(StrCat(name, ", matrix ", square, ": row ", i, " times row ", j, " is ",
                               product, ", which must be ", right, " within ", kBasisTolerance,
                               "; directions are orthonormal"));
      }
    }
  }
  return {};
}

// As a product with the identity.
void Transpose(LayerView& view, const Tensor& x, const Tensor& out) {
  Ops& ops = view.ops();
  const int64_t n = x.shape[0], width = x.shape[1];
  const Tensor unit = view.Scratch(DType::kF32, {width, width});
  ops.select->Scatter(AsColumn(Filled(view, width, 1.0f)),
                      Numbers(view, width, 0, static_cast<int32_t>(width) + 1),
                      AsColumn(unit.Reshape({width * width})));
  ops.linear->MatMulNT(unit.Reshape({1, width, width}), x.Reshape({1, n, width}), 1.0f,
                       out.Reshape({1, width, n}));
}

Tensor ColumnProducts(LayerView& view, const Tensor& rows) {
  const int64_t n = rows.shape[0], width = rows.shape[1];
  const Tensor columns = view.Scratch(DType::kF32, {width, std::max<int64_t>(n, 1)});
  const Tensor products = view.Scratch(DType::kF32, {width, width});
  if (n == 0) return products;
  Transpose(view, rows, columns);
  view.ops().linear->MatMulNT(columns.Reshape({1, width, n}), columns.Reshape({1, width, n}), 1.0f,
                              products.Reshape({1, width, width}));
  return products;
}

// The eigenvectors of the products of all pairs of columns.
Tensor LeadingDirections(LayerView& view, const Tensor& rows, int64_t rank) {
  const int64_t width = rows.shape[1];
  const Tensor products = ColumnProducts(view, rows);
  const Tensor vectors = view.Scratch(DType::kF32, {rank, width});
  view.ops().algebra->Eigenvectors(products, view.Scratch(DType::kF32, {rank}), vectors);
  const Tensor basis = view.Scratch(DType::kF32, {width, rank});
  Transpose(view, vectors, basis);
  return basis;
}

}  // namespace kvgauge
