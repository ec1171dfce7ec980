// SPDX-License-Identifier: Apache-2.0
// Layers that attend to the keys and values of an earlier layer, by a map that is given.
//
// Papers: CLA, arXiv:2405.12981 (neighbours share, the first of them projects); MLKV,
// arXiv:2406.09297 (few layers have keys and values, of few heads); the maps of the study of
// cross-layer sharing, arXiv:2410.14442. All of them train; this converts a checkpoint and does
// not, so that what it shows is where such a training begins. Needs nothing.
#include <string>

#include "core/strings.h"
#include "methods/layer_map.h"
#include "methods/pooled_heads.h"
#include "methods/registry.h"

namespace kvgauge {
namespace {

class ShareLayers final : public Prepare {
 public:
  explicit ShareLayers(const Params& params)
      : text_(params.Text("map")),
        factor_(params.Int("factor")),
        caches_(params.Int("caches")),
        heads_(params.Int("heads")),
        weights_(params.Text("weights")) {}

  Status Check(const ModelShape& shape) const override {
    KVG_ASSIGN(const LayerMap map, MapOf(shape));
    KVG_TRY(CheckLayerMap(map, shape));
    if (shape.kv_heads % Pooled(shape) == 0) return {};
    return BadInput(StrCat("heads ", heads_, " must divide the model's ", shape.kv_heads,
                           " KV heads; 1 leaves them as they are"));
  }

  ModelShape ShapeAfter(const ModelShape& shape) const override {
    ModelShape after = ShapeWithMap(*MapOf(shape), shape);
    after.kv_heads = shape.kv_heads / Pooled(shape);
    return after;
  }

  Status Transform(WeightView& weights) const override {
    const ModelShape shape = weights.shape();
    KVG_ASSIGN(const LayerMap map, MapOf(shape));
    const int64_t pooled = Pooled(shape);
    KVG_TRY(weights.SetKvHeads(shape.kv_heads / pooled));
    KVG_TRY(weights.ShareCaches(map));
    if (weights_ == "first" && pooled == 1) return {};
    for (const auto matrix : {WeightView::Matrix::kKey, WeightView::Matrix::kValue}) {
      const int64_t dim = matrix == WeightView::Matrix::kKey ? shape.key_dim : shape.value_dim;
      for (int64_t layer = 0; layer < shape.layers; ++layer) {
        KVG_TRY(Write(weights, {map, layer, dim, pooled}, matrix));
      }
    }
    return {};
  }

 private:
  int64_t Pooled(const ModelShape& shape) const { return heads_ == 0 ? shape.kv_heads : heads_; }

  Result<LayerMap> MapOf(const ModelShape& shape) const {
    if (!text_.empty()) return Given();
    if (caches_ > shape.layers) {
      return BadInput(StrCat("caches is ", caches_, "; this model has ", shape.layers, " layers"));
    }
    LayerMap map = OwnCaches(shape.layers);
    // Cache number i of some is that of layer i * layers / caches, rounded down.
    const auto first = [&](int64_t i) { return i * shape.layers / caches_; };
    int64_t which = 0;
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
      while (which + 1 < caches_ && first(which + 1) <= layer) ++which;
      map[static_cast<size_t>(layer)] = caches_ > 0 ? first(which) : layer - layer % factor_;
    }
    return map;
  }

  Result<LayerMap> Given() const {
    LayerMap map;
    for (const std::string& part : Split(text_, '_')) {
      int64_t layer = 0;
      bool number = !part.empty() && part.size() <= 4;
      for (const char c : part) {
        number = number && c >= '0' && c <= '9';
        layer = 10 * layer + (c - '0');
      }
      if (!number) {
        return BadInput(StrCat("map is ", Quoted(text_),
                               "; expected a layer's number for each layer, such as 0_0_2_2"));
      }
      map.push_back(layer);
    }
    return map;
  }

  // A layer's heads of `dim` numbers, of which `pooled` become one.
  struct Heads {
    const LayerMap& map;
    int64_t layer, dim, pooled;
  };

  // What the layer's projections become: heads are pooled, and then those of layers that read its
  // cache. A layer that reads another's keeps something of the right size.
  Status Write(WeightView& weights, const Heads& heads, WeightView::Matrix matrix) const {
    KVG_ASSIGN(const Tensor own, weights.Read(heads.layer, matrix));
    const int64_t rows = own.shape[0] / heads.pooled, columns = own.shape[1];
    const auto matrices = [&](int64_t layer) { return weights.Read(layer, matrix); };
    KVG_ASSIGN(const Buffer merged, Merged(weights.ops(), heads, matrices));
    KVG_TRY(weights.Write(heads.layer, matrix, merged.As(DType::kF32, {rows, columns})));
    KVG_ASSIGN(const Tensor bias, weights.ReadBias(heads.layer, matrix));
    if (bias.empty()) return {};
    const auto biases = [&](int64_t layer) -> Result<Tensor> {
      KVG_ASSIGN(const Tensor one, weights.ReadBias(layer, matrix));
      return one.Reshape({one.shape[0], 1});
    };
    KVG_ASSIGN(const Buffer numbers, Merged(weights.ops(), heads, biases));
    return weights.WriteBias(heads.layer, matrix, numbers.As(DType::kF32, {rows}));
  }

  // read(layer): [heads * dim, columns]
  template <class Read>
  Result<Buffer> Merged(Ops& ops, const Heads& heads, const Read& read) const {
    KVG_ASSIGN(const Tensor own, read(heads.layer));
    const int64_t rows = own.shape[0] / heads.pooled, columns = own.shape[1];
    Buffer merged = PooledHeads(ops, own, heads.dim, heads.pooled);
    const Tensor sum = merged.As(DType::kF32, {rows, columns});
    float count = 1;
    const auto layers = std::ssize(heads.map);
    for (int64_t other = heads.layer + 1; other < layers && weights_ != "first"; ++other) {
      if (heads.map[static_cast<size_t>(other)] != heads.layer) continue;
      KVG_ASSIGN(const Tensor theirs, read(other));
      const Buffer next = PooledHeads(ops, theirs, heads.dim, heads.pooled);
      ops.rows->Combine(sum, next.As(DType::kF32, {rows, columns}), Binary::kAdd, sum);
      if (weights_ == "halves") ops.rows->Affine(sum, 0.5f, 0.0f, sum);
      ++count;
    }
    if (weights_ == "mean" && count > 1) ops.rows->Affine(sum, 1.0f / count, 0.0f, sum);
    return merged;
  }

  std::string text_;
  int64_t factor_, caches_, heads_;
  std::string weights_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kPrepare,
    .id = "share_layers",
    .paper = "arXiv:2405.12981",
    .summary = "layers read the keys and values of an earlier layer, by a map",
    .departures = {"no training follows"},
    .bytes = "nothing for layers that read another's; divides the rest by `heads`",
    .params =
        {ChoiceParam("map", "", {},
                     "the layer that each layer reads, such as 0_0_2_2; empty: by the others"),
         IntParam("factor", 2, 1, 4096, "neighbouring layers that share a cache"),
         IntParam("caches", 0, 0, 4096, "layers that have one, spread evenly; 0: by factor"),
         IntParam("heads", 1, 0, 1024, "neighbouring KV heads that become one, their mean; 0: all"),
         ChoiceParam("weights", "first", {"first", "mean", "halves"},
                     "projections of a shared cache: those of its layer, the mean of all "
                     "that read it, or half of what there is and half of each next")},
    .make = Make<ShareLayers>(),
});

}  // namespace
}  // namespace kvgauge
