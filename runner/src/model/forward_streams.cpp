// SPDX-License-Identifier: Apache-2.0
// Gemma 3n in the forward pass: the residual is several streams, of which a layer works on one and
// corrects the others (AltUp); every layer has embeddings of its own.
#include <cmath>

#include "core/rounding.h"
#include "methods/tensors.h"
#include "src/model/forward_pass.h"

namespace kvgauge {
namespace {

// What the mean of squares of a stream is at least, when it gets the size of another.
constexpr float kLeastMean = 1e-5f;

}  // namespace

// Stream i of all rows: [rows, hidden].
Tensor ForwardPass::Stream(const Tensor& streams, int64_t i) const {
  Tensor one = streams;
  one.data = streams.f32() + i * streams.stride[0];
  one.shape[0] = rows_;
  one.stride[0] = config_.streams->streams * streams.stride[0];
  return one;
}

// In place: rows of x get the lengths of those of `like`.
void ForwardPass::TakeLengths(const Tensor& like, const Tensor& x) {
  const int64_t hidden = config_.hidden_size;
  const Tensor lengths = Take(ScratchSlot::kStreamFactors, DType::kF32, {3, rows_});
  const Tensor wanted = lengths.Slice(0, 1), own = lengths.Slice(1, 2), least = lengths.Slice(2, 3);
  ops_.rows->ReduceRows(like, Reduction::kNorm, wanted.Reshape({rows_}));
  ops_.rows->ReduceRows(x, Reduction::kNorm, own.Reshape({rows_}));
  ops_.rows->Fill(std::sqrt(kLeastMean * static_cast<float>(hidden)), least);
  ops_.rows->Combine(own, least, Binary::kMax, own);
  ops_.rows->Combine(wanted, own, Binary::kDivide, wanted);
  const Tensor scaled = Take(ScratchSlot::kBranch, DType::kF32, {rows_, hidden});
  ops_.rows->Fill(0.0f, scaled);
  ops_.select->AddWeighted(x, wanted.Reshape({rows_, 1}), scaled);
  ops_.rows->Convert(scaled, x);
}

// What each layer adds of a token, [rows, layers * columns]: its embedding there, and a projection
// of its embedding below.
void ForwardPass::EmbedLayers(const Tensor& residual) {
  const LayerEmbeddings& table = *config_.layer_embeddings;
  const int64_t columns = table.columns, width = config_.layer_count() * columns;
  std::vector<int32_t> ids;
  for (const SequenceStep& step : steps_) {
    for (int64_t i = step.begin; i < step.end; ++i) {
      // Tokens past the table, such as pieces of pictures, have the first row.
      const int32_t id = PositionOf(step, i).token_id;
      ids.push_back(id < 0 || id >= table.vocab ? 0 : id);
    }
  }
  layer_rows_ = Take(ScratchSlot::kLayerEmbeddings, DType::kF32, {rows_, width});
  const Tensor projected = Take(ScratchSlot::kMlpUp, DType::kF32, {rows_, width});
  const auto root = [&](double of) { return Rounded(dtype_, static_cast<float>(std::sqrt(of))); };
  LookUp(weights_.layer_embedding, ids, root(static_cast<double>(columns)), layer_rows_);
  ApplyLinear(ops_, residual, weights_.layer_projection, MatMulMode::kSet, projected);
  Multiply(projected, root(1.0 / static_cast<double>(config_.hidden_size)));
  const Tensor parts = projected.Reshape({rows_ * config_.layer_count(), columns});
  ApplyNorm(weights_.layer_norm, parts, parts);
  ops_.rows->Combine(layer_rows_, projected, Binary::kAdd, layer_rows_);
  Multiply(layer_rows_, root(0.5));
}

// What a layer's embeddings add to rows that open them: into `out`.
void ForwardPass::OpenEmbeddings(int64_t layer, const Tensor& rows, Tensor out) {
  const LayerEmbeddingWeights& w = weights_.layers[static_cast<size_t>(layer)].embeddings;
  const int64_t columns = config_.layer_embeddings->columns;
  const Tensor gate = Take(ScratchSlot::kStreamGate, DType::kF32, {rows_, columns});
  ApplyLinear(ops_, rows, w.gate, MatMulMode::kSet, gate);
  ops_.rows->Activate(gate, config_.activation, gate);
  ops_.rows->Combine(gate, Columns(layer_rows_, layer * columns, (layer + 1) * columns),
                     Binary::kMultiply, gate);
  ApplyLinear(ops_, gate, w.projection, MatMulMode::kSet, out);
  ApplyNorm(w.projection_norm, out, out);
}

// [rows * streams, hidden], of one row each: the residual, and projections of it that are as long.
Tensor ForwardPass::OpenStreams(const Tensor& residual) {
  const int64_t count = config_.streams->streams;
  const Tensor streams =
      Take(ScratchSlot::kStreams, DType::kF32, {rows_ * count, config_.hidden_size});
  ops_.rows->Convert(residual, Stream(streams, 0));
  for (int64_t i = 1; i < count; ++i) {
    const Tensor stream = Stream(streams, i);
    ApplyLinear(ops_, residual, weights_.stream_projections[static_cast<size_t>(i - 1)],
                MatMulMode::kSet, stream);
    TakeLengths(residual, stream);
  }
  return streams;
}

// The mean of the first stream and of projections of the others that are as long.
void ForwardPass::CloseStreams(const Tensor& streams, Tensor residual) {
  const int64_t count = config_.streams->streams;
  const Tensor first = Stream(streams, 0);
  ops_.rows->Convert(first, residual);
  const Tensor projected =
      Take(ScratchSlot::kStreamWork, DType::kF32, {rows_, config_.hidden_size});
  for (int64_t i = 1; i < count; ++i) {
    ApplyLinear(ops_, Stream(streams, i), weights_.stream_returns[static_cast<size_t>(i - 1)],
                MatMulMode::kSet, projected);
    TakeLengths(first, projected);
    ops_.rows->Combine(residual, projected, Binary::kAdd, residual);
  }
  Multiply(residual, 1.0f / static_cast<float>(count));
}

// What `rows` make of how streams mix: [rows, streams].
Tensor ForwardPass::RouteStreams(const StreamWeights& w, const Tensor& rows) {
  const int64_t hidden = config_.hidden_size;
  const Tensor normed = Take(ScratchSlot::kNormed, DType::kF32, {rows_, hidden});
  ApplyNorm(w.router_norm, rows, normed);
  Multiply(normed, 1.0f / static_cast<float>(hidden));
  const Tensor routed =
      Take(ScratchSlot::kStreamRoutes, DType::kF32, {rows_, config_.streams->streams});
  ApplyLinear(ops_, normed, w.router, MatMulMode::kSet, routed);
  ops_.rows->SoftCap(routed, 1.0f, routed);
  return routed;
}

void ForwardPass::StreamLayer(int64_t layer, const Tensor& streams) {
  const StreamsConfig& config = *config_.streams;
  const StreamWeights& w = weights_.layers[static_cast<size_t>(layer)].streams;
  const int64_t count = config.streams, hidden = config_.hidden_size;
  const auto mixes = [&](const Linear& linear, const Tensor& rows, int64_t columns) {
    const Tensor routed = RouteStreams(w, rows);
    const Tensor out = Take(ScratchSlot::kStreamMixes, DType::kF32, {rows_, columns});
    ApplyLinear(ops_, routed, linear, MatMulMode::kSet, out);
    return out;
  };
  // Every stream is predicted from all of them.
  const Tensor before = Take(ScratchSlot::kStreamsBefore, DType::kF32, {rows_ * count, hidden});
  ops_.rows->Convert(streams, before);
  const Tensor predicts = mixes(w.predicts, Stream(before, config.active), count * count);
  for (int64_t i = 0; i < count; ++i) {
    ops_.select->AddWeighted(before, Columns(predicts, i * count, (i + 1) * count),
                             Stream(streams, i));
  }
  // The layer works on one, and the others are corrected by what that gained.
  const Tensor work = Take(ScratchSlot::kStreamWork, DType::kF32, {rows_, hidden});
  ops_.rows->Convert(Stream(streams, config.active), work);
  Layer(layer, work);
  const Tensor corrects = mixes(w.corrects, work, count);
  ops_.rows->Affine(corrects, 1.0f, 1.0f, corrects);
  ops_.rows->Combine(work, Stream(streams, config.active), Binary::kSubtract, work);
  for (int64_t i = 0; i < count; ++i) {
    ops_.select->AddWeighted(work, Columns(corrects, i, i + 1), Stream(streams, i));
  }
  // All but the first also get the layer's own embedding, as far as the corrected one opens it.
  ops_.rows->Convert(Stream(streams, config.active), work);
  if (config.scales) ops_.rows->Combine(work, w.scale.weight, Binary::kMultiply, work);
  OpenEmbeddings(layer, work, work);
  for (int64_t i = 1; i < count; ++i) {
    const Tensor stream = Stream(streams, i);
    ops_.rows->Combine(stream, work, Binary::kAdd, stream);
  }
}

// Beside attention, narrow matrices of the rows that it read; their sum is halved in power.
void ForwardPass::AddLaurel(int64_t layer, const Tensor& input, Tensor residual) {
  const StreamWeights& w = weights_.layers[static_cast<size_t>(layer)].streams;
  const int64_t hidden = config_.hidden_size;
  const Tensor narrow =
      Take(ScratchSlot::kStreamGate, DType::kF32, {rows_, config_.streams->laurel_rank});
  ApplyLinear(ops_, input, w.laurel_left, MatMulMode::kSet, narrow);
  const Tensor wide = Take(ScratchSlot::kBranch, DType::kF32, {rows_, hidden});
  ApplyLinear(ops_, narrow, w.laurel_right, MatMulMode::kSet, wide);
  ApplyNorm(w.laurel_norm, wide, wide);
  ops_.rows->Combine(residual, wide, Binary::kAdd, residual);
  ops_.rows->Convert(input, wide);
  ops_.rows->Combine(residual, wide, Binary::kAdd, residual);
  Multiply(residual, static_cast<float>(1.0 / std::sqrt(2.0)));
}

// In place, of gates [rows, ffn]: those that are not so many deviations above their row's mean are
// closed, and the others lose as much.
void ForwardPass::CloseGates(float deviations, const Tensor& gates) {
  const int64_t rows = gates.shape[0], ffn = gates.shape[1];
  const Tensor ones = Take(ScratchSlot::kGateOnes, DType::kF32, {rows, ffn});
  ops_.rows->Fill(1.0f, ones);
  const Tensor bound = Take(ScratchSlot::kStreamFactors, DType::kF32, {rows, 1});
  ops_.rows->ReduceRows(gates, Reduction::kMean, bound.Reshape({rows}));
  Multiply(bound, -1.0f);
  ops_.select->AddWeighted(ones, bound, gates);
  ops_.rows->ReduceRows(gates, Reduction::kNorm, bound.Reshape({rows}));
  Multiply(bound, -deviations / std::sqrt(static_cast<float>(ffn)));
  ops_.select->AddWeighted(ones, bound, gates);
  ops_.rows->Activate(gates, Activation::kRelu, gates);
}

}  // namespace kvgauge
