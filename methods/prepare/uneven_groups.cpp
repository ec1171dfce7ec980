// SPDX-License-Identifier: Apache-2.0
// Fewer KV heads: heads that are like each other become one, whether neighbours or not, and some
// stand for more heads than others.
//
// Papers: QCQA, arXiv:2406.10247 (groups of any size by what the shared projections miss of those
// of each head) and AsymGQA, arXiv:2406.14963 (groups by the likeness of what heads compute). Needs
// nothing but weights, or a calibration. A group's keys and values are those of the mean of its
// heads' projections. Attention knows groups of one size: the queries of a smaller group come more
// than once, and what is repeated counts 0 in the output. So nothing is computed otherwise, a cache
// holds as many heads as there are groups, and attention takes the time of the largest one.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "core/rng.h"
#include "core/strings.h"
#include "methods/calibration.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

std::string ProductsName(int64_t layer) { return StrCat("products.", layer); }

// Products of heads with each other: [heads, heads], of a layer's keys and values together.
using HeadProducts = std::vector<double>;

// groups[i]: heads, ascending; no group is empty.
using HeadGroups = std::vector<std::vector<int64_t>>;

// What a group's mean misses of its heads: the sum of their squared distances to it.
double MissedBy(const HeadProducts& products, int64_t heads, const std::vector<int64_t>& group) {
  double own = 0, all = 0;
  for (const int64_t a : group) {
    own += products[static_cast<size_t>(a * heads + a)];
    for (const int64_t b : group) all += products[static_cast<size_t>(a * heads + b)];
  }
  return own - all / static_cast<double>(group.size());
}

// From groups of one size on, the move of a head, or the exchange of two, that gains most, as long
// as one gains.
class GroupSearch {
 public:
  // `order`: heads, of which neighbours begin together.
  GroupSearch(const HeadProducts& products, std::span<const int64_t> order, int64_t groups,
              int64_t most)
      : products_(products),
        heads_(std::ssize(order)),
        most_(most),
        groups_(static_cast<size_t>(groups)) {
    for (int64_t i = 0; i < heads_; ++i) {
      groups_[static_cast<size_t>(i * groups / heads_)].push_back(order[static_cast<size_t>(i)]);
    }
    for (auto& group : groups_) {
      std::sort(group.begin(), group.end());
      missed_.push_back(MissedBy(products_, heads_, group));
    }
  }

  double missed() const { return std::accumulate(missed_.begin(), missed_.end(), 0.0); }
  HeadGroups Run() {
    while (Step()) {
    }
    std::sort(groups_.begin(), groups_.end());
    return groups_;
  }

 private:
  bool Step() {
    double scale = 0;
    for (int64_t h = 0; h < heads_; ++h) scale += products_[static_cast<size_t>(h * heads_ + h)];
    gain_ = 1e-9 * scale;
    bool found = false;
    for (size_t a = 0; a < groups_.size(); ++a) {
      for (size_t b = 0; b < groups_.size(); ++b) {
        if (a == b) continue;
        for (size_t i = 0; i < groups_[a].size(); ++i) {
          found |= Try(a, b, i, kNobody);
          for (size_t j = 0; j < groups_[b].size() && a < b; ++j) found |= Try(a, b, i, j);
        }
      }
    }
    if (!found) return false;
    groups_[best_a_] = best_from_;
    groups_[best_b_] = best_to_;
    missed_[best_a_] = MissedBy(products_, heads_, best_from_);
    missed_[best_b_] = MissedBy(products_, heads_, best_to_);
    return true;
  }

