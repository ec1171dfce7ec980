// SPDX-License-Identifier: Apache-2.0
// Stages that reduce pictures, where a row of a picture is made of rows of the tower. One row each:
// between the chosen layer and the projector. A square of rows each: behind the projector.
#include <algorithm>
#include <map>
#include <utility>

#include "methods/tensors.h"
#include "src/vision/pass.h"

namespace kvgauge {
namespace {

// The mean of the rows of each unit, `unit` rows of `table` [rows, width].
std::vector<float> MeanRows(const std::vector<float>& table, std::span<const int32_t> rows,
                            int64_t unit, int64_t width) {
  std::vector<float> out;
  out.reserve(rows.size() / static_cast<size_t>(unit) * static_cast<size_t>(width));
  for (size_t at = 0; at < rows.size(); at += static_cast<size_t>(unit)) {
    for (int64_t c = 0; c < width; ++c) {
      double sum = 0;
      for (int64_t i = 0; i < unit; ++i) {
        const int64_t row = rows[at + static_cast<size_t>(i)];
        sum += double{table[static_cast<size_t>(row * width + c)]};
      }
      out.push_back(static_cast<float>(sum / static_cast<double>(unit)));
    }
  }
  return out;
}

// A block's queries and keys of one tile, apart.
struct OwnKeys {
  std::vector<float> class_query, class_key, keys;

  // `table`: as of VisionPass::Keys. `rows`: of the tile's units; `class_row`, of keys and of a
  // query: -1 where there is none to see.
  OwnKeys(const std::vector<float>& table, std::span<const int32_t> rows, int64_t unit,
          int32_t class_row, int32_t query_row, int64_t width) {
    if (table.empty()) return;
    if (class_row >= 0) {
      class_query = MeanRows(table, {&query_row, 1}, 1, width);
      class_key = MeanRows(table, {&class_row, 1}, 1, width);
    }
    keys = MeanRows(table, rows, unit, width);
  }
  TileKeys view() const { return {class_query, keys, class_key}; }
};

// Sums of rows of one table as stages ask for them.
class RowMixer {
 public:
  RowMixer(const std::vector<float>& table, int64_t width) : table_(table), width_(width) {}

