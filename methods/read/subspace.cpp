// SPDX-License-Identifier: Apache-2.0
// Reads the entries whose keys match the query best in a few directions of their head; the index
// holds what all keys are in these.
//
// Papers: Loki, arXiv:2406.02542, whose directions are the principal components of keys after
// rotation; Double Sparsity, arXiv:2408.07092, whose directions are the channels that are largest
// in keys before rotation. Needs the query of each decode step. Directions come from texts by
// calibration, as both papers have it, or from the keys of the prompt. Each query head reads the
// `tokens` entries with the largest products.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "core/strings.h"
#include "kernels/buffer_bytes.h"
#include "methods/attention.h"
#include "methods/calibration.h"
#include "methods/compactor_scores.h"
#include "methods/registry.h"
#include "methods/repeating_reader.h"
#include "methods/repeating_view.h"
#include "methods/state_fields.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

std::vector<float> UnitMatrix(int64_t size) {
  std::vector<float> unit(static_cast<size_t>(size * size));
  for (int64_t i = 0; i < size; ++i) unit[static_cast<size_t>(i * size + i)] = 1.0f;
  return unit;
}

std::string DirectionsName(int64_t layer) { return StrCat("directions.", layer); }

class Subspace final : public Reader, public RepeatingReader {
 public:
  explicit Subspace(const Params& params)
      : channels_(params.Text("directions") == "channels"),
        rank_(params.Int("rank")),
        tokens_(params.Int("tokens")),
        learned_(!params.Text(kCalibrationParam).empty()) {}

  Needs needs() const override { return {.raw_keys = channels_ && !learned_}; }

  void Use(std::shared_ptr<const Calibration> calibration) override {
    calibration_ = std::move(calibration);
  }

  Status Check(const ModelShape& shape) const override {
    for (int64_t layer = 0; layer < shape.layers && calibration_ != nullptr; ++layer) {
      KVG_TRY(Table(shape, layer));
    }
    return channels_ && !learned_ ? CheckRawKeys(shape) : Status();
  }

  // The directions of one head, and its keys in them.
  struct Head {
    Buffer directions;  // [rank, key_dim] f32
    Buffer keys;        // [capacity, rank] of the cache's type
    int64_t held = 0, capacity = 0;
  };
  struct Index final : State {
    std::vector<Head> heads;
    int64_t entry_bytes = 0;

    int64_t bytes() const override {
      int64_t bytes = 0;
      for (const Head& head : heads)
        bytes += head.held * entry_bytes + head.directions.size_bytes();
      return bytes;
    }
  };

  int64_t MostBytes(const ModelShape& shape, int64_t layer, int64_t entries) const override {
    const ModelShape own = shape.OfLayer(layer);
    const int64_t rank = RankOf(own);
    return own.kv_heads * (entries * rank * SizeOf(own.cache_dtype) +
                           HostBufferBytes(rank * own.key_dim * SizeOf(DType::kF32)));
  }

