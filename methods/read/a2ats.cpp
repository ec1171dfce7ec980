// SPDX-License-Identifier: Apache-2.0
// Reads the entries whose keys, as codewords at one distance, match the query best.
//
// Paper: A2ATS, arXiv:2502.12665; after junhuihe-hjh/A2ATS. Needs keys before rotation, the query
// of each decode step and, without a calibration, moments of the prompt's queries. Where all that
// is far counts as `distance` tokens away, a query turned to that distance meets keys before
// rotation. A key is then the nearest of `codewords` by the error that is left of the products: (k
// - c) H (k - c), H the second moment of such queries, H = L L^T, so that codewords are clusters of
// k L. For each query head the best `share` of the entries by the products of their codewords are
// read, by all query heads of the KV head, and beside them the first `sinks` and the last `local`.
// Attention itself has every entry at its own distance, as in the authors' code.
#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "kernels/buffer_bytes.h"
#include "methods/calibration.h"
#include "methods/registry.h"
#include "methods/repeating_reader.h"
#include "methods/repeating_view.h"
#include "methods/state_fields.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// Fewest keys of a prompt, and most keys of texts, for each codeword that is learned from them.
constexpr int64_t kRowsOfWord = 16;

std::string FactorsName(int64_t layer) { return StrCat("factors.", layer); }
std::string FarWordsName(int64_t layer) { return StrCat("words.", layer); }

// The second moment of one KV head's queries, turned by the rotation `angles` of one position
// ([2, 1, n], or empty): [key_dim, key_dim], over the query heads of the KV head.
std::vector<float> SecondMoment(LayerView& view, int64_t head, const Tensor& mean,
                                const Tensor& covariance, const Tensor& angles) {
  Ops& ops = view.ops();
  const int64_t dim = view.shape().key_dim, group = view.shape().group();
  const Tensor sum = view.Scratch(DType::kF32, {1, dim, dim});
  const Tensor outer = view.Scratch(DType::kF32, {1, dim, dim});
  for (int64_t q = head * group; q < (head + 1) * group; ++q) {
    ops.linear->MatMulNN(mean[q].Reshape({1, dim, 1}), mean[q].Reshape({1, 1, dim}), 1.0f, outer);
    ops.rows->Combine(sum[0], outer[0], Binary::kAdd, sum[0]);
    ops.rows->Combine(sum[0], covariance[q], Binary::kAdd, sum[0]);
  }
  if (angles.empty()) return Fetch(ops, sum);
  // The rows of a symmetric matrix turned, then its columns.
  std::vector<float> units(static_cast<size_t>(dim * dim));
  for (int64_t i = 0; i < dim; ++i) units[static_cast<size_t>(i * dim + i)] = 1.0f;
  const Tensor unit = Upload(view, units).Reshape({1, dim, dim});
  const auto turn = [&](const Tensor& matrix) {
    // Each row is one of as many heads at that position.
    ops.rows->Rope(angles[0], angles[1], view.shape().rope_layout, RopeDirection::kForward, matrix);
  };
  turn(sum);
  ops.linear->MatMulNT(unit, sum, 1.0f, outer);
  turn(outer);
  return Fetch(ops, outer);
}