  // Number i of group a goes to b, and number j of that comes back.
  bool Try(size_t a, size_t b, size_t i, size_t j) {
    std::vector<int64_t> from = groups_[a], to = groups_[b];
    to.push_back(from[i]);
    from.erase(from.begin() + static_cast<std::ptrdiff_t>(i));
    if (j != kNobody) {
      from.push_back(to[j]);
      to.erase(to.begin() + static_cast<std::ptrdiff_t>(j));
    }
    if (from.empty() || std::ssize(to) > most_) return false;
    const double gain = missed_[a] + missed_[b] - MissedBy(products_, heads_, from) -
                        MissedBy(products_, heads_, to);
    if (gain <= gain_) return false;
    gain_ = gain;
    best_a_ = a;
    best_b_ = b;
    std::sort(from.begin(), from.end());
    std::sort(to.begin(), to.end());
    best_from_ = std::move(from);
    best_to_ = std::move(to);
    return true;
  }

  static constexpr size_t kNobody = ~size_t{0};
  const HeadProducts& products_;
  int64_t heads_, most_;
  HeadGroups groups_;
  std::vector<double> missed_;
  double gain_ = 0;
  size_t best_a_ = 0, best_b_ = 0;
  std::vector<int64_t> best_from_, best_to_;
};

// The best that the search finds from neighbours on, and from some orders that are drawn.
HeadGroups BestGroups(const HeadProducts& products, int64_t heads, int64_t groups, int64_t most) {
  constexpr uint64_t kBeginnings = 16;
  std::vector<int64_t> order(static_cast<size_t>(heads));
  std::iota(order.begin(), order.end(), int64_t{0});
  HeadGroups best;
  double least = 0;
  for (uint64_t start = 0; start < kBeginnings; ++start) {
    GroupSearch search(products, order, groups, most);
    const HeadGroups found = search.Run();
    if (best.empty() || search.missed() < least) {
      best = found;
      least = search.missed();
    }
    Rng rng(start, static_cast<uint64_t>(heads));
    for (size_t i = order.size() - 1; i > 0; --i) {
      std::swap(order[i], order[static_cast<size_t>(rng.NextBelow(i + 1))]);
    }
  }
  return best;
}

// rows[h]: what stands for one head. `unit`: heads count alike, however large they are.
void AddProducts(const std::vector<float>& rows, int64_t heads, bool unit, HeadProducts& sum) {
  const int64_t size = std::ssize(rows) / heads;
  HeadProducts own(static_cast<size_t>(heads * heads));
  for (int64_t a = 0; a < heads; ++a) {
    for (int64_t b = 0; b <= a; ++b) {
      double product = 0;
      for (int64_t i = 0; i < size; ++i) {
        product += double{rows[static_cast<size_t>(a * size + i)]} *
                   rows[static_cast<size_t>(b * size + i)];
      }
      own[static_cast<size_t>(a * heads + b)] = own[static_cast<size_t>(b * heads + a)] = product;
    }
  }
  const auto length = [&](int64_t h) {
    const double square = own[static_cast<size_t>(h * heads + h)];
    return unit && square > 0 ? std::sqrt(square) : 1.0;
  };
  for (int64_t a = 0; a < heads; ++a) {
    for (int64_t b = 0; b < heads; ++b) {
      const auto at = static_cast<size_t>(a * heads + b);
      sum[at] += own[at] / (length(a) * length(b));
    }
  }
}

class UnevenGroups final : public Prepare {
 public:
  explicit UnevenGroups(const Params& params)
      : groups_(params.Int("groups")),
        most_(params.Int("most")),
        unit_(params.Text("measure") == "cosine") {}

  void Use(std::shared_ptr<const Calibration> calibration) override {
    calibration_ = std::move(calibration);
  }

  bool moves_heads() const override { return true; }

  Status Check(const ModelShape& shape) const override {
    if (shape.latent_dim > 0) {
      return BadInput("groups the heads of key and value projections; this model has latents");
    }
    if (shape.shared_caches) {
      return BadInput(
          "gives queries another order, and layers of this model read the caches of others");
    }
    const int64_t groups = GroupsOf(shape);
    if (groups > shape.kv_heads) {
      return BadInput(
          StrCat("groups ", groups, " is more than the model's ", shape.kv_heads, " KV heads"));
    }
    if (MostOf(shape) * groups < shape.kv_heads) {
      return BadInput(StrCat("most ", most_, " in each of ", groups, " groups leaves some of the ",
                             shape.kv_heads, " KV heads out"));
    }
    for (int64_t layer = 0; layer < shape.layers && calibration_ != nullptr; ++layer) {
      const Result<Tensor> learned = Learned(shape, layer);
      if (!learned.ok()) return learned.error();
    }
    return {};
  }

