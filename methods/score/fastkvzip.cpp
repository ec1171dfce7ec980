// SPDX-License-Identifier: Apache-2.0
// KVzip's score, predicted by a gate of low-rank queries and keys: how much an entry's own query
// finds in its own key, against keys that every entry is held against.
//
// Paper: Fast KVzip, arXiv:2601.17668; after kvpress's FastKVzipPress. Needs the layers' inputs and
// trained weights. For each query head q and KV head k of `dim` numbers, both normed: the score is
// 1 / (1 + sum over sinks of exp(sink . q / sqrt(dim) - (k . q / sqrt(dim) + b))), averaged over
// the query heads of the KV head.
#include <cmath>
#include <utility>

#include "core/strings.h"
#include "methods/gate_scorer.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

constexpr float kGateNormEpsilon = 1e-6f;
constexpr float kMostGateExponent = 80;  // beyond it exp is infinite

std::string FastTable(int64_t layer, std::string_view part) { return StrCat(layer, ".", part); }

class FastGate final : public Gate {
 public:
  explicit FastGate(const Params& params)
      : tables(params), dim_(params.Int("dim")), sinks_(params.Int("sinks")) {}

  std::string key() const override {
    return StrCat("fastkvzip.", dim_, ".", sinks_, ".", tables.key());
  }

  GateTables::Dims DimsOf(const ModelShape& shape) const {
    GateTables::Dims dims;
    const int64_t hidden = shape.hidden_size, heads = shape.kv_heads, group = shape.group();
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
      dims[FastTable(layer, "q_proj.weight")] = {heads * group * dim_, hidden};
      dims[FastTable(layer, "q_proj.bias")] = {heads * group * dim_};
      dims[FastTable(layer, "k_proj.weight")] = {heads * dim_, hidden};
      dims[FastTable(layer, "q_norm.weight")] = {dim_};
      dims[FastTable(layer, "k_norm.weight")] = {dim_};
      dims[FastTable(layer, "k_base")] = {heads, 1, sinks_, dim_};
      dims[FastTable(layer, "b")] = {heads, 1, group};
    }
    return dims;
  }

  std::unique_ptr<LoadedGate> Load(const ModelShape& shape, Ops& ops) const override;
  int64_t PlannedBytes(const ModelShape& shape) const override {
    return GateTables::Bytes(DimsOf(shape));
  }

  GateTables tables;

 private:
  const int64_t dim_, sinks_;
};

class LoadedFast final : public LoadedGate {
 public:
  LoadedFast(const ModelShape& shape, int64_t dim, int64_t sinks, Ops& ops)
      : heads_(shape.kv_heads), group_(shape.group()), dim_(dim), sinks_(sinks), ops_(ops) {}

  using Tables = std::map<std::string, std::vector<float>>;
  void Add(const Tables& tables, int64_t hidden) {
    Layer& layer = layers_.emplace_back();
    const auto pack = [&](const std::string& name, int64_t out) {
      const Tensor rows = View(tables.at(name), {out, hidden});
      bytes_ += out * hidden * 4;
      return ops_.linear->Pack({&rows, 1}, DType::kF32);
    };
    const auto load = [&](const std::string& name) {
      const std::vector<float>& values = tables.at(name);
      const int64_t count = std::ssize(values);
      Buffer memory = ops_.memory->Allocate(count * 4);
      ops_.memory->Copy(View(values, {count}), memory.As(DType::kF32, {count}));
      bytes_ += count * 4;
      return memory;
    };
    layer.q = pack("q_proj.weight", heads_ * group_ * dim_);
    layer.k = pack("k_proj.weight", heads_ * dim_);
    layer.q_bias = load("q_proj.bias");
    layer.q_norm = load("q_norm.weight");
    layer.k_norm = load("k_norm.weight");
    layer.base = load("k_base");
    layer.shift = tables.at("b");
    bytes_ += std::ssize(layer.shift) * 4;
  }