// Row by row: the lower factor L of `moment` over its root mean square, and its inverse. A little
// is added to the diagonal until it has one.
struct Factor {
  std::vector<double> lower, inverse;
};
Factor FactorOf(std::span<const double> moment, int64_t dim) {
  const auto at = [dim](int64_t i, int64_t j) { return static_cast<size_t>(i * dim + j); };
  double squares = 0;
  for (const double x : moment) squares += x * x;
  const double size = std::sqrt(squares / static_cast<double>(moment.size()));
  Factor factor;
  for (double ridge = 1e-6;; ridge *= 10) {
    std::vector<double>& l = factor.lower;
    l.assign(moment.size(), 0.0);
    bool whole = true;
    for (int64_t i = 0; i < dim && whole; ++i) {
      for (int64_t j = 0; j <= i; ++j) {
        double sum = size > 0 ? moment[at(i, j)] / size : 0.0;
        if (i == j) sum += ridge;
        for (int64_t k = 0; k < j; ++k) sum -= l[at(i, k)] * l[at(j, k)];
        if (i == j) whole = sum > 0;
        if (!whole) break;
        l[at(i, j)] = i == j ? std::sqrt(sum) : sum / l[at(j, j)];
      }
    }
    if (whole) break;
  }
  std::vector<double>& inverse = factor.inverse;
  inverse.assign(moment.size(), 0.0);
  for (int64_t column = 0; column < dim; ++column) {
    for (int64_t i = column; i < dim; ++i) {
      double sum = i == column ? 1.0 : 0.0;
      for (int64_t k = column; k < i; ++k) sum -= factor.lower[at(i, k)] * inverse[at(k, column)];
      inverse[at(i, column)] = sum / factor.lower[at(i, i)];
    }
  }
  return factor;
}

std::vector<float> Transposed(std::span<const double> matrix, int64_t dim) {
  std::vector<float> out(matrix.size());
  for (int64_t i = 0; i < dim; ++i) {
    for (int64_t j = 0; j < dim; ++j) {
      out[static_cast<size_t>(j * dim + i)] =
          static_cast<float>(matrix[static_cast<size_t>(i * dim + j)]);
    }
  }
  return out;
}

// out = rows of x times the matrix whose transpose is `turned`. x: [n, dim]; turned: [dim, dim].
void TimesMatrix(Ops& ops, const Tensor& x, const Tensor& turned, const Tensor& out) {
  const int64_t n = x.shape[0], dim = turned.shape[0];
  ops.linear->MatMulNT(x.Reshape({1, n, dim}), turned.Reshape({1, dim, dim}), 1.0f,
                       out.Reshape({1, n, dim}));
}

// Evenly spaced rows of n.
std::vector<int32_t> Spaced(int64_t count, int64_t n) {
  std::vector<int32_t> start;
  for (int64_t c = 0; c < count; ++c) start.push_back(static_cast<int32_t>(c * n / count));
  return start;
}

class A2ats final : public Reader, public RepeatingReader {
 public:
  explicit A2ats(const Params& params)
      : share_(params.Real("share")),
        codewords_(params.Int("codewords")),
        sinks_(params.Int("sinks")),
        local_(params.Int("local")),
        distance_(params.Int("distance")),
        iterations_(static_cast<int>(params.Int("iterations"))) {}

  void Use(std::shared_ptr<const Calibration> calibration) override {
    calibration_ = std::move(calibration);
  }

  Needs needs() const override {
    Needs needs = {.raw_keys = true};
    if (calibration_ == nullptr) needs.query_moments = {0};
    return needs;
  }

  Status Check(const ModelShape& shape) const override {
    if (shape.latent_dim > 0) {
      return BadInput(
          "compares keys before rotation, and latent attention rotates a part of each key of its "
          "own; use a model with keys of single heads, or another reader");
    }
    for (int64_t layer = 0; calibration_ != nullptr && layer < shape.layers; ++layer) {
      KVG_TRY(Words(shape, layer));
      KVG_TRY(Factors(shape, layer));
    }
    return {};
  }

  // The codewords of one KV head, and which of them its keys are.
  struct Book {
    int64_t count = 0, coded = 0, capacity = 0;
    Buffer turned;     // [key_dim, key_dim]: L^T
    Buffer centroids;  // [count, key_dim]: codewords times L
    Buffer words;      // [count, key_dim]
    Buffer codes;      // [capacity] i32

