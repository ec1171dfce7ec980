// SPDX-License-Identifier: Apache-2.0
// The cache formats of inference engines: llama.cpp's blocks, floats of 8 and of 4 bits. Needs
// nothing.
//
// Every entry is coded when it is written, as llama.cpp does. Floats of 8 bits may have scales: one
// for each entry of a head (vLLM's fp8_per_token_head), or of a layer, a head or a channel, which
// are found in the prompt and stay (vLLM's calculate_kv_scales, of a layer). With Hadamard
// coordinates it is llama.cpp as it codes caches by default.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/strings.h"
#include "methods/basis_change.h"
#include "methods/layouts/coded.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// Levels of the 4-bit normal float (QLoRA, arXiv:2305.14314), as bitsandbytes has them.
constexpr std::array<float, 16> kNormalFloat4 = {-1.0f,
                                                 -0.6961928009986877f,
                                                 -0.5250730514526367f,
                                                 -0.39491748809814453f,
                                                 -0.28444138169288635f,
                                                 -0.18477343022823334f,
                                                 -0.09105003625154495f,
                                                 0.0f,
                                                 0.07958029955625534f,
                                                 0.16093020141124725f,
                                                 0.24611230194568634f,
                                                 0.33791524171829224f,
                                                 0.44070982933044434f,
                                                 0.5626170039176941f,
                                                 0.7229568362236023f,
                                                 1.0f};

struct FormatRow {
  char name[12];
  KvCodecKind kind;
  int64_t block;  // dims that share a scale; 0: as `scale` says
  float largest;  // that a code stands for, times its stored scale at most; 0: no scale is fixed
};

constexpr FormatRow kFormats[] = {
    {"q8_0", KvCodecKind::kQ8_0, 32, 0},    {"q5_1", KvCodecKind::kQ5_1, 32, 0},
    {"q5_0", KvCodecKind::kQ5_0, 32, 0},    {"q4_1", KvCodecKind::kQ4_1, 32, 0},
    {"q4_0", KvCodecKind::kQ4_0, 32, 0},    {"iq4_nl", KvCodecKind::kIq4Nl, 32, 0},
    {"fp8", KvCodecKind::kFp8E4M3, 0, 448}, {"fp8_e5m2", KvCodecKind::kFp8E5M2, 0, 57344},
    {"mxfp4", KvCodecKind::kMxFp4, 32, 0},  {"nvfp4", KvCodecKind::kNvFp4, 16, 6 * 448},
    {"nf4", KvCodecKind::kCodebook, 64, 0}, {"none", KvCodecKind::kFloat, 1, 0}};

const FormatRow& RowOf(std::string_view name) {
  return *std::find_if(std::begin(kFormats), std::end(kFormats),
                       [&](const FormatRow& row) { return row.name == name; });
}

class Format final : public Store {
 public:
  explicit Format(const Params& params)
      : keys_(RowOf(params.Text("keys"))),
        values_(RowOf(params.Text("values"))),
        scale_(params.Text("scale")),
        key_most_(static_cast<float>(params.Real("key_most"))),
        value_most_(static_cast<float>(params.Real("value_most"))),
        sinks_(params.Int("sinks")),
        basis_(params) {}