  void Fold(int64_t index, const Tensor& x, Tensor out) override {
    const Layer& layer = layers_[static_cast<size_t>(index)];
    RowOps& ops = *ops_.rows;
    const int64_t rows = x.shape[0], per_head = group_ * dim_, wide = heads_ * per_head;
    const int64_t numbers = rows * (wide + heads_ * dim_ + 3 * dim_ + sinks_ + 3);
    if (work_.size_bytes() < numbers * 4) work_ = ops_.memory->Allocate(numbers * 4);
    const Tensor work = work_.As(DType::kF32, {numbers});
    int64_t taken = 0;
    const auto take = [&](int64_t width) {
      taken += rows * width;
      return work.Slice(taken - rows * width, taken).Reshape({rows, width});
    };
    const Tensor q = take(wide), k = take(heads_ * dim_), own_q = take(dim_), own_k = take(dim_);
    const Tensor product = take(dim_), base = take(sinks_);
    const Tensor logit = take(1).Reshape({1, rows}), sum = take(1).Reshape({1, rows});
    const Tensor total = take(1).Reshape({1, rows});
    ops_.linear->MatMul(x, *layer.q, layer.q_bias.As(DType::kF32, {wide}), MatMulMode::kSet, q);
    ops_.linear->MatMul(x, *layer.k, {}, MatMulMode::kSet, k);
    const Tensor all_q = q.Reshape({rows * heads_ * group_, dim_});
    const Tensor all_k = k.Reshape({rows * heads_, dim_});
    ops.RmsNorm(all_q, layer.q_norm.As(DType::kF32, {dim_}), 0.0f, kGateNormEpsilon, all_q);
    ops.RmsNorm(all_k, layer.k_norm.As(DType::kF32, {dim_}), 0.0f, kGateNormEpsilon, all_k);
    const float scale = 1.0f / std::sqrt(static_cast<float>(dim_));
    const Tensor sinks = layer.base.As(DType::kF32, {heads_, sinks_, dim_});
    for (int64_t h = 0; h < heads_; ++h) {
      ops.Convert(Columns(k, h * dim_, (h + 1) * dim_), own_k);
      ops.Fill(0.0f, total);
      for (int64_t g = 0; g < group_; ++g) {
        const int64_t at = h * per_head + g * dim_;
        ops.Convert(Columns(q, at, at + dim_), own_q);
        ops.Combine(own_q, own_k, Binary::kMultiply, product);
        ops.ReduceRows(product, Reduction::kSum, logit[0]);
        ops.Affine(logit, scale, layer.shift[static_cast<size_t>(h * group_ + g)], logit);
        ops_.linear->MatMulNT(own_q.Reshape({1, rows, dim_}), sinks.Slice(h, h + 1), scale,
                              base.Reshape({1, rows, sinks_}));
        ops.LogSumExp(base, sum[0]);
        ops.Combine(sum, logit, Binary::kSubtract, sum);
        AddSigmoid(sum, logit, total);
      }
      ops.Affine(total, 1.0f / static_cast<float>(group_), 0.0f, total);
      // A column of out.
      ops.Convert(total.Reshape({rows, 1}), Columns(out, h, h + 1));
    }
  }

  int64_t bytes() const override { return bytes_; }

 private:
  struct Layer {
    std::unique_ptr<PackedMatrix> q, k;
    Buffer q_bias, q_norm, k_norm, base;
    std::vector<float> shift;  // [heads, group]
  };

  // total += 1 / (1 + exp(x)); x and `room` [1, rows] are changed.
  void AddSigmoid(const Tensor& x, const Tensor& room, const Tensor& total) {
    RowOps& ops = *ops_.rows;
    ops.Fill(kMostGateExponent, room);
    ops.Combine(x, room, Binary::kMin, x);
    ops.Activate(x, Activation::kExp, x);
    ops.Affine(x, 1.0f, 1.0f, x);
    ops.Fill(1.0f, room);
    ops.Combine(room, x, Binary::kDivide, x);
    ops.Combine(total, x, Binary::kAdd, total);
  }

  const int64_t heads_, group_, dim_, sinks_;
  Ops& ops_;
  std::vector<Layer> layers_;
  Buffer work_;
  int64_t bytes_ = 0;
};

std::unique_ptr<LoadedGate> FastGate::Load(const ModelShape& shape, Ops& ops) const {
  auto loaded = std::make_unique<LoadedFast>(shape, dim_, sinks_, ops);
  const GateTables::Dims dims = DimsOf(shape);
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    LoadedFast::Tables of_layer;
    for (const char* part : {"q_proj.weight", "q_proj.bias", "k_proj.weight", "q_norm.weight",
                             "k_norm.weight", "k_base", "b"}) {
      const std::string name = FastTable(layer, part);
      of_layer[part] = tables.Read(name, dims.at(name));
    }
    loaded->Add(of_layer, shape.hidden_size);
  }
  return loaded;
}

class FastKvZip final : public GateScorer {
 public:
  explicit FastKvZip(const Params& params) : gate_(std::make_shared<FastGate>(params)) {
    Set(gate_);
  }

  void Use(std::shared_ptr<const Calibration> calibration) override {
    gate_->tables.Use(std::move(calibration));
  }
  Status Check(const ModelShape& shape) const override {
    return gate_->tables.Check(gate_->DimsOf(shape));
  }

 private:
  std::shared_ptr<FastGate> gate_;
};

// The published list of a gate for each layer, as tensors LAYER.NAME.
Result<Calibration::Tables> ImportFastKvZip(const Calibration::Tables& published) {
  return published;
}

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "fastkvzip",
    .paper = "arXiv:2601.17668",
    .summary = "KVzip's score, predicted by a gate of low-rank queries and keys",
    .departures = {"the prompt is read whole, not in chunks that are reduced one by one"},
    .bytes =
        "4 bytes a weight of its gate, once a model; with a trigger in decode 4 bytes an entry",
    .params = GateTables::Declare({IntParam("dim", 16, 1, 1024, "numbers of a query and a key"),
                                   IntParam("sinks", 16, 1, 1024,
                                            "keys that all are held against")}),
    .make = Make<FastKvZip>(),
    .calibrated_params = {"dim", "sinks"},
    .import = ImportFastKvZip,
});

}  // namespace
}  // namespace kvgauge
