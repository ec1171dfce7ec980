// SPDX-License-Identifier: Apache-2.0
// The forward pass: one interpreter for every family of ModelConfig.
//
// The residual stream is f32 whatever the weights are; products round their input to the weights'
// dtype. Rows of all steps go through the weights together; attention is per sequence.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/rounding.h"
#include "core/strings.h"
#include "kernels/block_products.h"
#include "methods/tensors.h"
#include "src/model/forward_pass.h"
#include "src/model/states_of_pass.h"

namespace kvgauge {
namespace {

constexpr int64_t kSurpriseRows = 64;
// RWKV-4 has it in the last norm, whatever norm_eps says.
constexpr float kLastNormEps = 1e-5f;

}  // namespace

void ForwardPass::ApplyNorm(const Norm& norm, float eps, const Tensor& x, Tensor out) {
  if (config_.norm == NormKind::kLayer) {
    ops_.rows->LayerNorm(x, norm.weight, norm.bias, eps, out);
  } else {
    ops_.rows->RmsNorm(x, norm.weight, norm_offset(), eps, out);
  }
}

void ForwardPass::LastNorm(const Tensor& x, Tensor out) {
  const bool fixed = config_.state && config_.state->kind == StateConfig::Kind::kRwkv4;
  ApplyNorm(weights_.final_norm, fixed ? kLastNormEps : config_.norm_eps, x, out);
}

void ForwardPass::LookUp(const Table& table, std::span<const int32_t> ids, float scale,
                         Tensor out) {
  const Tensor device_ids =
      Take(ScratchSlot::kIds, DType::kI32, {static_cast<int64_t>(ids.size())});
  ops_.memory->Copy(View(ids, {static_cast<int64_t>(ids.size())}), device_ids);
  if (table.blocks) {
    BlockProducts::Of(*ops_.linear)
        ->EmbedBlocks(table.blocks->rows, dtype_, device_ids, scale, out);
    return;
  }
  if (dtype_ == DType::kF32 || table.rows.dtype == dtype_) {
    ops_.linear->Embed(table.rows, device_ids, scale, out);
    return;
  }
  // A checkpoint run in a narrower dtype than it is stored in: round first, then scale.
  ops_.linear->Embed(table.rows, device_ids, 1.0f, out);
  const Tensor narrow = Take(ScratchSlot::kNormed, dtype_, {out.shape[0], out.shape[1]});
  ops_.rows->Convert(out, narrow);
  ops_.rows->Convert(narrow, out);
  if (scale != 1.0f) ops_.rows->Affine(out, scale, 0.0f, out);
}

// Runs of rows that come as embeddings, each of one table.
void ForwardPass::FindReadyRows() {
  int64_t row = 0;
  for (const SequenceStep& step : steps_) {
    bool follows = false;
    int64_t last = 0;  // row of the embeddings
    for (int64_t i = step.begin; i < step.end; ++i, ++row) {
      const PromptPosition& position = PositionOf(step, i);
      const bool ready = position.token_id < 0;
      const int64_t wanted = position.embedding_row;
      if (ready && follows && last + 1 == wanted && !ready_.back().full()) {
        ++ready_.back().count;
      } else if (ready) {
        const RowTable* table = step.prompt->embeddings.data();
        int64_t first = wanted;
        while (first >= table->rows.shape[0]) first -= (table++)->rows.shape[0];
        ready_.push_back({table, first, 1, row});
      }
      follows = ready;
      last = wanted;
    }
  }
}

void ForwardPass::FindAdaptedRows() {
  int64_t row = 0;
  for (const SequenceStep& step : steps_) {
    const int64_t begin = std::exchange(row, row + step.end - step.begin);
    const auto* rows = dynamic_cast<const AdaptedRows*>(step.hook);
    if (rows == nullptr || begin + rows->first() >= row) continue;
    KVG_CHECK(!config_.mla && !config_.attention_gate && !config_.SharesCaches() && !config_.state,
              "adapters of plain projections of each layer");
    adapted_.push_back({&rows->adapters(), begin + rows->first(), row});
  }
}

// What a tower's earlier layers saw is added behind the first text layers.
void ForwardPass::AddDeepstack(int64_t layer, Tensor residual) {
  for (const ReadyRows& rows : ready_) {
    const std::vector<Tensor>& stack = rows.table->deepstack;
    if (layer >= std::ssize(stack)) continue;
    const Tensor seen =
        stack[static_cast<size_t>(layer)].Slice(rows.first, rows.first + rows.count);
    const Tensor added = Take(ScratchSlot::kBranch, DType::kF32, {rows.count, residual.shape[1]});
    ops_.memory->Copy(seen, added);
    const Tensor to = residual.Slice(rows.row, rows.row + rows.count);
    ops_.rows->Combine(to, added, Binary::kAdd, to);
  }
}

void ForwardPass::Embed(Tensor residual) {
  std::vector<int32_t> ids, positions;
  for (const SequenceStep& step : steps_) {
    for (int64_t i = step.begin; i < step.end; ++i) {
      const PromptPosition& position = PositionOf(step, i);
      KVG_CHECK(position.token_id < config_.vocab_size, "token id past the vocabulary");
      ids.push_back(std::max(position.token_id, 0));
      positions.push_back(static_cast<int32_t>(PlaceOf(i)) +
                          2);  // OPT's table begins with two pad rows
    }
  }
  const float scale = config_.scale_embedding
                          ? Rounded(dtype_, std::sqrt(static_cast<float>(config_.hidden_size)))
                          : config_.embedding_multiplier;
  if (weights_.project_in.matrix != nullptr) {
    const Tensor small = Take(ScratchSlot::kBranch, DType::kF32, {rows_, config_.embedding_size});
    LookUp(weights_.embedding, ids, scale, small);
    ApplyLinear(ops_, small, weights_.project_in, MatMulMode::kSet, residual);
  } else {
    LookUp(weights_.embedding, ids, scale, residual);
  }
  for (const ReadyRows& rows : ready_) {
    ops_.memory->Copy(rows.table->rows.Slice(rows.first, rows.first + rows.count),
                      residual.Slice(rows.row, rows.row + rows.count));
  }
  if (config_.learned_positions) {
    const Tensor learned = Take(ScratchSlot::kBranch, DType::kF32, {rows_, config_.hidden_size});
    LookUp(weights_.positions, positions, 1.0f, learned);
    ops_.rows->Combine(residual, learned, Binary::kAdd, residual);
  }
  if (config_.embedding_norm) ApplyNorm(weights_.embedding_norm, residual, residual);
}

void ForwardPass::MakeRopeTables() {
  if (!config_.rope) return;
  // Ropes may turn as many dims as heads of their layers have.
  const int64_t pairs = config_.rope->rotary_dim / 2;
  const int64_t local = config_.local_rope ? config_.local_rope->rotary_dim / 2 : 0;
  const Tensor cos = Take(ScratchSlot::kCos, DType::kF32, {rows_ * (pairs + local)});
  const Tensor sin = Take(ScratchSlot::kSin, DType::kF32, {rows_ * (pairs + local)});
  for (int64_t kind = 0; kind < (config_.local_rope ? 2 : 1); ++kind) {
    const int64_t begin = kind * rows_ * pairs, own = kind == 0 ? pairs : local;
    cos_[kind] = cos.Slice(begin, begin + rows_ * own).Reshape({rows_, own});
    sin_[kind] = sin.Slice(begin, begin + rows_ * own).Reshape({rows_, own});
    const auto layer = std::find_if(
        config_.layers.begin(), config_.layers.end(), [&](const LayerConfig& candidate) {
          return candidate.attends && candidate.local_rope == (kind == 1);
        });
    if (layer == config_.layers.end()) continue;
    MakeRopeTables(layer - config_.layers.begin(), cos_[kind], sin_[kind]);
  }
}

void ForwardPass::MakeRopeTables(int64_t layer, Tensor cos, Tensor sin) {
  const int64_t pairs = cos.shape[1], cache = config_.CacheOf(layer);
  // Sequences may have planned different lengths, hence frequencies of their own: one call for
  // neighbours that turn alike.
  int64_t row = 0;
  for (size_t first = 0; first < steps_.size();) {
    const RopeFrequencies& frequencies = steps_[first].cache->frequencies(cache);
    const int64_t axes = frequencies.axis.empty() ? 1 : 3;
    std::vector<int32_t> positions;
    for (; first < steps_.size(); ++first) {
      const SequenceStep& step = steps_[first];
      const RopeFrequencies& own = step.cache->frequencies(cache);
      if (own.inverse != frequencies.inverse ||
          own.attention_factor != frequencies.attention_factor) {
        break;
      }
      for (int64_t i = step.begin; i < step.end; ++i) {
        const RopePosition at = RopePositionOf(step, i);
        positions.insert(positions.end(), at.begin(), at.begin() + axes);
      }
    }
    const std::vector<float> inverse(frequencies.inverse.begin(), frequencies.inverse.end());
    const int64_t count = std::ssize(positions) / axes, axis_count = std::ssize(frequencies.axis);
    const Tensor all =
        Take(ScratchSlot::kPositions, DType::kI32, {axes * count + axis_count + pairs});
    const Tensor device_positions = all.Slice(0, axes * count);
    const Tensor axis = all.Slice(axes * count, axes * count + axis_count);
    Tensor device_inverse = all.Slice(axes * count + axis_count, all.shape[0]);
    device_inverse.dtype = DType::kF32;
    ops_.memory->Copy(View(positions, {axes * count}), device_positions);
    ops_.memory->Copy(View(inverse, {pairs}), device_inverse);
    if (axes > 1) ops_.memory->Copy(View(frequencies.axis, {pairs}), axis);
    ops_.rows->RopeTable(device_positions.Reshape({count, axes}), device_inverse,
                         axes > 1 ? axis : Tensor(),
                         static_cast<float>(frequencies.attention_factor),
                         cos.Slice(row, row + count), sin.Slice(row, row + count));
    row += count;
  }
}

void ForwardPass::MakeRopeTables(std::span<const int32_t> places, int64_t tokens, Tensor cos,
                                 Tensor sin) {
  const int64_t count = std::ssize(places), pairs = cos.shape[1];
  const RopeFrequencies frequencies = ComputeRope(*config_.rope, tokens);
  const std::vector<float> inverse(frequencies.inverse.begin(), frequencies.inverse.end());
  const Tensor numbers = Take(ScratchSlot::kPositions, DType::kF32, {count + pairs});
  Tensor positions = numbers.Slice(0, count);
  positions.dtype = DType::kI32;
  ops_.memory->Copy(View(places, {count}), positions);
  ops_.memory->Copy(View(inverse, {pairs}), numbers.Slice(count, count + pairs));
  ops_.rows->RopeTable(positions.Reshape({count, 1}), numbers.Slice(count, count + pairs), {},
                       static_cast<float>(frequencies.attention_factor), cos, sin);
}

void ForwardPass::DenseMlp(const MlpWeights& mlp, int64_t ffn_size, const Tensor& x, Tensor out,
                           MatMulMode mode, float deviations) {
  const int64_t rows = x.shape[0];
  const Tensor up =
      Take(ScratchSlot::kMlpUp, DType::kF32, {rows, config_.gated_mlp ? 2 * ffn_size : ffn_size});
  ApplyLinear(ops_, x, mlp.up, MatMulMode::kSet, up);
  if (config_.multipliers && config_.gated_mlp) {
    Multiply(Columns(up, 0, ffn_size), config_.multipliers->gates);
    Multiply(Columns(up, ffn_size, 2 * ffn_size), config_.multipliers->opened);
  }
  if (deviations > 0) CloseGates(deviations, Columns(up, 0, ffn_size));
  ApplyLinear(ops_, Activated(up), mlp.down, mode, out);
}

// Activates what the first matrix of an MLP gives; in place where nothing is gated.
Tensor ForwardPass::Activated(const Tensor& up) {
  if (!config_.gated_mlp) {
    ops_.rows->Activate(up, config_.activation, up);
    if (config_.squared_activation) ops_.rows->Combine(up, up, Binary::kMultiply, up);
    return up;
  }
  const Tensor activated = Take(ScratchSlot::kMlpActivated, dtype_, {up.shape[0], up.shape[1] / 2});
  LimitGate(up);
  ops_.rows->GatedActivate(up, config_.activation, activated);
  return activated;
}

// In place, of gates and what they open: [rows, 2 f].
void ForwardPass::LimitGate(const Tensor& up) {
  const float limit = config_.mlp_limit;
  if (limit <= 0) return;
  const int64_t ffn = up.shape[1] / 2;
  const Tensor opened = Columns(up, ffn, 2 * ffn);
  const Tensor bound = Take(ScratchSlot::kGateLimit, DType::kF32, {2 * ffn});
  ops_.rows->Fill(limit, bound);
  ops_.rows->Combine(up, bound, Binary::kMin, up);
  ops_.rows->Fill(-limit, bound);
  ops_.rows->Combine(opened, bound.Slice(0, ffn), Binary::kMax, opened);
  ops_.rows->Affine(opened, 1.0f, 1.0f, opened);
}

// Row i of `out` gets the bias of expert choice[i].
void ForwardPass::AddChosenBias(const Norm& biases, const Tensor& choice, const Tensor& out) {
  if (biases.weight.empty()) return;
  const Tensor chosen = Take(ScratchSlot::kExpertBias, DType::kF32, {out.shape[0], out.shape[1]});
  ops_.select->Gather(biases.weight, choice, chosen);
  ops_.rows->Combine(out, chosen, Binary::kAdd, out);
}

void ForwardPass::MixtureOfExperts(int64_t layer, const Tensor& routed, const Tensor& x, Tensor out,
                                   MatMulMode mode) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const MoeConfig& moe = *config_.moe;
  const int64_t k = moe.experts_per_token, chosen = rows_ * k;
  const int64_t width = config_.gated_mlp ? 2 * moe.expert_ffn_size : moe.expert_ffn_size;
  if (mode == MatMulMode::kSet) ops_.rows->Fill(0.0f, out);