    Tensor Turned(int64_t dim) const { return turned.As(DType::kF32, {dim, dim}); }
    Tensor Centroids(int64_t dim) const { return centroids.As(DType::kF32, {count, dim}); }
    Tensor Words(int64_t dim) const { return words.As(DType::kF32, {count, dim}); }
    Tensor Codes(int64_t n) const { return codes.As(DType::kI32, {n}); }
  };
  struct Index final : State {
    std::vector<Book> heads;
    Buffer turn;  // [2, rotary_dim / 2] f32 of `distance`; empty without rotation
    int64_t bytes() const override {
      int64_t sum = turn.size_bytes();
      for (const Book& book : heads) {
        sum += book.turned.size_bytes() + book.centroids.size_bytes() + book.words.size_bytes() +
               book.coded * SizeOf(DType::kI32);
      }
      return sum;
    }
  };

  int64_t MostBytes(const ModelShape& shape, int64_t layer, int64_t entries) const override {
    const ModelShape own = shape.OfLayer(layer);
    const int64_t count = calibration_ == nullptr ? Learned(entries) : codewords_;
    const auto rows = [&](int64_t n) {
      return HostBufferBytes(n * own.key_dim * SizeOf(DType::kF32));
    };
    return HostBufferBytes(own.rotary_dim * SizeOf(DType::kF32)) +
           own.kv_heads * (rows(own.key_dim) + 2 * rows(count) + entries * SizeOf(DType::kI32));
  }

