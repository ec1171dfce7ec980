// SPDX-License-Identifier: Apache-2.0
// Reads a sample of the entries, drawn by hashes of signs, each weighted by its chance to be drawn.
//
// Paper: MagicPIG, arXiv:2410.16179; after Infini-AI-Lab/MagicPIG. Needs the query of each decode
// step. The first `sinks` entries of the prompt, its last `local` ones and what is decoded are
// always read. The keys of the others, less their mean, are hashed: a hash is `bits` signs of
// products with random directions, and there are `tables` hashes. A query head reads the entries
// whose hashes are its own in two tables at least. An entry at angle t of the query agrees in one
// sign with p = 1 - t / pi, and so is read with u = 1 - (1 - P)^L - L P (1 - P)^(L - 1), P = p^K;
// the log of u is taken from its score.
#include <algorithm>
#include <numbers>

#include "core/rng.h"
#include "kernels/buffer_bytes.h"
#include "methods/attention.h"
#include "methods/joining_reader.h"
#include "methods/registry.h"
#include "methods/state_fields.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class MagicPig final : public JoiningReader {
 public:
  explicit MagicPig(const Params& params)
      : bits_(params.Int("bits")),
        tables_(params.Int("tables")),
        sinks_(params.Int("sinks")),
        local_(params.Int("local")),
        dense_every_(params.Int("dense_every")) {}

  struct Head {
    int64_t members = 0;  // entries behind the sinks that are hashed
    Buffer directions;    // [bits * tables, key_dim] f32
    Buffer mean;          // [key_dim] f32, of the keys
    Buffer sizes;         // [members] f32, of keys less the mean
    Buffer codes;         // [members, tables] f16: whole numbers, of the signs of a hash
    Buffer drawn;         // [group, members] f32: 1 for what is read in this step, else 0

    int64_t bytes() const {
      return directions.size_bytes() + mean.size_bytes() + sizes.size_bytes() + codes.size_bytes() +
             drawn.size_bytes();
    }
    Tensor Drawn(int64_t group) const { return drawn.As(DType::kF32, {group, members}); }
  };

  struct Index final : State {
    std::vector<Head> heads;  // empty: everything is read

    int64_t bytes() const override {
      int64_t sum = 0;
      for (const Head& head : heads) sum += head.bytes();
      return sum;
    }
  };

  int64_t MostBytes(const ModelShape& shape, int64_t layer, int64_t entries) const override {
    const int64_t members = entries - sinks_ - local_;
    if (IsDense(layer) || members <= 0) return 0;
    const ModelShape own = shape.OfLayer(layer);
    const auto floats = [](int64_t count) { return HostBufferBytes(count * SizeOf(DType::kF32)); };
    return own.kv_heads *
           (floats(bits_ * tables_ * own.key_dim) + floats(own.key_dim) + floats(members) +
            HostBufferBytes(members * tables_ * SizeOf(DType::kF16)) +
            floats(own.group() * members));
  }

  std::unique_ptr<State> Begin(LayerView& view) const override {
    auto index = std::make_unique<Index>();
    const auto fits = [this](int64_t length) { return length <= sinks_ + local_; };
    if (IsDense(view.layer()) || std::all_of(view.lengths().begin(), view.lengths().end(), fits)) {
      return index;
    }
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) index->heads.push_back(Hash(view, h));
    return index;
  }

  void Append(LayerView&, std::span<const int64_t>, State&) const override {}

  bool saves() const override { return true; }
  // Directions follow from the seed, and a step sets what is drawn.
  Status Fields(LayerView& view, State& state, StateFields& fields) const override {
    auto& heads = static_cast<Index&>(state).heads;
    bool any = !heads.empty();
    KVG_TRY(fields.Flag("whether entries are hashed", &any));
    if (fields.reads()) {
      heads.clear();
      heads.resize(any ? static_cast<size_t>(view.shape().kv_heads) : 0);
    }
    Ops& ops = view.ops();
    for (size_t h = 0; h < heads.size(); ++h) {
      Head& head = heads[h];
      const int64_t most = std::max<int64_t>(0, view.lengths()[h] - sinks_);
      KVG_TRY(fields.Number("entries that are hashed", 0, most, &head.members));
      if (head.members == 0) continue;
      KVG_TRY(fields.Memory("mean of keys", ops, DType::kF32, view.shape().key_dim, &head.mean));
      KVG_TRY(fields.Memory("sizes of keys", ops, DType::kF32, head.members, &head.sizes));
      KVG_TRY(
          fields.Memory("hashes of keys", ops, DType::kF16, head.members * tables_, &head.codes));
      if (!fields.reads()) continue;
      head.directions = DrawDirections(view, static_cast<int64_t>(h));
      head.drawn = ops.memory->Allocate(view.shape().group() * head.members * SizeOf(DType::kF32));
    }
    return {};
  }

  bool ReadsFew(int64_t layer, int64_t length) const override {
    return !IsDense(layer) && AreFew(sinks_ + local_, length);
  }

  bool Select(LayerView& view, State& state, const Tensor& q, Tensor words) const override {
    const auto& index = static_cast<const Index&>(state);
    if (index.heads.empty()) return false;
    const int64_t group = view.shape().group();
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const Head& head = index.heads[static_cast<size_t>(h)];
      const int64_t length = view.lengths()[h], begin = h * group, end = begin + group;
      if (head.members > 0) Draw(view, head, q.Slice(begin, end));
      MarkEnds(view, sinks_, sinks_ + head.members, length, words.Slice(begin, end));
    }
    return true;
  }

  void MarkJoined(LayerView& view, State& state, Tensor words) const override {
    const auto& index = static_cast<const Index&>(state);
    const int64_t group = view.shape().group();
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const Head& head = index.heads[static_cast<size_t>(h)];
      if (head.members == 0) continue;
      MarkWhere(view, head.Drawn(group), sinks_, words.Slice(h * group, (h + 1) * group));
    }
  }

  void Join(LayerView& view, State& state, const Tensor& q, const Tensor& log_sum_exp,
            Tensor out) const override {
    const auto& index = static_cast<const Index&>(state);
    Ops& ops = view.ops();
    const int64_t group = view.shape().group(), dim = q.shape[1];
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const Head& head = index.heads[static_cast<size_t>(h)];
      const int64_t n = head.members, begin = h * group, end = begin + group;
      if (n == 0) continue;
      const Tensor query = view.Scratch(DType::kF32, {group, dim});
      const Tensor logits = view.Scratch(DType::kF32, {group, n});
      const Tensor gains = view.Scratch(DType::kF32, {group, n});
      const Tensor keys = view.Keys(h, sinks_).Slice(0, n);
      ops.rows->Convert(q.Slice(begin, end), query);
      ops.linear->MatMulNT(query.Reshape({1, group, dim}), keys.Reshape({1, n, dim}), 1.0f,
                           logits.Reshape({1, group, n}));
      LogChances(view, Cosines(view, head, query, logits), gains);
      LogitsOfProducts(view, logits);
      HideFromNewest(view, h, sinks_, 1, logits);
      ops.rows->Combine(logits, gains, Binary::kAdd, logits);
      // The log of what is drawn is 0, of what is not -inf.
      const Tensor drawn = head.Drawn(group);
      ops.rows->Activate(drawn, Activation::kLog, drawn);
      ops.rows->Combine(logits, drawn, Binary::kAdd, logits);
      JoinSoftmax(view, log_sum_exp.Slice(begin, end), logits, view.Values(h, sinks_).Slice(0, n),
                  out.Slice(begin, end));
    }
  }

 private:
  static constexpr int64_t kLayersOfDirections = 16;
  static constexpr int64_t kHashedTogether = 1024;
  static constexpr float kLeastChance = 1e-4f, kLeastSize = 1e-20f;

  // Layers that read everything.
  bool IsDense(int64_t layer) const { return dense_every_ > 0 && layer % dense_every_ == 0; }

  Tensor Directions(const Head& head, int64_t dim) const {
    return head.directions.As(DType::kF32, {bits_ * tables_, dim});
  }
  Tensor Codes(const Head& head) const {
    return head.codes.As(DType::kF16, {head.members, tables_});
  }

  // Layers whose numbers over 16 are equal have the same directions.
  Buffer DrawDirections(LayerView& view, int64_t head) const {
    const int64_t dim = view.shape().key_dim, count = bits_ * tables_;
    const int64_t set = view.layer() / kLayersOfDirections;
    Rng rng(view.seed(), static_cast<uint64_t>(set * view.shape().kv_heads + head));
    std::vector<float> numbers(static_cast<size_t>(count * dim));
    // In the order of [dim, count], as the reference's matrix has them.
    for (int64_t d = 0; d < dim; ++d) {
      for (int64_t c = 0; c < count; ++c) {
        numbers[static_cast<size_t>(c * dim + d)] = static_cast<float>(rng.NextGaussian());
      }
    }
    Buffer directions = view.ops().memory->Allocate(count * dim * SizeOf(DType::kF32));
    view.ops().memory->Copy(View(numbers, {count, dim}), directions.As(DType::kF32, {count, dim}));
    return directions;
  }

  Head Hash(LayerView& view, int64_t h) const {
    Ops& ops = view.ops();
    const int64_t dim = view.shape().key_dim;
    Head head;
    head.members = std::max<int64_t>(0, view.lengths()[h] - sinks_ - local_);
    if (head.members == 0) return head;
    head.directions = DrawDirections(view, h);
    head.mean = ops.memory->Allocate(dim * SizeOf(DType::kF32));
    head.sizes = ops.memory->Allocate(head.members * SizeOf(DType::kF32));
    head.codes = ops.memory->Allocate(head.members * tables_ * SizeOf(DType::kF16));
    head.drawn = ops.memory->Allocate(view.shape().group() * head.members * SizeOf(DType::kF32));
    const Tensor keys = view.Keys(h, sinks_).Slice(0, head.members);
    const Tensor mean = head.mean.As(DType::kF32, {dim});
    const Tensor sizes = head.sizes.As(DType::kF32, {head.members});
    ops.rows->ReduceColumns(keys, Reduction::kMean, mean);
    const int64_t most = std::min(head.members, kHashedTogether);
    const Tensor centred = view.Scratch(DType::kF32, {most, dim});
    const Tensor products = view.Scratch(DType::kF32, {most, bits_ * tables_});
    const Tensor codes = view.Scratch(DType::kF32, {most, tables_});
    for (int64_t first = 0; first < head.members; first += most) {
      const int64_t n = std::min(most, head.members - first);
      const Tensor rows = centred.Slice(0, n);
      ops.rows->Combine(keys.Slice(first, first + n), mean, Binary::kSubtract, rows);
      const Tensor own = sizes.Slice(first, first + n);
      ops.rows->ReduceRows(rows, Reduction::kNorm, own);
      ops.rows->Combine(own.Reshape({1, n}), Filled(view, n, kLeastSize), Binary::kMax,
                        own.Reshape({1, n}));
      const Tensor numbers = codes.Slice(0, n);
      Sign(view, head, rows, products.Slice(0, n), numbers);
      ops.rows->Convert(numbers, Codes(head).Slice(first, first + n));
    }
    return head;
  }

  // rows: [n, key_dim]; products: [n, bits * tables], used up; codes: [n, tables] f32.
  void Sign(LayerView& view, const Head& head, const Tensor& rows, const Tensor& products,
            const Tensor& codes) const {
    Ops& ops = view.ops();
    const int64_t n = rows.shape[0], dim = rows.shape[1], count = bits_ * tables_;
    ops.linear->MatMulNT(rows.Reshape({1, n, dim}), Directions(head, dim).Reshape({1, count, dim}),
                         1.0f, products.Reshape({1, n, count}));
    // 1 where a product is above 0: less than 0 once its sign is another.
    ops.rows->Affine(products, -1.0f, 0.0f, products);
    ops.rows->Combine(products, Filled(view, count, 0.0f), Binary::kLess, products);
    std::vector<float> powers;
    for (int64_t b = 0; b < bits_; ++b) powers.push_back(static_cast<float>(int64_t{1} << b));
    ops.linear->MatMulNT(products.Reshape({1, n * tables_, bits_}),
                         Upload(view, powers).Reshape({1, 1, bits_}), 1.0f,
                         codes.Reshape({1, n * tables_, 1}));
  }

  // Finds what agrees with each query in two tables. q: [group, key_dim]
  void Draw(LayerView& view, const Head& head, const Tensor& q) const {
    Ops& ops = view.ops();
    const int64_t group = q.shape[0], most = std::min(head.members, kHashedTogether);
    const Tensor query = view.Scratch(DType::kF32, {group, q.shape[1]});
    const Tensor products = view.Scratch(DType::kF32, {group, bits_ * tables_});
    const Tensor wanted = view.Scratch(DType::kF32, {group, tables_});
    const Tensor held = view.Scratch(DType::kF32, {most, tables_});
    const Tensor away = view.Scratch(DType::kF32, {most, tables_});
    const Tensor near = Filled(view, tables_, 0.5f), drawn = head.Drawn(group);
    ops.rows->Convert(q, query);
    Sign(view, head, query, products, wanted);
    for (int64_t first = 0; first < head.members; first += most) {
      const int64_t n = std::min(most, head.members - first);
      const Tensor rows = held.Slice(0, n), off = away.Slice(0, n);
      ops.rows->Convert(Codes(head).Slice(first, first + n), rows);
      for (int64_t g = 0; g < group; ++g) {
        ops.rows->Combine(rows, wanted[g], Binary::kSubtract, off);
        ops.rows->Combine(off, off, Binary::kMultiply, off);
        ops.rows->Combine(off, near, Binary::kLess, off);
        ops.rows->ReduceRows(off, Reduction::kSum, drawn[g].Slice(first, first + n));
      }
    }
    // 1 where that is more than one.
    ops.rows->Affine(drawn, -1.0f, 0.0f, drawn);
    ops.rows->Combine(drawn, Filled(view, head.members, -1.5f), Binary::kLess, drawn);
  }

  // Cosines of the angles between queries and keys less their mean: [group, members].
  // products: with the keys.
  static Tensor Cosines(LayerView& view, const Head& head, const Tensor& query,
                        const Tensor& products) {
    Ops& ops = view.ops();
    const int64_t group = query.shape[0], dim = query.shape[1], n = head.members;
    const Tensor sizes = view.Scratch(DType::kF32, {1, group});
    const Tensor of_mean = view.Scratch(DType::kF32, {group});
    const Tensor cosines = view.Scratch(DType::kF32, {group, n});
    ops.linear->MatMulNT(query.Reshape({1, group, dim}), head.mean.As(DType::kF32, {1, 1, dim}),
                         1.0f, of_mean.Reshape({1, group, 1}));
    ops.rows->ReduceRows(query, Reduction::kNorm, sizes[0]);
    ops.rows->Combine(sizes, Filled(view, group, kLeastSize), Binary::kMax, sizes);
    ops.rows->Combine(products, Spread(view, of_mean, n), Binary::kSubtract, cosines);
    ops.rows->Combine(cosines, head.sizes.As(DType::kF32, {n}), Binary::kDivide, cosines);
    ops.rows->Combine(cosines, Spread(view, sizes[0], n), Binary::kDivide, cosines);
    return cosines;
  }

  // The angles of cosines, in place; beyond -1 and 1 those of the ends. The root takes what has no
  // Taylor series at 1: Abramowitz and Stegun 4.4.46, whose error is below 2e-8.
  static void ArcCos(LayerView& view, const Tensor& x) {
    constexpr float kTerms[] = {-0.0012624911f, 0.0066700901f, -0.0170881256f, 0.0308918810f,
                                -0.0501743046f, 0.0889789874f, -0.2145988016f, 1.5707963050f};
    constexpr auto kPi = static_cast<float>(std::numbers::pi);
    RowOps& rows = *view.ops().rows;
    const int64_t m = x.shape[0], n = x.shape[1];
    const Tensor size = view.Scratch(DType::kF32, {m, n});
    const Tensor below = view.Scratch(DType::kF32, {m, n});
    const Tensor sum = view.Scratch(DType::kF32, {m, n});
    rows.Combine(x, Filled(view, n, 0.0f), Binary::kLess, below);
    rows.Affine(x, -1.0f, 0.0f, size);
    rows.Combine(size, x, Binary::kMax, size);
    rows.Combine(size, Filled(view, n, 1.0f), Binary::kMin, size);
    rows.Affine(size, kTerms[0], kTerms[1], sum);
    for (size_t i = 2; i < std::size(kTerms); ++i) {
      rows.Combine(sum, size, Binary::kMultiply, sum);
      rows.Affine(sum, 1.0f, kTerms[i], sum);
    }
    rows.Affine(size, -1.0f, 1.0f, size);
    rows.Activate(size, Activation::kSqrt, size);
    rows.Combine(sum, size, Binary::kMultiply, sum);
    // Below 0: pi less the angle.
    rows.Affine(sum, -2.0f, kPi, size);
    rows.Combine(size, below, Binary::kMultiply, size);
    rows.Combine(sum, size, Binary::kAdd, x);
  }

  // What an entry's score gains: less the log of the chance that it is read. cosines: used up.
  void LogChances(LayerView& view, const Tensor& cosines, const Tensor& out) const {
    RowOps& rows = *view.ops().rows;
    const auto bits = static_cast<float>(bits_), tables = static_cast<float>(tables_);
    const int64_t m = cosines.shape[0], n = cosines.shape[1];
    const Tensor table = cosines, none = view.Scratch(DType::kF32, {m, n});
    const Tensor chance = view.Scratch(DType::kF32, {m, n});
    // That a sign agrees, then that a table does.
    ArcCos(view, table);
    rows.Affine(table, -static_cast<float>(1 / std::numbers::pi), 1.0f, table);
    rows.Activate(table, Activation::kLog, table);
    rows.Affine(table, bits, 0.0f, table);
    rows.Activate(table, Activation::kExp, table);
    // That all tables but one do not: the log of 0 comes back as 0.
    rows.Affine(table, -1.0f, 1.0f, chance);
    rows.Activate(chance, Activation::kLog, none);
    rows.Affine(none, tables - 1, 0.0f, none);
    rows.Activate(none, Activation::kExp, none);
    // That fewer than two do: none * (1 - table + tables * table).
    rows.Affine(table, tables, 0.0f, table);
    rows.Combine(chance, table, Binary::kAdd, chance);
    rows.Combine(none, chance, Binary::kMultiply, none);
    rows.Affine(none, -1.0f, 1.0f + kLeastChance, none);
    rows.Activate(none, Activation::kLog, none);
    rows.Affine(none, -1.0f, 0.0f, out);
  }

  int64_t bits_, tables_, sinks_, local_, dense_every_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "magicpig",
    .paper = "arXiv:2410.16179",
    .summary = "reads a sample of the entries by hashes, weighted by their chance to be in it",
    .departures = {"hashes are compared, and weights computed, for every entry, where the "
                   "reference's server looks up a sample in tables of its hashes",
                   "each layer holds its directions, which are those of the 15 layers beside it",
                   "where a stage evicts in decode, or a turn follows, what was decoded is hashed, "
                   "too"},
    .bytes =
        "2 * tables + 4 + 4 * group an entry of the prompt and head, and 4 * key_dim * (bits * "
        "tables + 1) a head, beside the cache",
    .params = {IntParam("bits", 10, 1, 11, "signs of a hash"),
               IntParam("tables", 150, 2, 4096, "hashes of an entry"),
               IntParam("sinks", 4, 0, 1 << 20, "first entries, always read"),
               IntParam("local", 64, 1, 1 << 20, "last entries of the prompt, always read"),
               IntParam("dense_every", 16, 0, 1000,
                        "layers that are multiples of it read everything; 0: none")},
    .make = Make<MagicPig>(),
});

}  // namespace
}  // namespace kvgauge
