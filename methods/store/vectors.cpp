// SPDX-License-Identifier: Apache-2.0
// Runs of an entry's dims as the numbers of codewords, whose sum stands for them.
//
// Papers: product codes as PQCache (arXiv:2407.12820) has them for search, here as what is stored;
// CommVQ (arXiv:2506.18879), whose codewords of keys turn with rotary embedding. Needs keys before
// rotation where they are coded so. Codewords come from a calibration; without one from the prompt
// (one stage, by k-means), or they are drawn at random. Where `scaled`, an entry is divided by the
// root of its mean square first, which is kept.
#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "core/strings.h"
#include "methods/calibration.h"
#include "methods/codebooks.h"
#include "methods/divisors.h"
#include "methods/layouts/coded.h"
#include "methods/registry.h"
#include "methods/shared_numbers.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

constexpr uint64_t kWordStream = 6;

std::string WordsName(KvSide side, int64_t layer) {
  return StrCat(side == KvSide::kKeys ? "keys.words." : "values.words.", layer);
}

// What the parameters say of a side.
struct WordChoice {
  bool raw_keys, scaled, prompt;
  int64_t width[2], bits[2], stages[2];
  bool commuting;
  uint64_t seed;

  explicit WordChoice(const Params& params)
      : raw_keys(params.Bool("raw_keys")),
        scaled(params.Bool("scaled")),
        prompt(params.Text("book") == "prompt"),
        width{params.Int("key_width"), params.Int("value_width")},
        bits{params.Int("key_bits"), params.Int("value_bits")},
        stages{params.Int("key_stages"), params.Int("value_stages")},
        commuting(params.Bool("commuting")),
        seed(static_cast<uint64_t>(params.Int("seed"))) {}

  bool coded(KvSide side) const { return bits[static_cast<size_t>(side)] > 0; }
  CodewordShape Shape(const ModelShape& shape, KvSide side) const {
    const auto at = static_cast<size_t>(side);
    CodewordShape words;
    words.dim = side == KvSide::kKeys ? shape.key_dim : shape.value_dim;
    words.width = width[at] == 0 ? words.dim : width[at];
    words.stages = stages[at];
    words.bits = static_cast<int>(bits[at]);
    words.commuting = commuting && side == KvSide::kKeys;
    const bool halves = shape.rope_layout == RopeLayout::kHalf && shape.rotary_dim == shape.key_dim;
    words.apart = halves && side == KvSide::kKeys ? words.dim / 2 : 1;
    return words;
  }
  uint64_t Seed(KvSide side, int64_t layer, int64_t head) const {
    return ((seed * 4096 + static_cast<uint64_t>(layer)) * 4096 + static_cast<uint64_t>(head)) * 2 +
           static_cast<uint64_t>(side);
  }
  Tensor Rows(LayerView& view, KvSide side, int64_t head) const {
    if (side == KvSide::kValues) return view.Values(head);
    return raw_keys && view.shape().rotary_dim > 0 ? view.RawKeys(head) : view.Keys(head);
  }
};

class Vectors final : public Store {
 public:
  explicit Vectors(const Params& params)
      : choice_(params), recent_(params.Int("keep_recent")), sinks_(params.Int("sinks")) {}

  Needs needs() const override { return {.raw_keys = choice_.raw_keys}; }

  void Use(std::shared_ptr<const Calibration> calibration) override {
    calibration_ = std::move(calibration);
  }

