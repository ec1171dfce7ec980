// SPDX-License-Identifier: Apache-2.0
// Rows of pictures that a trained predictor does without leave before an early layer.
//
// Paper: Dynamic-LLaVA, arXiv:2412.00876, its first half; after Osilly/dynamic_llava. The predictor
// reads the rows of a picture as the layer would, and narrows them; they then look at each other
// through blocks of a small transformer without positions; half of what they become is put in the
// place of its mean over the picture, and three maps make two numbers for each row: for staying and
// against. A share of the rows stays, those with the largest difference. Its weights are packed
// anew for each prompt, which costs little beside the prompt's own passes.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "core/strings.h"
#include "methods/gate_scorer.h"
#include "methods/named_maps.h"
#include "methods/registry.h"
#include "methods/row_choice.h"
#include "methods/tensors.h"
#include "methods/trained_thin.h"

namespace kvgauge {
namespace {

constexpr char kPredictorPrefix[] = "model.image_score_predictor.";

class DynamicLlavaRows final : public TrainedThin {
 public:
  explicit DynamicLlavaRows(const Params& params)
      : choice_(params),
        tables_(params),
        layer_(params.Int("layer")),
        drop_(params.Real("drop")),
        width_(params.Int("width")),
        heads_(params.Int("heads")),
        inner_(params.Int("inner")),
        blocks_(params.Int("blocks")) {}

  Needs needs() const override { return choice_.needs(); }
  std::vector<int64_t> Layers(const ModelShape&) const override { return {layer_}; }
  void Use(std::shared_ptr<const Calibration> calibration) override {
    tables_.Use(std::move(calibration));
  }

  Status Check(const ModelShape& shape) const override {
    if (width_ % 4 != 0 || width_ % heads_ != 0) {
      return BadInput(StrCat("width is ", width_, ", which 4 and heads (", heads_,
                             ") do not both divide; expected a width that they do"));
    }
    if (layer_ >= shape.layers) {
      return BadInput(StrCat("layer is ", layer_, ", and the model has ", shape.layers,
                             " layers; expected 1 .. ", shape.layers - 1));
    }
    return tables_.Check(DimsOf(shape));
  }

  int64_t WeightBytes(const ModelShape& shape) const override {
    return GateTables::Bytes(DimsOf(shape));
  }
  int64_t WorkingBytes(const ModelShape& shape, int64_t rows) const override {
    const int64_t head = width_ / heads_, widest = std::max(shape.hidden_size, inner_);
    // As much as many small pictures need, or a large one.
    const int64_t of_block = 4 * width_ + 4 * head + kTogether;
    return 4 * rows * (2 * width_ + widest + 4 + blocks_ * of_block);
  }

  RowsOn Pass(LayerView& view, const ThinRows& rows) const override {
    const NamedMaps predictor(tables_, DimsOf(view.shape()), view.ops());
    std::vector<bool> leaves(static_cast<size_t>(view.width()));
    for (const std::vector<int32_t>& picture : Pictures(view)) {
      const int64_t kept = ShareOf(std::ssize(picture), 1 - drop_);
      for (const int32_t row : picture) leaves[static_cast<size_t>(row)] = true;
      if (kept == 0) continue;
      const Tensor best = Best(view, Judged(view, predictor, rows.hidden, picture), kept);
      std::vector<int32_t> chosen(static_cast<size_t>(kept));
      view.ops().memory->Copy(best, View(chosen, {kept}));
      for (const int32_t i : chosen) {
        leaves[static_cast<size_t>(picture[static_cast<size_t>(i)])] = false;
      }
    }
    std::vector<int32_t> on;
    for (size_t row = 0; row < leaves.size(); ++row) {
      if (!leaves[row]) on.push_back(static_cast<int32_t>(row));
    }
    return {.kept = Upload(view, std::span<const int32_t>(on))};
  }

 private:
  // Rows that a map takes at a time.
  static constexpr int64_t kTogether = 256;

