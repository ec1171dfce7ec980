// SPDX-License-Identifier: Apache-2.0
// Reads the entries that score best by a guess of the query, which is there while the layer below
// still computes: its input, through this layer's projection.
//
// Paper: InfiniGen, arXiv:2406.19707. Needs the guessed queries of each decode step, and the
// queries of the prompt's last `rows` rows. Each head turns queries and keys by the right singular
// vectors of its queries, so that few columns hold most of their products; of the turned columns
// the share `columns` with the largest sums of magnitudes is kept, by queries and by keys. Entries
// are counted whose guessed logit is within `alpha` of the best one of their query head; every
// query head then reads as many as the mean count says, at most `share` of the entries, its best
// ones, and the newest entry. The first layers read everything.
#include <algorithm>
#include <array>
#include <string>

#include "core/strings.h"
#include "kernels/buffer_bytes.h"
#include "methods/attention.h"
#include "methods/calibration.h"
#include "methods/directions.h"
#include "methods/registry.h"
#include "methods/state_fields.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

std::string SkewName(int64_t layer) { return StrCat("directions.", layer); }

// Queries of one KV head, [rows * group, key_dim]: one query head after the other. queries: [rows,
// query_heads, key_dim]
Tensor QueriesOfGroup(LayerView& view, int64_t head, const Tensor& queries) {
  const int64_t rows = queries.shape[0], group = view.shape().group(), dim = queries.shape[2];
  const Tensor all = view.Scratch(DType::kF32, {std::max<int64_t>(rows * group, 1), dim});
  for (int64_t g = 0; g < group && rows > 0; ++g) {
    Tensor own = queries;
    own.data = static_cast<char*>(queries.data) +
               (head * group + g) * queries.stride[1] * SizeOf(queries.dtype);
    own.rank = 2;
    own.shape = {rows, dim, 0, 0};
    own.stride = {queries.stride[0], 1, 0, 0};
    view.ops().rows->Convert(own, all.Slice(g * rows, (g + 1) * rows));
  }
  return all;
}

class Guessed final : public Reader {
 public:
  explicit Guessed(const Params& params)
      : rows_(params.Int("rows")),
        dense_layers_(params.Int("dense_layers")),
        columns_(params.Real("columns")),
        alpha_(static_cast<float>(params.Real("alpha"))),
        share_(params.Real("share")) {}

  Needs needs() const override { return {.window = rows_, .guessed_queries = true}; }

  void Use(std::shared_ptr<const Calibration> calibration) override {
    calibration_ = std::move(calibration);
  }

  Status Check(const ModelShape& shape) const override {
    for (int64_t layer = dense_layers_; layer < shape.layers && calibration_ != nullptr; ++layer) {
      KVG_TRY(Table(shape, layer));
    }
    return {};
  }

  // The kept columns of one head, as directions, and its keys in them.
  struct Head {
    Buffer directions;  // [columns, key_dim] f32
    Buffer keys;        // [capacity, columns] of the cache's type
    int64_t columns = 0, held = 0, capacity = 0;

    Tensor Directions(const ModelShape& shape) const {
      return directions.As(DType::kF32, {columns, shape.key_dim});
    }
    Tensor Keys(const ModelShape& shape) const {
      return keys.As(shape.cache_dtype, {capacity, columns});
    }
  };
  struct Index final : State {
    std::vector<Head> heads;  // empty: the layer reads everything
    int64_t number_bytes = 0;

    int64_t bytes() const override {
      int64_t bytes = 0;
      for (const Head& head : heads) {
        bytes += head.held * head.columns * number_bytes + head.directions.size_bytes();
      }
      return bytes;
    }
  };

  int64_t MostBytes(const ModelShape& shape, int64_t layer, int64_t entries) const override {
    if (layer < dense_layers_) return 0;
    const ModelShape own = shape.OfLayer(layer);
    // Queries and keys may be largest in other columns.
    const int64_t columns = std::min(own.key_dim, 2 * ColumnsOf(own.key_dim));
    return own.kv_heads * (entries * columns * SizeOf(own.cache_dtype) +
                           HostBufferBytes(columns * own.key_dim * SizeOf(DType::kF32)));
  }