  const Tensor logits = Take(ScratchSlot::kRouterLogits, DType::kF32, {rows_, moe.experts});
  ApplyLinear(ops_, routed, w.router, MatMulMode::kSet, logits);
  // Ascending for each row, so that its sum has one order whatever the company.
  const Tensor experts = Take(ScratchSlot::kExperts, DType::kI32, {rows_, k});
  const Tensor weight = Take(ScratchSlot::kExpertWeight, DType::kF32, {rows_, k});
  Tensor correction = w.router_correction.weight;
  if (moe.weighs_inputs) {
    correction = Take(ScratchSlot::kChoiceBias, DType::kF32, {moe.experts});
    ops_.rows->Fill(0.0f, correction);
  }
  ops_.select->ChooseExperts(logits,
                             {.groups = moe.groups,
                              .top_groups = moe.top_groups,
                              .renormalize = moe.renormalize,
                              .scaling = moe.scaling,
                              .sigmoid = moe.sigmoid,
                              .in_turn = moe.in_turn,
                              .tolerance = moe.tolerance},
                             correction, experts, weight);
  const Tensor choice = experts.Reshape({chosen});
  if (!w.expert_scales.weight.empty()) {
    const Tensor scales = Take(ScratchSlot::kExpertBias, DType::kF32, {chosen, 1});
    ops_.select->Gather(w.expert_scales.weight.Reshape({moe.experts, 1}), choice, scales);
    ops_.rows->Combine(weight, scales.Reshape({rows_, k}), Binary::kMultiply, weight);
  }
  const Tensor up = Take(ScratchSlot::kMlpUp, DType::kF32, {chosen, width});
  const Tensor output =
      Take(ScratchSlot::kExpertOutput, DType::kF32, {chosen, config_.hidden_size});
  ops_.linear->MatMulChosen(x, *w.experts_up, choice, up);
  if (moe.weighs_inputs) {
    // Products are linear: what they give may be weighed for what they read.
    const Tensor read = Take(ScratchSlot::kExpertBias, DType::kF32, {chosen, width});
    ops_.rows->Convert(up, read);
    ops_.rows->Fill(0.0f, up);
    ops_.select->AddWeighted(read, weight.Reshape({chosen, 1}), up);
    ops_.rows->Fill(1.0f, weight);
  }
  AddChosenBias(w.experts_up_bias, choice, up);
  ops_.linear->MatMulChosen(Activated(up), *w.experts_down, choice, output);
  AddChosenBias(w.experts_down_bias, choice, output);
  ops_.select->AddWeighted(output, weight, out);
}

