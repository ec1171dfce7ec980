// SPDX-License-Identifier: Apache-2.0
// Heads that look far back stay whole; all others hold the first and the last entries alone.
//
// Paper: DuoAttention, arXiv:2410.10819. Needs a calibration, or mean queries and keys before
// rotation of the prompt itself. The reference learns a gate for each head. Where that is not at
// hand, kvpress tells heads apart by their mean query and mean key: both at all of 500 positions,
// the last query's attention to the keys, and the area under its sum from the first position on; a
// KV head has the mean over its query heads, and over the texts. Heads with the largest are
// retrieval heads. A table of learned gates does as well: a side-file is only a number for each
// head. A streaming head holds `streaming` entries; with the scorer recency and first entries
// protected.
#include <algorithm>
#include <numeric>
#include <string>

#include "core/strings.h"
#include "methods/attention.h"
#include "methods/head_numbers.h"
#include "methods/registry.h"
#include "methods/tensors.h"
#include "methods/whole_heads.h"

namespace kvgauge {
namespace {

constexpr int64_t kPositions = 500;

Needs Signals() { return {.query_moments = {0}, .raw_keys = true}; }

// How much each KV head of a layer looks far back, 0 to 1.
std::vector<float> Reaches(LayerView& view) {
  Ops& ops = view.ops();
  const ModelShape& shape = view.shape();
  const int64_t dim = shape.key_dim, group = shape.group(), n = kPositions;
  const Tensor rotations = view.Rotations(0, n), queries = view.QueryMean(0);
  // Attention to a position counts by how many positions are not before it.
  std::vector<float> areas;
  for (int64_t i = 0; i < n; ++i) {
    areas.push_back(static_cast<float>(n - i) / static_cast<float>(n));
  }
  const Tensor ramp = Upload(view, std::span<const float>(areas)).Reshape({1, 1, n});
  const Tensor same = view.Scratch(DType::kI32, {n});  // zeros
  const Tensor mean = view.Scratch(DType::kF32, {1, dim});
  const Tensor keys = view.Scratch(DType::kF32, {n, dim});
  const Tensor query = view.Scratch(DType::kF32, {group, dim});
  const Tensor attention = view.Scratch(DType::kF32, {group, n});
  const Tensor reached = view.Scratch(DType::kF32, {group, 1});
  const Tensor reaches = view.Scratch(DType::kF32, {shape.kv_heads});
  for (int64_t h = 0; h < shape.kv_heads; ++h) {
    ops.rows->ReduceColumns(view.RawKeys(h), Reduction::kMean, mean[0]);
    ops.select->Gather(mean, same, keys);
    ops.rows->Rope(rotations[0], rotations[1], shape.rope_layout, RopeDirection::kForward,
                   keys.Reshape({n, 1, dim}));
    ops.rows->Convert(queries.Slice(h * group, (h + 1) * group), query);
    ops.rows->Rope(rotations[0].Slice(n - 1, n), rotations[1].Slice(n - 1, n), shape.rope_layout,
                   RopeDirection::kForward, query.Reshape({1, group, dim}));
    ops.linear->MatMulNT(query.Reshape({1, group, dim}), keys.Reshape({1, n, dim}), 1.0f,
                         attention.Reshape({1, group, n}));
    SoftmaxOfProducts(view, attention, attention);
    ops.linear->MatMulNT(attention.Reshape({1, group, n}), ramp, 1.0f,
                         reached.Reshape({1, group, 1}));
    ops.rows->ReduceColumns(reached, Reduction::kMean, reaches.Slice(h, h + 1));
  }
  return Fetch(ops, reaches);
}

class Duo final : public Allocator {
 public:
  explicit Duo(const Params& params)
      : streaming_(params.Int("streaming")), learned_(!params.Text(kCalibrationParam).empty()) {}

  Needs needs() const override { return learned_ ? Needs{} : Signals(); }

  void Use(std::shared_ptr<const Calibration> calibration) override {
    calibration_ = std::move(calibration);
  }

  Status Check(const ModelShape& shape) const override {
    if (calibration_ != nullptr) {
      const Result<std::vector<float>> gates = HeadNumbers(*calibration_, shape);
      return gates.ok() ? Status() : gates.error();
    }
    if (shape.rotary_dim == 0 || shape.latent_dim > 0) {
      return BadInput(
          "tells heads by how their queries and keys turn, and those of this model do not, or in "
          "part; give a calibration with a number for each head");
    }
    return {};
  }

  Status CheckBudget(const AllocationInput& input) const override {
    return CheckHoldWhole(input, streaming_);
  }

  Result<Allocation> Allocate(const AllocationInput& input) const override {
    return HoldWhole(input, streaming_, [&] { return Gates(input); });
  }

 private:
  // [layers * kv_heads]
  std::vector<float> Gates(const AllocationInput& input) const {
    if (calibration_ != nullptr) {
      const Result<std::vector<float>> learned = HeadNumbers(*calibration_, *input.shape);
      KVG_CHECK(learned.ok(), "a calibration that was not checked");
      return *learned;
    }
    std::vector<float> gates;
    for (LayerView* view : input.views) {
      const std::vector<float> reaches = Reaches(*view);
      gates.insert(gates.end(), reaches.begin(), reaches.end());
    }
    return gates;
  }

  int64_t streaming_;
  bool learned_;
  std::shared_ptr<const Calibration> calibration_;
};

class DuoCalibrator final : public Calibrator {
 public:
  DuoCalibrator(const Params&, const ModelShape& shape, std::span<const int64_t> lengths)
      : means_(shape, std::ssize(lengths)) {}

  Needs needs(int) const override { return Signals(); }

  void Observe(int, LayerView& view) override {
    const std::vector<float> reaches = Reaches(view);
    for (int64_t h = 0; h < std::ssize(reaches); ++h) {
      means_.Add(view.layer(), h, double{reaches[static_cast<size_t>(h)]});
    }
  }

  Calibration::Tables Finish(Ops&) override { return means_.ToTables(); }

 private:
  HeadMeans means_;
};

// The released full_attention_heads.tsv: a row for each layer, a number for each KV head.
Result<Calibration::Tables> ImportGates(const Calibration::Tables& published) {
  const auto found = published.find("values");
  if (found == published.end()) {
    return BadInput("has no rows of numbers; expected full_attention_heads.tsv");
  }
  Calibration::Tables tables;
  tables["heads"] = found->second;
  return tables;
}

KVG_REGISTER_STAGE({
    .kind = StageKind::kAllocate,
    .id = "duo",
    .paper = "arXiv:2410.10819",
    .summary = "heads that look far back stay whole, others hold first and last entries alone",
    .departures =
        {"heads are told apart by mean queries and keys, as kvpress does where gates were "
         "not learned; a side-file may hold learned ones",
         "as many heads stay whole as the budget allows; what is left over stays unspent",
         "streaming heads keep what is decoded, and the prompt is read in full"},
    .params = {IntParam("streaming", 384, 1, 1 << 20, "entries that a streaming head holds"),
               CalibrationParam()},
    .make = Make<Duo>(),
    .calibrate = MakeCalibrator<DuoCalibrator>,
    .import = ImportGates,
});

}  // namespace
}  // namespace kvgauge
