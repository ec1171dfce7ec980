// SPDX-License-Identifier: Apache-2.0
#include "src/vision/pass.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runner/vision.h"

namespace kvgauge {
namespace {

constexpr float kWholeNormEps = 1e-6f;  // of q and k, whatever the config says

Tensor ColumnsAt(const Tensor& x, int64_t first, int64_t count) {
  Tensor columns = x;
  columns.data = static_cast<char*>(x.data) + first * SizeOf(x.dtype);
  columns.shape[1] = count;
  return columns;
}

// Patches of tiles [tiles, 3, height, width] as rows [3, patch, patch]; the class token's row stays
// as it is, which is zero.
void CutPatches(const TowerSpec& tower, const PixelValues& pixels, float* out) {
  const int64_t p = tower.patch, columns = 3 * p * p;
  const int64_t plane = int64_t{pixels.height} * pixels.width;
  for (int64_t tile = 0; tile < pixels.tiles; ++tile) {
    const float* from = pixels.values.data() + tile * 3 * plane;
    if (tower.class_token) out += columns;
    for (int64_t top = 0; top < tower.grid_rows(); ++top) {
      for (int64_t left = 0; left < tower.grid_columns(); ++left) {
        for (int64_t c = 0; c < 3; ++c) {
          for (int64_t y = 0; y < p; ++y, out += p) {
            std::memcpy(out, from + c * plane + (top * p + y) * pixels.width + left * p,
                        static_cast<size_t>(p) * sizeof(float));
          }
        }
      }
    }
  }
}

}  // namespace

Tensor HeadsAt(const Tensor& x, int64_t first, int64_t count, int64_t dim) {
  Tensor heads = x;
  heads.data = static_cast<char*>(x.data) + first * SizeOf(x.dtype);
  heads.rank = 3;
  heads.shape = {x.shape[0], count, dim, 0};
  heads.stride = {x.stride[0], dim, 1, 0};
  return heads;
}

// Slot by slot, as the pass takes them.
int64_t VisionScratchBytes(const VisionSpec& spec, DType dtype, int64_t rows, bool sees) {
  constexpr int64_t kFloat = 4, kIndex = 4;
  constexpr int64_t kRounding = 64 * static_cast<int64_t>(VisionSlot::kCount);  // of the allocator
  const TowerSpec& tower = spec.tower;
  const int64_t narrow = SizeOf(dtype), width = tower.width, hidden = spec.hidden_size;
  const int64_t pixels = kFloat * 3 * tower.frames * tower.patch * tower.patch;
  const int64_t unit = spec.merge * spec.merge, shown = (rows + unit - 1) / unit;
  const int64_t read = std::ssize(spec.feature_layers) * width;
  const bool merger = spec.projector == ProjectorKind::kMerger;
  const bool two =
      spec.projector == ProjectorKind::kTwoLayers || spec.projector == ProjectorKind::kShuffledTwo;
  const bool pools = spec.projector == ProjectorKind::kPooledOne ||
                     spec.video_pooling == VideoPooling::kMean ||
                     spec.video_pooling == VideoPooling::kMax;
  const bool moves = unit > 1 || pools || sees;

  // Patches, the residual and what a product reads of it, queries, keys and values, and what they
  // give; what is added to them, and the MLP.
  int64_t of_row = pixels + kFloat * width + narrow * width + kFloat * 3 * width + kFloat * width;
  of_row += kFloat * width + kFloat * (tower.gated ? 2 : 1) * tower.ffn;
  if (tower.gated) of_row += narrow * tower.ffn;
  // An index of rows has newlines between them.
  of_row += 2 * kIndex;
  if (tower.rotary) of_row += 2 * kIndex + kFloat * (width / tower.heads);
  of_row += kFloat * read;
  int64_t bytes = kRounding + rows * of_row + kFloat * hidden * shown;  // and what is shown
  if (tower.window > 0) bytes += std::max(rows * pixels, kFloat * hidden * shown);
  bytes += merger ? rows * narrow * width : moves ? rows * kFloat * read : 0;
  bytes += std::max({merger ? rows * kFloat * width : 0, pools ? rows * kFloat * read : 0,
                     two ? kFloat * hidden * shown : 0});
  if (tower.rotary) bytes += kFloat * (width / tower.heads);  // frequencies
  if (!sees) return bytes;
  // Attention, and rows on their way to the stage or back, with one for each class token; and what
  // the stage left.
  const int64_t widest = std::max({width, read, hidden});
  return bytes + rows * (2 * kFloat * tower.heads + 2 * kFloat * widest) + shown * kFloat * hidden;
}

VisionPass::VisionPass(const VisionSpec& spec, DType dtype, Ops& ops, VisionWeights& weights,
                       std::span<const PixelValues* const> pixels, Modality modality)
    : spec_(spec),
      tower_(spec.tower),
      dtype_(dtype),
      ops_(ops),
      weights_(weights),
      pixels_(pixels),
      modality_(modality),
      plan_(PlanRows(spec.tower, spec.merge, pixels)) {
  const int64_t dim = tower_.width / tower_.heads;
  AttentionShape shape;
  shape.format = {dtype_, dim, dim};
  shape.query_heads = shape.kv_heads = tower_.heads;
  shape.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
  slices_.emplace(plan_.slices, shape, ops_);
  if (tower_.window > 0) windows_.emplace(plan_.windows, shape, ops_);
}

Tensor VisionPass::Take(VisionSlot slot, DType dtype, std::initializer_list<int64_t> dims) {
  Buffer& buffer = weights_.scratch[static_cast<size_t>(slot)];
  int64_t bytes = SizeOf(dtype);
  for (const int64_t d : dims) bytes *= d;
  bytes = std::max<int64_t>(bytes, 1);
  if (buffer.size_bytes() < bytes) buffer = ops_.memory->Allocate(bytes);
  return buffer.As(dtype, dims);
}

Tensor VisionPass::Send(VisionSlot slot, std::span<const int32_t> values) {
  const Tensor to = Take(slot, DType::kI32, {std::ssize(values)});
  ops_.memory->Copy(View(values, {std::ssize(values)}), to);
  return to;
}

Tensor VisionPass::Send(VisionSlot slot, std::span<const float> values,
                        std::initializer_list<int64_t> dims) {
  const Tensor to = Take(slot, DType::kF32, dims);
  ops_.memory->Copy(View(values, dims), to);
  return to;
}

std::vector<float> VisionPass::Fetch(const Tensor& rows) {
  std::vector<float> values(static_cast<size_t>(rows.Numel()));
  ops_.memory->Copy(rows, View(values, {rows.shape[0], rows.shape[1]}));
  return values;
}

void VisionPass::Apply(const Norm& norm, const Tensor& x, Tensor out) {
  if (tower_.norm == TowerNorm::kLayer) {
    ops_.rows->LayerNorm(x, norm.weight, norm.bias, tower_.norm_eps, out);
  } else {
    ops_.rows->RmsNorm(x, norm.weight, 0, tower_.norm_eps, out);
  }
}

void VisionPass::Multiply(const Tensor& x, const Linear& linear, MatMulMode mode, Tensor out) {
  ops_.linear->MatMul(x, *linear.matrix, linear.bias, mode, out);
}

void VisionPass::GatherRows(const Tensor& source, std::span<const int32_t> index, Tensor out) {
  ops_.select->Gather(source, Send(VisionSlot::kIndex, index), out);
}

Tensor VisionPass::Embed() {
  const int64_t columns = 3 * tower_.frames * tower_.patch * tower_.patch;
  std::vector<float> patches(static_cast<size_t>(plan_.rows * columns));
  for (size_t i = 0; i < pixels_.size(); ++i) {
    float* to = patches.data() + plan_.pictures[i].first * columns;
    if (tower_.tiled()) {
      CutPatches(tower_, *pixels_[i], to);
    } else {
      std::ranges::copy(pixels_[i]->values, to);
    }
  }
  Tensor rows = Send(VisionSlot::kPatches, patches, {plan_.rows, columns});
  if (!plan_.order.empty()) {
    const Tensor ordered = Take(VisionSlot::kOrdered, DType::kF32, {plan_.rows, columns});
    GatherRows(rows, plan_.order, ordered);
    rows = ordered;
  }
  const Tensor x = Take(VisionSlot::kResidual, DType::kF32, {plan_.rows, tower_.width});
  Multiply(rows, weights_.patch, MatMulMode::kSet, x);
  AddPlaces(x);
  if (tower_.pre_norm) Apply(weights_.pre_norm, x, x);
  return x;
}

void VisionPass::AddPlaces(Tensor x) {
  if (tower_.places == PatchPlaces::kInterpolated) {
    std::vector<float> added(static_cast<size_t>(plan_.rows * tower_.width));
    for (size_t i = 0; i < pixels_.size(); ++i) {
      StretchPlaces(weights_.places, tower_.place_side, tower_.width, *pixels_[i], spec_.merge,
                    added.data() + plan_.pictures[i].first * tower_.width);
    }
    for (size_t i = 0; i < added.size() && !weights_.patch_bias.empty(); ++i) {
      added[i] += weights_.patch_bias[i % weights_.patch_bias.size()];
    }
    const Tensor rows = Send(VisionSlot::kBranch, added, {plan_.rows, tower_.width});
    ops_.rows->Combine(x, rows, Binary::kAdd, x);
  } else if (!weights_.tile_rows.empty()) {
    const int64_t of_tile = weights_.tile_rows.shape[0];
    std::vector<int32_t> index(static_cast<size_t>(plan_.rows));
    for (int64_t i = 0; i < plan_.rows; ++i) {
      index[static_cast<size_t>(i)] = static_cast<int32_t>(i % of_tile);
    }
    const Tensor rows = Take(VisionSlot::kBranch, DType::kF32, {plan_.rows, tower_.width});
    GatherRows(weights_.tile_rows, index, rows);
    ops_.rows->Combine(x, rows, Binary::kAdd, x);
  }
}

void VisionPass::MakeRopeTables() {
  if (!tower_.rotary) return;
  const int64_t pairs = tower_.width / tower_.heads / 2, half = pairs / 2;
  std::vector<int32_t> places;
  for (const PixelValues* pixels : pixels_) {
    const std::vector<int32_t> own = PlacesOf(*pixels, spec_.merge);
    places.insert(places.end(), own.begin(), own.end());
  }
  if (!plan_.order.empty()) {
    std::vector<int32_t> ordered(places.size());
    for (size_t i = 0; i < plan_.order.size(); ++i) {
      ordered[2 * i] = places[2 * static_cast<size_t>(plan_.order[i])];
      ordered[2 * i + 1] = places[2 * static_cast<size_t>(plan_.order[i]) + 1];
    }
    places = std::move(ordered);
  }
  // Rows turn the first half of the pairs, columns the second.
  std::vector<int32_t> axis;
  std::vector<float> inverse;
  for (int64_t i = 0; i < pairs; ++i) {
    axis.push_back(i < half ? 0 : 1);
    const int64_t between = i >= half && tower_.rotary_between ? 1 : 0;
    const double exponent =
        static_cast<double>(2 * (i % half) + between) / static_cast<double>(pairs);
    inverse.push_back(static_cast<float>(1.0 / std::pow(tower_.rotary_base, exponent)));
  }
  const Tensor positions = Send(VisionSlot::kPositions, places).Reshape({plan_.rows, 2});
  const Tensor frequencies = Send(VisionSlot::kFrequencies, inverse, {pairs});
  cos_ = Take(VisionSlot::kCos, DType::kF32, {plan_.rows, pairs});
  sin_ = Take(VisionSlot::kSin, DType::kF32, {plan_.rows, pairs});
  ops_.rows->RopeTable(positions, frequencies, Send(VisionSlot::kIndex, axis), 1.0f, cos_, sin_);
}

void VisionPass::AddBranch(const Tensor& input, const Linear& linear, const Norm& scale, Tensor x) {
  if (scale.weight.empty()) {
    Multiply(input, linear, MatMulMode::kAdd, x);
    return;
  }
  const Tensor branch = Take(VisionSlot::kBranch, DType::kF32, {plan_.rows, tower_.width});
  Multiply(input, linear, MatMulMode::kSet, branch);
  ops_.rows->Combine(branch, scale.weight, Binary::kMultiply, branch);
  ops_.rows->Combine(x, branch, Binary::kAdd, x);
}

void VisionPass::Block(int64_t index, Tensor x) {
  const VisionBlock& w = weights_.blocks[static_cast<size_t>(index)];
  const int64_t rows = plan_.rows, width = tower_.width, dim = width / tower_.heads;
  const Tensor normed = Take(VisionSlot::kNormed, dtype_, {rows, width});
  Apply(w.attention_norm, x, normed);
  const Tensor qkv = Take(VisionSlot::kProjected, DType::kF32, {rows, 3 * width});
  Multiply(normed, w.qkv, MatMulMode::kSet, qkv);
  if (tower_.qk_norm) {
    const Tensor q = ColumnsAt(qkv, 0, width), k = ColumnsAt(qkv, width, width);
    ops_.rows->RmsNorm(q, w.q_norm.weight, 0, kWholeNormEps, q);
    ops_.rows->RmsNorm(k, w.k_norm.weight, 0, kWholeNormEps, k);
  }
  const Tensor q = HeadsAt(qkv, 0, tower_.heads, dim);
  const Tensor k = HeadsAt(qkv, width, tower_.heads, dim);
  const Tensor v = HeadsAt(qkv, 2 * width, tower_.heads, dim);
  if (tower_.rotary) {
    ops_.rows->Rope(cos_, sin_, RopeLayout::kHalf, RopeDirection::kForward, q);
    ops_.rows->Rope(cos_, sin_, RopeLayout::kHalf, RopeDirection::kForward, k);
  }
  const Tensor attended = Take(VisionSlot::kAttended, DType::kF32, {rows, width});
  const bool last = index + 1 == tower_.run_layers, early = index == early_block_;
  if (early || (shows_attention_ && last)) {
    log_sum_exp_ = Take(VisionSlot::kLogSumExp, DType::kF32, {tower_.heads, rows});
  }
  const bool whole =
      !windows_ || std::ranges::find(tower_.full_layers, index) != tower_.full_layers.end();
  (whole ? *slices_ : *windows_)
      .Run(q, k, v, attended.Reshape({rows, tower_.heads, dim}), log_sum_exp_);
  if (early) {
    early_ = AttentionOfTiles();
    if (!last) log_sum_exp_ = {};
  }
  AddBranch(attended, w.output, w.attention_scale, x);

  Apply(w.mlp_norm, x, normed);
  const Tensor up =
      Take(VisionSlot::kUp, DType::kF32, {rows, tower_.gated ? 2 * tower_.ffn : tower_.ffn});
  Multiply(normed, w.up, MatMulMode::kSet, up);
  if (tower_.gated) {
    const Tensor activated = Take(VisionSlot::kActivated, dtype_, {rows, tower_.ffn});
    ops_.rows->GatedActivate(up, tower_.activation, activated);
    AddBranch(activated, w.down, w.mlp_scale, x);
  } else {
    ops_.rows->Activate(up, tower_.activation, up);
    AddBranch(up, w.down, w.mlp_scale, x);
  }
}

void VisionPass::TakeFeatures(int64_t layer, const Tensor& x) {
  const int64_t layers = std::ssize(spec_.feature_layers);
  std::vector<int32_t> index;
  const int64_t of_tile = plan_.slices[0].rows;
  for (int64_t i = 0; i < plan_.rows; ++i) {
    if (spec_.drop_class && i % of_tile == 0) continue;
    index.push_back(static_cast<int32_t>(i));
  }
  for (int64_t i = 0; i < layers; ++i) {
    if (spec_.feature_layers[static_cast<size_t>(i)] != layer) continue;
    features_ =
        Take(VisionSlot::kFeatures, DType::kF32, {std::ssize(index), layers * tower_.width});
    const Tensor part = ColumnsAt(features_, i * tower_.width, tower_.width);
    GatherRows(x, index, part);
    if (tower_.post_norm) Apply(weights_.post_norm, part, part);
  }
}

void VisionPass::Record(const Tensor& x, VisionTrace* trace) {
  if (trace == nullptr) return;
  std::vector<float> rows = Fetch(x);
  if (!plan_.order.empty()) {
    std::vector<float> ordered(rows.size());
    const auto width = static_cast<size_t>(tower_.width);
    for (size_t i = 0; i < plan_.order.size(); ++i) {
      std::copy_n(rows.data() + i * width, width,
                  ordered.data() + static_cast<size_t>(plan_.order[i]) * width);
    }
    rows = std::move(ordered);
  }
  trace->hidden.push_back(std::move(rows));
}

void VisionPass::KeepDeep(const Tensor& rows) {
  result_.memory.push_back(ops_.memory->Allocate(rows.SizeBytes()));
  const Tensor kept = result_.memory.back().As(DType::kF32, {rows.shape[0], rows.shape[1]});
  ops_.memory->Copy(rows, kept);
  result_.deepstack.push_back(kept);
}

void VisionPass::PutInOrder(const Tensor& rows, std::span<const int32_t> order, Tensor out) {
  // Rows one behind the other are copied together.
  size_t run = 0;
  while (run < order.size() && order[0] >= 0 && order[run] == order[0] + static_cast<int32_t>(run))
    ++run;
  if (run == order.size()) {
    if (run > 0) ops_.memory->Copy(rows.Slice(order[0], order[0] + std::ssize(order)), out);
    return;
  }
  GatherRows(rows, order, out);
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] < 0) ops_.memory->Copy(weights_.newline, out[static_cast<int64_t>(i)]);
  }
}