  std::unique_ptr<State> Begin(LayerView& view) const override {
    auto index = std::make_unique<Index>();
    index->heads.resize(static_cast<size_t>(view.shape().kv_heads));
    const Tensor angles = view.Rotations(distance_, 1);
    if (!angles.empty()) {
      index->turn = view.ops().memory->Allocate(angles.Numel() * SizeOf(DType::kF32));
      view.ops().memory->Copy(angles.Reshape({angles.Numel()}),
                              index->turn.As(DType::kF32, {angles.Numel()}));
    }
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[static_cast<size_t>(h)];
      if (length == 0) continue;
      Book& book = index->heads[static_cast<size_t>(h)];
      if (calibration_ != nullptr) {
        Take(view, h, book);
        Code(view, h, 0, length, book);
      } else {
        Learn(view, h, length, angles, book);
      }
    }
    return index;
  }

  void Append(LayerView& view, std::span<const int64_t> first, State& state) const override {
    auto& index = static_cast<Index&>(state);
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      Book& book = index.heads[static_cast<size_t>(h)];
      const int64_t length = view.lengths()[static_cast<size_t>(h)];
      const int64_t before = std::min(book.coded, first[static_cast<size_t>(h)]);
      if (book.count == 0 || length <= before) continue;
      RepeatingView* const repeating = Repeating(view);
      if (before + 1 == length && repeating != nullptr) {
        CodeOne(view, before, repeating->NewestRawKey(h), book);
      } else {
        Code(view, h, before, length, book);
      }
    }
  }

  bool saves() const override { return true; }
  Status Fields(LayerView& view, State& state, StateFields& fields) const override {
    Ops& ops = view.ops();
    const int64_t dim = view.shape().key_dim;
    auto& heads = static_cast<Index&>(state).heads;
    for (size_t h = 0; h < heads.size(); ++h) {
      Book& book = heads[h];
      const int64_t length = view.lengths()[h];
      if (length == 0) continue;
      KVG_TRY(fields.Number("codewords of a head", 1, codewords_, &book.count));
      KVG_TRY(fields.Memory("what turns keys", ops, DType::kF32, dim * dim, &book.turned));
      KVG_TRY(fields.Memory("codewords that are turned", ops, DType::kF32, book.count * dim,
                            &book.centroids));
      KVG_TRY(fields.Memory("codewords", ops, DType::kF32, book.count * dim, &book.words));
      KVG_TRY(fields.Indices("codes of entries", ops, length, book.count, &book.codes));
      if (fields.reads()) book.coded = book.capacity = length;
    }
    return {};
  }

  bool ReadsFew(int64_t, int64_t length) const override {
    return AreFew(sinks_ + local_ + Picks(length), length);
  }

  bool Select(LayerView& view, State& state, const Tensor& q, Tensor words) const override {
    const auto& index = static_cast<const Index&>(state);
    const auto few = [this](int64_t length) { return length <= sinks_ + local_ + Picks(length); };
    if (std::all_of(view.lengths().begin(), view.lengths().end(), few)) return false;
    Ops& ops = view.ops();
    const ModelShape& shape = view.shape();
    const int64_t heads = shape.query_heads, dim = shape.key_dim, group = shape.group();
    const Tensor query = view.Scratch(DType::kF32, {heads, dim});
    ops.rows->Convert(q, query);
    if (index.turn.size_bytes() > 0) {
      const Tensor rows = query.Reshape({1, heads, dim});
      const Tensor at = view.Rotations(view.tokens() - 1, 1);
      const Tensor there = index.turn.As(DType::kF32, {2, 1, at.shape[2]});
      ops.rows->Rope(at[0], at[1], shape.rope_layout, RopeDirection::kInverse, rows);
      ops.rows->Rope(there[0], there[1], shape.rope_layout, RopeDirection::kForward, rows);
    }
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      const int64_t length = view.lengths()[static_cast<size_t>(h)];
      if (length == 0) continue;
      const int64_t begin = h * group, end = begin + group;
      const Tensor chosen =
          Choose(view, index.heads[static_cast<size_t>(h)], query.Slice(begin, end), length);
      const Tensor own = Columns(words.Slice(begin, end), 0, (length + 63) / 64);
      for (int64_t g = 0; g < group; ++g) {
        Tensor one = chosen.Slice(g, g + 1);
        one.shape[0] = group;
        one.stride[0] = 0;
        ops.select->MarkRuns(one, 1, length, own);
      }
    }
    return true;
  }

 private:
  int64_t Picks(int64_t length) const {
    return static_cast<int64_t>(share_ * static_cast<double>(length) + 1e-9);
  }
  // How many codewords so many keys of a prompt give.
  int64_t Learned(int64_t length) const {
    return std::min(codewords_, std::max<int64_t>(1, length / kRowsOfWord));
  }
  Result<Tensor> Words(const ModelShape& shape, int64_t layer) const {
    const int64_t sizes[] = {shape.kv_heads, codewords_, shape.key_dim};
    return calibration_->Find(FarWordsName(layer), sizes);
  }
  Result<Tensor> Factors(const ModelShape& shape, int64_t layer) const {
    const int64_t sizes[] = {shape.kv_heads, shape.key_dim, shape.key_dim};
    return calibration_->Find(FactorsName(layer), sizes);
  }

  static void Room(LayerView& view, int64_t dim, Book& book) {
    MemoryOps& memory = *view.ops().memory;
    book.turned = memory.Allocate(dim * dim * SizeOf(DType::kF32));
    book.centroids = memory.Allocate(book.count * dim * SizeOf(DType::kF32));
    book.words = memory.Allocate(book.count * dim * SizeOf(DType::kF32));
  }

  // Those of the side-file. Precondition: Check.
  void Take(LayerView& view, int64_t head, Book& book) const {
    const int64_t dim = view.shape().key_dim;
    book.count = codewords_;
    Room(view, dim, book);
    const auto copy = [&](const Tensor& tables, const Tensor& to) {
      const int64_t size = to.Numel();
      view.ops().memory->Copy(tables.Slice(head * size, (head + 1) * size), to.Reshape({size}));
    };
    copy(*Factors(view.shape(), view.layer()), book.Turned(dim));
    copy(*Words(view.shape(), view.layer()), book.Words(dim));
    TimesMatrix(view.ops(), book.Words(dim), book.Turned(dim), book.Centroids(dim));
  }

  // From the prompt; where none is at hand, every error of a key counts alike.
  void Learn(LayerView& view, int64_t head, int64_t length, const Tensor& angles,
             Book& book) const {
    Ops& ops = view.ops();
    const int64_t dim = view.shape().key_dim;
    book.count = Learned(length);
    Room(view, dim, book);
    std::vector<double> moment(static_cast<size_t>(dim * dim));
    if (view.decoding()) {
      for (int64_t i = 0; i < dim; ++i) moment[static_cast<size_t>(i * dim + i)] = 1.0;
    } else {
      const std::vector<float> found =
          SecondMoment(view, head, view.QueryMean(0), view.QueryCovariance(0), angles);
      moment.assign(found.begin(), found.end());
    }
    const Factor factor = FactorOf(moment, dim);
    ops.memory->Copy(View(Transposed(factor.lower, dim), {dim, dim}), book.Turned(dim));
    const Tensor rows = view.Scratch(DType::kF32, {length, dim});
    const Tensor codes = view.Scratch(DType::kI32, {length});
    TimesMatrix(ops, view.RawKeys(head), book.Turned(dim), rows);
    ops.select->Gather(rows, Upload(view, Spaced(book.count, length)), book.Centroids(dim));
    ops.algebra->KMeans(rows, iterations_, book.Centroids(dim), codes);
    const std::vector<float> back = Transposed(factor.inverse, dim);
    TimesMatrix(ops, book.Centroids(dim),
                Upload(view, std::span<const float>(back)).Reshape({dim, dim}), book.Words(dim));
    Keep(view, 0, codes, book);
  }

  // Codes of the entries [first, length).
  static void Code(LayerView& view, int64_t head, int64_t first, int64_t length, Book& book) {
    Ops& ops = view.ops();
    const int64_t dim = view.shape().key_dim;
    const Tensor rows = view.Scratch(DType::kF32, {length - first, dim});
    const Tensor codes = view.Scratch(DType::kI32, {length - first});
    TimesMatrix(ops, view.RawKeys(head, first), book.Turned(dim), rows);
    ops.algebra->KMeans(rows, 0, book.Centroids(dim), codes);
    Keep(view, first, codes, book);
  }

  // The same of one entry, whose key is given: [1, key_dim]. A device repeats what was submitted
  // for the entry before.
  static void CodeOne(LayerView& view, int64_t at, const Tensor& key, Book& book) {
    Ops& ops = view.ops();
    const int64_t dim = view.shape().key_dim;
    Grow(view, at, at + 1, book);
    const auto place = static_cast<int32_t>(at);
    const Tensor where = Upload(view, std::span(&place, 1));
    const Tensor row = view.Scratch(DType::kF32, {1, dim});
    const Tensor code = view.Scratch(DType::kI32, {1});
    TimesMatrix(ops, key, book.Turned(dim), row);
    ops.algebra->KMeans(row, 0, book.Centroids(dim), code);
    ops.select->Scatter(AsColumn(code), where, AsColumn(book.Codes(book.capacity)));
    book.coded = at + 1;
  }

  // Room for `length` codes; the first `keep` stay.
  static void Grow(LayerView& view, int64_t keep, int64_t length, Book& book) {
    if (length <= book.capacity) return;
    MemoryOps& memory = *view.ops().memory;
    const int64_t capacity = std::max(length + 64, 2 * book.capacity);
    Buffer larger = memory.Allocate(capacity * SizeOf(DType::kI32));
    if (keep > 0) memory.Copy(book.Codes(keep), larger.As(DType::kI32, {keep}));
    book.codes = std::move(larger);
    book.capacity = capacity;
  }

  static void Keep(LayerView& view, int64_t first, const Tensor& codes, Book& book) {
    const int64_t length = first + codes.shape[0];
    Grow(view, first, length, book);
    view.ops().memory->Copy(codes, book.Codes(length).Slice(first, length));
    book.coded = length;
  }

  // What each query head reads: [group, read or more] i32; -1: none. q: [group, key_dim], turned.
  Tensor Choose(LayerView& view, const Book& book, const Tensor& q, int64_t length) const {
    Ops& ops = view.ops();
    const int64_t group = q.shape[0], dim = q.shape[1];
    const int64_t first = std::min(sinks_, length), last = std::min(local_, length - first);
    const int64_t between = length - first - last, picks = std::min(between, Picks(length));
    // Columns behind those of the entries mean nothing.
    const int64_t room = std::min(GrowingColumns(view, between), book.capacity - first);
    const Tensor order =
        view.Scratch(DType::kF32, {group, std::max(GrowingColumns(view, length), first + room)});
    ops.rows->Fill(kForcedScore, order);
    // A head that held nothing when the others were indexed reads its first entries.
    if (between > 0 && book.count > 0) {
      const Tensor products = view.Scratch(DType::kF32, {group, book.count});
      ops.linear->MatMulNT(q.Reshape({1, group, dim}),
                           book.Words(dim).Reshape({1, book.count, dim}), 1.0f,
                           products.Reshape({1, group, book.count}));
      const Tensor codes = book.Codes(first + room).Slice(first, first + room);
      for (int64_t g = 0; g < group; ++g) {
        ops.select->Gather(AsColumn(products[g]), codes,
                           AsColumn(order[g].Slice(first, first + room)));
      }
      if (Repeating(view) != nullptr) {  // others have no room to write over the last ones
        ops.rows->FillColumns(kForcedScore, length - last, length, order);
      }
    }
    const int64_t read = first + last + picks;
    const std::vector<int32_t> counts(static_cast<size_t>(group), static_cast<int32_t>(read));
    const Tensor chosen = view.Scratch(DType::kI32, {group, GrowingColumns(view, read)});
    ops.select->TopK(Columns(order, 0, length), Upload(view, counts), chosen);
    return chosen;
  }

  double share_;
  int64_t codewords_, sinks_, local_, distance_;
  int iterations_;
  std::shared_ptr<const Calibration> calibration_;
};

