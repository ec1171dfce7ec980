// SPDX-License-Identifier: Apache-2.0
// Weights between a checkpoint and the model, where a Prepare stage may change them.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "methods/stages.h"
#include "runner/kv_basis.h"
#include "runner/model.h"
#include "src/checkpoint/weights_common.h"
#include "src/model/model_tensors.h"

namespace kvgauge {

// Transform, then Finish; from then on a source of the changed weights for the changed config.
class PreparedWeights final : public WeightView, public WeightSource, public RoundedInputs {
 public:
  // `source` outlives this and has passed CheckWeights.
  PreparedWeights(const ModelConfig& config, DType dtype, ModelTensors tensors,
                  const WeightSource& source, Ops& ops);

  const ModelShape& shape() const override { return shape_; }
  Ops& ops() const override { return *ops_; }
  // Valid until weights of another layer are read.
  Result<Tensor> Read(int64_t layer, Matrix matrix) override;
  Status Write(int64_t layer, Matrix matrix, const Tensor& weights) override;
  Result<Tensor> ReadBias(int64_t layer, Matrix matrix) override;
  Status WriteBias(int64_t layer, Matrix matrix, const Tensor& bias) override;
  Status SetHeads(int64_t query_heads, int64_t kv_heads) override;
  Status ShareCaches(std::span<const int64_t> reads) override;
  Status MeanEntries(const EntryMeans& means) override;
  Status WriteBasis(int64_t layer, KvSide side, int64_t first_head, int64_t heads,
                    const Tensor& basis) override;

  Status Finish();
  const ModelConfig& config() const { return config_; }
  KvBases TakeBases() { return std::move(bases_); }

  std::vector<std::string> Names() const override { return source_->Names(); }
  bool Contains(const std::string& name) const override { return source_->Contains(name); }
  Result<WeightTensor> Get(const std::string& name) const override;
  Result<WeightInfo> Describe(const std::string& name) const override;
  // Changed matrices have none.
  Result<std::optional<WeightBlocks>> GetBlocks(const std::string& name) const override;
  // The file tells this of its matrices, also where they were changed.
  Result<std::optional<RowRounding>> InputsOf(const std::string& name) const override {
    const RoundedInputs* inputs = RoundedInputs::Of(*source_);
    if (inputs == nullptr) return std::optional<RowRounding>();
    return inputs->InputsOf(name);
  }
  void Release(const std::string& name) const override { source_->Release(name); }
  std::string OriginOf(const std::string& name) const override { return source_->OriginOf(name); }
  std::string Fingerprint() const override { return source_->Fingerprint(); }

 private:
  // Where a matrix lies in the checkpoint: rows of a stored one.
  struct Place {
    TensorSpec weight;
    TensorSpec bias;  // no name: none
    std::vector<RowSpan> ranges;
    int64_t rows = 0;  // of all of them
  };
  struct Key {
    int64_t layer;
    Matrix matrix;
    bool bias;
    auto operator<=>(const Key&) const = default;
  };

  // `layer` counts those that have a cache in the checkpoint.
  Result<Place> PlaceOf(int64_t layer, Matrix matrix) const;
  int64_t RowsAfter(Matrix matrix) const;
  int64_t ColumnsAfter(Matrix matrix) const;
  Status CheckMayWrite(int64_t layer, Matrix matrix) const;
  Result<Tensor> ReadRows(int64_t layer, const TensorSpec& spec, const Place& place);
  Status Keep(const Key& key, const Tensor& values);
  // The numbers of a matrix or bias as they are to be stored.
  Result<std::vector<float>> ValuesOf(const Key& key, const TensorSpec& spec, const Place& place);
  Status FinishLayer(int64_t layer, bool bias);

  ModelConfig before_, config_;
  ModelTensors tensors_;
  const WeightSource* source_;
  Ops* ops_;
  ModelShape shape_;
  std::map<Key, std::vector<float>> written_;
  std::map<std::string, std::pair<std::vector<float>, std::vector<int64_t>>> changed_;
  KvBases bases_;
  int64_t read_layer_ = -1;
  std::vector<Buffer> read_;
};

}  // namespace kvgauge