  void Append(const RowMix& mix) {
    std::vector<double> sum(static_cast<size_t>(width_));
    for (const auto& [row, weight] : mix) {
      const float* from = table_.data() + row * width_;
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
  std::vector<float> keys;                    // as of Keys, of the block that makes the features
  std::vector<std::vector<float>> attention;  // of the same block
  std::vector<float> behind;                  // keys of the one that reads the features
  Tensor projected;                           // squares, or where asked for
  std::vector<float> rows;                    // those, where asked for
};

// The parts of queries, keys and values that stages may ask for: the keys of all rows, then the
// queries of class tokens, tile after tile. [rows, width].
std::vector<float> VisionPass::Keys(const Tensor& qkv) {
  const int64_t width = tower_.width;
  std::vector<int32_t> classes;
  for (const RowRange& tile : plan_.slices) {
    if (tower_.class_token) classes.push_back(static_cast<int32_t>(tile.first));
  }
  const int64_t end = plan_.rows + std::ssize(classes);
  const Tensor seen = Take(VisionSlot::kSeen, DType::kF32, {end, width});
  ops_.rows->Convert(Columns(qkv, width, 2 * width), seen.Slice(0, plan_.rows));
  if (!classes.empty()) {
    GatherRows(Columns(qkv, 0, width), classes, seen.Slice(plan_.rows, end));
  }
  return Fetch(seen);
}

// The block has not run; `x` is what it would read.
std::vector<float> VisionPass::KeysOf(int64_t block, const Tensor& x) {
  const VisionBlock& w = weights_.blocks[static_cast<size_t>(block)];
  const Tensor normed = Take(VisionSlot::kNormed, dtype_, {plan_.rows, tower_.width});
  Apply(w.attention_norm, x, normed);
  const Tensor qkv = Take(VisionSlot::kProjected, DType::kF32, {plan_.rows, 3 * tower_.width});
  Multiply(normed, w.qkv, MatMulMode::kSet, qkv);
  return Keys(qkv);
}

VisionPass::Looked VisionPass::Look(const SeeNeeds& needs, const Tensor& x) {
  Looked looked;
  // The last block left its queries, keys and values there.
  if (needs.attention) looked.attention = AttentionOfTiles();
  if (needs.keys) {
    looked.keys = Keys(Take(VisionSlot::kProjected, DType::kF32, {plan_.rows, 3 * tower_.width}));
  }
  if (needs.behind) {
    KVG_CHECK(std::ssize(weights_.blocks) > tower_.run_layers,
              "a stage asks for a block that was not loaded");
    looked.behind = KeysOf(tower_.run_layers, x);
  }
  if (needs.rows || !OneRowEach(spec_)) looked.projected = Project(features_);
  if (needs.rows) looked.rows = Fetch(looked.projected);
  return looked;
}

std::vector<std::vector<float>> VisionPass::AttentionOfTiles() {
  const int64_t dim = tower_.width / tower_.heads, heads = tower_.heads;
  const Tensor qkv =
      Take(VisionSlot::kProjected, DType::kF32, {plan_.rows, 3 * tower_.width});  // as it was left
  int64_t count = 0;
  for (const RowRange& tile : plan_.slices) count += heads * tile.rows;
  const Tensor all = Take(VisionSlot::kReceived, DType::kF32, {count});
  int64_t at = 0;
  for (size_t i = 0; i < plan_.slices.size(); ++i) {
    const int64_t rows = plan_.slices[i].rows, begin = std::exchange(at, at + heads * rows);
    slices_->Received(i, tower_.class_token, HeadsAt(qkv, 0, heads, dim), log_sum_exp_,
                      all.Slice(begin, at).Reshape({heads, rows}));
  }
  const std::vector<float> fetched = Fetch(all.Reshape({1, count}));
  std::vector<std::vector<float>> of_tiles;
  auto from = fetched.begin();
  for (const RowRange& tile : plan_.slices) {
    const auto begin = std::exchange(from, from + heads * tile.rows);
    of_tiles.emplace_back(begin, from);
  }
  return of_tiles;
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

// Rows that are kept as they are stay on the device; the host gets the others'.
Tensor VisionPass::Shown(std::span<const RowMix> mixes, const Tensor& table, const Tensor& x,
                         const std::vector<float>& fetched) {
  const int64_t count = std::ssize(mixes), width = table.shape[1], own = table.shape[0];
  std::vector<int32_t> kept, mixed, named, of_class;  // rows of the table; of the result; ..
  std::map<int32_t, int32_t> place;                   // in `named`, then in `of_class`
  for (const RowMix& mix : mixes) {
    const bool keeps = mix.size() == 1 && mix[0].second == 1.0f && mix[0].first < own;
    kept.push_back(keeps ? mix[0].first : -1);
    if (keeps) continue;
    mixed.push_back(static_cast<int32_t>(kept.size()) - 1);
    for (const auto& [row, weight] : mix) place.emplace(row, 0);
  }
  const Tensor shown = Take(VisionSlot::kMerged, DType::kF32, {count, width});
  GatherRows(table, kept, shown);
  if (mixed.empty()) return shown;
  std::vector<float> seen = {};  // rows that are named
  if (fetched.empty()) {
    for (auto& [row, at] : place) {
      at = static_cast<int32_t>(named.size() + of_class.size());
      const bool is_class = row >= own;
      (is_class ? of_class : named).push_back(is_class ? row - static_cast<int32_t>(own) : row);
    }
    const int64_t end = std::ssize(place), begin = std::ssize(named);
    const Tensor rows = Take(VisionSlot::kSeen, DType::kF32, {end, width});
    if (begin > 0) GatherRows(table, named, rows.Slice(0, begin));
    if (begin < end) GatherRows(x, of_class, rows.Slice(begin, end));
    seen = Fetch(rows);
  }
  RowMixer mixer(fetched.empty() ? seen : fetched, width);
  for (const int32_t at : mixed) {
    RowMix mix = mixes[static_cast<size_t>(at)];
    for (auto& [row, weight] : mix) row = fetched.empty() ? place.at(row) : row;
    mixer.Append(mix);
  }
  const Tensor sums = Send(VisionSlot::kSeen, mixer.mixed(), {std::ssize(mixed), width});
  ops_.select->Scatter(sums, Send(VisionSlot::kIndex, mixed), shown);
  return shown;
}

void VisionPass::ReduceTiles(const See& see, std::span<const uint64_t> seeds, const Tensor& x) {
  const SeeNeeds needs = see.sees();
  const Looked looked = Look(needs, x);
  const int64_t unit = spec_.merge * spec_.merge;
  const bool one_each = OneRowEach(spec_) && !needs.mixes_shown;
  const bool has_class = one_each && tower_.class_token;
  const std::vector<int32_t> rows = RowsOfUnits();
  std::vector<RowMix> mixes;
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
      const auto query_row = static_cast<int32_t>(plan_.rows) + static_cast<int32_t>(slice);
      const OwnKeys keys(looked.keys, own, unit, class_row, query_row, tower_.width);
      const OwnKeys behind(looked.behind, own, unit, class_row, query_row, tower_.width);
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
      for (const SeenRow& row : see.Reduce(view)) {
        RowMix& mix = mixes.emplace_back();
        for (const auto& [patch, weight] : row.mix) {
          KVG_CHECK(patch < own_patches && (patch >= 0 || has_class),
                    "a stage shows what is not there");
          const int64_t from = patch >= 0 ? before + patch : features_.shape[0] + tile.first;
          mix.emplace_back(static_cast<int32_t>(from), weight);
        }
        places.push_back({number, row.place, row.apart});
      }
      before += own_patches;
    }
    KVG_CHECK(!places.empty(), "a stage shows nothing of a picture");
    result_.pictures.push_back({count, std::ssize(places)});
    count += std::ssize(places);
  }
  const std::vector<Buffer> memory = std::exchange(result_.memory, {});
  for (const Tensor& layer : std::exchange(result_.deepstack, {})) {
    KeepDeep(Shown(mixes, layer, x, {}));
  }
  result_.rows = one_each ? Project(Shown(mixes, features_, x, {}))
                          : Shown(mixes, looked.projected, x, looked.rows);
}

}  // namespace kvgauge