// Learns factors and codewords from the keys and queries of texts, at most so many keys of a head.
class A2atsCalibrator final : public Calibrator {
 public:
  A2atsCalibrator(const Params& params, const ModelShape& shape, std::span<const int64_t> lengths)
      : shape_(shape),
        codewords_(params.Int("codewords")),
        distance_(params.Int("distance")),
        iterations_(static_cast<int>(params.Int("iterations"))) {
    int64_t entries = 0;
    for (const int64_t length : lengths) entries += length;
    const int64_t most = kRowsOfWord * codewords_;
    step_ = std::max<int64_t>(1, (entries + most - 1) / most);
    const auto heads = static_cast<size_t>(shape.layers * shape.kv_heads);
    rows_.resize(heads);
    moments_.resize(heads);
  }

  Needs needs(int) const override { return {.query_moments = {0}, .raw_keys = true}; }

  void Observe(int, LayerView& view) override {
    const Tensor angles = view.Rotations(distance_, 1);
    const auto tokens = static_cast<double>(view.tokens());
    for (int64_t h = 0; h < shape_.kv_heads; ++h) {
      const size_t at = At(view.layer(), h);
      const std::vector<float> moment =
          SecondMoment(view, h, view.QueryMean(0), view.QueryCovariance(0), angles);
      moments_[at].resize(moment.size());
      for (size_t i = 0; i < moment.size(); ++i) moments_[at][i] += tokens * double{moment[i]};
      const std::vector<float> keys = Fetch(view.ops(), view.RawKeys(h));
      const int64_t dim = shape_.key_dim;
      for (int64_t row = 0; row * dim < std::ssize(keys); row += step_) {
        rows_[at].insert(rows_[at].end(), keys.begin() + row * dim, keys.begin() + (row + 1) * dim);
      }
    }
  }