  ModelShape ShapeAfter(const ModelShape& shape) const override {
    ModelShape after = shape;
    after.kv_heads = GroupsOf(shape);
    after.query_heads = after.kv_heads * MostOf(shape) * shape.group();
    return after;
  }

  Status Transform(WeightView& weights) const override {
    const ModelShape shape = weights.shape();
    const ModelShape after = ShapeAfter(shape);
    KVG_TRY(weights.SetHeads(after.query_heads, after.kv_heads));
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
      KVG_ASSIGN(const HeadProducts products, ProductsOf(weights, shape, layer));
      const HeadGroups groups = BestGroups(products, shape.kv_heads, after.kv_heads, MostOf(shape));
      KVG_TRY(WriteLayer(weights, shape, layer, groups));
    }
    return {};
  }

 private:
  using Matrix = WeightView::Matrix;

  int64_t GroupsOf(const ModelShape& shape) const {
    return groups_ > 0 ? groups_ : (shape.kv_heads + 1) / 2;
  }
  int64_t MostOf(const ModelShape& shape) const {
    const int64_t groups = GroupsOf(shape), even = (shape.kv_heads + groups - 1) / groups;
    return std::min(most_ > 0 ? most_ : even + (even + 1) / 2, shape.kv_heads);
  }

  Result<Tensor> Learned(const ModelShape& shape, int64_t layer) const {
    const int64_t dims[] = {shape.kv_heads, shape.kv_heads};
    return calibration_->Find(ProductsName(layer), dims);
  }

  Result<HeadProducts> ProductsOf(WeightView& weights, const ModelShape& shape,
                                  int64_t layer) const {
    const int64_t heads = shape.kv_heads;
    HeadProducts products(static_cast<size_t>(heads * heads));
    if (calibration_ != nullptr) {
      KVG_ASSIGN(const Tensor learned, Learned(shape, layer));
      std::copy_n(learned.f32(), products.size(), products.begin());
      return products;
    }
    for (const Matrix matrix : {Matrix::kKey, Matrix::kValue}) {
      KVG_ASSIGN(const Tensor rows, weights.Read(layer, matrix));
      AddProducts(Fetch(weights.ops(), rows), heads, unit_, products);
    }
    return products;
  }

  // The KV head that comes at `place` of a group, and whether it was there before.
  struct Member {
    int64_t head = 0;
    bool again = false;
  };
  static Member MemberAt(const std::vector<int64_t>& group, int64_t place) {
    const auto size = std::ssize(group);
    return {group[static_cast<size_t>(place % size)], place >= size};
  }

  Status WriteLayer(WeightView& weights, const ModelShape& shape, int64_t layer,
                    const HeadGroups& groups) const {
    KVG_TRY(WriteMeans(weights, layer, Matrix::kKey, shape.key_dim, groups));
    KVG_TRY(WriteMeans(weights, layer, Matrix::kValue, shape.value_dim, groups));
    KVG_TRY(WriteQueries(weights, shape, layer, groups));
    return WriteOutput(weights, shape, layer, groups);
  }

  static Status WriteMeans(WeightView& weights, int64_t layer, Matrix matrix, int64_t dim,
                           const HeadGroups& groups) {
    KVG_ASSIGN(const Tensor rows, weights.Read(layer, matrix));
    const int64_t columns = rows.shape[1], count = std::ssize(groups);
    const Buffer means = Means(weights.ops(), rows, dim, groups);
    KVG_TRY(weights.Write(layer, matrix, means.As(DType::kF32, {count * dim, columns})));
    KVG_ASSIGN(const Tensor bias, weights.ReadBias(layer, matrix));
    if (bias.empty()) return {};
    const Buffer mean_bias = Means(weights.ops(), bias.Reshape({bias.shape[0], 1}), dim, groups);
    return weights.WriteBias(layer, matrix, mean_bias.As(DType::kF32, {count * dim}));
  }

  // rows: [heads * dim, columns]; the result: [groups * dim, columns]
  static Buffer Means(Ops& ops, const Tensor& rows, int64_t dim, const HeadGroups& groups) {
    const int64_t count = std::ssize(groups), columns = rows.shape[1];
    Buffer means = ops.memory->Allocate(count * dim * columns * SizeOf(DType::kF32));
    const Tensor all = means.As(DType::kF32, {count * dim, columns});
    for (int64_t g = 0; g < count; ++g) {
      const std::vector<int64_t>& group = groups[static_cast<size_t>(g)];
      const Tensor mean = all.Slice(g * dim, (g + 1) * dim);
      for (const int64_t head : group) {
        ops.rows->Combine(mean, rows.Slice(head * dim, (head + 1) * dim), Binary::kAdd, mean);
      }
      ops.rows->Affine(mean, 1.0f / static_cast<float>(group.size()), 0.0f, mean);
    }
    return means;
  }

  Status WriteQueries(WeightView& weights, const ModelShape& shape, int64_t layer,
                      const HeadGroups& groups) const {
    KVG_ASSIGN(const Tensor rows, weights.Read(layer, Matrix::kQuery));
    const int64_t columns = rows.shape[1], total = ShapeAfter(shape).query_heads * shape.key_dim;
    const Buffer moved = MovedQueries(weights.ops(), shape, rows, groups);
    KVG_TRY(weights.Write(layer, Matrix::kQuery, moved.As(DType::kF32, {total, columns})));
    KVG_ASSIGN(const Tensor bias, weights.ReadBias(layer, Matrix::kQuery));
    if (bias.empty()) return {};
    const Buffer moved_bias =
        MovedQueries(weights.ops(), shape, bias.Reshape({bias.shape[0], 1}), groups);
    return weights.WriteBias(layer, Matrix::kQuery, moved_bias.As(DType::kF32, {total}));
  }

  // The queries of each KV head together: [heads * group * key_dim, columns].
  Buffer MovedQueries(Ops& ops, const ModelShape& shape, const Tensor& rows,
                      const HeadGroups& groups) const {
    const int64_t most = MostOf(shape), block = shape.group() * shape.key_dim;
    const int64_t columns = rows.shape[1], total = std::ssize(groups) * most * block;
    Buffer memory = ops.memory->Allocate(total * columns * SizeOf(DType::kF32));
    const Tensor moved = memory.As(DType::kF32, {total, columns});
    int64_t at = 0;
    for (const std::vector<int64_t>& group : groups) {
      for (int64_t place = 0; place < most; ++place, at += block) {
        const int64_t from = MemberAt(group, place).head * block;
        ops.memory->Copy(rows.Slice(from, from + block), moved.Slice(at, at + block));
      }
    }
    return memory;
  }

  Status WriteOutput(WeightView& weights, const ModelShape& shape, int64_t layer,
                     const HeadGroups& groups) const {
    Ops& ops = weights.ops();
    KVG_ASSIGN(const Tensor output, weights.Read(layer, Matrix::kOutput));
    const int64_t most = MostOf(shape), block = shape.group() * shape.value_dim;
    const int64_t width = std::ssize(groups) * most * block;
    const Buffer memory = ops.memory->Allocate(output.shape[0] * width * SizeOf(DType::kF32));
    const Tensor moved = memory.As(DType::kF32, {output.shape[0], width});
    int64_t at = 0;
    for (const std::vector<int64_t>& group : groups) {
      for (int64_t place = 0; place < most; ++place, at += block) {
        const Member member = MemberAt(group, place);
        if (member.again) continue;  // memory is 0
        const int64_t from = member.head * block;
        ops.rows->Convert(Columns(output, from, from + block), Columns(moved, at, at + block));
      }
    }
    return weights.Write(layer, Matrix::kOutput, moved);
  }

  int64_t groups_, most_;
  bool unit_;
  std::shared_ptr<const Calibration> calibration_;
};