  GateTables::Dims DimsOf(const ModelShape& shape) const {
    GateTables::Dims dims;
    const auto norm = [&](const std::string& name, int64_t size) {
      dims[name + ".weight"] = dims[name + ".bias"] = {size};
    };
    const auto map = [&](const std::string& name, int64_t out, int64_t in) {
      dims[name + ".weight"] = {out, in};
      dims[name + ".bias"] = {out};
    };
    norm("down_mlp.0", shape.hidden_size);
    map("down_mlp.1", width_, shape.hidden_size);
    for (int64_t block = 0; block < blocks_; ++block) {
      const std::string at = BlockName(block);
      norm(at + "norm1", width_);
      dims[at + "attn.qkv.weight"] = {3 * width_, width_};
      map(at + "attn.proj", width_, width_);
      norm(at + "norm2", width_);
      map(at + "mlp.fc1", inner_, width_);
      map(at + "mlp.fc2", width_, inner_);
    }
    map("output_mlp.0", width_ / 2, width_);
    map("output_mlp.2", width_ / 4, width_ / 2);
    map("output_mlp.4", 2, width_ / 4);
    return dims;
  }
  static std::string BlockName(int64_t block) { return StrCat("transformer.", block, "."); }

  // The candidates of each picture, or of the prompt, all of which is here: no row left before.
  std::vector<std::vector<int32_t>> Pictures(LayerView& view) const {
    std::vector<std::vector<int32_t>> pictures;
    std::vector<int32_t> candidates = choice_.CandidatesLeft(view);
    if (candidates.empty()) return pictures;
    if (!choice_.needs().modality) return {std::move(candidates)};
    const std::span<const VisualSpan> spans = view.VisualSpans();
    const VisualSpan* last = nullptr;
    size_t at = 0;
    for (const int32_t row : candidates) {
      while (spans[at].first + spans[at].count <= row) ++at;
      const VisualSpan& span = spans[at];
      if (last == nullptr || last->index != span.index || last->modality != span.modality) {
        pictures.emplace_back();
      }
      pictures.back().push_back(row);
      last = &span;
    }
    return pictures;
  }

  // What speaks for each of the rows, less what speaks against it: [1, n].
  Tensor Judged(LayerView& view, const NamedMaps& predictor, const Tensor& hidden,
                const std::vector<int32_t>& rows) const {
    RowOps& ops = *view.ops().rows;
    const int64_t n = std::ssize(rows), together = std::min(n, kTogether);
    const Tensor index = Upload(view, std::span<const int32_t>(rows));
    const Tensor x = view.Scratch(DType::kF32, {n, width_});
    const Tensor wide = view.Scratch(DType::kF32, {together * std::max(hidden.shape[1], inner_)});
    const auto room = [](const Tensor& all, int64_t count, int64_t columns) {
      return all.Slice(0, count * columns).Reshape({count, columns});
    };
    const auto by_parts = [&](const auto& do_part) {
      for (int64_t begin = 0; begin < n; begin += together) {
        do_part(begin, std::min(begin + together, n));
      }
    };
    by_parts([&](int64_t begin, int64_t end) {
      const Tensor part = room(wide, end - begin, hidden.shape[1]);
      view.ops().select->Gather(hidden, index.Slice(begin, end), part);
      predictor.Norm("down_mlp.0", part, part);
      predictor.MapGelu("down_mlp.1", part, x.Slice(begin, end));
    });
    const Tensor narrow = view.Scratch(DType::kF32, {together * width_});
    for (int64_t block = 0; block < blocks_; ++block) {
      const std::string at = BlockName(block);
      const Tensor seen = Seen(view, predictor, at, x);
      by_parts([&](int64_t begin, int64_t end) {
        const Tensor part = room(narrow, end - begin, width_);
        const Tensor inner = room(wide, end - begin, inner_);
        predictor.Map(at + "attn.proj", seen.Slice(begin, end), MatMulMode::kAdd,
                      x.Slice(begin, end));
        predictor.Norm(at + "norm2", x.Slice(begin, end), part);
        predictor.MapGelu(at + "mlp.fc1", part, inner);
        predictor.Map(at + "mlp.fc2", inner, MatMulMode::kAdd, x.Slice(begin, end));
      });
    }
    const Tensor mean = view.Scratch(DType::kF32, {width_ / 2});
    const Tensor whole = Columns(x, width_ / 2, width_);
    ops.ReduceColumns(whole, Reduction::kMean, mean);
    ops.Fill(0.0f, whole);
    ops.Combine(whole, mean, Binary::kAdd, whole);
    const Tensor logits = view.Scratch(DType::kF32, {n, 2});
    by_parts([&](int64_t begin, int64_t end) {
      const Tensor half = room(narrow, end - begin, width_ / 2);
      const Tensor quarter = room(wide, end - begin, width_ / 4);
      predictor.MapGelu("output_mlp.0", x.Slice(begin, end), half);
      predictor.MapGelu("output_mlp.2", half, quarter);
      predictor.Map("output_mlp.4", quarter, MatMulMode::kSet, logits.Slice(begin, end));
    });
    const Tensor out = view.Scratch(DType::kF32, {1, n});
    ops.Combine(Columns(logits, 0, 1), Columns(logits, 1, 2), Binary::kSubtract,
                out.Reshape({n, 1}));
    return out;
  }