  std::unique_ptr<State> Begin(LayerView& view) const override {
    const ModelShape& shape = view.shape();
    auto index = std::make_unique<Index>();
    index->number_bytes = SizeOf(shape.cache_dtype);
    if (view.layer() < dense_layers_) return index;
    Tensor queries;  // where a stage acted since the prompt, there are none
    if (!view.decoding()) queries = view.WindowQueries(std::min(rows_, view.tokens()));
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      Head& head = index->heads.emplace_back();
      const Tensor kept = KeptColumns(view, h, queries);
      head.columns = kept.shape[0];
      head.directions = view.ops().memory->Allocate(kept.Numel() * SizeOf(DType::kF32));
      view.ops().memory->Copy(kept, head.Directions(shape));
    }
    Append(view, std::vector<int64_t>(static_cast<size_t>(shape.kv_heads)), *index);
    return index;
  }

  void Append(LayerView& view, std::span<const int64_t> first, State& state) const override {
    auto& index = static_cast<Index&>(state);
    Ops& ops = view.ops();
    const ModelShape& shape = view.shape();
    for (size_t h = 0; h < index.heads.size(); ++h) {
      Head& head = index.heads[h];
      const int64_t begin = first[h], end = view.lengths()[h], n = end - begin;
      if (n <= 0) continue;
      Grow(view, begin, end, head);
      const Tensor keys = Turned(view, view.Keys(static_cast<int64_t>(h), begin), head);
      ops.rows->Convert(keys, head.Keys(shape).Slice(begin, end));
      head.held = end;
    }
  }

  bool saves() const override { return true; }
  Status Fields(LayerView& view, State& state, StateFields& fields) const override {
    const ModelShape& shape = view.shape();
    for (Head& head : static_cast<Index&>(state).heads) {
      KVG_TRY(fields.Number("columns that a head keeps", 1, shape.key_dim, &head.columns));
      KVG_TRY(fields.Memory("columns of a head", view.ops(), DType::kF32,
                            head.columns * shape.key_dim, &head.directions));
      KVG_TRY(fields.Memory("keys in its columns", view.ops(), shape.cache_dtype,
                            head.held * head.columns, &head.keys));
      if (fields.reads()) head.capacity = head.held;
    }
    return {};
  }

  bool ReadsFew(int64_t layer, int64_t length) const override {
    return layer >= dense_layers_ &&
           AreFew(static_cast<int64_t>(share_ * static_cast<double>(length)), length);
  }

  bool Select(LayerView& view, State& state, const Tensor&, Tensor words) const override {
    const auto& index = static_cast<const Index&>(state);
    if (index.heads.empty() || !view.has_guess()) return false;
    Ops& ops = view.ops();
    const int64_t group = view.shape().group();
    const Tensor guess = view.GuessedQueries();
    const Tensor counts = view.Scratch(DType::kF32, {view.shape().query_heads});
    std::vector<Tensor> logits;  // [group, entries before the newest] of each KV head
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      logits.push_back(Logits(view, h, index.heads[static_cast<size_t>(h)],
                              guess.Slice(h * group, (h + 1) * group)));
      if (logits.back().empty()) continue;
      CountNearBest(view, logits.back(), counts.Slice(h * group, (h + 1) * group));
    }
    double sum = 0;
    for (const float count : Fetch(ops, counts)) sum += static_cast<double>(count);
    const auto wanted = static_cast<int64_t>(sum / static_cast<double>(counts.shape[0]));
    std::vector<int64_t> reads;
    bool all = true;
    for (const Tensor& own : logits) {
      const int64_t n = own.empty() ? 0 : own.shape[1];
      const auto most = static_cast<int64_t>(share_ * static_cast<double>(n));
      reads.push_back(std::min(n, std::max<int64_t>(1, std::min(wanted, most))));
      all = all && reads.back() == n;
    }
    if (all) return false;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h], read = reads[static_cast<size_t>(h)];
      if (length == 0) continue;
      const Tensor own = Columns(words.Slice(h * group, (h + 1) * group), 0, (length + 63) / 64);
      Tensor newest = Numbers(view, 1, static_cast<int32_t>(length) - 1).Reshape({1, 1});
      newest.shape[0] = group;
      newest.stride[0] = 0;
      ops.select->MarkRuns(newest, 1, length, own);
      if (read == 0) continue;
      const std::vector<int32_t> of_each(static_cast<size_t>(group), static_cast<int32_t>(read));
      const Tensor chosen = view.Scratch(DType::kI32, {group, read});
      ops.select->TopK(logits[static_cast<size_t>(h)], Upload(view, of_each), chosen);
      ops.select->MarkRuns(chosen, 1, length, own);
    }
    return true;
  }

 private:
  // Kept by queries, and by keys.
  int64_t ColumnsOf(int64_t dim) const {
    return std::max<int64_t>(1, static_cast<int64_t>(columns_ * static_cast<double>(dim)));
  }

  Result<Tensor> Table(const ModelShape& shape, int64_t layer) const {
    return calibration_->Find(SkewName(layer),
                              std::array{shape.kv_heads, shape.key_dim, shape.key_dim});
  }

  // Rows [n, key_dim] in the kept columns: [n, columns].
  static Tensor Turned(LayerView& view, const Tensor& rows, const Head& head) {
    const int64_t n = rows.shape[0], dim = rows.shape[1];
    const Tensor turned = view.Scratch(DType::kF32, {n, head.columns});
    view.ops().linear->MatMulNT(rows.Reshape({1, n, dim}),
                                head.Directions(view.shape()).Reshape({1, head.columns, dim}), 1.0f,
                                turned.Reshape({1, n, head.columns}));
    return turned;
  }

  // By the guess, of all entries but the newest; empty where there are none. guess: [group,
  // key_dim]
  static Tensor Logits(LayerView& view, int64_t h, const Head& head, const Tensor& guess) {
    const int64_t n = view.lengths()[h] - 1, group = guess.shape[0];
    if (n <= 0) return {};
    const Tensor query = Turned(view, guess, head);
    const Tensor keys = view.Scratch(DType::kF32, {n, head.columns});
    const Tensor logits = view.Scratch(DType::kF32, {group, n});
    view.ops().rows->Convert(head.Keys(view.shape()).Slice(0, n), keys);
    view.ops().linear->MatMulNT(query.Reshape({1, group, head.columns}),
                                keys.Reshape({1, n, head.columns}), 1.0f,
                                logits.Reshape({1, group, n}));
    LogitsOfProducts(view, logits);
    HideFromNewest(view, h, 0, 1, logits);
    return logits;
  }

  // counts: [group]
  void CountNearBest(LayerView& view, const Tensor& logits, const Tensor& counts) const {
    RowOps& rows = *view.ops().rows;
    const int64_t group = logits.shape[0], n = logits.shape[1];
    const Tensor least = view.Scratch(DType::kF32, {1, group});
    const Tensor near = view.Scratch(DType::kF32, {group, n});
    rows.ReduceRows(logits, Reduction::kMax, least[0]);
    rows.Affine(least, 1.0f, -alpha_, least);
    rows.Combine(Spread(view, least[0], n), logits, Binary::kLess, near);
    rows.ReduceRows(near, Reduction::kSum, counts);
  }

  // Room for `entries`; the first `keep` stay.
  static void Grow(LayerView& view, int64_t keep, int64_t entries, Head& head) {
    if (entries <= head.capacity) return;
    const ModelShape& shape = view.shape();
    Head larger;
    larger.columns = head.columns;
    larger.capacity = std::max(entries + 64, 2 * head.capacity);
    larger.keys =
        view.ops().memory->Allocate(larger.capacity * larger.columns * SizeOf(shape.cache_dtype));
    if (keep > 0) {
      view.ops().memory->Copy(head.Keys(shape).Slice(0, keep), larger.Keys(shape).Slice(0, keep));
    }
    head.capacity = larger.capacity;
    head.keys = std::move(larger.keys);
  }

  // All columns of a head's turn as directions, [key_dim, key_dim]. rows: whose singular vectors
  // they are, without a calibration.
  Tensor Skew(LayerView& view, int64_t head, const Tensor& rows) const {
    const int64_t dim = view.shape().key_dim;
    if (calibration_ != nullptr) {
      const Result<Tensor> table = Table(view.shape(), view.layer());
      KVG_CHECK(table.ok(), "a calibration that was not checked");
      const float* own = table->f32() + head * dim * dim;
      return Upload(view, std::span<const float>(own, static_cast<size_t>(dim * dim)))
          .Reshape({dim, dim});
    }
    const Tensor vectors = view.Scratch(DType::kF32, {dim, dim});
    view.ops().algebra->Eigenvectors(ColumnProducts(view, rows), view.Scratch(DType::kF32, {dim}),
                                     vectors);
    return vectors;
  }

  // Those of the turned columns in which queries, or keys, are largest: [columns, key_dim].
  // queries: of the prompt, or empty.
  Tensor KeptColumns(LayerView& view, int64_t head, const Tensor& queries) const {
    Ops& ops = view.ops();
    const int64_t dim = view.shape().key_dim;
    const bool asked = !queries.empty() && queries.shape[0] > 0;
    const Tensor keys = view.Keys(head);
    const Tensor own = asked ? QueriesOfGroup(view, head, queries) : keys;
    const Tensor skew = Skew(view, head, own);
    const int64_t count = ColumnsOf(dim);
    const Tensor is_kept = view.Scratch(DType::kF32, {dim});
    for (const Tensor& rows : {own, keys}) {
      const int64_t n = rows.shape[0];
      const Tensor sizes = view.Scratch(DType::kF32, {1, dim});
      if (n > 0) {
        const Tensor turned = view.Scratch(DType::kF32, {n, dim});
        ops.linear->MatMulNT(rows.Reshape({1, n, dim}), skew.Reshape({1, dim, dim}), 1.0f,
                             turned.Reshape({1, n, dim}));
        ops.rows->ReduceColumns(turned, Reduction::kSumAbs, sizes[0]);
      }
      ops.select->Scatter(AsColumn(Filled(view, count, 1.0f)), Best(view, sizes, count),
                          AsColumn(is_kept));
    }
    std::vector<int32_t> index;
    const std::vector<float> marks = Fetch(ops, is_kept);
    for (size_t i = 0; i < marks.size(); ++i) {
      if (marks[i] > 0) index.push_back(static_cast<int32_t>(i));
    }
    const Tensor kept = view.Scratch(DType::kF32, {std::ssize(index), dim});
    ops.select->Gather(skew, Upload(view, index), kept);
    return kept;
  }

  int64_t rows_, dense_layers_;
  double columns_;
  float alpha_;
  double share_;
  std::shared_ptr<const Calibration> calibration_;
};

