// SPDX-License-Identifier: Apache-2.0
// What leaves the cache goes on in a state of constant size, which attention reads by learned
// kernels.
//
// Paper: LESS, arXiv:2402.09398; after hdong920/LESS. An entry that leaves adds psi(k) v^T to the
// sums H of its KV head and psi(k) to z; k is turned as attention sees it. A query's result is then
// (A + phi(q) H) / (a + phi(q) z), where A and a are the sums of ordinary attention over what is
// held. phi(q) = |gelu(gelu(q W1) W2)|, with weights of each query head. psi(k) = |u + c (u M)|,
// where u = |s| gelu(gelu(k W3) W4), with weights of each KV head. phi and phi(q) z count as 1e-6
// at least. Weights come from a side-file.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/strings.h"
#include "methods/absorbing_reader.h"
#include "methods/gate_scorer.h"
#include "methods/repeating_reader.h"
#include "methods/state_fields.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// Tables of a layer; kSize, kMix and kMixSize are s, M and c.
enum KernelPart { kQueryIn, kQueryOut, kKeyIn, kKeyOut, kSize, kMix, kMixSize, kKernelParts };

std::string KernelTable(int64_t layer, int part) {
  constexpr char kNames[kKernelParts][12] = {"queries.in", "queries.out", "keys.in", "keys.out",
                                             "size",       "mix",         "mix_size"};
  return StrCat("layers.", layer, ".", kNames[part]);
}

// x becomes |x|. x, spare: contiguous.
void ToMagnitudes(RowOps& rows, const Tensor& x, const Tensor& spare) {
  rows.Affine(x, -1.0f, 0.0f, spare);
  rows.Combine(x, spare, Binary::kMax, x);
}

// Those of H and z.
int64_t SumNumbers(int64_t kv_heads, int64_t rank, int64_t value_dim) {
  return kv_heads * rank * (value_dim + 1);
}

class Less final : public AbsorbingReader, public RepeatingReader {
 public:
  explicit Less(const Params& params)
      : tables_(params), inner_(params.Int("inner")), rank_(params.Int("rank")) {}

  void Use(std::shared_ptr<const Calibration> calibration) override {
    tables_.Use(std::move(calibration));
  }

  Status Check(const ModelShape& shape) const override {
    for (size_t layer = 0; layer < shape.windows.size(); ++layer) {
      if (shape.windows[layer] == 0) continue;
      return Unsupported(StrCat("layer ", layer, " sees a window of ", shape.windows[layer],
                                " positions, and a state does not know how far away its entries "
                                "are; expected a model whose layers all see everything"));
    }
    return tables_.Check(AllDims(shape));
  }

  int64_t WeightBytes(const ModelShape& shape) const override {
    return GateTables::Bytes(AllDims(shape));
  }

  // The weights of a layer, on the device.
  struct Kernels {
    std::array<Buffer, kKernelParts> memory;
    std::array<Tensor, kKernelParts> parts;  // [numbers]
  };

  struct Sums final : State {
    std::shared_ptr<const Kernels> kernels;
    int64_t kv_heads = 0, rank = 0, value_dim = 0;
    bool any = false;  // something has left
    Buffer memory;     // H, then z

    int64_t numbers() const { return SumNumbers(kv_heads, rank, value_dim); }
    int64_t bytes() const override { return numbers() * SizeOf(DType::kF32); }
    Tensor All() const { return memory.As(DType::kF32, {numbers()}); }
    Tensor H() const {  // [kv_heads, rank, value_dim]
      return All().Slice(0, kv_heads * rank * value_dim).Reshape({kv_heads, rank, value_dim});
    }
    Tensor Z() const {  // [kv_heads, rank]
      return All().Slice(kv_heads * rank * value_dim, numbers()).Reshape({kv_heads, rank});
    }
  };