void ForwardPass::AddSharedExperts(int64_t layer, const Tensor& x, Tensor out) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  if (w.mlp.down.matrix == nullptr) return;
  const int64_t ffn = config_.moe->shared_ffn_size;
  if (w.shared_gate.matrix == nullptr) {
    DenseMlp(w.mlp, ffn, x, out, MatMulMode::kAdd);
    return;
  }
  const Tensor shared = Take(ScratchSlot::kExpertOutput, DType::kF32, {rows_, config_.hidden_size});
  DenseMlp(w.mlp, ffn, x, shared, MatMulMode::kSet);
  const Tensor gate = Take(ScratchSlot::kSharedGate, DType::kF32, {rows_, 1});
  ApplyLinear(ops_, x, w.shared_gate, MatMulMode::kSet, gate);
  ops_.rows->Activate(gate, Activation::kSigmoid, gate);
  ops_.select->AddWeighted(shared, gate, out);
}

void ForwardPass::MlpBranch(int64_t layer, const Tensor& x, Tensor out, MatMulMode mode) {
  if (config_.layers[static_cast<size_t>(layer)].moe) {
    MixtureOfExperts(layer, x, x, out, mode);
    AddSharedExperts(layer, x, out);
  } else if (config_.mlp_mixes) {
    MixedMlp(layer, x, out, mode);
  } else {
    DenseMlp(weights_.layers[static_cast<size_t>(layer)].mlp, config_.FfnSizeOf(layer), x, out,
             mode, config_.layers[static_cast<size_t>(layer)].gate_deviations);
  }
}