ProjectedRows VisionPass::Run(VisionTrace* trace, const See* see, std::span<const uint64_t> seeds) {
  const bool reduces = see != nullptr && ReducesTiles(spec_, see->sees());
  shows_attention_ = reduces && see->sees().attention;
  early_block_ = reduces ? see->sees().early : -1;
  const Tensor x = Embed();
  MakeRopeTables();
  Record(x, trace);
  TakeFeatures(0, x);
  for (int64_t i = 0; i < tower_.run_layers; ++i) {
    Block(i, x);
    Record(x, trace);
    TakeFeatures(i + 1, x);
    const auto deep = std::ranges::find(spec_.deepstack, i);
    if (deep == spec_.deepstack.end()) continue;
    const auto at = static_cast<size_t>(deep - spec_.deepstack.begin());
    KeepDeep(InOrder(Merge(weights_.deepstack[at], true, x)));
  }
  if (reduces) {
    ReduceTiles(*see, seeds, x);
    return std::move(result_);
  }
  result_.rows = Project(features_);
  // Every row of hidden states, or of a tile without its class token, has an equal share of them.
  int64_t at = 0;
  for (const RowRange& picture : plan_.pictures) {
    const int64_t rows = result_.rows.shape[0] * picture.rows / plan_.rows;
    result_.pictures.push_back({at, rows});
    at += rows;
  }
  return std::move(result_);
}

}  // namespace kvgauge