  int64_t MostBytes(const ModelShape& shape, int64_t layer, int64_t) const override {
    const ModelShape own = shape.OfLayer(layer);
    return SumNumbers(own.kv_heads, rank_, own.value_dim) * SizeOf(DType::kF32);
  }

  std::unique_ptr<State> Begin(LayerView& view) const override {
    const ModelShape& shape = view.shape();
    auto kernels = std::make_shared<Kernels>();
    for (int part = 0; part < kKernelParts; ++part) {
      const auto at = static_cast<size_t>(part);
      kernels->parts[at] = tables_.On(view.ops(), KernelTable(view.layer(), part),
                                      DimsOf(part, shape), kernels->memory[at]);
    }
    auto sums = std::make_unique<Sums>();
    sums->kernels = std::move(kernels);
    sums->kv_heads = shape.kv_heads;
    sums->rank = rank_;
    sums->value_dim = shape.value_dim;
    sums->memory = view.ops().memory->Allocate(sums->bytes());
    view.ops().rows->Fill(0.0f, sums->All().Reshape({1, sums->numbers()}));
    return sums;
  }

  std::unique_ptr<State> Copy(const State& state, Ops& ops) const override {
    const auto& from = static_cast<const Sums&>(state);
    auto sums = std::make_unique<Sums>();
    sums->kernels = from.kernels;
    sums->kv_heads = from.kv_heads;
    sums->rank = from.rank;
    sums->value_dim = from.value_dim;
    sums->any = from.any;
    sums->memory = ops.memory->Allocate(sums->bytes());
    ops.memory->Copy(from.All(), sums->All());
    return sums;
  }

  void Append(LayerView&, std::span<const int64_t>, State&) const override {}
  bool saves() const override { return true; }
  Status Fields(LayerView& view, State& state, StateFields& fields) const override {
    auto& sums = static_cast<Sums&>(state);
    KVG_TRY(fields.Flag("whether entries have left", &sums.any));
    return fields.Rows("sums of what has left", view.ops(), sums.All());
  }
  bool Select(LayerView&, State&, const Tensor&, Tensor) const override { return false; }

  Status Absorb(LayerView& view, std::span<const Tensor> leaving, State& state) const override {
    auto& sums = static_cast<Sums&>(state);
    int64_t most = 0;
    for (const Tensor& entries : leaving) most = std::max(most, entries.Numel());
    if (most == 0) return {};
    const Work work = MakeWork(view, std::min(most, kTogether));
    for (size_t h = 0; h < leaving.size(); ++h) {
      const int64_t n = leaving[h].Numel();
      for (int64_t first = 0; first < n; first += kTogether) {
        const Tensor entries = leaving[h].Slice(first, std::min(n, first + kTogether));
        Add(view, static_cast<int64_t>(h), entries, work, sums);
      }
    }
    sums.any = true;
    return view.decoding() ? Status() : CheckNumbers(view, sums);
  }

