// SPDX-License-Identifier: Apache-2.0
// One batch of pictures through the tower and the projector.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "src/vision/attention.h"
#include "src/vision/places.h"
#include "src/vision/weights.h"

namespace kvgauge {

// A row that is shown: rows and their weights.
using RowMix = std::vector<std::pair<int32_t, float>>;

// A row of a picture that a stage left.
struct SeenPlace {
  int32_t tile = 0;   // of the picture, or its time
  int32_t patch = 0;  // of the tile; SeenRow::kNowhere: none
  bool apart = false;
};

// Rows of the text model's width, where the tower made them.
struct ProjectedRows {
  // [of all pictures, hidden_size]; the next pass overwrites them.
  Tensor rows;
  std::vector<RowRange> pictures;  // which are whose
  std::vector<Tensor> deepstack;   // the same rows, each
  std::vector<Buffer> memory;      // of those
  // Where a stage reduced them: of each picture, what each row is; else empty.
  std::vector<std::vector<SeenPlace>> places;
};

// Whether a row of the text model is one row of the tower, projected.
bool OneRowEach(const VisionSpec& spec);
// Whether a stage of such needs reduces tiles of the tower; else it keeps some of the finished
// rows.
bool ReducesTiles(const VisionSpec& spec, const SeeNeeds& needs);

// `count` heads of width `dim` from column `first` of x [rows, columns] on.
Tensor HeadsAt(const Tensor& x, int64_t first, int64_t count, int64_t dim);

class VisionPass {
 public:
  VisionPass(const VisionSpec& spec, DType dtype, Ops& ops, VisionWeights& weights,
             std::span<const PixelValues* const> pixels, Modality modality);

  // `see` reduces pictures where their rows are those of the tower; `seeds`: of each picture.
  ProjectedRows Run(VisionTrace* trace, const See* see, std::span<const uint64_t> seeds);
  // out[i] = rows[order[i]], or the newline where that is -1. All of the text model's width.
  void PutInOrder(const Tensor& rows, std::span<const int32_t> order, Tensor out);

 private:
  Tensor Take(VisionSlot slot, DType dtype, std::initializer_list<int64_t> dims);
  // A copy on the device.
  Tensor Send(VisionSlot slot, std::span<const int32_t> values);
  Tensor Send(VisionSlot slot, std::span<const float> values, std::initializer_list<int64_t> dims);
  std::vector<float> Fetch(const Tensor& rows);
  void Apply(const Norm& norm, const Tensor& x, Tensor out);
  void Multiply(const Tensor& x, const Linear& linear, MatMulMode mode, Tensor out);
  // Rows of `source` as `out` [index.size(), width]; out may be strided.
  void GatherRows(const Tensor& source, std::span<const int32_t> index, Tensor out);

  Tensor Embed();
  void AddPlaces(Tensor x);
  void MakeRopeTables();
  void Block(int64_t index, Tensor x);
  // out = x + scale * branch, where there is a scale.
  void AddBranch(const Tensor& input, const Linear& linear, const Norm& scale, Tensor x);
  void TakeFeatures(int64_t layer, const Tensor& x);
  void Record(const Tensor& x, VisionTrace* trace);
  // What a stage asked for, of all tiles of the batch.
  struct Looked;
  Looked Look(const SeeNeeds& needs, const Tensor& x);
  std::vector<float> Keys(const Tensor& qkv);
  std::vector<float> KeysOf(int64_t block, const Tensor& x);
  // How much attention each row of a tile got in the block that ran last: from the class token, or
  // from all of them on average. A tile's is [heads, rows of the tile].
  std::vector<std::vector<float>> AttentionOfTiles();
  // Rows of the batch that become one row each, side by side, in the order of the pixels.
  std::vector<int32_t> RowsOfUnits() const;
  void ReduceTiles(const See& see, std::span<const uint64_t> seeds, const Tensor& x);
  // What a stage shows, as rows on the device: mixes of rows of `table` and, behind them, of `x`.
  // `fetched`: the table, where the host has it already.
  Tensor Shown(std::span<const RowMix> mixes, const Tensor& table, const Tensor& x,
               const std::vector<float>& fetched);
  void KeepDeep(const Tensor& rows);

  // Mean or largest of squares of `stride` rows and columns of each tile.
  Tensor Pool(const Tensor& features, int64_t stride, bool largest);
  // Squares of merge x merge rows side by side.
  Tensor SideBySide(const Tensor& features);
  Tensor Project(const Tensor& features);
  Tensor Merge(const MergerWeights& merger, bool norm_merged, const Tensor& x);
  // Merged rows in the order of the pixels.
  Tensor InOrder(const Tensor& merged);

  const VisionSpec& spec_;
  const TowerSpec& tower_;
  DType dtype_;
  Ops& ops_;
  VisionWeights& weights_;
  std::span<const PixelValues* const> pixels_;
  Modality modality_;
  RowPlan plan_;
  std::optional<SegmentAttention> slices_, windows_;
  Tensor cos_, sin_;
  bool shows_attention_ = false;           // a stage asks for that of the last block
  int64_t early_block_ = -1;               // and for that of this one; -1: of no other
  std::vector<std::vector<float>> early_;  // each tile's, as of AttentionOfTiles
  Tensor log_sum_exp_;                     // of a block that a stage asks for
  Tensor features_;                        // of the layers that are read, as far as they are known
  ProjectedRows result_;
};

}  // namespace kvgauge