  Calibration::Tables Finish(Ops& ops) override {
    Calibration::Tables tables;
    const int64_t dim = shape_.key_dim;
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      std::vector<float> factors, words;
      for (int64_t h = 0; h < shape_.kv_heads; ++h) {
        const Factor factor = FactorOf(moments_[At(layer, h)], dim);
        const std::vector<float> turned = Transposed(factor.lower, dim);
        factors.insert(factors.end(), turned.begin(), turned.end());
        const std::vector<float> own = Clusters(ops, rows_[At(layer, h)], factor);
        words.insert(words.end(), own.begin(), own.end());
      }
      tables[FactorsName(layer)] = {{shape_.kv_heads, dim, dim}, std::move(factors)};
      tables[FarWordsName(layer)] = {{shape_.kv_heads, codewords_, dim}, std::move(words)};
    }
    return tables;
  }

 private:
  size_t At(int64_t layer, int64_t head) const {
    return static_cast<size_t>(layer * shape_.kv_heads + head);
  }

  // [codewords, key_dim]; of fewer keys the last one several times.
  std::vector<float> Clusters(Ops& ops, const std::vector<float>& rows,
                              const Factor& factor) const {
    const int64_t dim = shape_.key_dim, n = std::ssize(rows) / dim;
    const int64_t count = std::min(codewords_, n);
    const auto device = [&](int64_t numbers) {
      return ops.memory->Allocate(numbers * SizeOf(DType::kF32));
    };
    const Buffer memory[] = {device(n * dim),   device(n * dim),     device(dim * dim),
                             device(dim * dim), device(count * dim), device(count * dim),
                             device(n),         device(count)};
    const auto matrix = [&](int which, int64_t many) {
      return memory[which].As(DType::kF32, {many, dim});
    };
    ops.memory->Copy(View(rows, {n, dim}), matrix(0, n));
    ops.memory->Copy(View(Transposed(factor.lower, dim), {dim, dim}), matrix(2, dim));
    ops.memory->Copy(View(Transposed(factor.inverse, dim), {dim, dim}), matrix(3, dim));
    TimesMatrix(ops, matrix(0, n), matrix(2, dim), matrix(1, n));
    const std::vector<int32_t> start = Spaced(count, n);
    const Tensor places = memory[7].As(DType::kI32, {count});
    ops.memory->Copy(View(start, {count}), places);
    ops.select->Gather(matrix(1, n), places, matrix(4, count));
    ops.algebra->KMeans(matrix(1, n), iterations_, matrix(4, count),
                        memory[6].As(DType::kI32, {n}));
    TimesMatrix(ops, matrix(4, count), matrix(3, dim), matrix(5, count));
    std::vector<float> words = Fetch(ops, matrix(5, count));
    while (std::ssize(words) < codewords_ * dim) {
      const std::vector<float> last(words.end() - dim, words.end());
      words.insert(words.end(), last.begin(), last.end());
    }
    return words;
  }

  const ModelShape shape_;
  const int64_t codewords_, distance_;
  const int iterations_;
  int64_t step_;
  std::vector<std::vector<float>> rows_;      // [layers][kv_heads] of [n][key_dim]
  std::vector<std::vector<double>> moments_;  // [layers][kv_heads] of [key_dim][key_dim]
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "a2ats",
    .paper = "arXiv:2502.12665",
    .summary = "reads the entries whose keys, as codewords at one distance, match the query best",
    .departures =
        {"without a calibration factors and codewords are the prompt's, a codeword for 16 keys at "
         "most; with one they start from evenly spaced keys of the texts, where the reference "
         "draws them",
         "keys of random strings, which the reference's texts end with, are texts like others"},
    .bytes = "4 an entry and head, and 4 * key_dim * (2 * codewords + key_dim) a head, beside the "
             "cache",
    .params = {RealParam("share", 0.03, 0, 1, "share of the entries that a query head chooses"),
               IntParam("codewords", 4096, 2, 1 << 16, "codewords of a KV head"),
               IntParam("sinks", 8, 0, 1 << 20, "first entries, always read"),
               IntParam("local", 64, 1, 1 << 20, "last entries, always read"),
               IntParam("distance", 2048, 0, 1 << 24, "tokens that all others count as far"),
               IntParam("iterations", 20, 0, 1000, "rounds of clustering"), CalibrationParam()},
    .make = Make<A2ats>(),
    .calibrate = MakeCalibrator<A2atsCalibrator>,
    .calibrated_params = {"codewords", "distance", "iterations"},
});

}  // namespace
}  // namespace kvgauge