  void Join(LayerView& view, State& state, const Tensor& q, const Tensor& log_sum_exp,
            Tensor out) const override {
    const auto& sums = static_cast<const Sums&>(state);
    if (!sums.any) return;
    Ops& ops = view.ops();
    RowOps& rows = *ops.rows;
    const ModelShape& shape = view.shape();
    const int64_t heads = shape.query_heads, kv = shape.kv_heads, group = shape.group();
    const int64_t dim = shape.key_dim, value_dim = shape.value_dim;
    const Tensor query = view.Scratch(DType::kF32, {heads, dim});
    const Tensor inner = view.Scratch(DType::kF32, {heads, inner_});
    const Tensor features = view.Scratch(DType::kF32, {heads, rank_});
    const Tensor total = view.Scratch(DType::kF32, {1, heads});
    const Tensor result = view.Scratch(DType::kF32, {heads, value_dim});
    const Tensor& in = sums.kernels->parts[kQueryIn];
    const Tensor& back = sums.kernels->parts[kQueryOut];
    rows.Convert(q, query);
    ops.linear->MatMulNN(query.Reshape({heads, 1, dim}), in.Reshape({heads, dim, inner_}), 1.0f,
                         inner.Reshape({heads, 1, inner_}));
    rows.Activate(inner, Activation::kGelu, inner);
    ops.linear->MatMulNN(inner.Reshape({heads, 1, inner_}), back.Reshape({heads, inner_, rank_}),
                         1.0f, features.Reshape({heads, 1, rank_}));
    rows.Activate(features, Activation::kGelu, features);
    ToMagnitudes(rows, features, view.Scratch(DType::kF32, {heads, rank_}));
    ops.linear->MatMulNN(features.Reshape({kv, group, rank_}), sums.Z().Reshape({kv, rank_, 1}),
                         1.0f, total.Reshape({kv, group, 1}));
    rows.Combine(total, Filled(view, heads, kLeast), Binary::kMax, total);
    rows.Combine(features, Filled(view, rank_, kLeast), Binary::kMax, features);
    ops.linear->MatMulNN(features.Reshape({kv, group, rank_}), sums.H(), 1.0f,
                         result.Reshape({kv, group, value_dim}));
    rows.Combine(result, Spread(view, total[0], value_dim), Binary::kDivide, result);
    rows.Activate(total, Activation::kLog, total);
    // Both have a softmax's denominator: the two results by their shares of the sum.
    JoinResults(view, log_sum_exp, total[0], result, out);
  }

 private:
  static constexpr int64_t kTogether = 1024;  // entries of a product
  static constexpr float kLeast = 1e-6f;

