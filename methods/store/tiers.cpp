// SPDX-License-Identifier: Apache-2.0
// Two or three tiers of entries in each head, the better the score the more bits; none is given up
// here.
//
// Papers: MiKV (arXiv:2402.18096), ZipCache (arXiv:2405.14256), LeanKV and DiffKV
// (arXiv:2412.03131), PrefixQuant (arXiv:2410.05265). Needs scores; the queries of the last
// `window` prompt rows where keys are balanced. The first tier holds a share of the entries, or as
// many of the best as hold a share of the scores, or a number of them, or those whose scores are
// not below a limit, which may count even shares of the tokens so far; the second as many more; the
// last what is left. By `layer` a share of the scores is one of all heads of the layer together,
// whose scores are means over the rows that could see an entry: sums are counted, means say which
// entries these are, and all heads have the same, as long as none left one of them (ZipVL,
// arXiv:2410.08584); with `seen` the prompt's are those that any row attended to. New entries wait
// uncoded; when `wait` of them are behind the newest `recent`, they are put into tiers among
// themselves, or all entries of the head are anew: then an entry falls as its score does. Without
// scores at that time new entries go to the first tier.
//
// `balance` divides the channels of coded keys by sqrt(max |k| / max |q|) (MiKV), and
// `even_values` those of coded values by sqrt(max |v|) (ZipCache); both as the prompt has them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "core/strings.h"
#include "methods/coverage.h"
#include "methods/layouts/classes.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

constexpr float kLeast = 1e-5f;  // of what divides a channel
constexpr double kLeastSeen = std::numeric_limits<float>::min();

class Tiers final : public Store {
 public:
  explicit Tiers(const Params& params)
      : params_(params),
        by_(params.Text("by")),
        first_(params.Real("first")),
        second_(params.Real("second")),
        seen_(params.Bool("seen")),
        again_(params.Text("later") == "all"),
        wait_(params.Int("wait")),
        recent_(params.Int("recent")),
        balance_(params.Bool("balance")),
        even_values_(params.Bool("even_values")),
        window_(params.Int("window")) {}

  Needs needs() const override { return {.window = balance_ ? window_ : 0}; }
  bool classifies() const override { return true; }
  bool needs_scores() const override { return true; }

