// SPDX-License-Identifier: Apache-2.0
// Reads the entries with most attention, and of the others a sample whose weights make up for what
// is not read; as large a sample as a bound on the error asks for.
//
// Paper: vAttention, arXiv:2510.05688; after xAlg-ai/sparse-attention-hub. Needs the query of each
// decode step. The first `sinks` and the last `local` entries are read, and of those between each
// query head reads the `share` of all entries with the largest products. A sample of `base` of the
// entries between tells how far what they are given scatters, and with the sum over what is read
// how many of them keep the error of the softmax's denominator within `epsilon` of it, but for
// `delta` of the cases. So many are drawn and read, each with one over its chance as weight.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "methods/attention.h"
#include "methods/biasing_reader.h"
#include "methods/joining_reader.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// The z above which a standard normal number is with that chance.
double UpperNormal(double chance) {
  double low = -9, high = 9;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(middle / std::numbers::sqrt2) / 2 > chance ? low : high) = middle;
  }
  return high;
}

class VAttention final : public BiasingReader {
 public:
  explicit VAttention(const Params& params)
      : sinks_(params.Int("sinks")),
        local_(params.Int("local")),
        share_(params.Real("share")),
        base_(params.Real("base")),
        epsilon_(params.Real("epsilon")),
        bound_(UpperNormal(params.Real("delta"))) {}

  struct NoIndex final : State {
    int64_t bytes() const override { return 0; }
  };

  std::unique_ptr<State> Begin(LayerView&) const override { return std::make_unique<NoIndex>(); }
  void Append(LayerView&, std::span<const int64_t>, State&) const override {}
  bool saves() const override { return true; }
  Status Fields(LayerView&, State&, StateFields&) const override { return {}; }

  bool ReadsFew(int64_t, int64_t length) const override {
    return AreFew(sinks_ + local_ + Heavy(length), length);
  }

