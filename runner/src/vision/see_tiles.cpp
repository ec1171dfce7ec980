// SPDX-License-Identifier: Apache-2.0
// Stages that reduce pictures, where a row of a picture is made of rows of the tower. One row each:
// between the chosen layer and the projector. A square of rows each: behind the projector.
#include <algorithm>

#include "src/vision/pass.h"

namespace kvgauge {
namespace {

// The mean, over some units of so many rows of qkv [rows, 3 * width] each, of columns
// [first, first + width).
std::vector<float> MeanColumns(const std::vector<float>& qkv, std::span<const int32_t> rows,
                               int64_t unit, int64_t first, int64_t width) {
  std::vector<float> out;
  out.reserve(rows.size() / static_cast<size_t>(unit) * static_cast<size_t>(width));
  for (size_t at = 0; at < rows.size(); at += static_cast<size_t>(unit)) {
    for (int64_t c = 0; c < width; ++c) {
      double sum = 0;
      for (int64_t i = 0; i < unit; ++i) {
        const int64_t row = rows[at + static_cast<size_t>(i)];
        sum += double{qkv[static_cast<size_t>(row * 3 * width + first + c)]};
      }
      out.push_back(static_cast<float>(sum / static_cast<double>(unit)));
    }
  }
  return out;
}

// A block's queries and keys of one tile, apart.
struct OwnKeys {
  std::vector<float> class_query, class_key, keys;

  // `rows`: of the tile's units; `class_row`: -1 where there is none to see.
  OwnKeys(const std::vector<float>& qkv, std::span<const int32_t> rows, int64_t unit,
          int32_t class_row, int64_t width) {
    if (qkv.empty()) return;
    if (class_row >= 0) {
      class_query = MeanColumns(qkv, {&class_row, 1}, 1, 0, width);
      class_key = MeanColumns(qkv, {&class_row, 1}, 1, width, width);
    }
    keys = MeanColumns(qkv, rows, unit, width, width);
  }
  TileKeys view() const { return {class_query, keys, class_key}; }
};

// Sums of rows of one table as stages ask for them.
class RowMixer {
 public:
  RowMixer(const std::vector<float>& table, int64_t width) : table_(table), width_(width) {}

  // Appends the sum of rows `first` + patch; a class token's row is `class_row`.
  void Append(const SeenRow& row, int64_t first, const float* class_row) {
    std::vector<double> sum(static_cast<size_t>(width_));
    for (const auto& [patch, weight] : row.mix) {
      const float* from =
          patch == SeenRow::kClass ? class_row : table_.data() + (first + patch) * width_;
      for (int64_t c = 0; c < width_; ++c) {
        sum[static_cast<size_t>(c)] += double{weight} * double{from[c]};
      }
    }
    for (const double one : sum) mixed_.push_back(static_cast<float>(one));
  }
  std::vector<float>& mixed() { return mixed_; }