// Products of heads over the tokens of some texts, keys before rotation.
class HeadProductsCalibrator final : public Calibrator {
 public:
  HeadProductsCalibrator(const Params& params, const ModelShape& shape, std::span<const int64_t>)
      : shape_(shape),
        unit_(params.Text("measure") == "cosine"),
        keys_(static_cast<size_t>(shape.layers)),
        values_(static_cast<size_t>(shape.layers)) {
    for (auto* sums : {&keys_, &values_}) {
      for (HeadProducts& sum : *sums) {
        sum.resize(static_cast<size_t>(shape.kv_heads * shape.kv_heads));
      }
    }
  }

  Needs needs(int) const override { return {.raw_keys = true}; }

  void Observe(int, LayerView& view) override {
    const auto layer = static_cast<size_t>(view.layer());
    std::vector<float> keys, values;
    for (int64_t h = 0; h < shape_.kv_heads; ++h) {
      for (const float x : Fetch(view.ops(), view.RawKeys(h))) keys.push_back(x);
      for (const float x : Fetch(view.ops(), view.Values(h))) values.push_back(x);
    }
    AddProducts(keys, shape_.kv_heads, false, keys_[layer]);
    AddProducts(values, shape_.kv_heads, false, values_[layer]);
  }

  Calibration::Tables Finish(Ops&) override {
    Calibration::Tables tables;
    const int64_t heads = shape_.kv_heads;
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      Calibration::Table& table = tables[ProductsName(layer)];
      table.shape = {heads, heads};
      for (int64_t a = 0; a < heads; ++a) {
        for (int64_t b = 0; b < heads; ++b) {
          double sum = 0;
          for (const auto* of : {&keys_, &values_}) {
            const HeadProducts& own = (*of)[static_cast<size_t>(layer)];
            const auto square = [&](int64_t h) { return own[static_cast<size_t>(h * heads + h)]; };
            const double scale = unit_ ? std::sqrt(square(a) * square(b)) : 1.0;
            sum += scale > 0 ? own[static_cast<size_t>(a * heads + b)] / scale : 0.0;
          }
          table.values.push_back(static_cast<float>(sum));
        }
      }
    }
    return tables;
  }

 private:
  ModelShape shape_;
  bool unit_;
  std::vector<HeadProducts> keys_, values_;  // [layers]
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kPrepare,
    .id = "uneven_groups",
    .paper = "arXiv:2406.10247",
    .summary = "KV heads that are alike become one, in groups of different sizes",
    .departures = {"no training follows",
                   "every layer has as many groups, as its cache has as many heads",
                   "groups are found by moves and exchanges of heads that gain most, from 16 "
                   "beginnings, not by an evolutionary search",
                   "queries of groups smaller than the largest come more than once, and count as "
                   "often in scores"},
    .bytes = "those of `groups` heads instead of all",
    .params = {IntParam("groups", 0, 0, 1024, "KV heads that there are then; 0: half of them"),
               IntParam("most", 0, 0, 1024,
                        "KV heads that become one at most; 0: half more than on average"),
               ChoiceParam("measure", "error", {"error", "cosine"},
                           "how heads are compared: what their mean misses, or the same of heads "
                           "of one length"),
               CalibrationParam()},
    .make = Make<UnevenGroups>(),
    .calibrate = MakeCalibrator<HeadProductsCalibrator>,
    .calibrated_params = {"measure"},
});

}  // namespace
}  // namespace kvgauge