  bool Choose(LayerView& view, State&, const Tensor& q, Tensor words, Tensor bias) const override {
    const auto lengths = view.lengths();
    if (std::all_of(lengths.begin(), lengths.end(), [this](int64_t n) { return ReadsAll(n); })) {
      return false;
    }
    const int64_t group = view.shape().group();
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = lengths[h], begin = h * group, end = begin + group;
      if (length == 0) continue;
      const Tensor own = Columns(words.Slice(begin, end), 0, (length + 63) / 64);
      if (ReadsAll(length)) {
        MarkEnds(view, length, length, length, own);
      } else {
        ChooseOf(view, h, q.Slice(begin, end), own, Columns(bias.Slice(begin, end), 0, length));
      }
    }
    return true;
  }

 private:
  enum Sample : int64_t { kBase, kRead, kSamples };
  static constexpr double kLeast = 1e-8;

  int64_t Heavy(int64_t length) const {
    return static_cast<int64_t>(share_ * static_cast<double>(length));
  }
  int64_t Between(int64_t length) const { return length - local_ - sinks_; }
  bool ReadsAll(int64_t length) const { return Between(length) < 2 || Heavy(length) >= length; }

  // For the query heads of one KV head; q: [group, key_dim], bias: [group, length].
  void ChooseOf(LayerView& view, int64_t head, const Tensor& q, const Tensor& words,
                const Tensor& bias) const {
    Ops& ops = view.ops();
    const int64_t group = q.shape[0], length = bias.shape[1], between = Between(length);
    const Tensor logits = Logits(view, head, q);
    const Tensor order = view.Scratch(DType::kF32, {group, length});
    ops.rows->Convert(logits, order);
    FillEnds(view, kForcedScore, order);
    const int64_t sure = std::min(length, sinks_ + local_ + Heavy(length));
    Mark(view, order, std::vector<int32_t>(static_cast<size_t>(group), static_cast<int32_t>(sure)),
         words);
    const Tensor fixed = view.Scratch(DType::kF32, {group, length});
    ops.select->ReadBits(words, 0, fixed);

    const auto base = static_cast<int64_t>(base_ * static_cast<double>(between));
    const std::vector<int32_t> counts = Sizes(view, logits, fixed, Draws(view, head, kBase),
                                              std::clamp<int64_t>(base, 2, between), between);
    std::vector<float> gains;
    for (const int32_t count : counts) {
      gains.push_back(static_cast<float>(std::log(static_cast<double>(between) / count)));
    }
    const Tensor marks = view.Scratch(DType::kI64, {group, words.shape[1]});
    const Tensor draws = Draws(view, head, kRead);
    Mark(view, draws, counts, marks);
    Mark(view, draws, counts, words);
    // What is read anyway counts once.
    ops.select->ReadBits(marks, 0, bias);
    ops.rows->Affine(fixed, -1.0f, 1.0f, fixed);
    ops.rows->Combine(bias, fixed, Binary::kMultiply, bias);
    ops.rows->Combine(bias, Spread(view, Upload(view, gains), length), Binary::kMultiply, bias);
  }

  // How many of `between` entries each of the group reads. logits, fixed (1 where an entry is read
  // anyway), draws: [group, length]; the `base` entries with the largest draws are the first
  // sample.
  std::vector<int32_t> Sizes(LayerView& view, const Tensor& logits, const Tensor& fixed,
                             const Tensor& draws, int64_t base, int64_t between) const {
    Ops& ops = view.ops();
    RowOps& rows = *ops.rows;
    const int64_t group = logits.shape[0], length = logits.shape[1];
    const Tensor largest = view.Scratch(DType::kF32, {group});
    const Tensor given = view.Scratch(DType::kF32, {group, length});  // 1 is the most
    const Tensor part = view.Scratch(DType::kF32, {group, length});
    const Tensor sample = view.Scratch(DType::kF32, {group, base});
    const Tensor told = view.Scratch(DType::kF32, {3 * group});
    rows.ReduceRows(logits, Reduction::kMax, largest);
    rows.Combine(logits, Spread(view, largest, length), Binary::kSubtract, given);
    rows.Activate(given, Activation::kExp, given);
    rows.Combine(given, fixed, Binary::kMultiply, part);
    rows.ReduceRows(part, Reduction::kSum, told.Slice(0, group));

    const std::vector<int32_t> counts(static_cast<size_t>(group), static_cast<int32_t>(base));
    const Tensor index = view.Scratch(DType::kI32, {group, base});
    ops.select->TopK(draws, Upload(view, counts), index);
    for (int64_t g = 0; g < group; ++g) {
      ops.select->Gather(AsColumn(given[g]), index[g], AsColumn(sample[g]));
    }
    rows.ReduceRows(sample, Reduction::kSum, told.Slice(group, 2 * group));
    rows.ReduceRows(sample, Reduction::kMean, largest);
    rows.Combine(sample, Spread(view, largest, base), Binary::kSubtract, sample);
    rows.ReduceRows(sample, Reduction::kNorm, told.Slice(2 * group, 3 * group));

    const std::vector<float> numbers = Fetch(ops, told);
    const auto all = static_cast<double>(between), few = static_cast<double>(base);
    std::vector<int32_t> sizes;
    for (size_t g = 0; g < counts.size(); ++g) {
      const size_t heads = counts.size();
      const double sum = double{numbers[g]} + double{numbers[heads + g]} * all / few;
      const double spread = std::max(double{numbers[2 * heads + g]} / std::sqrt(few - 1), kLeast);
      const double ratio = bound_ * spread * all / std::max(epsilon_ * sum, kLeast);
      const double wanted = ratio * ratio;  // not a number: all
      const int64_t size = wanted < all ? static_cast<int64_t>(wanted) : between;
      sizes.push_back(static_cast<int32_t>(std::max(size, base)));
    }
    return sizes;
  }

  // A number in [0, 1) for each entry between the ends, -1 at the ends: [group, length].
  Tensor Draws(LayerView& view, int64_t head, Sample sample) const {
    const ModelShape& shape = view.shape();
    const int64_t group = shape.group();
    const Tensor positions = view.Positions(head);
    const Tensor draws = view.Scratch(DType::kF32, {group, view.lengths()[head]});
    for (int64_t g = 0; g < group; ++g) {
      const int64_t place = view.tokens() * shape.layers + view.layer();
      const int64_t stream = (place * shape.query_heads + head * group + g) * kSamples + sample;
      view.ops().rows->Uniform(view.seed(), static_cast<uint64_t>(stream), positions, draws[g]);
    }
    FillEnds(view, -1.0f, draws);
    return draws;
  }

  // rows: [group, length]
  void FillEnds(LayerView& view, float value, const Tensor& rows) const {
    const int64_t length = rows.shape[1];
    if (sinks_ > 0) view.ops().rows->Fill(value, Columns(rows, 0, sinks_));
    view.ops().rows->Fill(value, Columns(rows, length - local_, length));
  }

  // The counts[g] largest of row g.
  static void Mark(LayerView& view, const Tensor& rows, const std::vector<int32_t>& counts,
                   const Tensor& words) {
    const int64_t most = *std::max_element(counts.begin(), counts.end());
    const Tensor index = view.Scratch(DType::kI32, {rows.shape[0], most});
    view.ops().select->TopK(rows, Upload(view, counts), index);
    view.ops().select->MarkRuns(index, 1, rows.shape[1], words);
  }

  // [group, length]
  static Tensor Logits(LayerView& view, int64_t head, const Tensor& q) {
    Ops& ops = view.ops();
    const int64_t length = view.lengths()[head], group = q.shape[0], dim = q.shape[1];
    const Tensor query = view.Scratch(DType::kF32, {group, dim});
    const Tensor logits = view.Scratch(DType::kF32, {group, length});
    ops.rows->Convert(q, query);
    ops.linear->MatMulNT(query.Reshape({1, group, dim}), view.Keys(head).Reshape({1, length, dim}),
                         1.0f, logits.Reshape({1, group, length}));
    LogitsOfProducts(view, logits);
    HideFromNewest(view, head, 0, 1, logits);
    return logits;
  }

  int64_t sinks_, local_;
  double share_, base_, epsilon_, bound_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "vattention",
    .paper = "arXiv:2510.05688",
    .summary = "reads the entries with most attention, and a weighted sample of the others",
    .departures =
        {"the entries of a sample are distinct, where the reference draws some of them twice and "
         "weighs them as if it had not",
         "the entries with most attention are those of an exact search (the reference's oracle), "
         "where the paper also takes an index for it"},
    .params = {RealParam("share", 0.1, 0, 1, "share of the entries that an exact search finds"),
               RealParam("base", 0.1, 0.0001, 1,
                         "share of the others in the first sample, at "
                         "least two of them"),
               RealParam("epsilon", 0.25, 0.0001, 1, "error of the denominator that is allowed"),
               RealParam("delta", 0.25, 0.0001, 0.9999, "share of the cases that may be worse"),
               IntParam("sinks", 128, 0, 1 << 20, "first entries, always read"),
               IntParam("local", 128, 1, 1 << 20, "last entries, always read")},
    .make = Make<VAttention>(),
});

}  // namespace
}  // namespace kvgauge
