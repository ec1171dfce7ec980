// SPDX-License-Identifier: Apache-2.0
// A trained gate says by how much an entry's worth shrinks with every token that follows.
//
// Paper: TRIM-KV, arXiv:2512.03324; after the authors' code (ngocbh/trimkv), its gate of the input
// of a layer's attention: two maps with a SiLU between them, and a sigmoid. The score is the log of
// what the gate gives, times the age of the entry. Needs the layers' inputs, in prefill and decode.
#include "core/strings.h"
#include "methods/mlp_gate.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class TrimKv final : public Scorer {
 public:
  explicit TrimKv(const Params& params)
      : gate_(std::make_shared<MlpGate>(params, MlpGate::Form{.name = "trimkv",
                                                              .inner = params.Int("inner"),
                                                              .activation = Activation::kSilu,
                                                              .log_sigmoid = true})) {}

  Needs needs() const override { return {.gates = {{gate_}}}; }
  bool ages() const override { return true; }
  int64_t numbers() const override { return 2; }

  void Use(std::shared_ptr<const Calibration> calibration) override {
    gate_->tables.Use(std::move(calibration));
  }
  Status Check(const ModelShape& shape) const override {
    return gate_->tables.Check(gate_->DimsOf(shape));
  }

  void Score(LayerView& view, Tensor out) const override {
    const Tensor numbers = view.Scratch(DType::kF32, {2, out.shape[0], view.width()});
    Start(view, numbers);
    Rank(view, numbers, out);
  }

  // What the gate gives, and the position.
  void Start(LayerView& view, Tensor numbers) const override {
    RowOps& ops = *view.ops().rows;
    ops.Convert(view.GateScores(*gate_), numbers[0]);
    for (int64_t h = 0; h < numbers.shape[1]; ++h) {
      const int64_t n = view.lengths()[static_cast<size_t>(h)];
      ops.Convert(view.Positions(h).Reshape({1, n}), numbers[1][h].Slice(0, n).Reshape({1, n}));
    }
  }

  void Age(LayerView& view, Tensor numbers) const override {
    RowOps& ops = *view.ops().rows;
    const Tensor newest = view.GateScores(*gate_);  // [kv_heads, 1]
    const auto position = static_cast<float>(view.tokens() - 1);
    for (int64_t h = 0; h < numbers.shape[1]; ++h) {
      const int64_t n = view.lengths()[static_cast<size_t>(h)];
      ops.Convert(newest.Slice(h, h + 1), Columns(numbers[0].Slice(h, h + 1), n - 1, n));
      ops.Fill(position, numbers[1][h].Slice(n - 1, n));
    }
  }

  void Rank(LayerView& view, const Tensor& numbers, Tensor out) const override {
    RowOps& ops = *view.ops().rows;
    ops.Affine(numbers[1], -1.0f, static_cast<float>(view.tokens() + 1), out);
    ops.Combine(out, numbers[0], Binary::kMultiply, out);
  }

 private:
  std::shared_ptr<MlpGate> gate_;
};

Result<Calibration::Tables> ImportRetention(const Calibration::Tables& published) {
  constexpr std::pair<const char*, const char*> kParts[] = {{"linear1.weight", "0.weight"},
                                                            {"linear1.bias", "0.bias"},
                                                            {"linear2.weight", "2.weight"},
                                                            {"bias", "2.bias"}};
  Calibration::Tables tables;
  for (int64_t layer = 0;; ++layer) {
    const std::string begin = StrCat("model.layers.", layer, ".self_attn.retention_gate.");
    if (layer > 0 && !published.contains(begin + "bias")) return tables;
    for (const auto& [theirs, ours] : kParts) {
      const auto found = published.find(begin + theirs);
      if (found == published.end()) {
        return BadInput(StrCat("has no tensor '", begin, theirs, "'"));
      }
      tables[MlpGate::Table(layer, ours)] = found->second;
    }
  }
}

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "trimkv",
    .paper = "arXiv:2512.03324",
    .summary = "entries by a trained gate that says how fast their worth decays",
    .departures = {"gates of keys and values (rg2, rg3) are left out"},
    .bytes =
        "4 bytes a weight of its gate, once a model; with a trigger in decode 8 bytes an entry for "
        "what the gate gave it and its position",
    .params = GateTables::Declare({IntParam("inner", 512, 1, 1 << 16,
                                            "numbers between the two maps of a gate")}),
    .make = Make<TrimKv>(),
    .calibrated_params = {"inner"},
    .import = ImportRetention,
});

}  // namespace
}  // namespace kvgauge