  std::unique_ptr<State> Begin(LayerView& view) const override {
    const ModelShape& shape = view.shape();
    auto index = std::make_unique<Index>();
    index->entry_bytes = RankOf(shape) * SizeOf(shape.cache_dtype);
    index->heads.resize(static_cast<size_t>(shape.kv_heads));
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      Head& head = index->heads[static_cast<size_t>(h)];
      const Tensor directions = DirectionsOf(view, h);
      head.directions = view.ops().memory->Allocate(directions.Numel() * SizeOf(DType::kF32));
      view.ops().memory->Copy(directions, Directions(head, shape));
    }
    Append(view, std::vector<int64_t>(static_cast<size_t>(shape.kv_heads)), *index);
    return index;
  }

  void Append(LayerView& view, std::span<const int64_t> first, State& state) const override {
    auto& index = static_cast<Index&>(state);
    Ops& ops = view.ops();
    const ModelShape& shape = view.shape();
    const int64_t rank = RankOf(shape), dim = shape.key_dim;
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      Head& head = index.heads[static_cast<size_t>(h)];
      const int64_t begin = first[h], end = view.lengths()[h], n = end - begin;
      if (n <= 0) continue;
      Grow(view, begin, end, head);
      RepeatingView* const repeating = n == 1 ? Repeating(view) : nullptr;
      const Tensor whole = repeating != nullptr ? repeating->Filled(KvSide::kKeys, h, begin, n)
                                                : view.Keys(h, begin);
      const Tensor keys = view.Scratch(DType::kF32, {n, rank});
      ops.linear->MatMulNT(whole.Reshape({1, n, dim}),
                           Directions(head, shape).Reshape({1, rank, dim}), 1.0f,
                           keys.Reshape({1, n, rank}));
      if (repeating != nullptr) {
        // A device repeats this for the next entry, whose place is sent with the step.
        const auto place = static_cast<int32_t>(begin);
        const Tensor where = Upload(view, std::span(&place, 1));
        const Tensor narrow = view.Scratch(shape.cache_dtype, {1, rank});
        ops.rows->Convert(keys, narrow);
        ops.select->Scatter(narrow, where, Keys(head, shape));
      } else {
        ops.rows->Convert(keys, Keys(head, shape).Slice(begin, end));
      }
      head.held = end;
    }
  }

  bool saves() const override { return true; }
  Status Fields(LayerView& view, State& state, StateFields& fields) const override {
    for (const Head& head : static_cast<Index&>(state).heads) {
      const Tensor directions = Directions(head, view.shape());
      KVG_TRY(fields.Rows("directions of a head", view.ops(), directions));
      if (head.held == 0) continue;
      const Tensor keys = Keys(head, view.shape()).Slice(0, head.held);
      KVG_TRY(fields.Rows("keys in its directions", view.ops(), keys));
    }
    return {};
  }

  bool ReadsFew(int64_t, int64_t length) const override { return AreFew(tokens_, length); }

  bool Select(LayerView& view, State& state, const Tensor& q, Tensor words) const override {
    const auto& index = static_cast<const Index&>(state);
    Ops& ops = view.ops();
    const ModelShape& shape = view.shape();
    const auto lengths = view.lengths();
    if (std::all_of(lengths.begin(), lengths.end(), [&](int64_t n) { return n <= tokens_; })) {
      return false;
    }
    const int64_t rank = RankOf(shape), dim = shape.key_dim, group = shape.group();
    const Tensor query = view.Scratch(DType::kF32, {group, dim});
    const Tensor turned = view.Scratch(DType::kF32, {group, rank});
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      const int64_t n = lengths[h], read = std::min(n, tokens_), begin = h * group;
      if (n == 0) continue;
      const Head& head = index.heads[static_cast<size_t>(h)];
      // Columns behind those of the entries mean nothing.
      const int64_t room = std::min(GrowingColumns(view, n), head.capacity);
      const Tensor keys = view.Scratch(DType::kF32, {room, rank});
      const Tensor products = view.Scratch(DType::kF32, {group, room});
      const Tensor chosen = view.Scratch(DType::kI32, {group, ChoiceColumns(view, read, tokens_)});
      ops.rows->Convert(q.Slice(begin, begin + group), query);
      ops.linear->MatMulNT(query.Reshape({1, group, dim}),
                           Directions(head, shape).Reshape({1, rank, dim}), 1.0f,
                           turned.Reshape({1, group, rank}));
      ops.rows->Convert(Keys(head, shape).Slice(0, room), keys);
      ops.linear->MatMulNT(turned.Reshape({1, group, rank}), keys.Reshape({1, room, rank}), 1.0f,
                           products.Reshape({1, group, room}));
      HideFromNewest(view, h, 0, 1, n, products);
      const std::vector<int32_t> counts(static_cast<size_t>(group), static_cast<int32_t>(read));
      ops.select->TopK(Columns(products, 0, n), Upload(view, counts), chosen);
      ops.select->MarkRuns(chosen, 1, n,
                           Columns(words.Slice(begin, begin + group), 0, (n + 63) / 64));
    }
    return true;
  }

 private:
  int64_t RankOf(const ModelShape& shape) const { return std::min(rank_, shape.key_dim); }

  Tensor Directions(const Head& head, const ModelShape& shape) const {
    return head.directions.As(DType::kF32, {RankOf(shape), shape.key_dim});
  }
  Tensor Keys(const Head& head, const ModelShape& shape) const {
    return head.keys.As(shape.cache_dtype, {head.capacity, RankOf(shape)});
  }

  // Room for `entries`; the first `keep` stay.
  void Grow(LayerView& view, int64_t keep, int64_t entries, Head& head) const {
    if (entries <= head.capacity) return;
    const ModelShape& shape = view.shape();
    Head larger;
    larger.capacity = std::max(entries + 64, 2 * head.capacity);
    larger.keys =
        view.ops().memory->Allocate(larger.capacity * RankOf(shape) * SizeOf(shape.cache_dtype));
    if (keep > 0) {
      view.ops().memory->Copy(Keys(head, shape).Slice(0, keep), Keys(larger, shape).Slice(0, keep));
    }
    head.capacity = larger.capacity;
    head.keys = std::move(larger.keys);
  }

  Result<Tensor> Table(const ModelShape& shape, int64_t layer) const {
    return calibration_->Find(DirectionsName(layer),
                              std::array{shape.kv_heads, shape.key_dim, shape.key_dim});
  }

  // [rank, key_dim]
  Tensor DirectionsOf(LayerView& view, int64_t head) const {
    Ops& ops = view.ops();
    const int64_t dim = view.shape().key_dim, rank = RankOf(view.shape());
    if (calibration_ != nullptr) {
      const Result<Tensor> table = Table(view.shape(), view.layer());
      KVG_CHECK(table.ok(), "a calibration that was not checked");
      const float* own = table->f32() + head * dim * dim;
      return Upload(view, std::span<const float>(own, static_cast<size_t>(rank * dim)))
          .Reshape({rank, dim});
    }
    const Tensor unit = Upload(view, UnitMatrix(dim)).Reshape({dim, dim});
    const int64_t n = view.lengths()[head];
    if (n == 0) return unit.Slice(0, rank);
    const Tensor directions = view.Scratch(DType::kF32, {rank, dim});
    if (channels_) {
      const Tensor sizes = view.Scratch(DType::kF32, {1, dim});
      ops.rows->ReduceColumns(view.RawKeys(head), Reduction::kSumAbs, sizes[0]);
      ops.select->Gather(unit, Best(view, sizes, rank), directions);
      return directions;
    }
    const Tensor mean = view.Scratch(DType::kF32, {dim});
    const Tensor centred = view.Scratch(DType::kF32, {n, dim});
    const Tensor across = view.Scratch(DType::kF32, {1, dim, n});
    const Tensor products = view.Scratch(DType::kF32, {1, dim, dim});
    ops.rows->ReduceColumns(view.Keys(head), Reduction::kMean, mean);
    ops.rows->Combine(view.Keys(head), mean, Binary::kSubtract, centred);
    // The identity times them transposed: exactly they, with rows and columns exchanged.
    ops.linear->MatMulNT(unit.Reshape({1, dim, dim}), centred.Reshape({1, n, dim}), 1.0f, across);
    ops.linear->MatMulNN(across, centred.Reshape({1, n, dim}), 1.0f, products);
    const Tensor principal = view.Scratch(DType::kF32, {rank, dim});
    ops.algebra->Eigenvectors(products.Reshape({dim, dim}), view.Scratch(DType::kF32, {rank}),
                              principal);
    return principal;
  }

  bool channels_;
  int64_t rank_, tokens_;
  bool learned_;
  std::shared_ptr<const Calibration> calibration_;
};