  Status Check(const ModelShape& shape) const override {
    if (shape.latent_dim > 0) {
      return BadInput("codes entries of heads, and this model keeps latents in their place");
    }
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      if (!choice_.coded(side)) continue;
      const CodewordShape words = choice_.Shape(shape, side);
      const char* name = side == KvSide::kKeys ? "key" : "value";
      if (words.dim % words.width != 0) {
        return BadInput(StrCat(name, "_width ", words.width, " does not divide the ", words.dim,
                               " dims of a ", name, "; expected ", DivisorsOf(words.dim)));
      }
      if (words.bits > 8 && !words.commuting) {
        return BadInput(StrCat(name, "_bits ", words.bits, ": must be at most 8"));
      }
      if (FromPrompt() && (words.stages > 1 || words.commuting || choice_.scaled)) {
        return BadInput(
            "the prompt's codewords are of one stage, unscaled, and do not commute; make a "
            "calibration with `kvgauge calibrate`, or take book 'drawn'");
      }
    }
    return {};
  }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t layer) const override {
    Coded layout(shape);
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      if (!choice_.coded(side)) continue;
      const CodewordShape words = choice_.Shape(shape, side);
      KvCodec& codec = side == KvSide::kKeys ? layout.keys : layout.values;
      codec.kind = KvCodecKind::kVectors;
      codec.range = choice_.scaled ? CodeRange::kRms : CodeRange::kExtremes;
      codec.bits = words.bits;
      codec.group = words.width;
      codec.stages = words.stages;
      codec.commuting = words.commuting;
      codec.apart = words.apart;
      Tensor& table = side == KvSide::kKeys ? layout.tables.keys : layout.tables.values;
      if (calibration_ != nullptr) {
        const int64_t sizes[] = {shape.kv_heads, words.numbers()};
        KVG_ASSIGN(table, calibration_->Find(WordsName(side, layer), sizes));
      } else if (!choice_.prompt) {
        table = Drawn(shape, side, layer);
      }
    }
    layout.tables.found = FromPrompt();
    layout.seal_keys = SealWhole(layout.keys, recent_);
    layout.seal_values = SealWhole(layout.values, recent_);
    layout.sinks = sinks_;
    return PlanOf(std::move(layout), {.raw = choice_.raw_keys && shape.rotary_dim > 0});
  }

  void Calibrate(LayerView& view, StorePlan& plan) const override {
    if (!FromPrompt()) return;
    Coded layout = *plan.Get<Coded>();
    layout.tables.keys = Found(view, KvSide::kKeys);
    layout.tables.values = Found(view, KvSide::kValues);
    plan = PlanOf(std::move(layout), plan.turn);
  }

 private:
  bool FromPrompt() const { return choice_.prompt && calibration_ == nullptr; }

  // Kept for as long as the stage: plans have views of it.
  Tensor Drawn(const ModelShape& shape, KvSide side, int64_t layer) const {
    const CodewordShape words = choice_.Shape(shape, side);
    const std::string what = StrCat("codewords ", words.dim, " ", words.width, " ", words.stages,
                                    " ", words.bits, " ", words.commuting, " ", words.apart, " ",
                                    shape.kv_heads, " ", choice_.Seed(side, layer, 0));
    SharedNumbersPtr numbers = SharedNumbers(what, [&] {
      std::vector<float> all;
      for (int64_t head = 0; head < shape.kv_heads; ++head) {
        const std::vector<float> one =
            DrawnWords(words, choice_.Seed(side, layer, head), kWordStream);
        all.insert(all.end(), one.begin(), one.end());
      }
      return all;
    });
    const std::lock_guard lock(mutex_);
    return View(*drawn_.emplace(what, std::move(numbers)).first->second,
                {shape.kv_heads, words.numbers()});
  }

  // Clusters of each run of the prompt's entries, from evenly spaced ones.
  Tensor Found(LayerView& view, KvSide side) const {
    constexpr int kRounds = 10;
    if (!choice_.coded(side)) return {};
    const CodewordShape words = choice_.Shape(view.shape(), side);
    const int64_t heads = view.shape().kv_heads, count = int64_t{1} << words.bits;
    Ops& ops = view.ops();
    const Tensor out = view.Scratch(DType::kF32, {heads, words.numbers()});
    ops.rows->Fill(0.0f, out);
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t n = view.lengths()[static_cast<size_t>(h)];
      if (n == 0) continue;
      const Tensor rows = choice_.Rows(view, side, h);
      std::vector<int32_t> start;
      for (int64_t c = 0; c < count; ++c) start.push_back(static_cast<int32_t>(c * n / count));
      const Tensor places = Upload(view, start);
      const Tensor part = view.Scratch(DType::kF32, {n, words.width});
      const Tensor assignment = view.Scratch(DType::kI32, {n});
      for (int64_t run = 0; run < words.runs(); ++run) {
        const int64_t begin = run * words.width;
        ops.rows->Convert(Columns(rows, begin, begin + words.width), part);
        const Tensor centres =
            out[h]
                .Slice(run * count * words.width, (run + 1) * count * words.width)
                .Reshape({count, words.width});
        ops.select->Gather(part, places, centres);
        ops.algebra->KMeans(part, kRounds, centres, assignment);
      }
    }
    return out;
  }

  WordChoice choice_;
  int64_t recent_, sinks_;
  std::shared_ptr<const Calibration> calibration_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, SharedNumbersPtr> drawn_;
};

// Learns codewords from rows of the texts, at most so many of each head.
class VectorsCalibrator final : public Calibrator {
 public:
  VectorsCalibrator(const Params& params, const ModelShape& shape, std::span<const int64_t> lengths)
      : shape_(shape), choice_(params), rounds_(static_cast<int>(params.Int("rounds"))) {
    int64_t entries = 0;
    for (const int64_t length : lengths) entries += length;
    step_ = std::max<int64_t>(1, (entries + kMostRows - 1) / kMostRows);
    rows_.resize(static_cast<size_t>(2 * shape.layers * shape.kv_heads));
  }

  Needs needs(int) const override { return {.raw_keys = choice_.raw_keys}; }