void ForwardPass::MlpBesideExperts(int64_t layer, const Tensor& residual, const Tensor& x,
                                   Tensor out) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const int64_t hidden = config_.hidden_size;
  DenseMlp(w.mlp, config_.FfnSizeOf(layer), x, out, MatMulMode::kSet);
  ApplyNorm(w.mlp_part_norm, out, out);
  // The router's own norm has no other weight than its scale.
  const Tensor routed = Take(ScratchSlot::kMlpNormed, DType::kF32, {rows_, hidden});
  ops_.rows->RmsNorm(residual, w.router_scale.weight, 0.0f, config_.norm_eps, routed);
  Multiply(routed, 1.0f / std::sqrt(static_cast<float>(hidden)));
  const Tensor read = Take(ScratchSlot::kNormed, dtype_, {rows_, hidden});
  ApplyNorm(w.experts_norm, residual, read);
  const Tensor given = Take(ScratchSlot::kExpertsGiven, DType::kF32, {rows_, hidden});
  MixtureOfExperts(layer, routed, read, given, MatMulMode::kSet);
  ApplyNorm(w.experts_part_norm, given, given);
  ops_.rows->Combine(out, given, Binary::kAdd, out);
}

Tensor ForwardPass::BranchInput(int64_t layer, const Norm& before, const Tensor& residual,
                                ScratchSlot slot) {
  if (config_.post_norm || before.weight.empty()) return residual;
  // The router wants its input unrounded; LayerNorm gives f32 anyway.
  const bool wide =
      config_.norm == NormKind::kLayer || config_.layers[static_cast<size_t>(layer)].moe;
  const Tensor normed = Take(slot, wide ? DType::kF32 : dtype_, {rows_, config_.hidden_size});
  ApplyNorm(before, residual, normed);
  return normed;
}

