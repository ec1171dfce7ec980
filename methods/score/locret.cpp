// SPDX-License-Identifier: Apache-2.0
// What a trained head expects an entry to be worth, from its queries, keys and values before they
// are turned.
//
// Paper: Locret, arXiv:2410.01805; after the authors' code (huangyuxiang03/Locret). Queries, keys
// and values are linear in the input of the layer's attention, and so is the head's first map of
// them: a side-file has both as one map, to which a SiLU and a second map follow. Needs the layers'
// inputs, in prefill and decode.
#include <array>

#include "core/strings.h"
#include "methods/mlp_gate.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class Locret final : public MlpGateScorer {
 public:
  explicit Locret(const Params& params)
      : MlpGateScorer(
            params,
            {.name = "locret", .inner = params.Int("inner"), .activation = Activation::kSilu}) {}
};

using HeadTables = Calibration::Tables;

Result<const Calibration::Table*> FindHead(const HeadTables& published, int64_t layer,
                                           const char* map, int64_t rows, int64_t columns) {
  const std::string name = StrCat("model.layers.", layer, ".self_attn.", map, ".weight");
  const auto found = published.find(name);
  if (found == published.end()) return BadInput(StrCat("has no tensor '", name, "'"));
  const std::vector<int64_t>& dims = found->second.shape;
  if (dims.size() == 2 && (rows == 0 || dims[0] == rows) && dims[1] == columns) {
    return &found->second;
  }
  return BadInput(StrCat("tensor '", name, "' is not [", rows == 0 ? "inner" : StrCat(rows), ", ",
                         columns, "], which this model needs"));
}

// Columns [begin, begin + count) of a head's first map times the rows that a projection gives:
// added to sum, [inner, wide].
void AddProduct(Ops& ops, const Calibration::Table& head, int64_t begin, const Tensor& rows,
                std::vector<float>& sum) {
  const int64_t inner = head.shape[0], all = head.shape[1], count = rows.shape[0];
  const int64_t wide = rows.shape[1];
  std::vector<float> part;
  for (int64_t i = 0; i < inner; ++i) {
    const auto from = head.values.begin() + i * all + begin;
    part.insert(part.end(), from, from + count);
  }
  const std::vector<float> host = Fetch(ops, rows);
  std::vector<float> turned(host.size());
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t c = 0; c < wide; ++c) {
      turned[static_cast<size_t>(c * count + r)] = host[static_cast<size_t>(r * wide + c)];
    }
  }
  const Tensor transposed = View(turned, {wide, count});
  const std::unique_ptr<PackedMatrix> packed = ops.linear->Pack({&transposed, 1}, DType::kF32);
  const Buffer memory = ops.memory->Allocate(inner * (count + wide) * 4);
  const Tensor numbers = memory.As(DType::kF32, {inner * (count + wide)});
  const Tensor x = numbers.Slice(0, inner * count).Reshape({inner, count});
  const Tensor product = numbers.Slice(inner * count, numbers.shape[0]).Reshape({inner, wide});
  ops.memory->Copy(View(part, {inner, count}), x);
  ops.linear->MatMul(x, *packed, {}, MatMulMode::kSet, product);
  const std::vector<float> fetched = Fetch(ops, product);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += fetched[i];
}

// The published heads, behind the model's own projections.
Result<Calibration::Tables> ImportHeads(const Calibration::Tables& published, WeightView& weights) {
  const ModelShape& shape = weights.shape();
  const int64_t queries = shape.query_heads * shape.key_dim, keys = shape.kv_heads * shape.key_dim;
  const int64_t values = shape.kv_heads * shape.value_dim;
  const std::array places = {std::pair{WeightView::Matrix::kQuery, int64_t{0}},
                             std::pair{WeightView::Matrix::kKey, queries},
                             std::pair{WeightView::Matrix::kValue, queries + keys}};
  Calibration::Tables tables;
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    KVG_ASSIGN(const Calibration::Table* const first,
               FindHead(published, layer, "fc1", 0, queries + keys + values));
    const int64_t inner = first->shape[0];
    KVG_ASSIGN(const Calibration::Table* const second,
               FindHead(published, layer, "fc2", shape.kv_heads, inner));
    std::vector<float> map(static_cast<size_t>(inner * shape.hidden_size));
    std::vector<float> shift(static_cast<size_t>(inner));
    for (const auto& [matrix, begin] : places) {
      KVG_ASSIGN(const Tensor rows, weights.Read(layer, matrix));
      AddProduct(weights.ops(), *first, begin, rows, map);
      KVG_ASSIGN(const Tensor bias, weights.ReadBias(layer, matrix));
      if (!bias.empty()) {
        AddProduct(weights.ops(), *first, begin, bias.Reshape({bias.shape[0], 1}), shift);
      }
    }
    tables[MlpGate::Table(layer, "0.weight")] = {{inner, shape.hidden_size}, std::move(map)};
    tables[MlpGate::Table(layer, "0.bias")] = {{inner}, std::move(shift)};
    tables[MlpGate::Table(layer, "2.weight")] = *second;
    tables[MlpGate::Table(layer, "2.bias")] = {
        {shape.kv_heads}, std::vector<float>(static_cast<size_t>(shape.kv_heads))};
  }
  return tables;
}

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "locret",
    .paper = "arXiv:2410.01805",
    .summary = "what a trained head expects an entry to be worth",
    .departures = {"the head's first map is multiplied with the model's projections once, in f32, "
                   "where the reference applies one after the other in the model's type"},
    .bytes =
        "4 bytes a weight of its gate, once a model; with a trigger in decode 4 bytes an entry",
    .params = GateTables::Declare({IntParam("inner", 1024, 1, 1 << 16,
                                            "numbers between the two maps of a head")}),
    .make = Make<Locret>(),
    .calibrated_params = {"inner"},
    .import_with = ImportHeads,
});

}  // namespace
}  // namespace kvgauge