  Status Check(const ModelShape&) const override {
    if (seen_ && (by_ != "layer" || has_second() || again_)) {
      return BadInput(StrCat("seen: needs by=layer, two tiers and later=new; by is ", by_,
                             ", second ", second_, ", later ", again_ ? "all" : "new"));
    }
    if (by_ == "score" || by_ == "even") {
      if (second_ == 0 || second_ <= first_) return {};
      return BadInput(StrCat("second ", second_, " is above first ", first_,
                             "; scores of the second tier are lower, and 0 leaves it out"));
    }
    if (by_ == "count" || (first_ <= 1 && second_ <= 1)) {
      if (by_ == "count" || second_ == 0 || second_ >= first_) return {};
      return BadInput(StrCat("second ", second_, " is below first ", first_,
                             "; it includes the first tier, and 0 leaves it out"));
    }
    return BadInput(StrCat("first ", first_, ", second ", second_,
                           ": a share is at most 1; use by=count for numbers of entries"));
  }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t) const override {
    Classes layout;
    for (const std::string tier : {"first", "second", "last"}) {
      if (tier == "second" && !has_second()) continue;
      Classes::Class one;
      Fill(shape, tier, KvSide::kKeys, one.keys);
      Fill(shape, tier, KvSide::kValues, one.values);
      layout.classes.push_back(one);
    }
    // What is known of shares before there are scores.
    const double first = by_ == "share" ? first_ : by_ == "count" ? 0 : 0.5;
    const double both = !has_second()    ? first
                        : by_ == "share" ? second_
                        : by_ == "count" ? 0
                                         : 0.75;
    layout.classes.front().share = first;
    if (has_second()) layout.classes[1].share = both - first;
    layout.classes.back().share = 1 - both;
    layout.waiting = wait_ + recent_;
    layout.scales_keys = balance_;
    layout.scales_values = even_values_;
    return PlanOf(std::move(layout));
  }

  void Calibrate(LayerView& view, StorePlan& plan) const override {
    if (!balance_ && !even_values_) return;
    Classes layout = *plan.Get<Classes>();
    const ModelShape& shape = view.shape();
    Ops& ops = view.ops();
    if (even_values_) {
      layout.value_scales = view.Scratch(DType::kF32, {shape.kv_heads, shape.value_dim});
      for (int64_t h = 0; h < shape.kv_heads; ++h) {
        Largest(view, view.lengths()[h] > 0 ? view.Values(h) : Tensor(),
                layout.value_scales.Slice(h, h + 1));
      }
      ops.rows->Activate(layout.value_scales, Activation::kSqrt, layout.value_scales);
    }
    if (balance_) {
      layout.key_scales = view.Scratch(DType::kF32, {shape.kv_heads, shape.key_dim});
      const Tensor asked = view.Scratch(DType::kF32, {shape.kv_heads, shape.key_dim});
      for (int64_t h = 0; h < shape.kv_heads; ++h) {
        Largest(view, view.lengths()[h] > 0 ? view.Keys(h) : Tensor(),
                layout.key_scales.Slice(h, h + 1));
        LargestQuery(view, h, asked.Slice(h, h + 1));
      }
      ops.rows->Combine(layout.key_scales, asked, Binary::kDivide, layout.key_scales);
      ops.rows->Activate(layout.key_scales, Activation::kSqrt, layout.key_scales);
    }
    plan = PlanOf(std::move(layout), plan.turn);
  }

  void Classify(LayerView& view, const ClassInput& input, Tensor classes) const override {
    Ops& ops = view.ops();
    const auto last = static_cast<int32_t>(has_second() ? 2 : 1);
    const auto whole = [&](int64_t length) { return length == view.tokens(); };
    const bool together =
        by_ == "layer" && std::all_of(view.lengths().begin(), view.lengths().end(), whole);
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const auto at = static_cast<size_t>(h);
      const int64_t length = view.lengths()[at], classed = input.classed[at];
      const int64_t end = length - std::min(recent_, length - classed);
      const bool all = again_ && !input.scores.empty();
      const int64_t begin = all ? 0 : classed, n = end - begin;
      if (n <= 0) continue;
      const Tensor row = classes[h].Slice(begin, end);
      if (input.scores.empty()) {
        ops.memory->Copy(Numbers(view, n, 0, 0), row);
        continue;
      }
      if (h > 0 && together) {
        ops.memory->Copy(classes[0].Slice(begin, end), row);
        continue;
      }
      ops.memory->Copy(Numbers(view, n, last, 0), row);
      Tensor scores = input.scores[h].Slice(begin, end).Reshape({1, n});
      if (together) {
        const Tensor mean = view.Scratch(DType::kF32, {1, n});
        ops.rows->ReduceColumns(Columns(input.scores, begin, end), Reduction::kMean, mean[0]);
        scores = mean;
      }
      for (int32_t tier = last - 1; tier >= 0; --tier) {
        const double upto = tier == 0 ? first_ : second_;
        const bool seen = seen_ && begin == 0;
        const int64_t count = seen             ? CountFrom(view, scores, kLeastSeen)
                              : by_ == "layer" ? CoveringRows(view, h, begin, scores, upto)
                                               : Count(view, scores, upto, all || begin == 0);
        if (count == 0) continue;
        ops.select->Scatter(AsColumn(Numbers(view, count, tier, 0)), Best(view, scores, count),
                            AsColumn(row));
      }
    }
  }

 private:
  bool has_second() const { return second_ > 0; }

  // How many of the best of scores [1, n] are above a limit.
  int64_t Count(LayerView& view, const Tensor& scores, double upto, bool whole_head) const {
    const int64_t n = scores.shape[1];
    if (by_ == "coverage") return CoveringCount(view, scores, upto);
    if (by_ == "score") return CountFrom(view, scores, upto);
    if (by_ == "even") return CountFrom(view, scores, upto / static_cast<double>(view.tokens()));
    if (by_ == "count") return whole_head ? std::min(n, static_cast<int64_t>(upto)) : 0;
    // As many as are not below it: 0.4 * 30 is a little more than 12.
    return n - static_cast<int64_t>(std::floor((1 - upto) * static_cast<double>(n) + 1e-9));
  }

  // By coverage of means [1, n] times the rows that could see each of the entries from `begin` on.
  static int64_t CoveringRows(LayerView& view, int64_t head, int64_t begin, const Tensor& means,
                              double share) {
    const int64_t n = means.shape[1];
    const Tensor sums = view.Scratch(DType::kF32, {1, n});
    RowOps& rows = *view.ops().rows;
    rows.Convert(view.Positions(head, begin).Slice(0, n).Reshape({1, n}), sums);
    rows.Affine(sums, -1.0f, static_cast<float>(view.tokens()), sums);
    rows.Combine(means, sums, Binary::kMultiply, sums);
    return CoveringCount(view, sums, share);
  }

  static int64_t CountFrom(LayerView& view, const Tensor& scores, double least) {
    const int64_t n = scores.shape[1];
    const Tensor below = view.Scratch(DType::kF32, {1, n}), count = view.Scratch(DType::kF32, {1});
    view.ops().rows->Combine(scores, Filled(view, n, static_cast<float>(least)), Binary::kLess,
                             below);
    view.ops().rows->ReduceRows(below, Reduction::kSum, count);
    return n - static_cast<int64_t>(Fetch(view.ops(), count)[0]);
  }

  void Fill(const ModelShape& shape, const std::string& tier, KvSide side, KvCodec& codec) const {
    const std::string name = side == KvSide::kKeys ? "key" : "value";
    codec.side = side;
    codec.dim = side == KvSide::kKeys ? shape.key_dim : shape.value_dim;
    codec.dtype = shape.cache_dtype;
    const int64_t bits = params_.Int(StrCat(tier, "_", name, "_bits"));
    if (bits == 0) return;
    codec.kind = KvCodecKind::kAffine;
    codec.bits = static_cast<int>(bits);
    codec.axis = params_.Text(name + "_axis") == "channel" ? CodeAxis::kChannel : CodeAxis::kToken;
    codec.exact_scale = params_.Text("scales") == "exact";
    const int64_t group = params_.Int(name + "_group");
    const bool by_channel = codec.axis == CodeAxis::kChannel;
    const int64_t whole = by_channel ? kKvPageEntries : codec.dim;
    codec.group = group == 0 ? whole : by_channel ? group : std::min(group, codec.dim);
  }

  // The largest number of each column in size, out [1, dim], a little above 0 at least.
  static void Largest(LayerView& view, const Tensor& rows, const Tensor& out) {
    RowOps& ops = *view.ops().rows;
    const int64_t dim = out.shape[1];
    if (rows.empty()) return ops.Fill(1.0f, out);
    const Tensor low = view.Scratch(DType::kF32, {1, dim});
    ops.ReduceColumns(rows, Reduction::kMax, out[0]);
    ops.ReduceColumns(rows, Reduction::kMin, low[0]);
    ops.Affine(low, -1.0f, 0.0f, low);
    ops.Combine(out, low, Binary::kMax, out);
    ops.Combine(out, Filled(view, dim, kLeast), Binary::kMax, out);
  }

  // The same of the queries of a KV head's group.
  void LargestQuery(LayerView& view, int64_t head, const Tensor& out) const {
    const Tensor queries = view.WindowQueries(window_);
    const int64_t group = view.shape().group(), dim = out.shape[1];
    const Tensor all = view.Scratch(DType::kF32, {group, dim});
    for (int64_t g = 0; g < group; ++g) {
      Tensor rows(queries[0][head * group + g].data, DType::kF32, {queries.shape[0], dim},
                  queries.device);
      rows.stride[0] = queries.stride[0];
      Largest(view, rows, all.Slice(g, g + 1));
    }
    view.ops().rows->ReduceColumns(all, Reduction::kMax, out[0]);
  }

  Params params_;
  std::string by_;
  double first_, second_;
  bool seen_, again_;
  int64_t wait_, recent_;
  bool balance_, even_values_;
  int64_t window_;
};