void ForwardPass::AddBranch(const Norm& after, Tensor residual,
                            const std::function<void(Tensor, MatMulMode)>& compute) {
  const float multiplier = config_.residual_multiplier;
  if (after.weight.empty() && multiplier == 1.0f) {
    compute(residual, MatMulMode::kAdd);
    return;
  }
  const Tensor out = Take(ScratchSlot::kBranch, DType::kF32, {rows_, config_.hidden_size});
  compute(out, MatMulMode::kSet);
  if (!after.weight.empty()) ApplyNorm(after, out, out);
  if (multiplier != 1.0f) ops_.rows->Affine(out, multiplier, 0.0f, out);
  ops_.rows->Combine(residual, out, Binary::kAdd, residual);
}

void ForwardPass::ShowInputs(int64_t layer, const Tensor& residual, const Tensor& input) {
  if (!config_.HasCache(layer) || !shows_) return;
  int64_t row = 0;
  for (const SequenceStep& step : steps_) {
    const int64_t begin = row;
    row += step.end - step.begin;
    const int64_t at = config_.CacheOf(layer);
    if (step.cache->wants_inputs(at)) step.cache->TakeInputs(at, input.Slice(begin, row));
    if (step.hook == nullptr) continue;
    if (step.hook->wants_residuals()) step.hook->LayerResidual(at, residual.Slice(begin, row));
    if (step.hook->wants_inputs()) step.hook->LayerInput(at, input.Slice(begin, row));
  }
}

// Before the layer below takes the scratch memory of its own queries.
void ForwardPass::ShowGuesses(int64_t layer, const Tensor& input) {
  if (layer >= end_layer_ || !config_.HasCache(layer) || !shows_) return;
  int64_t row = 0;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const SequenceStep& step = steps_[i];
    const int64_t begin = row;
    row += step.end - step.begin;
    if (step.hook == nullptr || !step.hook->wants_guesses()) continue;
    step.hook->LayerGuess(config_.CacheOf(layer),
                          QueriesOf(layer, i, begin, input.Slice(begin, row)));
  }
}