  void Observe(int, LayerView& view) override {
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      if (!choice_.coded(side)) continue;
      const int64_t dim = side == KvSide::kKeys ? shape_.key_dim : shape_.value_dim;
      for (int64_t h = 0; h < shape_.kv_heads; ++h) {
        const std::vector<float> all = Fetch(view.ops(), choice_.Rows(view, side, h));
        std::vector<float>& kept = RowsOf(side, view.layer(), h);
        for (int64_t at = 0; at < std::ssize(all); at += step_ * dim) {
          double squares = 0;
          for (int64_t d = 0; d < dim; ++d) {
            squares += double{all[static_cast<size_t>(at + d)]} * all[static_cast<size_t>(at + d)];
          }
          const double root = std::sqrt(squares / static_cast<double>(dim));
          const double scale = choice_.scaled && root > 0 ? 1 / root : 1;
          for (int64_t d = 0; d < dim; ++d) {
            kept.push_back(static_cast<float>(scale * all[static_cast<size_t>(at + d)]));
          }
        }
      }
    }
  }

  Calibration::Tables Finish(Ops&) override {
    Calibration::Tables tables;
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      if (!choice_.coded(side)) continue;
      const CodewordShape words = choice_.Shape(shape_, side);
      for (int64_t layer = 0; layer < shape_.layers; ++layer) {
        std::vector<float> all;
        for (int64_t h = 0; h < shape_.kv_heads; ++h) {
          const std::vector<float> one = LearnedWords(words, RowsOf(side, layer, h), rounds_,
                                                      choice_.Seed(side, layer, h), kWordStream);
          all.insert(all.end(), one.begin(), one.end());
        }
        tables[WordsName(side, layer)] = {{shape_.kv_heads, words.numbers()}, std::move(all)};
      }
    }
    return tables;
  }

 private:
  static constexpr int64_t kMostRows = 4096;

  std::vector<float>& RowsOf(KvSide side, int64_t layer, int64_t head) {
    const int64_t at =
        (static_cast<int64_t>(side) * shape_.layers + layer) * shape_.kv_heads + head;
    return rows_[static_cast<size_t>(at)];
  }

  const ModelShape shape_;
  const WordChoice choice_;
  const int rounds_;
  int64_t step_;
  std::vector<std::vector<float>> rows_;  // [sides][layers][kv_heads] of [n][dim]
};

std::vector<ParamSpec> VectorsParams() {
  std::vector<ParamSpec> specs;
  for (const std::string side : {"key", "value"}) {
    specs.push_back(IntParam(side + "_width", 2, 0, 512, "dims of a codeword; 0: a whole entry"));
    specs.push_back(IntParam(side + "_bits", 6, 0, 12,
                             "codewords are numbered by so many bits, at most 8 where they do not "
                             "commute; 0: uncoded"));
    specs.push_back(IntParam(side + "_stages", 1, 1, 64, "codewords that are added"));
  }
  specs.push_back(BoolParam("commuting", false,
                            "codewords of keys, of whole entries, are sums that turn with pairs"));
  specs.push_back(
      BoolParam("scaled", false, "entries are divided by the root of their mean square"));
  specs.push_back(BoolParam("raw_keys", false, "keys are coded before rotation"));
  specs.push_back(ChoiceParam("book", "prompt", {"prompt", "drawn"},
                              "where codewords are from without a calibration"));
  specs.push_back(IntParam("seed", 0, 0, 1 << 20, "of codewords that are drawn"));
  specs.push_back(IntParam("rounds", 12, 1, 1000, "how often a calibration moves codewords"));
  specs.push_back(IntParam("keep_recent", 0, 0, 1 << 20, "newest entries that stay uncoded"));
  specs.push_back(IntParam("sinks", 0, 0, 4096, "first entries that stay uncoded"));
  specs.push_back(CalibrationParam());
  return specs;
}

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "vectors",
    .summary = "numbers of codewords, one or several for each run of dims",
    .departures =
        {"a calibration moves codewords in rounds of hard assignment, from drawn ones",
         "attention rebuilds entries page by page, in place of sums of looked-up products",
         "attention of the prompt reads uncoded entries"},
    .bytes = "for each side: stages * dim / width * bits / 8 an entry, whole bytes, 2 more where "
             "scaled; codewords of 4 bytes a number, once a model, or with the sequence where they "
             "are the prompt's",
    .params = VectorsParams(),
    .make = Make<Vectors>(),
    .calibrate = MakeCalibrator<VectorsCalibrator>,
    .calibrated_params = {"key_width", "key_bits", "key_stages", "value_width", "value_bits",
                          "value_stages", "commuting", "scaled", "raw_keys", "seed", "rounds"},
});

}  // namespace
}  // namespace kvgauge