// All directions of each KV head over the keys of all texts, the first ones first.
class SubspaceCalibrator final : public Calibrator {
 public:
  SubspaceCalibrator(const Params& params, const ModelShape& shape, std::span<const int64_t>)
      : shape_(shape),
        channels_(params.Text("directions") == "channels"),
        heads_(static_cast<size_t>(shape.layers * shape.kv_heads)) {
    const auto dim = static_cast<size_t>(shape.key_dim);
    for (Sums& sums : heads_) {
      sums.first.resize(dim);
      sums.second.resize(channels_ ? 0 : dim * dim);
    }
  }

  Needs needs(int) const override { return {.raw_keys = channels_}; }

  void Observe(int, LayerView& view) override {
    const auto dim = static_cast<size_t>(shape_.key_dim);
    for (int64_t h = 0; h < shape_.kv_heads; ++h) {
      Sums& sums = heads_[static_cast<size_t>(view.layer() * shape_.kv_heads + h)];
      const std::vector<float> keys = Fetch(view.ops(), channels_ ? view.RawKeys(h) : view.Keys(h));
      for (size_t row = 0; row < keys.size(); row += dim) {
        sums.rows += 1;
        for (size_t a = 0; a < dim; ++a) {
          const double own = keys[row + a];
          sums.first[a] += channels_ ? std::abs(own) : own;
          for (size_t b = 0; b < dim && !channels_; ++b) {
            sums.second[a * dim + b] += own * double{keys[row + b]};
          }
        }
      }
    }
  }