void ForwardPass::Layer(int64_t layer, Tensor residual) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const LayerConfig& own = config_.layers[static_cast<size_t>(layer)];
  const Tensor input =
      BranchInput(layer, own.mixes() ? w.input_norm : w.mlp_norm, residual, ScratchSlot::kNormed);
  if (!Runs(LayerPass::kRest)) ShowInputs(layer, residual, input);
  ShowGuesses(layer + 1, input);
  if (Runs(LayerPass::kQueries)) {
    Attended(layer, input);
    return;
  }
  // An MLP beside attention reads the residual before attention adds to it.
  Tensor mlp_input = input;
  if (own.mixes() && config_.parallel && !config_.shared_norm) {
    mlp_input = BranchInput(layer, w.mlp_norm, residual, ScratchSlot::kMlpNormed);
  }
  if (own.mixes()) {
    AddBranch(w.attention_norm, residual,
              [&](Tensor out, MatMulMode mode) { AttentionBranch(layer, input, out, mode); });
    if (config_.post_norm) ApplyNorm(w.input_norm, residual, residual);
    if (config_.streams) AddLaurel(layer, input, residual);
  }
  if (own.crosses) CrossAttend(layer, residual);
  if (!own.mlp) return;
  if (own.mixes() && !config_.parallel) {
    mlp_input = BranchInput(layer, w.mlp_norm, residual, ScratchSlot::kNormed);
  }
  AddBranch(w.mlp_output_norm, residual, [&](Tensor out, MatMulMode mode) {
    if (own.moe && config_.moe->beside_mlp) {
      MlpBesideExperts(layer, residual, mlp_input, out);
    } else {
      MlpBranch(layer, mlp_input, out, mode);
    }
  });
  if (config_.post_norm) ApplyNorm(w.mlp_norm, residual, residual);
  if (config_.layer_embeddings && !config_.streams) {
    const Tensor added = Take(ScratchSlot::kBranch, DType::kF32, {rows_, config_.hidden_size});
    OpenEmbeddings(layer, residual, added);
    ops_.rows->Combine(residual, added, Binary::kAdd, residual);
  }
  if (config_.layer_scales) Multiply(residual, w.scale);
}

Tensor ForwardPass::Logits(const Tensor& residual) {
  std::vector<int32_t> wanted;
  int32_t row = 0;
  for (const SequenceStep& step : steps_) {
    const auto count = static_cast<int32_t>(step.end - step.begin);
    if (step.logits == LogitRows::kAll) {
      for (int32_t i = 0; i < count; ++i) wanted.push_back(row + i);
    } else if (step.logits == LogitRows::kLast) {
      wanted.push_back(row + count - 1);
    }
    row += count;
  }
  return LogitsAt(residual, wanted);
}

Tensor ForwardPass::LogitsAt(const Tensor& residual, std::span<const int32_t> wanted) {
  if (wanted.empty()) return {};
  const auto count = std::ssize(wanted);
  Tensor rows = residual;
  if (count != residual.shape[0]) {
    const Tensor index = Take(ScratchSlot::kIds, DType::kI32, {count});
    ops_.memory->Copy(View(wanted, {count}), index);
    rows = Take(ScratchSlot::kLogitRows, DType::kF32, {count, config_.hidden_size});
    ops_.select->Gather(residual, index, rows);
  }
  return LogitsOf(rows, rows);
}

Tensor ForwardPass::LogitsOf(const Tensor& rows, const Tensor& normed) {
  const int64_t count = rows.shape[0];
  Tensor from = rows;
  if (config_.final_norm) {
    LastNorm(rows, normed);
    from = normed;
  }
  if (weights_.project_out.matrix != nullptr) {
    const Tensor small = Take(ScratchSlot::kBranch, DType::kF32, {count, config_.embedding_size});
    ApplyLinear(ops_, from, weights_.project_out, MatMulMode::kSet, small);
    from = small;
  }
  const Tensor logits = Take(ScratchSlot::kLogits, DType::kF32, {count, config_.vocab_size});
  ApplyLinear(ops_, from, weights_.head, MatMulMode::kSet, logits);
  if (config_.logit_multiplier != 1.0f) {
    ops_.rows->Affine(logits, config_.logit_multiplier, 0.0f, logits);
  }
  if (config_.logit_softcap > 0) ops_.rows->SoftCap(logits, config_.logit_softcap, logits);
  return logits;
}

void ForwardPass::ShowLast(const Tensor& residual) {
  int64_t row = 0;
  for (const SequenceStep& step : steps_) {
    const int64_t begin = row;
    row += step.end - step.begin;
    if (step.last.empty()) continue;
    const Tensor rows = residual.Slice(begin, row);
    if (config_.final_norm) {
      LastNorm(rows, step.last);
    } else {
      ops_.rows->Convert(rows, step.last);
    }
  }
}

