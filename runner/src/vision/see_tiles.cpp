// SPDX-License-Identifier: Apache-2.0
// Stages that reduce pictures, where a row of a picture is one row of the tower: between the chosen
// layer and the projector.
#include <algorithm>
#include <cmath>

#include "src/vision/pass.h"

namespace kvgauge {
namespace {

// Columns [first, first + width) of rows [begin, begin + count) of qkv [rows, 3 * width].
std::vector<float> Columns(const std::vector<float>& qkv, int64_t begin, int64_t count,
                           int64_t first, int64_t width) {
  std::vector<float> out;
  out.reserve(static_cast<size_t>(count * width));
  for (int64_t row = begin; row < begin + count; ++row) {
    const auto at = qkv.begin() + row * 3 * width + first;
    out.insert(out.end(), at, at + width);
  }
  return out;
}

// A block's queries and keys of one tile, apart.
struct OwnKeys {
  std::vector<float> class_query, class_key, keys;

  OwnKeys(const std::vector<float>& qkv, const RowRange& tile, int64_t width, bool has_class) {
    if (qkv.empty()) return;
    if (has_class) {
      class_query = Columns(qkv, tile.first, 1, 0, width);
      class_key = Columns(qkv, tile.first, 1, width, width);
    }
    keys = Columns(qkv, tile.first + has_class, tile.rows - has_class, width, width);
  }
  TileKeys view() const { return {class_query, keys, class_key}; }
};

}  // namespace

EyesShape ShapeOfEyes(const VisionSpec& spec) {
  const TowerSpec& tower = spec.tower;
  EyesShape shape;
  shape.class_token = tower.class_token;
  shape.behind = tower.run_layers < tower.layers;
  shape.by_row = tower.tiled() && spec.packing == Packing::kPlain &&
                 spec.projector == ProjectorKind::kTwoLayers && spec.merge == 1 &&
                 spec.deepstack.empty() && tower.class_token == spec.drop_class &&
                 spec.feature_layers == std::vector<int64_t>{tower.run_layers};
  return shape;
}

struct VisionPass::Looked {
  std::vector<float> qkv;       // of the block that makes the features; [rows, 3 * width]
  std::vector<float> behind;    // of the one that reads them
  std::vector<float> features;  // [rows without class tokens, width]
  std::vector<float> hidden;    // [rows, width], where there are class tokens
  std::vector<float> rows;      // projected
};

// The block has not run; `x` is what it would read.
std::vector<float> VisionPass::QueriesAndKeys(int64_t block, const Tensor& x) {
  const VisionBlock& w = weights_.blocks[static_cast<size_t>(block)];
  const Tensor normed = Take(VisionSlot::kNormed, dtype_, {plan_.rows, tower_.width});
  Apply(w.attention_norm, x, normed);
  const Tensor qkv = Take(VisionSlot::kProjected, DType::kF32, {plan_.rows, 3 * tower_.width});
  Multiply(normed, w.qkv, MatMulMode::kSet, qkv);
  return Fetch(qkv);
}

VisionPass::Looked VisionPass::Look(const SeeNeeds& needs, const Tensor& x) {
  Looked looked;
  if (needs.attention || needs.keys) {
    // The last block left them there.
    looked.qkv = Fetch(Take(VisionSlot::kProjected, DType::kF32, {plan_.rows, 3 * tower_.width}));
  }
  if (needs.behind) {
    KVG_CHECK(std::ssize(weights_.blocks) > tower_.run_layers,
              "a stage asks for a block that was not loaded");
    looked.behind = QueriesAndKeys(tower_.run_layers, x);
  }
  looked.features = Fetch(features_);
  if (tower_.class_token) looked.hidden = Fetch(x);
  if (needs.rows) looked.rows = Fetch(Project(features_));
  return looked;
}

// What the class token's row attends to, or the mean over all rows: [heads, patches].
std::vector<float> VisionPass::AttentionOf(const std::vector<float>& qkv,
                                           const RowRange& tile) const {
  const int64_t width = tower_.width, dim = width / tower_.heads, n = tile.rows;
  const int64_t skipped = tower_.class_token ? 1 : 0, patches = n - skipped;
  const int64_t askers = tower_.class_token ? 1 : n;
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
  std::vector<float> out;
  std::vector<float> scores(static_cast<size_t>(n));
  for (int64_t h = 0; h < tower_.heads; ++h) {
    std::vector<double> sums(static_cast<size_t>(n));
    for (int64_t i = 0; i < askers; ++i) {
      const float* q = qkv.data() + (tile.first + i) * 3 * width + h * dim;
      float most = 0;
      for (int64_t j = 0; j < n; ++j) {
        const float* k = qkv.data() + (tile.first + j) * 3 * width + width + h * dim;
        float score = 0;
        for (int64_t d = 0; d < dim; ++d) score += q[d] * k[d];
        scores[static_cast<size_t>(j)] = score * scale;
        most = j == 0 ? score * scale : std::max(most, score * scale);
      }
      double sum = 0;
      for (float& score : scores) sum += double{score = std::exp(score - most)};
      for (int64_t j = 0; j < n; ++j) {
        sums[static_cast<size_t>(j)] += double{scores[static_cast<size_t>(j)]} / sum;
      }
    }
    for (int64_t j = skipped; j < skipped + patches; ++j) {
      out.push_back(static_cast<float>(sums[static_cast<size_t>(j)] / static_cast<double>(askers)));
    }
  }
  return out;
}

void VisionPass::ReduceTiles(const See& see, std::span<const uint64_t> seeds, const Tensor& x) {
  const SeeNeeds needs = see.sees();
  const Looked looked = Look(needs, x);
  const int64_t width = tower_.width;
  const bool has_class = tower_.class_token;
  std::vector<float> mixed;
  int64_t patches_before = 0;  // of the batch
  size_t slice = 0;
  for (size_t i = 0; i < plan_.pictures.size(); ++i) {
    const RowRange& picture = plan_.pictures[i];
    std::vector<int32_t>& places = result_.places.emplace_back();
    const int64_t first_row = std::ssize(mixed) / width;
    int32_t patches_of_picture = 0;
    for (uint64_t number = 0;
         slice < plan_.slices.size() && plan_.slices[slice].first < picture.first + picture.rows;
         ++slice, ++number) {
      const RowRange& tile = plan_.slices[slice];
      const int64_t patches = tile.rows - has_class;
      const OwnKeys keys(looked.qkv, tile, width, has_class);
      const OwnKeys behind(looked.behind, tile, width, has_class);
      std::vector<float> attention;
      if (needs.attention) attention = AttentionOf(looked.qkv, tile);
      TileView view;
      view.patches = patches;
      view.width = width;
      view.heads = tower_.heads;
      view.seed = (seeds.empty() ? 0 : seeds[i]) + number;
      view.attention = attention;
      view.keys = keys.view();
      view.behind = behind.view();
      view.hidden = spec_.hidden_size;
      if (needs.rows) {
        view.rows = std::span(looked.rows)
                        .subspan(static_cast<size_t>(patches_before * spec_.hidden_size),
                                 static_cast<size_t>(patches * spec_.hidden_size));
      }
      const auto source = [&](int32_t patch) {
        KVG_CHECK(patch < patches && (patch >= 0 || has_class), "a stage shows what is not there");
        return patch >= 0 ? looked.features.data() + (patches_before + patch) * width
                          : looked.hidden.data() + tile.first * width;
      };
      for (const SeenRow& row : see.Reduce(view)) {
        places.push_back(row.place < 0 ? row.place : patches_of_picture + row.place);
        std::vector<double> sum(static_cast<size_t>(width));
        for (const auto& [patch, weight] : row.mix) {
          const float* from = source(patch);
          for (int64_t c = 0; c < width; ++c) {
            sum[static_cast<size_t>(c)] += double{weight} * double{from[c]};
          }
        }
        for (const double one : sum) mixed.push_back(static_cast<float>(one));
      }
      patches_before += patches;
      patches_of_picture += static_cast<int32_t>(patches);
    }
    const int64_t rows = std::ssize(mixed) / width - first_row;
    KVG_CHECK(rows > 0, "a stage shows nothing of a picture");
    result_.pictures.push_back({first_row, rows});
  }
  const int64_t rows = std::ssize(mixed) / width;
  result_.rows = Fetch(Project(Send(VisionSlot::kFeatures, mixed, {rows, width})));
}

}  // namespace kvgauge
