// SPDX-License-Identifier: Apache-2.0
#include "methods/row_adapters.h"

#include <algorithm>

#include "core/strings.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

struct Projection {
  char name;
  int64_t in, out;
};

std::vector<Projection> ProjectionsOf(const ModelShape& shape) {
  const int64_t hidden = shape.hidden_size;
  return {{'q', hidden, shape.query_heads * shape.key_dim},
          {'k', hidden, shape.kv_heads * shape.key_dim},
          {'v', hidden, shape.kv_heads * shape.value_dim},
          {'o', shape.query_heads * shape.value_dim, hidden}};
}

}  // namespace

std::string RowAdapters::Table(int64_t layer, char projection, bool up) {
  return StrCat("layers.", layer, ".", std::string(1, projection), up ? ".up" : ".down");
}

GateTables::Dims RowAdapters::DimsOf(const ModelShape& shape, int64_t rank) {
  GateTables::Dims dims;
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    for (const Projection& of : ProjectionsOf(shape)) {
      dims[Table(layer, of.name, false)] = {rank, of.in};
      dims[Table(layer, of.name, true)] = {of.out, rank};
    }
  }
  return dims;
}

int64_t RowAdapters::WeightBytes(const ModelShape& shape, int64_t rank) {
  return GateTables::Bytes(DimsOf(shape, rank));
}

int64_t RowAdapters::WorkingBytes(const ModelShape& shape, int64_t rank, int64_t rows) {
  return 4 * rows * (std::max(shape.hidden_size, shape.query_heads * shape.value_dim) + 3 * rank);
}

RowAdapters::RowAdapters(const GateTables& tables, const ModelShape& shape, int64_t rank,
                         float scale, Ops& ops)
    : ops_(ops), rank_(rank), scale_(scale) {
  const std::vector<Projection> projections = ProjectionsOf(shape);
  for (int64_t at = 0; at < shape.layers; ++at) {
    Layer& layer = layers_.emplace_back();
    std::vector<std::vector<float>> numbers;
    const auto rows = [&](const Projection& of, bool up) {
      const std::vector<int64_t> dims =
          up ? std::vector<int64_t>{of.out, rank} : std::vector<int64_t>{rank, of.in};
      numbers.push_back(tables.Read(Table(at, of.name, up), dims));
      return View(numbers.back(), {dims[0], dims[1]});
    };
    const auto pack = [&](std::initializer_list<Tensor> parts) {
      return ops.linear->Pack({parts.begin(), parts.size()}, DType::kF32);
    };
    numbers.reserve(2 * projections.size());
    layer.down = pack(
        {rows(projections[0], false), rows(projections[1], false), rows(projections[2], false)});
    layer.output_down = pack({rows(projections[3], false)});
    for (size_t i = 0; i < 3; ++i) layer.up[i] = pack({rows(projections[i], true)});
    layer.output_up = pack({rows(projections[3], true)});
  }
}

Tensor RowAdapters::Narrowed(const Tensor& x, const PackedMatrix& down) {
  const auto take = [&](Buffer& memory, int64_t columns) {
    const int64_t bytes = x.shape[0] * columns * 4;
    if (memory.size_bytes() < bytes) memory = ops_.memory->Allocate(bytes);
    return memory.As(DType::kF32, {x.shape[0], columns});
  };
  Tensor wide = x;
  if (x.dtype != DType::kF32) {
    wide = take(wide_, x.shape[1]);
    ops_.rows->Convert(x, wide);
  }
  const Tensor narrow = take(narrow_, down.out_features());
  ops_.linear->MatMul(wide, down, {}, MatMulMode::kSet, narrow);
  if (scale_ != 1.0f) ops_.rows->Affine(narrow, scale_, 0.0f, narrow);
  return narrow;
}

void RowAdapters::AddToHeads(int64_t layer, const Tensor& x, const Tensor& qkv) {
  const Layer& w = layers_[static_cast<size_t>(layer)];
  const Tensor narrow = Narrowed(x, *w.down);
  int64_t column = 0;
  for (int64_t i = 0; i < 3; ++i) {
    const PackedMatrix& up = *w.up[i];
    const Tensor part = Columns(narrow, i * rank_, (i + 1) * rank_);
    const Tensor to = Columns(qkv, column, column + up.out_features());
    ops_.linear->MatMul(part, up, {}, MatMulMode::kAdd, to);
    column += up.out_features();
  }
}

void RowAdapters::AddToOutput(int64_t layer, const Tensor& attended, const Tensor& out) {
  const Layer& w = layers_[static_cast<size_t>(layer)];
  const Tensor narrow = Narrowed(attended, *w.output_down);
  ops_.linear->MatMul(narrow, *w.output_up, {}, MatMulMode::kAdd, out);
}

}  // namespace kvgauge
