// SPDX-License-Identifier: Apache-2.0
// Inputs of attention as latents of all heads: attention rebuilds keys and values from them.
#include "methods/layouts/layer_inputs.h"

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "methods/tensors.h"
#include "src/cache/layouts/coded.h"

namespace kvgauge {
namespace {

class LayerInputsLayer final : public CodedLayer {
 public:
  std::string_view id() const override { return LayerInputs::kId; }
  std::unique_ptr<LayerLayout> Fork() const override {
    auto fork = std::make_unique<LayerInputsLayer>(*this);
    fork->fresh_ = {};  // rows of a pass are this sequence's alone
    fork->memory_.reset();
    return fork;
  }

  Status Use(const StoreLayout& plan, const LayerEntries& entries) override {
    projections_ = entries.bases;
    LayerInputs own = static_cast<const LayerInputs&>(plan);
    inputs_ = std::exchange(own.inputs, {});
    // The 1 that a bias needs is a group of its own, which codes keep as it is.
    if (!projections_[0].empty()) own.keys.dim = projections_[0][0].shape[1];
    return CodedLayer::Use(own, entries);
  }
  Status Take(std::string_view& in, const LayerEntries& entries) override {
    projections_ = entries.bases;
    return CodedLayer::Take(in, entries);
  }

  Status Check(const LayerEntries& entries) const override {
    if (entries.setup->mla) {
      return Unsupported("layer_inputs: the model's own latent attention keeps its keys rotated");
    }
    for (const std::vector<Tensor>& side : projections_) {
      if (side.size() == 1 && side[0].shape[1] == projections_[0][0].shape[1]) continue;
      return BadInput(
          "layer_inputs: no projection of all heads was written for this layer; "
          "prepare.projections "
          "does that");
    }
    return CodedLayer::Check(entries);
  }

  bool wants_raw_keys(const LayerEntries&) const override { return true; }
  bool stores_inputs() const override { return true; }
  int64_t owners(const LayerEntries&, KvSide side) const override {
    return side == KvSide::kKeys ? 1 : 0;
  }
  int64_t dim(const LayerEntries&, KvSide, int64_t) const override {
    return projections_[0][0].shape[1];
  }
  bool transforms(KvSide) const override { return true; }
  bool rounds() const override { return true; }

  void TakeInputs(const LayerEntries& entries, const Tensor& inputs) override {
    const int64_t rows = inputs.shape[0], width = dim(entries, KvSide::kKeys, 0);
    const int64_t bytes = rows * width * SizeOf(DType::kF32);
    if (memory_ == nullptr || memory_->size_bytes() < bytes) {
      memory_ = std::make_shared<Buffer>(entries.ops().memory->Allocate(bytes));
    }
    fresh_ = memory_->As(DType::kF32, {rows, width});
    Store(entries, inputs, fresh_);
  }
  Tensor Transformed(const LayerEntries&, KvSide, int64_t, const Tensor& rows,
                     Buffer*) const override {
    KVG_CHECK(!fresh_.empty() && fresh_.shape[0] == rows.shape[0],
              "layer_inputs: rows are written whose inputs did not come");
    return fresh_;
  }

  Status Convert(LayerEntries& entries, std::span<const LayerPair> below) override;
  void Read(const LayerEntries& entries, KvSide side, int64_t head, int64_t first,
            Tensor rows) const override;
  void Describe(const LayerEntries& entries, std::span<KvSegment> segments) const override;
  void AddBytes(const LayerEntries& entries, KvBytes& bytes) const override {
    CodedLayer::AddBytes(entries, bytes);
    for (const std::vector<Tensor>& side : projections_) bytes.projections += side[0].SizeBytes();
  }

 private:
  // As they are held: with a 1 behind them where a projection has a bias.
  static void Store(const LayerEntries& entries, const Tensor& inputs, const Tensor& held) {
    if (held.shape[1] > inputs.shape[1]) entries.ops().rows->Fill(1.0f, held);
    entries.ops().rows->Convert(inputs, Columns(held, 0, inputs.shape[1]));
  }
  // [dim, hidden_size] of a head, or one column more.
  Tensor ProjectionOf(const LayerEntries& entries, KvSide side, int64_t head) const {
    const int64_t width = entries.HeadDim(side);
    return projections_[static_cast<size_t>(side)][0].Slice(head * width, (head + 1) * width);
  }

  std::array<std::vector<Tensor>, 2> projections_;  // by side, of the model
  Tensor inputs_;                                   // of the plan, until Convert
  Tensor fresh_;                                    // of the rows that are written next
  std::shared_ptr<Buffer> memory_;                  // of these
};

// Values are in the stream of the keys from here on.
Status LayerInputsLayer::Convert(LayerEntries& entries, std::span<const LayerPair> below) {
  auto setup = std::make_shared<LayerSetup>(*entries.setup);
  setup->values_in_keys = true;
  entries.setup = std::move(setup);
  const Tensor inputs = std::exchange(inputs_, {});
  const int64_t held = entries.width(), there = inputs.empty() ? 0 : inputs.shape[0];
  for (const HeadEntries& head : entries.heads) {
    if (head.length == there) continue;
    return Unsupported(StrCat("layer_inputs: a KV head holds ", held,
                              " entries, and the inputs of ", there, " rows were seen"));
  }
  if (held > 0) {
    const int64_t width = dim(entries, KvSide::kKeys, 0);
    const Buffer memory = entries.ops().memory->Allocate(held * width * SizeOf(DType::kF32));
    const Tensor rows = memory.As(DType::kF32, {held, width});
    Store(entries, inputs, rows);
    KVG_TRY(entries.parts[0].keys[0].Append(rows));
  }
  return CodedLayer::Convert(entries, below);
}

void LayerInputsLayer::Read(const LayerEntries& entries, KvSide side, int64_t head, int64_t first,
                            Tensor rows) const {
  Ops& ops = entries.ops();
  const Tensor projection = ProjectionOf(entries, side, head);
  const int64_t n = rows.shape[0], width = rows.shape[1], hidden = projection.shape[1];
  const Buffer memory = ops.memory->Allocate(n * hidden * SizeOf(DType::kF32));
  const Tensor held = memory.As(DType::kF32, {n, hidden});
  entries.ReadStream(KvSide::kKeys, 0, first, held);
  ops.linear->MatMulNT(held.Reshape({1, n, hidden}), projection.Reshape({1, width, hidden}), 1.0f,
                       rows.Reshape({1, n, width}));
}

void LayerInputsLayer::Describe(const LayerEntries& entries, std::span<KvSegment> segments) const {
  const size_t parts = entries.parts.size();
  for (size_t at = 0; at < segments.size(); ++at) {
    const auto head = static_cast<int64_t>(at / parts);
    segments[at].key_basis = ProjectionOf(entries, KvSide::kKeys, head);
    segments[at].value_basis = ProjectionOf(entries, KvSide::kValues, head);
  }
}

}  // namespace
KVG_REGISTER_LAYOUT(layer_inputs, LayerInputs, LayerInputsLayer)
}  // namespace kvgauge
