// SPDX-License-Identifier: Apache-2.0
// Each key and each value has as many bits as its error may be felt.
//
// Paper: QAQ, arXiv:2403.04643. Needs the attention and the queries of the last `window` prompt
// rows. With T tokens a key's numbers may be wrong by sqrt(12 / |q| * ln(T^3 / (T - 1) error^2 +
// 1)), and a value's by sqrt(12 / T) error / a, a the most that one of those rows attends to it. A
// row has as many bits as keep half a step of its range below that, from `least` to `most`; the
// last window - 1 entries of the prompt and later ones have `most`.
#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "methods/layouts/classes.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class Qaq final : public Store {
 public:
  explicit Qaq(const Params& params)
      : error_(params.Real("error")),
        norm_(params.Real("query_norm")),
        window_(params.Int("window")),
        least_(params.Int("least")),
        most_(params.Int("most")),
        wait_(params.Int("wait")) {}

  Needs needs() const override { return {.window = window_}; }
  bool classifies() const override { return true; }

  Status Check(const ModelShape&) const override {
    if (least_ <= most_) return {};
    return BadInput(StrCat("least ", least_, " is more bits than most ", most_));
  }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t) const override {
    Classes layout;
    for (int64_t of_keys = least_; of_keys <= most_; ++of_keys) {
      for (int64_t of_values = least_; of_values <= most_; ++of_values) {
        Classes::Class one;
        Fill(shape, KvSide::kKeys, of_keys, one.keys);
        Fill(shape, KvSide::kValues, of_values, one.values);
        layout.classes.push_back(one);
      }
    }
    layout.classes.back().share = 1;  // no more than that; what it is follows from the prompt
    layout.waiting = wait_;
    return PlanOf(std::move(layout));
  }

  void Classify(LayerView& view, const ClassInput& input, Tensor classes) const override {
    Ops& ops = view.ops();
    const auto last = static_cast<int32_t>(levels() * levels() - 1);
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const auto at = static_cast<size_t>(h);
      const int64_t length = view.lengths()[at], begin = input.classed[at], n = length - begin;
      if (n <= 0) continue;
      const Tensor row = classes[h].Slice(begin, length);
      ops.memory->Copy(Numbers(view, n, last, 0), row);
      // Those that too few rows have seen keep that.
      const int64_t seen = view.decoding() ? 0 : std::max<int64_t>(n - (window_ - 1), 0);
      if (seen == 0) continue;
      const Tensor index = view.Scratch(DType::kF32, {1, seen});
      const Tensor of_values = view.Scratch(DType::kF32, {1, seen});
      Steps(view, KeyRatios(view, h, begin, seen), index);
      Steps(view, ValueRatios(view, h, begin, seen), of_values);
      ops.rows->Affine(index, static_cast<float>(levels()), 0.0f, index);
      ops.rows->Combine(index, of_values, Binary::kAdd, index);
      Put(view, index, last, row);
    }
  }

 private:
  int64_t levels() const { return most_ - least_ + 1; }

  static void Fill(const ModelShape& shape, KvSide side, int64_t bits, KvCodec& codec) {
    codec.side = side;
    codec.dim = side == KvSide::kKeys ? shape.key_dim : shape.value_dim;
    codec.dtype = shape.cache_dtype;
    codec.kind = KvCodecKind::kAffine;
    codec.bits = static_cast<int>(bits);
    codec.group = codec.dim;
  }

  // What each row spans, [1, n].
  static Tensor Ranges(LayerView& view, const Tensor& rows) {
    RowOps& ops = *view.ops().rows;
    const int64_t n = rows.shape[0];
    const Tensor high = view.Scratch(DType::kF32, {1, n}), low = view.Scratch(DType::kF32, {1, n});
    ops.ReduceRows(rows, Reduction::kMax, high[0]);
    ops.ReduceRows(rows, Reduction::kMin, low[0]);
    ops.Combine(high, low, Binary::kSubtract, high);
    return high;
  }

  // Ranges over twice the error that is allowed, [1, n]; both of entries from `begin` on.
  Tensor KeyRatios(LayerView& view, int64_t head, int64_t begin, int64_t n) const {
    const auto tokens = static_cast<double>(std::max<int64_t>(view.tokens(), 2));
    const double norm = norm_ > 0 ? norm_ : MeanNorm(view, head);
    const double allowed = std::sqrt(
        12.0 / norm * std::log(tokens * tokens * tokens / (tokens - 1) * error_ * error_ + 1));
    const Tensor ratios = Ranges(view, view.Keys(head, begin).Slice(0, n));
    view.ops().rows->Affine(ratios, static_cast<float>(0.5 / allowed), 0.0f, ratios);
    return ratios;
  }

  Tensor ValueRatios(LayerView& view, int64_t head, int64_t begin, int64_t n) const {
    RowOps& ops = *view.ops().rows;
    const int64_t group = view.shape().group();
    const Tensor attention = view.WindowAttention(window_);
    const Tensor most = view.Scratch(DType::kF32, {group, n});
    const Tensor ratios = Ranges(view, view.Values(head, begin).Slice(0, n));
    const Tensor paid = view.Scratch(DType::kF32, {1, n});
    for (int64_t g = 0; g < group; ++g) {
      ops.ReduceColumns(Columns(attention[head * group + g], begin, begin + n), Reduction::kMax,
                        most[g]);
    }
    ops.ReduceColumns(most, Reduction::kMax, paid[0]);
    ops.Combine(ratios, paid, Binary::kMultiply, ratios);
    const double allowed = std::sqrt(12.0 / static_cast<double>(view.tokens())) * error_;
    ops.Affine(ratios, static_cast<float>(0.5 / allowed), 0.0f, ratios);
    return ratios;
  }

  // The mean over the queries of a KV head's group.
  double MeanNorm(LayerView& view, int64_t head) const {
    const Tensor queries = view.WindowQueries(window_);
    const int64_t group = view.shape().group(), rows = queries.shape[0];
    const Tensor norms = view.Scratch(DType::kF32, {group, rows});
    const Tensor mean = view.Scratch(DType::kF32, {1});
    for (int64_t g = 0; g < group; ++g) {
      Tensor own(queries[0][head * group + g].data, DType::kF32, {rows, queries.shape[2]},
                 queries.device);
      own.stride[0] = queries.stride[0];
      view.ops().rows->ReduceRows(own, Reduction::kNorm, norms[g]);
    }
    view.ops().rows->ReduceRows(norms.Reshape({1, group * rows}), Reduction::kMean, mean);
    return std::max(double{Fetch(view.ops(), mean)[0]}, 1e-6);
  }

  // How many bits above `least` a ratio asks for, out [1, n]: b bits reach 2^b - 1.
  void Steps(LayerView& view, const Tensor& ratios, const Tensor& out) const {
    RowOps& ops = *view.ops().rows;
    const int64_t n = ratios.shape[1];
    const Tensor above = view.Scratch(DType::kF32, {1, n});
    ops.Fill(0.0f, out);
    for (int64_t bits = least_; bits < most_; ++bits) {
      const Tensor reach = Filled(view, n, static_cast<float>((int64_t{1} << bits) - 1));
      ops.Combine(reach.Reshape({1, n}), ratios, Binary::kLess, above);
      ops.Combine(out, above, Binary::kAdd, out);
    }
  }

  // Entries whose index [1, n] is below `last` go to the class of that number.
  static void Put(LayerView& view, const Tensor& index, int32_t last, const Tensor& row) {
    if (last == 0) return;
    Ops& ops = view.ops();
    const int64_t n = index.shape[1];
    const Tensor marks = view.Scratch(DType::kF32, {last, n});
    const Tensor counts = view.Scratch(DType::kF32, {last});
    const Tensor below = view.Scratch(DType::kF32, {1, n});
    for (int32_t c = 0; c < last; ++c) {
      const auto middle = static_cast<float>(c);
      const Tensor own = marks.Slice(c, c + 1);
      ops.rows->Combine(index, Filled(view, n, middle + 0.5f), Binary::kLess, own);
      ops.rows->Combine(index, Filled(view, n, middle - 0.5f), Binary::kLess, below);
      ops.rows->Combine(own, below, Binary::kSubtract, own);
    }
    ops.rows->ReduceRows(marks, Reduction::kSum, counts);
    const std::vector<float> fetched = Fetch(ops, counts);
    for (int32_t c = 0; c < last; ++c) {
      const auto count = static_cast<int64_t>(fetched[static_cast<size_t>(c)]);
      if (count == 0) continue;
      ops.select->Scatter(AsColumn(Numbers(view, count, c, 0)),
                          Best(view, marks.Slice(c, c + 1), count), AsColumn(row));
    }
  }

  double error_, norm_;
  int64_t window_, least_, most_, wait_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "qaq",
    .paper = "arXiv:2403.04643",
    .summary = "each key and value has as many bits as its error may be felt",
    .departures = {"a code has the least number of its entry as zero, where the reference has the "
                   "mean and cuts what is far above it",
                   "no numbers are kept apart as outliers",
                   "query_norm 0 takes the mean norm of the last queries; the reference's scripts "
                   "say 300",
                   "an entry's bits are chosen once; new entries have the most, and 0 bits are not "
                   "among the choices"},
    .bytes = "for each side: dim * bits / 8 + 4 an entry, bits between `least` and `most`",
    .params = {RealParam("error", 3, 1e-6, 1e6, "target error"),
               RealParam("query_norm", 0, 0, 1e6, "norm of a query; 0: that of the window's"),
               IntParam("window", 5, 1, 4096, "last prompt rows whose attention decides"),
               IntParam("least", 1, 1, 4, "bits of a code at least"),
               IntParam("most", 4, 1, 4, "bits of a code at most"),
               IntParam("wait", 64, 1, 1 << 20, "new entries that are coded at a time")},
    .make = Make<Qaq>(),
});

}  // namespace
}  // namespace kvgauge