// A few rows at a time: logits of all would take far more memory than the pass.
void ForwardPass::ShowSurprise(const Tensor& residual) {
  int64_t first = 0;
  for (const SequenceStep& step : steps_) {
    const int64_t rows = step.end - step.begin, begin = std::exchange(first, first + rows);
    if (step.hook == nullptr || !step.hook->wants_surprise()) continue;
    const Tensor memory = Take(ScratchSlot::kSurprise, DType::kF32, {rows + 2 * kSurpriseRows});
    ops_.memory->Clear(memory);
    // The token behind a row; -1: none, or a piece of a picture.
    const auto next = [&](int64_t row) {
      const auto at = static_cast<size_t>(PlaceOf(step.begin + row) + 1);
      return at < step.prompt->positions.size() ? step.prompt->positions[at].token_id : -1;
    };
    for (int64_t at = 0; at < rows;) {
      std::vector<int32_t> chosen;
      while (at + std::ssize(chosen) < rows && std::ssize(chosen) < kSurpriseRows) {
        const int32_t id = next(at + std::ssize(chosen));
        if (id < 0) break;
        chosen.push_back(static_cast<int32_t>(std::ssize(chosen) * config_.vocab_size) + id);
      }
      const int64_t count = std::ssize(chosen);
      if (count == 0) {
        ++at;
        continue;
      }
      const Tensor logits =
          LogitsOf(residual.Slice(begin + at, begin + at + count),
                   Take(ScratchSlot::kLogitRows, DType::kF32, {count, config_.hidden_size}));
      const Tensor index = Take(ScratchSlot::kIds, DType::kI32, {count});
      ops_.memory->Copy(View(chosen, {count}), index);
      const Tensor sums = memory.Slice(rows, rows + count);
      const Tensor given = memory.Slice(rows + kSurpriseRows, rows + kSurpriseRows + count);
      ops_.rows->LogSumExp(logits, sums);
      ops_.select->Gather(logits.Reshape({count * config_.vocab_size, 1}), index,
                          given.Reshape({count, 1}));
      ops_.rows->Combine(sums.Reshape({1, count}), given.Reshape({1, count}), Binary::kSubtract,
                         memory.Slice(at, at + count).Reshape({1, count}));
      at += count;
    }
    step.hook->TakeSurprise(memory.Slice(0, rows));
  }
}

void ForwardPass::CheckRows() {
  if (part_ != nullptr) {
    KVG_CHECK(!config_.blocks, "two decoders go through together");
    KVG_CHECK(!config_.SharesCaches(), "layers that share caches go through together");
    KVG_CHECK(!config_.means, "layers whose rows join entries go through together");
    KVG_CHECK(!config_.state, "layers of constant state go through together");
    KVG_CHECK(!config_.streams && !config_.layer_embeddings,
              "layers with streams or embeddings of their own go through together");
    KVG_CHECK(!config_.mutual_pictures || steps_[0].prompt->spans.empty(),
              "a picture that sees all of itself goes through in one");
    KVG_CHECK(part_->part == LayerPass::kWhole || first_layer_ + 1 == end_layer_,
              "parts of several layers");
    KVG_CHECK(part_->end_layer == config_.layer_count() || part_->logits == LogitRows::kNone,
              "logits come behind the last layer");
    KVG_CHECK(part_->joined == nullptr || (!config_.mla && part_->hook == nullptr &&
                                           part_->end_layer == part_->first_layer + 1),
              "joined entries are those of one layer");
    return;
  }
  for (const SequenceStep& step : steps_) {
    KVG_CHECK(step.begin < step.end && step.end == step.cache->tokens(),
              "a step's rows are those its cache made room for last");
    KVG_CHECK(config_.prompt_passes == 1 || step.end - step.begin == 1 ||
                  PassEnd(config_, *step.prompt, step.begin, 1) == step.end,
              "a step cuts a prompt that goes through the layers several times");
    if (!config_.mutual_pictures) continue;
    KVG_CHECK(PassEnd(config_, *step.prompt, step.begin, step.end - step.begin) == step.end,
              "a step cuts a picture that sees all of itself");
    ahead_.push_back(RowsAhead(config_, *step.prompt, step.begin, step.end));
  }
}