  Calibration::Tables Finish(Ops& ops) override {
    Calibration::Tables tables;
    const int64_t dim = shape_.key_dim;
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      std::vector<float> all;
      for (int64_t h = 0; h < shape_.kv_heads; ++h) {
        const Sums& sums = heads_[static_cast<size_t>(layer * shape_.kv_heads + h)];
        const std::vector<float> own = channels_ ? Channels(sums) : Principal(ops, sums);
        all.insert(all.end(), own.begin(), own.end());
      }
      tables[DirectionsName(layer)] = {{shape_.kv_heads, dim, dim}, std::move(all)};
    }
    return tables;
  }

 private:
  struct Sums {
    double rows = 0;
    std::vector<double> first;   // [key_dim] of the numbers, or of their magnitudes
    std::vector<double> second;  // [key_dim, key_dim] of products
  };

  // Unit vectors of the channels, the largest first.
  static std::vector<float> Channels(const Sums& sums) {
    const size_t dim = sums.first.size();
    std::vector<size_t> order(dim);
    for (size_t i = 0; i < dim; ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return sums.first[a] > sums.first[b]; });
    std::vector<float> rows(dim * dim);
    for (size_t i = 0; i < dim; ++i) rows[i * dim + order[i]] = 1.0f;
    return rows;
  }

  static std::vector<float> Principal(Ops& ops, const Sums& sums) {
    const size_t dim = sums.first.size();
    const double rows = std::max(sums.rows, 1.0);
    std::vector<float> covariance(dim * dim);
    for (size_t a = 0; a < dim; ++a) {
      for (size_t b = 0; b < dim; ++b) {
        const double product = sums.second[a * dim + b] / rows;
        covariance[a * dim + b] =
            static_cast<float>(product - sums.first[a] / rows * (sums.first[b] / rows));
      }
    }
    const auto size = static_cast<int64_t>(dim);
    const Buffer memory = ops.memory->Allocate(4 * (3 * size * size + size));
    const Tensor all = memory.As(DType::kF32, {3 * size * size + size});
    const auto square = [&](int64_t i) {
      return all.Slice(i * size * size, (i + 1) * size * size).Reshape({size, size});
    };
    ops.memory->Copy(View(covariance, {size, size}), square(0));
    ops.algebra->Svd(square(0), square(1), all.Slice(3 * size * size, 3 * size * size + size),
                     square(2));
    return Fetch(ops, square(2));
  }

  const ModelShape shape_;
  const bool channels_;
  std::vector<Sums> heads_;  // [layers * kv_heads]
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "subspace",
    .paper = "arXiv:2406.02542",
    .summary = "reads what matches the query best in a few directions of each head's keys",
    .departures = {"without a calibration directions are those of the prompt's own keys",
                   "a number of entries is read, where Loki takes a share of them",
                   "the index has the cache's type, where Double Sparsity keeps it in 4 bits, and "
                   "lies beside the cache, where Loki turns the keys themselves"},
    .bytes = "rank of the cache's type an entry and head, and 4 * rank * key_dim a head, beside "
             "the cache",
    .params = {ChoiceParam("directions", "principal", {"principal", "channels"},
                           "principal components of keys as attention sees them, or their largest "
                           "channels before rotation"),
               IntParam("rank", 32, 1, 4096, "directions of each KV head"),
               IntParam("tokens", 1024, 1, 1 << 24, "entries that each query head reads"),
               CalibrationParam()},
    .make = Make<Subspace>(),
    .calibrate = MakeCalibrator<SubspaceCalibrator>,
    .calibrated_params = {"directions"},
});

}  // namespace
}  // namespace kvgauge
