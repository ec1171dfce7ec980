// SPDX-License-Identifier: Apache-2.0
// Heads that attend alike share one head's keys and its attention; each keeps its values.
//
// Paper: CHAI, arXiv:2403.08058 (facebookresearch/chai 8850d929, llama.patch). Needs the queries of
// the first rows of the prompt. The attention of these rows among themselves is a point for each
// head; heads whose points are near by their cosine are put together, clusters by the mean distance
// of their heads, until as many are left as the layer is to have.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/strings.h"
#include "methods/layouts/head_clusters.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// Clusters of the 32 heads of each of 32 layers, as the code has them for Llama-7B.
int64_t ReferenceClusters(int64_t layer) {
  if (layer < 3) return 28;
  if (layer < 15) return 18;
  return layer < 17 ? 8 : 4;
}

class Chai final : public Store {
 public:
  explicit Chai(const Params& params) : rows_(params.Int("rows")), counts_(params.Text("counts")) {}

  Needs needs() const override { return {.first_rows = rows_}; }

  Status Check(const ModelShape& shape) const override {
    if (shape.latent_dim > 0) {
      return BadInput("drops keys of heads, and this model's heads share latents");
    }
    bool shares = false;
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
      KVG_ASSIGN(const int64_t clusters, ClustersOf(shape, layer));
      shares = shares || clusters < shape.kv_heads;
    }
    if (shares) return {};
    return BadInput(
        StrCat("leaves each of the model's ", shape.kv_heads,
               " KV heads its keys in every layer; expected a model with more, or fewer "
               "clusters in counts"));
  }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t layer) const override {
    KVG_ASSIGN(const int64_t clusters, ClustersOf(shape, layer));
    if (clusters == shape.kv_heads) return StorePlan();
    HeadClusters layout;
    layout.clusters = clusters;
    return PlanOf(std::move(layout));
  }

  void Calibrate(LayerView& view, StorePlan& plan) const override {
    const auto* planned = plan.Get<HeadClusters>();
    if (planned == nullptr) return;
    HeadClusters layout = *planned;
    layout.first = ClusteredHeads(PointsOf(view), layout.clusters);
    plan = PlanOf(std::move(layout), plan.turn);
  }

 private:
  using Point = std::vector<double>;

  Result<int64_t> ClustersOf(const ModelShape& shape, int64_t layer) const {
    if (counts_.empty()) {
      const int64_t alike = ReferenceClusters(layer * 32 / shape.layers);
      return (shape.kv_heads * alike + 31) / 32;
    }
    const std::vector<std::string> counts = Split(counts_, '_');
    int64_t count = 0;
    if (std::ssize(counts) == shape.layers) {
      const std::string& own = counts[static_cast<size_t>(layer)];
      for (const char c : own.substr(0, 5)) {
        count = c < '0' || c > '9' ? shape.kv_heads + 1 : 10 * count + (c - '0');
      }
    }
    if (count >= 1 && count <= shape.kv_heads) return count;
    return BadInput(StrCat("counts is ", Quoted(counts_), "; expected for each of ", shape.layers,
                           " layers a number from 1 to the model's ", shape.kv_heads,
                           " KV heads, joined by _"));
  }

  // The attention of the first rows of all query heads of a KV head.
  std::vector<Point> PointsOf(LayerView& view) const {
    const ModelShape& shape = view.shape();
    const int64_t n = std::min(rows_, view.lengths()[0]), group = shape.group();
    const int64_t dim = shape.key_dim;
    const std::vector<float> queries = Fetch(view.ops(), view.FirstQueries(n));
    std::vector<Point> points;
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      const std::vector<float> keys = Fetch(view.ops(), view.Keys(h).Slice(0, n));
      Point& point = points.emplace_back();
      for (int64_t q = h * group; q < (h + 1) * group; ++q) {
        for (int64_t row = 0; row < n; ++row) {
          const float* query = &queries[static_cast<size_t>((row * shape.query_heads + q) * dim)];
          AddRow(query, keys, row, dim, shape, point);
          point.resize(point.size() + static_cast<size_t>(n - row - 1));
        }
      }
    }
    return points;
  }

  // Shares of the entries up to `row`.
  static void AddRow(const float* query, const std::vector<float>& keys, int64_t row, int64_t dim,
                     const ModelShape& shape, Point& point) {
    Point shares;
    double most = -HUGE_VAL, sum = 0;
    for (int64_t entry = 0; entry <= row; ++entry) {
      double product = 0;
      for (int64_t i = 0; i < dim; ++i) {
        product += double{query[i]} * keys[static_cast<size_t>(entry * dim + i)];
      }
      product *= shape.attention_scale;
      const double cap = shape.attention_softcap;
      shares.push_back(cap > 0 ? cap * std::tanh(product / cap) : product);
      most = std::max(most, shares.back());
    }
    for (double& share : shares) sum += share = std::exp(share - most);
    for (const double share : shares) point.push_back(share / sum);
  }

  static double CosineDistance(const Point& a, const Point& b) {
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      ab += a[i] * b[i];
      aa += a[i] * a[i];
      bb += b[i] * b[i];
    }
    return 1 - ab / std::sqrt(aa * bb);
  }

  // The first head of each head's cluster.
  static std::vector<int64_t> ClusteredHeads(const std::vector<Point>& points, int64_t clusters) {
    std::vector<std::vector<int64_t>> groups;
    for (int64_t h = 0; h < std::ssize(points); ++h) groups.push_back({h});
    const auto distance = [&](const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
      double sum = 0;
      for (const int64_t x : a) {
        for (const int64_t y : b) {
          sum += CosineDistance(points[static_cast<size_t>(x)], points[static_cast<size_t>(y)]);
        }
      }
      return sum / static_cast<double>(a.size() * b.size());
    };
    while (std::ssize(groups) > clusters) {
      size_t first = 0, second = 1;
      double least = HUGE_VAL;
      for (size_t a = 0; a < groups.size(); ++a) {
        for (size_t b = a + 1; b < groups.size(); ++b) {
          const double apart = distance(groups[a], groups[b]);
          if (apart >= least) continue;
          least = apart;
          first = a;
          second = b;
        }
      }
      groups[first].insert(groups[first].end(), groups[second].begin(), groups[second].end());
      groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(second));
    }
    std::vector<int64_t> firsts(points.size());
    for (const std::vector<int64_t>& group : groups) {
      const int64_t first = *std::min_element(group.begin(), group.end());
      for (const int64_t head : group) firsts[static_cast<size_t>(head)] = first;
    }
    return firsts;
  }

  int64_t rows_;
  std::string counts_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "chai",
    .paper = "arXiv:2403.08058",
    .summary = "heads that attend alike share keys and attention; each keeps its values",
    .departures = {"the prompt is read with full attention; keys are given up behind it",
                   "the released code mixes heads and tokens of the prompt, and compares rows that "
                   "see what is behind them; here rows are a head's own, and causal",
                   "KV heads are put together, with all their query heads",
                   "on models of another depth the reference's numbers of clusters are those of "
                   "the same relative depth and share of heads"},
    .bytes = "keys of one head a cluster, values of all",
    .params = {IntParam("rows", 5, 1, 64, "first rows of the prompt whose attention is compared"),
               ChoiceParam("counts", "", {},
                           "clusters of each layer, such as 4_4_2_1; empty: as the reference")},
    .make = Make<Chai>(),
});

}  // namespace
}  // namespace kvgauge