 private:
  const std::vector<float>& table_;
  const int64_t width_;
  std::vector<float> mixed_;
};

}  // namespace

EyesShape ShapeOfEyes(const VisionSpec& spec) {
  const TowerSpec& tower = spec.tower;
  const bool one_each = OneRowEach(spec);
  const int64_t last = tower.run_layers - 1;
  const bool sees_all =
      tower.window == 0 || std::ranges::find(tower.full_layers, last) != tower.full_layers.end();
  EyesShape shape;
  shape.class_token = one_each && tower.class_token;
  shape.behind = one_each && tower.run_layers < tower.layers;
  for (int64_t block = 0; block < tower.run_layers; ++block) {
    const bool listed = std::ranges::find(tower.full_layers, block) != tower.full_layers.end();
    if (tower.window == 0 || listed) shape.whole_blocks.push_back(block);
  }
  // A canvas that may be shrunk shows rows between those of the tower.
  shape.by_row = sees_all && last >= 0 && spec.most_canvas_tiles == 0 &&
                 tower.class_token == spec.drop_class &&
                 spec.feature_layers == std::vector<int64_t>{tower.run_layers};
  return shape;
}

bool OneRowEach(const VisionSpec& spec) {
  return spec.projector == ProjectorKind::kTwoLayers && spec.merge == 1;
}

bool ReducesTiles(const VisionSpec& spec, const SeeNeeds& needs) {
  if (!ShapeOfEyes(spec).by_row) return false;
  const bool plain = OneRowEach(spec) && spec.packing == Packing::kPlain && spec.tower.tiled();
  return plain || needs.tower() || needs.rows;
}

struct VisionPass::Looked {
  std::vector<float> qkv;  // of the block that makes the features; [rows, 3 * width]
  std::vector<std::vector<float>> attention;  // of the same block; each tile's [heads, rows]
  std::vector<float> behind;                  // of the one that reads them
  std::vector<float> features;                // [rows without class tokens, width]; one row each
  std::vector<float> hidden;  // [rows, width]; one row each, where there are class tokens
  std::vector<float> rows;    // projected; squares, or where asked for
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
  // The last block left its queries, keys and values there.
  for (size_t i = 0; i < plan_.slices.size() && needs.attention; ++i) {
    looked.attention.push_back(AttentionOf(i));
  }
  if (needs.keys) {
    looked.qkv = Fetch(Take(VisionSlot::kProjected, DType::kF32, {plan_.rows, 3 * tower_.width}));
  }
  if (needs.behind) {
    KVG_CHECK(std::ssize(weights_.blocks) > tower_.run_layers,
              "a stage asks for a block that was not loaded");
    looked.behind = QueriesAndKeys(tower_.run_layers, x);
  }
  const bool one_each = OneRowEach(spec_);
  if (one_each) looked.features = Fetch(features_);
  if (one_each && tower_.class_token) looked.hidden = Fetch(x);
  if (needs.rows || !one_each) looked.rows = Fetch(Project(features_));
  return looked;
}

std::vector<float> VisionPass::AttentionOf(size_t tile) {
  const int64_t dim = tower_.width / tower_.heads, rows = plan_.slices[tile].rows;
  const Tensor qkv =
      Take(VisionSlot::kProjected, DType::kF32, {plan_.rows, 3 * tower_.width});  // as it was left
  const Tensor out = Take(VisionSlot::kReceived, DType::kF32, {tower_.heads, rows});
  slices_->Received(tile, tower_.class_token, HeadsAt(qkv, 0, tower_.heads, dim), log_sum_exp_,
                    out);
  return Fetch(out);
}

std::vector<int32_t> VisionPass::RowsOfUnits() const {
  std::vector<int32_t> rows;
  if (!tower_.tiled()) {
    // Squares follow each other; windows move them.
    const int64_t unit = spec_.merge * spec_.merge;
    rows.resize(static_cast<size_t>(plan_.rows));
    for (int64_t i = 0; i < plan_.rows; ++i) {
      const int64_t at =
          plan_.order.empty() ? i : plan_.order[static_cast<size_t>(i / unit * unit)];
      rows[static_cast<size_t>(at / unit * unit + i % unit)] = static_cast<int32_t>(i);
    }
    return rows;
  }
  const int64_t side = spec_.merge, columns = tower_.grid_columns();
  for (const RowRange& tile : plan_.slices) {
    const int64_t first = tile.first + (tower_.class_token ? 1 : 0);
    for (int64_t top = 0; top + side <= tower_.grid_rows(); top += side) {
      for (int64_t left = 0; left + side <= columns; left += side) {
        for (int64_t i = 0; i < side * side; ++i) {
          const int64_t row = (top + i / side) * columns + left + i % side;
          rows.push_back(static_cast<int32_t>(first + row));
        }
      }
    }
  }
  return rows;
}

// What a stage is shown of one tile. `attention` is that of all its rows, from row `first` on.
static std::vector<float> OfUnits(const std::vector<float>& attention,
                                  std::span<const int32_t> rows, int64_t unit, int64_t first,
                                  int64_t heads) {
  const size_t of_head = attention.size() / static_cast<size_t>(heads);
  std::vector<float> out;
  for (size_t h = 0; h < static_cast<size_t>(heads); ++h) {
    for (size_t at = 0; at < rows.size(); at += static_cast<size_t>(unit)) {
      double sum = 0;
      for (size_t i = at; i < at + static_cast<size_t>(unit); ++i) {
        sum += double{attention[h * of_head + static_cast<size_t>(rows[i] - first)]};
      }
      out.push_back(static_cast<float>(sum / static_cast<double>(unit)));
    }
  }
  return out;
}

void VisionPass::ReduceTiles(const See& see, std::span<const uint64_t> seeds, const Tensor& x) {
  const SeeNeeds needs = see.sees();
  const Looked looked = Look(needs, x);
  const int64_t unit = spec_.merge * spec_.merge;
  const bool one_each = OneRowEach(spec_) && !needs.mixes_shown;
  const bool has_class = one_each && tower_.class_token;
  const std::vector<int32_t> rows = RowsOfUnits();
  RowMixer mixer(one_each ? looked.features : looked.rows,
                 one_each ? tower_.width : spec_.hidden_size);
  std::vector<RowMixer> deep;
  for (const std::vector<float>& layer : result_.deepstack) {
    deep.emplace_back(layer, spec_.hidden_size);
  }
  int64_t before = 0, count = 0;  // units of the batch, and rows that are left
  size_t slice = 0;
  for (size_t i = 0; i < plan_.pictures.size(); ++i) {
    const RowRange& picture = plan_.pictures[i];
    std::vector<SeenPlace>& places = result_.places.emplace_back();
    for (int32_t number = 0;
         slice < plan_.slices.size() && plan_.slices[slice].first < picture.first + picture.rows;
         ++slice, ++number) {
      const RowRange& tile = plan_.slices[slice];
      const int64_t own_patches =
          tower_.tiled() ? std::ssize(rows) / unit / std::ssize(plan_.slices) : tile.rows / unit;
      const std::span<const int32_t> own = std::span(rows).subspan(
          static_cast<size_t>(before * unit), static_cast<size_t>(own_patches * unit));
      const int32_t class_row = has_class ? static_cast<int32_t>(tile.first) : -1;
      const OwnKeys keys(looked.qkv, own, unit, class_row, tower_.width);
      const OwnKeys behind(looked.behind, own, unit, class_row, tower_.width);
      std::vector<float> attention, early;
      if (needs.attention) {
        attention = OfUnits(looked.attention[slice], own, unit, tile.first, tower_.heads);
      }
      if (needs.early >= 0) {
        early = OfUnits(early_[slice], own, unit, tile.first, tower_.heads);
      }
      TileView view;
      view.patches = own_patches;
      view.columns =
          (tower_.tiled() ? tower_.grid_columns() : int64_t{pixels_[i]->grid[2]}) / spec_.merge;
      view.width = tower_.width;
      view.heads = tower_.heads;
      view.seed = (seeds.empty() ? 0 : seeds[i]) + static_cast<uint64_t>(number);
      view.attention = attention;
      view.early = early;
      view.keys = keys.view();
      view.behind = behind.view();
      view.hidden = spec_.hidden_size;
      if (needs.rows) {
        view.rows = std::span(looked.rows)
                        .subspan(static_cast<size_t>(before * spec_.hidden_size),
                                 static_cast<size_t>(own_patches * spec_.hidden_size));
      }
      const float* class_hidden =
          has_class ? looked.hidden.data() + tile.first * tower_.width : nullptr;
      for (const SeenRow& row : see.Reduce(view)) {
        for (const auto& [patch, weight] : row.mix) {
          KVG_CHECK(patch < own_patches && (patch >= 0 || has_class),
                    "a stage shows what is not there");
        }
        places.push_back({number, row.place, row.apart});
        mixer.Append(row, before, class_hidden);
        for (RowMixer& layer : deep) layer.Append(row, before, class_hidden);
      }
      before += own_patches;
    }
    KVG_CHECK(!places.empty(), "a stage shows nothing of a picture");
    result_.pictures.push_back({count, std::ssize(places)});
    count += std::ssize(places);
  }
  for (size_t i = 0; i < deep.size(); ++i) result_.deepstack[i] = std::move(deep[i].mixed());
  if (one_each) {
    result_.rows =
        Fetch(Project(Send(VisionSlot::kFeatures, mixer.mixed(), {count, tower_.width})));
  } else {
    result_.rows = std::move(mixer.mixed());
  }
}

}  // namespace kvgauge