  Status Check(const ModelShape& shape) const override {
    KVG_TRY(basis_.Check(shape, nullptr));
    if (basis_.any() && scale_ != "one" && scale_ != "token") {
      return BadInput(StrCat("scale '", scale_,
                             "': is found in entries as the model has them; with key_basis or "
                             "value_basis take 'one' or 'token'"));
    }
    KVG_TRY(CheckSide("keys", keys_, shape.key_dim));
    KVG_TRY(CheckSide("values", values_, shape.value_dim));
    if (scale_ == "one" || TakesScale(keys_) || TakesScale(values_)) return {};
    return BadInput(StrCat(
        "scale '", scale_, "': goes with ",
        scale_ == "token" || scale_ == "channel" ? "fp8 and fp8_e5m2" : "fp8, fp8_e5m2 and nvfp4",
        ", and keys are ", keys_.name, ", values ", values_.name));
  }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t layer) const override {
    Coded layout(shape);
    Fill(keys_, layout.keys);
    Fill(values_, layout.values);
    layout.sinks = sinks_;
    return basis_.Plan(shape, layer, std::move(layout), {}, nullptr);
  }

  void Calibrate(LayerView& view, StorePlan& plan) const override {
    if (scale_ == "one" || scale_ == "token") return;
    Coded layout = *plan.Get<Coded>();
    layout.scales.keys = FixedScale(view, KvSide::kKeys, keys_, key_most_);
    layout.scales.values = FixedScale(view, KvSide::kValues, values_, value_most_);
    plan = PlanOf(std::move(layout), plan.turn);
  }

 private:
  bool TakesScale(const FormatRow& row) const {
    if (row.kind == KvCodecKind::kNvFp4) return scale_ == "layer" || scale_ == "head";
    return row.largest > 0;
  }

  static Status CheckSide(const char* side, const FormatRow& row, int64_t dim) {
    const int64_t block = row.kind == KvCodecKind::kCodebook ? std::min(row.block, dim) : row.block;
    if (block == 0 || dim % block == 0) return {};
    return BadInput(StrCat(side, " '", row.name, "' has blocks of ", block,
                           " dims, and an entry has ", dim, "; use fp8 or the affine store"));
  }

  void Fill(const FormatRow& row, KvCodec& codec) const {
    codec.kind = row.kind;
    if (row.kind == KvCodecKind::kCodebook) {
      codec.bits = 4;
      codec.range = CodeRange::kLargest;
      codec.group = std::min(row.block, codec.dim);
      codec.levels = View(kNormalFloat4, {std::ssize(kNormalFloat4)});
    }
    const bool float8 = row.kind == KvCodecKind::kFp8E4M3 || row.kind == KvCodecKind::kFp8E5M2;
    if (float8 && scale_ == "token") codec.group = codec.dim;
  }

  // So that the largest number of the prompt becomes `most`, or the format's largest.
  Tensor FixedScale(LayerView& view, KvSide side, const FormatRow& row, float most) const {
    if (!TakesScale(row)) return {};
    const bool keys = side == KvSide::kKeys;
    const int64_t heads = view.shape().kv_heads;
    const int64_t dim = keys ? view.shape().key_dim : view.shape().value_dim;
    std::vector<float> largest(static_cast<size_t>(heads * dim));
    for (int64_t h = 0; h < heads; ++h) {
      if (view.lengths()[static_cast<size_t>(h)] == 0) continue;
      const Tensor rows = keys ? view.Keys(h) : view.Values(h);
      const Tensor low = view.Scratch(DType::kF32, {dim}), high = view.Scratch(DType::kF32, {dim});
      view.ops().select->ColumnRanges(rows, 0, low, high);
      const std::vector<float> least = Fetch(view.ops(), low), greatest = Fetch(view.ops(), high);
      for (int64_t c = 0; c < dim; ++c) {
        const auto i = static_cast<size_t>(c);
        largest[static_cast<size_t>(h * dim + c)] =
            std::max(std::abs(least[i]), std::abs(greatest[i]));
      }
    }
    const int64_t rows = scale_ == "layer" ? 1 : heads;
    const int64_t columns = scale_ == "channel" ? dim : 1, each = heads * dim / (rows * columns);
    std::vector<float> scales;
    for (auto from = largest.begin(); from != largest.end(); from += each) {
      const float of = *std::max_element(from, from + each) / (most > 0 ? most : row.largest);
      scales.push_back(of >= kLeastScale ? of : 1.0f);  // nothing but zeros
    }
    const Tensor out = view.Scratch(DType::kF32, {rows, columns});
    view.ops().memory->Copy(View(scales, {rows, columns}), out);
    return out;
  }

  static constexpr float kLeastScale = 0x1p-100f;

  const FormatRow &keys_, &values_;
  const std::string scale_;
  const float key_most_, value_most_;
  const int64_t sinks_;
  const BasisChoice basis_;
};

ParamSpec FormatParam(std::string name, std::string help) {
  std::vector<std::string> names;
  for (const FormatRow& row : kFormats) names.emplace_back(row.name);
  return ChoiceParam(std::move(name), "q8_0", std::move(names), std::move(help));
}

std::vector<ParamSpec> FormatParams() {
  std::vector<ParamSpec> specs = {
      FormatParam("keys", "format of keys"),
      FormatParam("values", "format of values"),
      ChoiceParam("scale", "one", {"one", "layer", "head", "channel", "token"},
                  "what a scale of fp8 belongs to; one: 1 everywhere"),
      RealParam("key_most", 0, 0, 57344,
                "what the prompt's largest key becomes; 0: the format's largest"),
      RealParam("value_most", 0, 0, 57344,
                "what the prompt's largest value becomes; 0: the format's largest"),
      IntParam("sinks", 0, 0, 4096, "first entries that stay uncoded")};
  for (ParamSpec& spec : BasisParams(LearnedBasis::kNo)) specs.push_back(std::move(spec));
  return specs;
}

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "format",
    .summary = "formats of inference engines: llama.cpp's blocks, float8, 4-bit floats",
    .departures = {"attention of the prompt reads uncoded entries",
                   "scales of a layer, a head or a channel are the prompt's own",
                   "nf4 keeps its scales in f16, not in f32"},
    .bytes =
        "of 32 numbers: q8_0 34, q5_1 24, q5_0 22, q4_1 20, q4_0 and iq4_nl and nvfp4 18, mxfp4 "
        "and nf4 17, fp8 32; fp8 with the scale of an entry 4 more for each side, of a layer, "
        "head or channel 4 for each",
    .params = FormatParams(),
    .make = Make<Format>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge
