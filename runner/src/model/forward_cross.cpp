// SPDX-License-Identifier: Apache-2.0
// An encoder beside the decoder in the forward pass (CEPE): how it reads texts, and how layers of
// the decoder attend to its rows.
//
// The encoder's rows are held, and not the keys and values that each layer would project them to,
// which are many times as large. So a query is projected to the width of the rows, and their
// weighted sum is projected to a head's values.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/strings.h"
#include "methods/tensors.h"
#include "src/cache/encoded_rows.h"
#include "src/model/forward_pass.h"
#include "src/vision/attention.h"

namespace kvgauge {
namespace {

// A page of rows and the queries of a few of them lie in a device's shared memory together.
constexpr int64_t kMostDeviceRowBytes = 2048;

}  // namespace

Tensor ForwardPass::EncodeChunks(std::span<const int32_t> ids, int64_t chunk_tokens) {
  const int64_t heads = config_.query_heads, kv_heads = config_.kv_heads, dim = config_.key_dim;
  const int64_t hidden = config_.hidden_size, pairs = config_.rope->rotary_dim / 2;
  std::vector<RowRange> chunks;
  std::vector<int32_t> places;
  for (int64_t row = 0; row < rows_; row += chunk_tokens) {
    chunks.push_back({row, std::min(chunk_tokens, rows_ - row)});
    for (int32_t i = 0; i < chunks.back().rows; ++i) places.push_back(i);
  }
  const Tensor x = Take(ScratchSlot::kResidual, DType::kF32, {rows_, hidden});
  LookUp(weights_.embedding, ids, 1.0f, x);

  const Tensor cos = Take(ScratchSlot::kCos, DType::kF32, {rows_, pairs});
  const Tensor sin = Take(ScratchSlot::kSin, DType::kF32, {rows_, pairs});
  MakeRopeTables(places, chunk_tokens, cos, sin);

  AttentionShape shape;
  shape.format = {dtype_, dim, config_.value_dim};
  shape.query_heads = heads;
  shape.kv_heads = kv_heads;
  shape.scale = config_.attention_scale;
  SegmentAttention attention(chunks, shape, ops_);
  for (const LayerWeights& w : weights_.layers) {
    const Tensor normed = Take(ScratchSlot::kNormed, dtype_, {rows_, hidden});
    const Tensor qkv =
        Take(ScratchSlot::kProjected, DType::kF32, {rows_, (heads + 2 * kv_heads) * dim});
    const Tensor attended = Take(ScratchSlot::kAttended, DType::kF32, {rows_, heads * dim});
    ApplyNorm(w.input_norm, x, normed);
    ApplyLinear(ops_, normed, w.qkv, MatMulMode::kSet, qkv);
    ops_.rows->Rope(cos, sin, config_.rope->layout, RopeDirection::kForward,
                    HeadsIn(qkv, 0, heads + kv_heads, dim));
    attention.Run(HeadsIn(qkv, 0, heads, dim), HeadsIn(qkv, heads * dim, kv_heads, dim),
                  HeadsIn(qkv, (heads + kv_heads) * dim, kv_heads, dim),
                  attended.Reshape({rows_, heads, dim}));
    ApplyLinear(ops_, attended, w.output, MatMulMode::kAdd, x);
    ApplyNorm(w.mlp_norm, x, normed);
    DenseMlp(w.mlp, config_.ffn_size, normed, x, MatMulMode::kAdd);
  }
  ApplyNorm(weights_.final_norm, x, x);
  return x;
}

Status Model::Encode(std::span<const int32_t> ids, int64_t chunk_tokens, KvCache& cache) {
  const ModelConfig& encoder = *config_.encoder;
  for (const int32_t id : ids) {
    if (id >= 0 && id < encoder.vocab_size) continue;
    return BadInput(StrCat(config_.path, ": encoder_config.vocab_size is ", encoder.vocab_size,
                           ", and the prompt has token ", id,
                           "; expected an encoder of the same "
                           "tokens"));
  }
  const int64_t row_bytes = encoder.hidden_size * SizeOf(dtype_);
  if (ops_->device != Device::kHost && row_bytes > kMostDeviceRowBytes) {
    return Unsupported(StrCat(config_.path, ": rows of the encoder have ", row_bytes, " bytes as ",
                              NameOf(dtype_), ", and attention on a device takes ",
                              kMostDeviceRowBytes, "; use --backend cpu or a narrower --dtype"));
  }
  ForwardPass pass(encoder, dtype_, *ops_, *weights_->encoder, *sections_[0].scratch,
                   std::ssize(ids));
  return cache.TakeEncoded(pass.EncodeChunks(ids, chunk_tokens));
}

void ForwardPass::CrossAttend(int64_t layer, const Tensor& residual) {
  std::vector<KvHead> heads(steps_.size());
  std::vector<AttentionItem> items;
  int64_t row = 0, first = 0;
  const KvFormat* format = nullptr;
  // Neighbours go through the weights together; sequences without such rows keep what they have.
  const auto attend = [&] {
    if (!items.empty()) CrossAttend(layer, items, *format, residual.Slice(first, row));
    items.clear();
  };
  for (size_t i = 0; i < steps_.size(); ++i) {
    const int64_t rows = steps_[i].end - steps_[i].begin;
    const EncodedRows* encoded = steps_[i].cache->encoded();
    if (encoded == nullptr) {
      attend();
    } else {
      if (items.empty()) first = row;
      heads[i] = encoded->head();
      format = &encoded->format();
      AttentionItem& item = items.emplace_back();
      item.first_row = row - first;
      item.rows = rows;
      item.first_position = kSeesAll;
      item.heads = std::span(heads).subspan(i, 1);
    }
    row += rows;
  }
  attend();
}

void ForwardPass::CrossAttend(int64_t layer, std::span<const AttentionItem> items,
                              const KvFormat& format, const Tensor& residual) {
  const CrossWeights& w = weights_.layers[static_cast<size_t>(layer)].cross;
  const int64_t rows = residual.shape[0], heads = config_.query_heads, width = format.key_dim;
  const int64_t dk = config_.key_dim, dv = config_.value_dim;
  const int64_t group = heads / config_.kv_heads;
  const Tensor normed = Take(ScratchSlot::kNormed, dtype_, {rows, config_.hidden_size});
  ApplyNorm(w.norm, residual, normed);
  const Tensor q = Take(ScratchSlot::kProjected, DType::kF32, {rows, heads * dk});
  ApplyLinear(ops_, normed, w.query, MatMulMode::kSet, q);
  const Tensor wide = Take(ScratchSlot::kAbsorbedQuery, DType::kF32, {rows, heads * width});
  const Tensor found = Take(ScratchSlot::kLatentUp, DType::kF32, {rows, heads * width});
  const Tensor values = Take(ScratchSlot::kAttended, DType::kF32, {rows, heads * dv});
  for (int64_t h = 0; h < heads; ++h) {
    ApplyLinear(ops_, Columns(q, h * dk, (h + 1) * dk), w.keys[static_cast<size_t>(h / group)],
                MatMulMode::kSet, Columns(wide, h * width, (h + 1) * width));
  }
  AttentionShape shape;
  shape.format = format;
  shape.query_heads = heads;
  shape.kv_heads = 1;
  shape.scale = config_.attention_scale;
  ops_.attention->Attend(shape, items, wide.Reshape({rows, heads, width}),
                         found.Reshape({rows, heads, width}));
  for (int64_t h = 0; h < heads; ++h) {
    ApplyLinear(ops_, Columns(found, h * width, (h + 1) * width),
                w.values[static_cast<size_t>(h / group)], MatMulMode::kSet,
                Columns(values, h * dv, (h + 1) * dv));
  }
  ApplyLinear(ops_, values, w.output, MatMulMode::kAdd, residual);
}

}  // namespace kvgauge