  std::vector<int64_t> DimsOf(int part, const ModelShape& shape) const {
    switch (part) {
      case kQueryIn:
        return {shape.query_heads, shape.key_dim, inner_};
      case kQueryOut:
        return {shape.query_heads, inner_, rank_};
      case kKeyIn:
        return {shape.kv_heads, shape.key_dim, inner_};
      case kKeyOut:
        return {shape.kv_heads, inner_, rank_};
      case kMix:
        return {shape.kv_heads, rank_, rank_};
      default:
        return {shape.kv_heads, rank_};
    }
  }
  GateTables::Dims AllDims(const ModelShape& shape) const {
    GateTables::Dims dims;
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
      for (int part = 0; part < kKernelParts; ++part) {
        dims[KernelTable(layer, part)] = DimsOf(part, shape);
      }
    }
    return dims;
  }

  // Working memory for up to so many entries of a head.
  struct Work {
    Tensor keys, values, inner, features, mixed;  // [entries, ..]
    Tensor across;                                // [rank * entries]
    Tensor unit;                                  // [rank, rank]
    Tensor size, z;                               // [1, rank]
    Tensor h;                                     // [rank, value_dim]
  };
  Work MakeWork(LayerView& view, int64_t entries) const {
    const auto take = [&](int64_t rows, int64_t columns) {
      return view.Scratch(DType::kF32, {rows, columns});
    };
    const ModelShape& shape = view.shape();
    std::vector<float> unit(static_cast<size_t>(rank_ * rank_));
    for (int64_t i = 0; i < rank_; ++i) unit[static_cast<size_t>(i * rank_ + i)] = 1.0f;
    return {.keys = take(entries, shape.key_dim),
            .values = take(entries, shape.value_dim),
            .inner = take(entries, inner_),
            .features = take(entries, rank_),
            .mixed = take(entries, rank_),
            .across = view.Scratch(DType::kF32, {rank_ * entries}),
            .unit = Upload(view, std::span<const float>(unit)).Reshape({1, rank_, rank_}),
            .size = take(1, rank_),
            .z = take(1, rank_),
            .h = take(rank_, shape.value_dim)};
  }

  // entries: [n] i32 of one head.
  void Add(LayerView& view, int64_t head, const Tensor& entries, const Work& work,
           const Sums& sums) const {
    Ops& ops = view.ops();
    RowOps& rows = *ops.rows;
    LinearOps& linear = *ops.linear;
    const int64_t n = entries.shape[0], dim = view.shape().key_dim, wide = sums.value_dim;
    const auto part = [&](KernelPart which, int64_t size) {
      return sums.kernels->parts[which].Slice(head * size, (head + 1) * size);
    };
    const Tensor keys = work.keys.Slice(0, n), values = work.values.Slice(0, n);
    const Tensor inner = work.inner.Slice(0, n), features = work.features.Slice(0, n);
    const Tensor mixed = work.mixed.Slice(0, n);
    ops.select->Gather(view.Keys(head), entries, keys);
    ops.select->Gather(view.Values(head), entries, values);
    linear.MatMulNN(keys.Reshape({1, n, dim}), part(kKeyIn, dim * inner_).Reshape({1, dim, inner_}),
                    1.0f, inner.Reshape({1, n, inner_}));
    rows.Activate(inner, Activation::kGelu, inner);
    linear.MatMulNN(inner.Reshape({1, n, inner_}),
                    part(kKeyOut, inner_ * rank_).Reshape({1, inner_, rank_}), 1.0f,
                    features.Reshape({1, n, rank_}));
    rows.Activate(features, Activation::kGelu, features);
    rows.Convert(part(kSize, rank_).Reshape({1, rank_}), work.size);
    ToMagnitudes(rows, work.size, work.z);
    rows.Combine(features, work.size[0], Binary::kMultiply, features);
    linear.MatMulNN(features.Reshape({1, n, rank_}),
                    part(kMix, rank_ * rank_).Reshape({1, rank_, rank_}), 1.0f,
                    mixed.Reshape({1, n, rank_}));
    rows.Combine(mixed, part(kMixSize, rank_), Binary::kMultiply, mixed);
    rows.Combine(features, mixed, Binary::kAdd, features);
    ToMagnitudes(rows, features, mixed);
    const Tensor own_z = sums.Z().Slice(head, head + 1);
    rows.ReduceColumns(features, Reduction::kSum, work.z[0]);
    rows.Combine(own_z, work.z, Binary::kAdd, own_z);
    // The identity times them transposed: exactly they, with rows and columns exchanged.
    const Tensor across = work.across.Slice(0, rank_ * n).Reshape({1, rank_, n});
    linear.MatMulNT(work.unit, features.Reshape({1, n, rank_}), 1.0f, across);
    linear.MatMulNN(across, values.Reshape({1, n, wide}), 1.0f, work.h.Reshape({1, rank_, wide}));
    rows.Combine(sums.H()[head], work.h, Binary::kAdd, sums.H()[head]);
  }

  // Trained weights may give what is no number. Behind a prompt alone: it waits for the device.
  Status CheckNumbers(LayerView& view, const Sums& sums) const {
    const Tensor sum = view.Scratch(DType::kF32, {1});
    view.ops().rows->ReduceRows(sums.All().Reshape({1, sums.numbers()}), Reduction::kSumAbs, sum);
    if (std::isfinite(Fetch(view.ops(), sum)[0])) return {};
    return Unsupported(StrCat("read.less folds entries of layer ", view.layer(),
                              " into what are no finite numbers; its weights are not those of "
                              "this model, or too large"));
  }

  GateTables tables_;
  int64_t inner_, rank_;
};

// Which published tensor a part is, of a layer; where all heads share keys its authors have linear
// maps, [out, in].
struct PublishedPart {
  char name[16];
  bool shared;  // the linear map has the name and ".weight"
};
constexpr PublishedPart kPublished[kKernelParts] = {
    {"kernel_q_mat1", false}, {"kernel_q_mat2", false}, {"kernel_k_mat1", true},
    {"kernel_k_mat2", true},  {"scalingD", false},      {"interaction_k", true},
    {"scalingD2", false},
};