// The singular vectors of the queries of all texts, by KV head.
class GuessedCalibrator final : public Calibrator {
 public:
  GuessedCalibrator(const Params&, const ModelShape& shape, std::span<const int64_t>)
      : shape_(shape), sums_(static_cast<size_t>(shape.layers * shape.kv_heads)) {
    const auto dim = static_cast<size_t>(shape.key_dim);
    for (std::vector<double>& sums : sums_) sums.resize(dim * dim);
  }

  Needs needs(int) const override { return {.window = kRows}; }

  void Observe(int, LayerView& view) override {
    const auto dim = static_cast<size_t>(shape_.key_dim);
    const Tensor queries = view.WindowQueries(std::min(kRows, view.tokens()));
    for (int64_t h = 0; h < shape_.kv_heads; ++h) {
      std::vector<double>& sums = sums_[static_cast<size_t>(view.layer() * shape_.kv_heads + h)];
      const std::vector<float> own = Fetch(view.ops(), QueriesOfGroup(view, h, queries));
      for (size_t row = 0; row < own.size(); row += dim) {
        for (size_t a = 0; a < dim; ++a) {
          for (size_t b = 0; b < dim; ++b) {
            sums[a * dim + b] += double{own[row + a]} * double{own[row + b]};
          }
        }
      }
    }
  }