Tensor ForwardPass::Run() {
  CheckRows();
  if (config_.blocks) return RunDecoders();
  if (hidden_.empty()) {
    hidden_ = Take(ScratchSlot::kResidual, DType::kF32, {rows_, config_.hidden_size});
  }
  const Tensor residual = hidden_;
  FindReadyRows();
  FindAdaptedRows();
  const bool rest = Runs(LayerPass::kRest);
  if (first_layer_ == 0 && !rest) Embed(residual);
  if (!rest) MakeRopeTables();
  if (part_ != nullptr && part_->joined != nullptr && part_->joined->only_put) {
    const LayerWeights& w = weights_.layers[static_cast<size_t>(first_layer_)];
    PlainAttention(first_layer_,
                   BranchInput(first_layer_, w.input_norm, residual, ScratchSlot::kNormed));
    return {};
  }
  if (config_.layer_embeddings) EmbedLayers(residual);
  const Tensor streams = config_.streams ? OpenStreams(residual) : Tensor();
  for (int64_t i = first_layer_; i < end_layer_; ++i) {
    if (config_.ReadsLater(i)) {
      const int64_t end = config_.PassedEnd(i);
      SeveralPasses(i, end, residual);
      i = end - 1;
      continue;
    }
    if (config_.made_keys && config_.HasCache(i)) KeepMadeRows(i, residual);
    config_.streams ? StreamLayer(i, streams) : Layer(i, residual);
    if (config_.halve_every > 0 && (i + 1) % config_.halve_every == 0) Multiply(residual, 0.5f);
    if (!Runs(LayerPass::kQueries)) AddDeepstack(i, residual);
  }
  const bool ends = end_layer_ == config_.layer_count();
  if (!ends && part_ == nullptr) return {};  // another section goes on
  if (config_.streams) CloseStreams(streams, residual);
  ShowLast(residual);
  if (ends) ShowSurprise(residual);
  return Logits(residual);
}

Tensor Model::Forward(std::span<const SequenceStep> steps) {
  KVG_CHECK(!steps.empty(), "nothing to run");
  const StatesOfPass states(steps);
  // The host decides whose rows join an entry, what rows of several passes see, which decoder has a
  // row and of which tokens keys are made anew, so such passes are not repeated.
  const bool decodes =
      !config_.means && config_.prompt_passes == 1 && !config_.made_keys && !config_.blocks &&
      std::all_of(steps.begin(), steps.end(), [](const SequenceStep& step) {
        return step.end - step.begin == 1 && (step.hook == nullptr || step.hook->repeatable());
      });
  Tensor logits, hidden;
  for (const ModelSection& section : sections_) {
    Tensor from;  // what comes from the section before
    if (!hidden.empty()) {
      from = section.scratch->Take(*section.ops, ScratchSlot::kResidual, DType::kF32,
                                   {hidden.shape[0], hidden.shape[1]});
      section.ops->memory->Copy(hidden, from);
    }
    bool again = false;
    const auto pass = [&] {
      for (const SequenceStep& step : steps) {
        if (!decodes || step.hook == nullptr) continue;
        step.hook->BeginPass(config_.CachesBelow(section.first_layer),
                             config_.CachesBelow(section.end_layer), again);
      }
      again = true;
      ForwardPass rows(config_, dtype_, section, *weights_, steps, from);
      logits = rows.Run();
      hidden = rows.hidden();
    };
    decodes ? section.decode->Run(pass) : pass();
  }
  return logits;
}

Tensor Model::ForwardLayers(const LayerStep& step) {
  KVG_CHECK(sections_.size() == 1, "layers on several devices go through together");
  const SequenceStep rows = {.cache = step.cache,
                             .prompt = step.prompt,
                             .begin = 0,
                             .end = std::ssize(step.places),
                             .logits = step.logits,
                             .hook = step.hook,
                             .last = step.normed};
  return ForwardPass(config_, dtype_, *ops_, *weights_, *sections_[0].scratch, step, rows).Run();
}

std::vector<int32_t> Model::BestTokens(const Tensor& logits, int64_t valid_vocab) {
  if (logits.empty()) return {};
  Tensor valid = logits;
  if (valid_vocab > 0) valid.shape[1] = std::min(valid_vocab, logits.shape[1]);
  const int64_t rows = logits.shape[0];
  const ModelSection& last = sections_.back();
  const Tensor ids = last.scratch->Take(*last.ops, ScratchSlot::kIds, DType::kI32, {rows});
  last.ops->rows->ArgMax(valid, ids);
  std::vector<int32_t> host(static_cast<size_t>(rows));
  last.ops->memory->Copy(ids, View(host, {rows}));
  return host;
}

}  // namespace kvgauge
