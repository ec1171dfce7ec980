// SPDX-License-Identifier: Apache-2.0
// From stored tensors to the forms that products and norms take, each checked for numbers that are
// not finite.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "kernels/block_products.h"
#include "kernels/rounded_products.h"
#include "src/model/model_tensors.h"
#include "src/model/weights_set.h"

namespace kvgauge {

// Whether the tensor is there, of its shape and of a float type, without reading it.
Status CheckStoredTensor(const TensorSpec& spec, const WeightSource& source);

class WeightLoader {
 public:
  // keep_blocks: matrices that lie in blocks stay so where the backend's products can read them.
  // product_rows: what they are multiplied by.
  WeightLoader(const WeightSource& source, DType dtype, Ops& ops, bool keep_blocks = false,
               ProductRows product_rows = ProductRows::kRounded)
      : source_(source),
        dtype_(dtype),
        ops_(ops),
        products_(BlockProducts::Of(*ops.linear)),
        keep_blocks_(keep_blocks),
        product_rows_(product_rows) {}

  Status Load(const TensorSpec& spec, WeightTensor& out);
  // A stored matrix may have more dimensions than two: they are columns (the weights of a
  // convolution that takes each patch once).
  Status Load(const LinearSpec& spec, Linear& out, std::optional<DType> store = std::nullopt);
  // The one part is stored as [in, out].
  Status LoadTransposed(const LinearSpec& spec, Linear& out);
  Status Load(const NormSpec& spec, Norm& out);
  // A tensor of one number; nothing where it has no name.
  Status LoadNumber(const TensorSpec& spec, float* out);
  Status Load(const MlpSpec& spec, MlpWeights& out);
  Status Load(const std::vector<LinearSpec>& specs, std::vector<Linear>& out);
  Status Load(const LayerStreamSpec& spec, StreamWeights& out);
  Status Load(const StateSpec& spec, const StateConfig& state, StateWeights& out);
  Status Load(const std::vector<MixedSpec>& specs, std::vector<MixedWeights>& out);
  Status Load(const MixedSpec& spec, MixedWeights& out);
  // RWKV-6: what makes the mixes of so many columns, each apart.
  Status LoadMixes(const MixesSpec& spec, int64_t columns, int64_t rank,
                   std::span<MixedWeights* const> out);
  Status Load(const MadeKeysSpec& spec, const StateConfig& state, LayerWeights& out);
  Status LoadRetention(const StateSpec& spec, const StateConfig& state, StateWeights& out);
  Status LoadRwkv(const StateSpec& spec, const StateConfig& state, StateWeights& out);
  Status LoadSelection(const StateSpec& spec, const StateConfig& state, StateWeights& out);
  // A vector that decides rather than computes: as stored, whatever the model's dtype.
  Status LoadUnrounded(const TensorSpec& spec, Norm& out);
  // Rows stay as the file has them when they may be read in place.
  Status LoadTable(const TensorSpec& spec, Table& out);
  // The up projection of MLA, head by head: its key part transposed, its value part as it is.
  Status LoadAbsorbed(const TensorSpec& up, const MlaConfig& mla, int64_t value_dim,
                      LayerWeights& out);
  // Keys and values of each head apart, keys transposed.
  Status Load(const CrossSpec& spec, int64_t kv_heads, CrossWeights& out);
  // All numbers of a tensor on the host, rounded to the model's dtype. Not counted in bytes().
  Status LoadNumbers(const TensorSpec& spec, std::vector<float>& out) {
    return LoadNumbers(spec, dtype_, out);
  }
  // The experts of a layer as sets.
  void Collect(LayerWeights& out);

  int64_t bytes() const { return bytes_; }  // held of all that was loaded
  // Matrices and tables that stayed in blocks have these of them.
  int64_t block_bytes() const { return block_bytes_; }

 private:
  // Rows that come to the matrix are rounded as the file says, where it is loaded for that.
  Status RoundInputs(const LinearSpec& spec, PackedMatrix& matrix) const;
  // The first number that is not finite is an error.
  Status CheckFinite(const TensorSpec& spec, const Tensor& numbers) const;
  Status LoadNumbers(const TensorSpec& spec, DType rounded, std::vector<float>& out);
  void PackNumbers(const std::vector<float>& numbers, int64_t rows, int64_t columns, Linear& out);
  void PutRowBefore(int64_t columns, Norm& out);
  // Numbers of the host as a vector of the device.
  void Put(const std::vector<float>& numbers, Norm& out);
  // Norm weights and biases are few: kept f32, but rounded to the model's dtype like all weights.
  Status LoadVector(const TensorSpec& spec, Tensor out, float added = 0.0f);
  // The blocks of a matrix; nothing where it has none, where they are not kept, or where a scale
  // may make numbers that are not finite: then Load of the numbers says which.
  Result<std::optional<WeightBlocks>> SureBlocksOf(const TensorSpec& spec) const;
  // The same without a look at the scales; also where the numbers that the source makes of them are
  // those that a product makes.
  Result<std::optional<WeightBlocks>> BlocksOf(const TensorSpec& spec) const;
  bool SureOf(const WeightBlocks& blocks, int64_t columns) const;
  // A part of a matrix as it is packed: in blocks, or floats.
  struct StoredPart {
    std::optional<WeightBlocks> blocks;
    WeightTensor floats;
  };
  // Whether all numbers of the parts were seen to be finite; those of rows that `spec` leaves out
  // are never seen.
  bool PackParts(const LinearSpec& spec, std::span<const StoredPart> parts, DType type,
                 Linear& out) const;
  // Packed parts are in memory twice until the file's pages go.
  void Release(const LinearSpec& spec);
  Status LoadBiases(const LinearSpec& spec, Linear& out);
  // Moves the biases of all experts into one matrix.
  void CollectBiases(std::vector<MlpWeights>& experts, Linear MlpWeights::*part, Norm& out);

  const WeightSource& source_;
  DType dtype_;
  Ops& ops_;
  BlockProducts* products_;  // null: blocks are dequantised before they are packed
  bool keep_blocks_;
  ProductRows product_rows_;
  int64_t bytes_ = 0, block_bytes_ = 0;
};

}  // namespace kvgauge