std::vector<ParamSpec> Specs() {
  std::vector<ParamSpec> specs = {
      ChoiceParam("by", "share", {"share", "coverage", "layer", "count", "score", "even"},
                  "limits are shares of the entries, shares of the scores, of a head or of all "
                  "heads of a layer together, numbers of entries, or the least scores, as they are "
                  "or as multiples of an even share of the tokens so far"),
      RealParam("first", 0.5, 0, 1e6, "limit of the first tier"),
      RealParam("second", 0, 0, 1e6, "limit of both tiers before the last; 0: two tiers")};
  int64_t bits = 8;
  for (const std::string tier : {"first", "second", "last"}) {
    for (const std::string side : {"key", "value"}) {
      specs.push_back(
          IntParam(StrCat(tier, "_", side, "_bits"), bits, 0, 8, "1, 2, 3, 4 or 8; 0: uncoded"));
    }
    bits /= 2;
  }
  for (const std::string side : {"key", "value"}) {
    specs.push_back(ChoiceParam(StrCat(side, "_axis"), "token", {"token", "channel"},
                                "groups run over dims of an entry, or over entries of a dim"));
    specs.push_back(IntParam(StrCat(side, "_group"), 0, 0, 4096,
                             "numbers that share a scale; 0: a whole entry, or 64 entries"));
  }
  specs.push_back(ChoiceParam("scales", "stored", {"stored", "exact"},
                              "codes are found with scales and zeros as they are stored, in f16, "
                              "or as they are before that; exact: groups of an entry alone"));
  specs.push_back(BoolParam("seen", false,
                            "by layer, two tiers: the first has the prompt's entries that any row "
                            "attended to"));
  specs.push_back(ChoiceParam("later", "new", {"new", "all"},
                              "which entries are put into tiers when enough new ones wait"));
  specs.push_back(
      IntParam("wait", 64, 1, 1 << 20, "new entries that are put into tiers at a time"));
  specs.push_back(IntParam("recent", 0, 0, 1 << 20, "newest entries that stay uncoded"));
  specs.push_back(BoolParam("balance", false, "channels of coded keys are divided by a scale"));
  specs.push_back(BoolParam("even_values", false, "channels of coded values likewise"));
  specs.push_back(IntParam("window", 32, 1, 4096, "prompt rows whose queries balance keys"));
  return specs;
}

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "tiers",
    .paper = "arXiv:2402.18096",
    .summary = "two or three tiers of entries in a head, the better the score the more bits",
    .departures = {"groups of a channel are at most 64 entries of a tier; the rest of the tier is "
                   "uncoded until it fills a group",
                   "scales of channels are those of the prompt"},
    .bytes = "for each side and tier: dim * (bits / 8 + 4 / group) an entry; 4 * dim for scales of "
             "channels a head and side, as a matrix in memory dim times as much",
    .params = Specs(),
    .make = Make<Tiers>(),
});

}  // namespace
}  // namespace kvgauge