  Calibration::Tables Finish(Ops& ops) override {
    Calibration::Tables tables;
    const int64_t dim = shape_.key_dim, size = dim * dim;
    const Buffer memory = ops.memory->Allocate(4 * (2 * size + dim));
    const Tensor all = memory.As(DType::kF32, {2 * size + dim});
    const Tensor products = all.Slice(0, size).Reshape({dim, dim});
    const Tensor vectors = all.Slice(size, 2 * size).Reshape({dim, dim});
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      std::vector<float> of_layer;
      for (int64_t h = 0; h < shape_.kv_heads; ++h) {
        const std::vector<double>& sums = sums_[static_cast<size_t>(layer * shape_.kv_heads + h)];
        // f32 holds the sums, however many the texts were.
        double largest = 1e-30;
        for (const double sum : sums) largest = std::max(largest, sum);
        std::vector<float> narrow;
        for (const double sum : sums) narrow.push_back(static_cast<float>(sum / largest));
        ops.memory->Copy(View(narrow, {dim, dim}), products);
        ops.algebra->Eigenvectors(products, all.Slice(2 * size, 2 * size + dim), vectors);
        const std::vector<float> own = Fetch(ops, vectors);
        of_layer.insert(of_layer.end(), own.begin(), own.end());
      }
      tables[SkewName(layer)] = {{shape_.kv_heads, dim, dim}, std::move(of_layer)};
    }
    return tables;
  }

 private:
  static constexpr int64_t kRows = 512;  // of each text, the last ones

  const ModelShape shape_;
  std::vector<std::vector<double>> sums_;  // [layers * kv_heads] of [key_dim, key_dim] products
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "guessed",
    .paper = "arXiv:2406.19707",
    .summary = "reads what scores best by a query guessed from the input of the layer below",
    .departures =
        {"without a calibration a head turns by the prompt's last rows, not by those of a text",
         "after an eviction in decode a head turns by its keys",
         "columns are chosen by the prompt's last rows and keys, not by a text's as for Llama",
         "the query heads of a KV head turn alike and keep the same columns",
         "each query head is measured by its own best logit, as in the code for OPT",
         "the newest entry is always read and `share` is of those before it",
         "all entries lie in one memory; the reference fetches them from the host",
         "the guess takes the whole projection, not the kept columns of it",
         "the limit of the reference's pool on the host is left out"},
    .bytes = "of the cache's type an entry and head, as many as there are kept columns, at most 2 "
             "* columns * key_dim, and 4 * key_dim for each of these a head, beside the cache, in "
             "layers that choose",
    .params = {IntParam("rows", 128, 1, 1 << 16, "last rows of the prompt whose queries count"),
               RealParam("columns", 0.3, 0.001, 1,
                         "share of the turned columns that is kept by queries, and by keys"),
               RealParam("alpha", 5, 0, 1e9, "how far below the best logit entries are counted"),
               RealParam("share", 0.2, 0.001, 1, "the most of the entries that a query head reads"),
               IntParam("dense_layers", 2, 1, 1000, "first layers that read everything"),
               CalibrationParam()},
    .make = Make<Guessed>(),
    .calibrate = MakeCalibrator<GuessedCalibrator>,
});

}  // namespace
}  // namespace kvgauge