  // What attention of a block gives its rows: every row sees all. [n, width]
  Tensor Seen(LayerView& view, const NamedMaps& predictor, const std::string& at,
              const Tensor& x) const {
    RowOps& ops = *view.ops().rows;
    LinearOps& linear = *view.ops().linear;
    const int64_t n = x.shape[0], head = width_ / heads_, together = std::min(n, kTogether);
    const Tensor seen = view.Scratch(DType::kF32, {n, width_});
    const Tensor all = view.Scratch(DType::kF32, {n, 3 * width_});
    predictor.Norm(at + "norm1", x, seen);
    predictor.Map(at + "attn.qkv", seen, MatMulMode::kSet, all);
    const Tensor q = view.Scratch(DType::kF32, {n, head});
    const Tensor k = view.Scratch(DType::kF32, {n, head});
    const Tensor v = view.Scratch(DType::kF32, {n, head});
    const Tensor weights = view.Scratch(DType::kF32, {together, n});
    const Tensor gave = view.Scratch(DType::kF32, {together, head});
    const float scale = 1.0f / std::sqrt(static_cast<float>(head));
    for (int64_t h = 0; h < heads_; ++h) {
      const int64_t first = h * head;
      ops.Convert(Columns(all, first, first + head), q);
      ops.Convert(Columns(all, width_ + first, width_ + first + head), k);
      ops.Convert(Columns(all, 2 * width_ + first, 2 * width_ + first + head), v);
      for (int64_t begin = 0; begin < n; begin += together) {
        const int64_t end = std::min(begin + together, n), count = end - begin;
        const Tensor some = weights.Slice(0, count), out = gave.Slice(0, count);
        linear.MatMulNT(q.Slice(begin, end).Reshape({1, count, head}), k.Reshape({1, n, head}),
                        scale, some.Reshape({1, count, n}));
        ops.Softmax(some, 1.0f, some);
        linear.MatMulNN(some.Reshape({1, count, n}), v.Reshape({1, n, head}), 1.0f,
                        out.Reshape({1, count, head}));
        ops.Convert(out, Columns(seen.Slice(begin, end), first, first + head));
      }
    }
    return seen;
  }

  RowChoice choice_;
  GateTables tables_;
  int64_t layer_;
  double drop_;
  int64_t width_, heads_, inner_, blocks_;
};

Result<Calibration::Tables> ImportPicturePredictor(const Calibration::Tables& published) {
  return TablesUnder(kPredictorPrefix, published);
}

KVG_REGISTER_STAGE({
    .kind = StageKind::kThin,
    .id = "dynamic_llava",
    .paper = "arXiv:2412.00876",
    .summary = "rows of pictures that a trained predictor does without leave before a layer",
    .departures =
        {"each picture or video of a prompt is judged by itself; the reference has one "
         "picture",
         "rows of text stay; the reference can train a predictor for those of the last "
         "question, which its scripts leave out",
         "decoded tokens stay; the reference's predictor for them is score.dynamic_llava"},
    .bytes = "from its layer on what is left of the prompt, and 4 bytes an entry for its position; "
             "4 bytes a weight of its predictor, once a model",
    .params = GateTables::Declare(RowChoice::Declare(
        "visual", {IntParam("layer", 2, 1, 1 << 16, "the first layer that fewer rows reach"),
                   RealParam("drop", 0.8, 0, 1, "the share of a picture's rows that leaves"),
                   IntParam("width", 512, 4, 1 << 16, "numbers of a row in the predictor"),
                   IntParam("heads", 8, 1, 1 << 10, "heads of its blocks"),
                   IntParam("inner", 2048, 1, 1 << 16, "numbers between the two maps of a block"),
                   IntParam("blocks", 2, 0, 64, "blocks in which rows look at each other")})),
    .make = Make<DynamicLlavaRows>(),
    .calibrated_params = {"width", "heads", "inner", "blocks"},
    .import = ImportPicturePredictor,
});

}  // namespace
}  // namespace kvgauge