// A linear map [out, in] as [1, in, out].
std::vector<float> ExchangeRows(const std::vector<float>& map, int64_t out, int64_t in) {
  std::vector<float> turned(map.size());
  for (int64_t o = 0; o < out; ++o) {
    for (int64_t i = 0; i < in; ++i) {
      turned[static_cast<size_t>(i * out + o)] = map[static_cast<size_t>(o * in + i)];
    }
  }
  return turned;
}

Result<Calibration::Tables> ImportKernels(const Calibration::Tables& published,
                                          WeightView& weights) {
  const ModelShape& shape = weights.shape();
  const int64_t queries = shape.query_heads, keys = shape.kv_heads, dim = shape.key_dim;
  const auto first = published.find("0.kernel_q_mat2");
  if (first == published.end()) return BadInput("has no tensor '0.kernel_q_mat2'");
  if (first->second.shape.size() != 3) {
    return BadInput("tensor '0.kernel_q_mat2' is not [query heads, inner, rank]");
  }
  const int64_t inner = first->second.shape[1], rank = first->second.shape[2];
  const std::vector<int64_t> wanted[kKernelParts] = {
      {queries, dim, inner}, {queries, inner, rank}, {keys, dim, inner}, {keys, inner, rank},
      {1, keys, 1, rank},    {keys, rank, rank},     {1, keys, 1, rank}};
  Calibration::Tables tables;
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    for (int part = 0; part < kKernelParts; ++part) {
      const PublishedPart& of = kPublished[part];
      const std::string plain = StrCat(layer, ".", of.name), shared = plain + ".weight";
      const bool linear = of.shared && keys == 1 && published.contains(shared);
      const std::string& name = linear ? shared : plain;
      const auto found = published.find(name);
      if (found == published.end()) return BadInput(StrCat("has no tensor '", name, "'"));
      std::vector<int64_t> dims = wanted[part];
      if (linear) dims = {dims[2], dims[1]};
      const Calibration::Table& table = found->second;
      if (table.shape != dims) {
        std::vector<std::string> sizes;
        for (const int64_t size : dims) sizes.push_back(StrCat(size));
        return BadInput(
            StrCat("tensor '", name, "' is not [", Join(sizes, ", "), "], which this model needs"));
      }
      if (!std::all_of(table.values.begin(), table.values.end(),
                       [](float x) { return std::isfinite(x); })) {
        return BadInput(StrCat("tensor '", name, "' has a number that is not finite"));
      }
      std::vector<int64_t> ours = wanted[part];
      if (ours.size() == 4) ours = {keys, rank};
      tables[KernelTable(layer, part)] = {
          ours, linear ? ExchangeRows(table.values, dims[0], dims[1]) : table.values};
    }
  }
  if (published.contains(StrCat(shape.layers, ".kernel_q_mat2"))) {
    return BadInput(StrCat("has kernels of layer ", shape.layers, ", and this model has ",
                           shape.layers, " layers"));
  }
  return tables;
}

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "less",
    .paper = "arXiv:2402.09398",
    .summary = "reads all that is held, and a state of constant size into which the rest went",
    .departures = {"where nothing has left, attention is as it was; the reference adds the least "
                   "value of its state to the softmax",
                   "query heads that share keys and values share a state, with a kernel of keys "
                   "for each KV head and of queries for each query head; the reference has this "
                   "where each query head has its own keys, or all share one",
                   "rows of a question, or of a turn or chunk, that follow a compressed prompt "
                   "attend to what is held alone; the reference lets them read the state"},
    .bytes = "4 * rank * (value_dim + 1) a KV head; its weights, 4 bytes each, once a model",
    .params = GateTables::Declare({IntParam("inner", 512, 1, 1 << 16,
                                            "numbers between the two maps of a kernel"),
                                   IntParam("rank", 8, 1, 1024, "numbers of a kernel")}),
    .make = Make<Less>(),
    .calibrated_params = {"inner", "rank"},
    .import_with = ImportKernels,
});

}  // namespace
}  // namespace kvgauge
