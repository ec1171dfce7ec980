// SPDX-License-Identifier: Apache-2.0
#include "src/model/prepare.h"

#include <algorithm>
#include <tuple>

#include "core/strings.h"

namespace kvgauge {
namespace {

constexpr std::array kMatrices = {WeightView::Matrix::kQuery, WeightView::Matrix::kKey,
                                  WeightView::Matrix::kValue, WeightView::Matrix::kOutput};

// Rows [begin, begin + rows) of a stored tensor of any float type and alignment, as f32.
void AppendRows(Ops& ops, const Tensor& stored, int64_t begin, int64_t rows,
                std::vector<float>& out) {
  const int64_t width = stored.rank == 1 ? 1 : stored.shape[1], count = rows * width;
  const Buffer memory = HostBuffer(count * SizeOf(stored.dtype));
  const Tensor aligned = memory.As(stored.dtype, {1, count});
  __builtin_memcpy(aligned.data,
                   static_cast<const char*>(stored.data) + begin * width * SizeOf(stored.dtype),
                   static_cast<size_t>(count * SizeOf(stored.dtype)));
  const size_t at = out.size();
  out.resize(at + static_cast<size_t>(count));
  const Buffer device = ops.memory->Allocate(count * (SizeOf(stored.dtype) + 4));
  const Tensor wide = device.As(DType::kF32, {1, count});
  Tensor raw(static_cast<char*>(device.data()) + count * 4, stored.dtype, {1, count}, wide.device);
  ops.memory->Copy(aligned, raw);
  ops.rows->Convert(raw, wide);
  ops.memory->Copy(wide, View({out.data() + at, static_cast<size_t>(count)}, {1, count}));
}

// Gemma 4: no one size says what a projection is.
bool FixedHeads(const ModelConfig& config) {
  return !config.HasEvenHeads() || std::ranges::any_of(config.layers, [](const LayerConfig& layer) {
    return layer.values_are_keys;
  });
}

}  // namespace

PreparedWeights::PreparedWeights(const ModelConfig& config, DType dtype, ModelTensors tensors,
                                 const WeightSource& source, Ops& ops)
    : before_(config),
      config_(config),
      tensors_(std::move(tensors)),
      source_(&source),
      ops_(&ops),
      shape_(ShapeOf(config, dtype)) {}

Result<PreparedWeights::Place> PreparedWeights::PlaceOf(int64_t layer, Matrix matrix) const {
  KVG_CHECK(layer >= 0 && layer < before_.cache_count(), "no such layer");
  if (before_.mla) {
    return Unsupported(StrCat(before_.path, ": the projections of ", before_.family,
                              " go through latents; stages that change them need separate query, "
                              "key and value projections"));
  }
  if (before_.attention_gate) {
    return Unsupported(StrCat(before_.path,
                              ": what attention gives is weighed before its output "
                              "projection in ",
                              before_.family,
                              ", so that stages cannot change "
                              "the projections around it"));
  }
  if (before_.made_keys) {
    return Unsupported(StrCat(before_.path, ": layers of ", before_.family,
                              " make keys and values anew of one row for each token, so that "
                              "stages cannot change the projections around them"));
  }
  if (FixedHeads(before_)) {
    return Unsupported(
        StrCat(before_.path,
               ": layers have heads of several sizes, or values that are their keys; "
               "stages that change projections need those of one size"));
  }
  const LayerSpec& spec = tensors_.layers[static_cast<size_t>(before_.LayerOf(layer))];
  Place place;
  if (matrix == Matrix::kOutput) {
    place.weight = spec.output.parts[0];
    if (!spec.output.biases.empty()) place.bias = spec.output.biases[0];
    place.rows = place.weight.shape[0];
    place.ranges = {{0, place.rows}};
    return place;
  }
  const std::array<int64_t, 3> rows = {before_.query_heads * before_.key_dim,
                                       before_.kv_heads * before_.key_dim,
                                       before_.kv_heads * before_.value_dim};
  const auto index = static_cast<size_t>(matrix);
  const bool fused = spec.qkv.parts.size() == 1;
  place.weight = spec.qkv.parts[fused ? 0 : index];
  if (!spec.qkv.biases.empty()) place.bias = spec.qkv.biases[fused ? 0 : index];
  place.rows = rows[index];
  if (fused && before_.tensor_names.qkv_by_group) {
    GroupedRows grouped = RowsByGroup(before_);
    place.ranges = std::move(matrix == Matrix::kQuery ? grouped.queries
                             : matrix == Matrix::kKey ? grouped.keys
                                                      : grouped.values);
    return place;
  }
  int64_t begin = 0;
  for (size_t i = 0; fused && i < index; ++i) begin += rows[i];
  place.ranges = {{begin, begin + place.rows}};
  return place;
}

int64_t PreparedWeights::RowsAfter(Matrix matrix) const {
  switch (matrix) {
    case Matrix::kQuery:
      return config_.query_heads * config_.key_dim;
    case Matrix::kKey:
      return config_.kv_heads * config_.key_dim;
    case Matrix::kValue:
      return config_.kv_heads * config_.value_dim;
    case Matrix::kOutput:
      return config_.hidden_size;
  }
  CheckFailed(__FILE__, __LINE__, "matrix", "unknown matrix");
}

int64_t PreparedWeights::ColumnsAfter(Matrix matrix) const {
  return matrix == Matrix::kOutput ? config_.query_heads * config_.value_dim : config_.hidden_size;
}

// Rows of layers without a cache go through the same keys and values.
Status PreparedWeights::CheckMayWrite(int64_t layer, Matrix matrix) const {
  if (matrix != Matrix::kQuery && matrix != Matrix::kOutput) return {};
  const int64_t owner = before_.LayerOf(layer);
  for (int64_t other = 0; other < before_.layer_count(); ++other) {
    if (before_.layers[static_cast<size_t>(other)].reads != owner) continue;
    return Unsupported(StrCat(before_.path, ": layer ", other, " reads the cache of layer ", owner,
                              ", so that a stage cannot change queries or outputs of the one "
                              "alone"));
  }
  return {};
}

Result<Tensor> PreparedWeights::ReadRows(int64_t layer, const TensorSpec& spec,
                                         const Place& place) {
  if (layer != read_layer_) read_.clear();
  read_layer_ = layer;
  KVG_ASSIGN(const WeightTensor stored, source_->Get(spec.name));
  std::vector<float> values;
  for (const RowSpan& rows : place.ranges) {
    AppendRows(*ops_, stored.view, rows.begin, rows.end - rows.begin, values);
  }
  const auto count = std::ssize(values);
  read_.push_back(ops_->memory->Allocate(count * 4));
  const Tensor flat = read_.back().As(DType::kF32, {count});
  ops_->memory->Copy(View(values, {count}), flat);
  return stored.view.rank == 1 ? flat : flat.Reshape({place.rows, count / place.rows});
}

Result<Tensor> PreparedWeights::Read(int64_t layer, Matrix matrix) {
  KVG_ASSIGN(const Place place, PlaceOf(layer, matrix));
  return ReadRows(layer, place.weight, place);
}

Result<Tensor> PreparedWeights::ReadBias(int64_t layer, Matrix matrix) {
  KVG_ASSIGN(const Place place, PlaceOf(layer, matrix));
  if (place.bias.name.empty()) return Tensor();
  return ReadRows(layer, place.bias, place);
}

Status PreparedWeights::Keep(const Key& key, const Tensor& values) {
  std::vector<float>& copy = written_[key];
  copy.resize(static_cast<size_t>(values.Numel()));
  const Tensor host = View(copy, {values.Numel()});
  ops_->memory->Copy(values.Reshape({values.Numel()}), host);
  return {};
}

Status PreparedWeights::Write(int64_t layer, Matrix matrix, const Tensor& weights) {
  KVG_ASSIGN(const Place place, PlaceOf(layer, matrix));
  KVG_TRY(CheckMayWrite(layer, matrix));
  KVG_CHECK(weights.dtype == DType::kF32 && weights.rank == 2 && weights.IsContiguous() &&
                weights.shape[0] == RowsAfter(matrix) && weights.shape[1] == ColumnsAfter(matrix),
            "weights must be f32 [out features, in features]");
  return Keep({layer, matrix, false}, weights);
}

Status PreparedWeights::WriteBias(int64_t layer, Matrix matrix, const Tensor& bias) {
  KVG_ASSIGN(const Place place, PlaceOf(layer, matrix));
  KVG_TRY(CheckMayWrite(layer, matrix));
  if (place.bias.name.empty()) {
    return Unsupported(StrCat(source_->OriginOf(place.weight.name), ": '", place.weight.name,
                              "' has no bias, and the model adds none"));
  }
  KVG_CHECK(bias.dtype == DType::kF32 && bias.rank == 1 && bias.shape[0] == RowsAfter(matrix),
            "a bias must be f32 [out features]");
  return Keep({layer, matrix, true}, bias);
}

Status PreparedWeights::SetHeads(int64_t query_heads, int64_t kv_heads) {
  if (kv_heads < 1 || query_heads % kv_heads != 0) {
    return BadInput(StrCat(kv_heads, " KV heads: must divide the ", query_heads, " query heads"));
  }
  const bool by_head = config_.qk_norm && config_.qk_norm_kind != QkNorm::kHead &&
                       config_.qk_norm_kind != QkNorm::kLayer &&
                       config_.qk_norm_kind != QkNorm::kLength;
  const bool slopes = !config_.distance_slopes.empty();
  if (query_heads != config_.query_heads && (by_head || config_.sinks || slopes)) {
    return Unsupported(StrCat(before_.path, ": query heads have ",
                              slopes          ? "slopes of distances"
                              : config_.sinks ? "logits"
                                              : "norms",
                              " of their own, so that there cannot be more of them"));
  }
  config_.query_heads = shape_.query_heads = query_heads;
  config_.kv_heads = shape_.kv_heads = kv_heads;
  return {};
}

Status PreparedWeights::ShareCaches(std::span<const int64_t> reads) {
  if (before_.SharesCaches()) {
    return Unsupported(StrCat(before_.path, ": layers read each other's caches already"));
  }
  const Status shared = config_.ShareCaches(reads);
  if (!shared.ok()) return shared.error().Wrap(before_.path);
  return {};
}

Status PreparedWeights::MeanEntries(const EntryMeans& means) {
  if (before_.mla || before_.state || before_.SharesCaches()) {
    return Unsupported(StrCat(before_.path, ": rows cannot join entries of ", before_.family,
                              "; expected a model whose layers all have keys and values of their "
                              "own"));
  }
  config_.means = means;
  return {};
}

Status PreparedWeights::WriteBasis(int64_t layer, KvSide side, int64_t first_head, int64_t heads,
                                   const Tensor& basis) {
  const int64_t dim = side == KvSide::kKeys ? config_.key_dim : config_.value_dim;
  KVG_CHECK(basis.dtype == DType::kF32 && basis.rank == 2 && basis.IsContiguous() &&
                basis.shape[0] == heads * dim,
            "a basis must be f32 [heads * dim, rank]");
  if (before_.value_norm) {
    return Unsupported(StrCat(before_.path,
                              ": values of this model are normed behind their projection, so bases "
                              "of projections do not hold for its cache"));
  }
  if (before_.multipliers) {
    return Unsupported(StrCat(before_.path, ": what ", before_.family,
                              " projects to keys and values is multiplied before it is kept, so "
                              "that caches cannot be in bases of its weights"));
  }
  if (before_.qkv_limit > 0) {
    return Unsupported(
        StrCat(before_.path, ": keys and values of this model are kept within ", before_.qkv_limit,
               " behind their projections (clip_qkv), so that no basis of its weights "
               "holds them; use a method that keeps keys and values"));
  }
  if (heads < 1 || config_.kv_heads % heads != 0 || first_head % heads != 0 ||
      first_head + heads > config_.kv_heads) {
    return BadInput(StrCat("a basis for KV heads ", first_head, " to ", first_head + heads - 1,
                           " of ", config_.kv_heads, ": groups must divide the heads evenly"));
  }
  KvBasis& kept = bases_.emplace_back();
  kept.layer = layer;
  kept.side = side;
  kept.first_head = first_head;
  kept.heads = heads;
  kept.memory = ops_->memory->Allocate(basis.SizeBytes());
  kept.basis = kept.memory.As(DType::kF32, {basis.shape[0], basis.shape[1]});
  ops_->memory->Copy(basis, kept.basis);
  return {};
}

Status PreparedWeights::Finish() {
  std::sort(bases_.begin(), bases_.end(), [](const KvBasis& a, const KvBasis& b) {
    return std::tie(a.layer, a.side, a.first_head) < std::tie(b.layer, b.side, b.first_head);
  });
  int64_t next_head = 0;
  for (size_t i = 0; i < bases_.size(); ++i) {
    const KvBasis& basis = bases_[i];
    const bool same =
        i > 0 && bases_[i - 1].layer == basis.layer && bases_[i - 1].side == basis.side;
    const bool more = i + 1 < bases_.size() && bases_[i + 1].layer == basis.layer &&
                      bases_[i + 1].side == basis.side;
    if (!same) next_head = 0;
    const bool fits = basis.first_head == next_head &&
                      (!same || bases_[i - 1].heads == basis.heads) &&
                      (more || basis.first_head + basis.heads == config_.kv_heads);
    if (!fits) {
      return BadInput(StrCat(
          "layer ", basis.layer, ": bases of ", basis.side == KvSide::kKeys ? "keys" : "values",
          " must cover all KV heads once, in groups of one size; see head ", basis.first_head));
    }
    next_head += basis.heads;
  }
  if (!bases_.empty() && config_.cache_count() < before_.cache_count()) {
    return Unsupported("caches in bases of their own cannot be shared between layers");
  }
  // Nothing was written.
  const bool fixed = before_.mla || before_.attention_gate || FixedHeads(before_);
  for (int64_t layer = 0; !fixed && layer < before_.cache_count(); ++layer) {
    for (const bool bias : {false, true}) KVG_TRY(FinishLayer(layer, bias));
  }
  read_.clear();
  return {};
}

Result<std::vector<float>> PreparedWeights::ValuesOf(const Key& key, const TensorSpec& spec,
                                                     const Place& place) {
  const auto found = written_.find(key);
  if (found != written_.end()) {
    std::vector<float> values = std::move(found->second);
    written_.erase(found);
    return values;
  }
  std::vector<float> values;
  KVG_ASSIGN(const WeightTensor stored, source_->Get(spec.name));
  for (const RowSpan& rows : place.ranges) {
    AppendRows(*ops_, stored.view, rows.begin, rows.end - rows.begin, values);
  }
  return values;
}

// Stored tensors anew, in the order of their rows: a fused one has several matrices.
Status PreparedWeights::FinishLayer(int64_t layer, bool bias) {
  std::map<std::string, bool> touched;
  for (const Matrix matrix : kMatrices) {
    KVG_ASSIGN(const Place place, PlaceOf(layer, matrix));
    const TensorSpec& spec = bias ? place.bias : place.weight;
    if (spec.name.empty()) continue;
    const bool narrower = !bias && ColumnsAfter(matrix) != spec.shape[1];
    const bool resized = RowsAfter(matrix) != place.rows || narrower;
    const bool written = written_.contains({layer, matrix, bias});
    if (resized && !written) {
      return BadInput(StrCat("layer ", layer, ": '", spec.name, "' was not written for ",
                             config_.kv_heads, " KV heads of ", config_.query_heads,
                             " query heads"));
    }
    touched[spec.name] = touched[spec.name] || written;
  }
  const bool by_group = !before_.tensor_names.qkv.empty() && before_.tensor_names.qkv_by_group;
  std::vector<float> grouped;  // of the matrix that has its rows by group
  for (const Matrix matrix : kMatrices) {
    KVG_ASSIGN(const Place place, PlaceOf(layer, matrix));
    const TensorSpec& spec = bias ? place.bias : place.weight;
    if (spec.name.empty() || !touched[spec.name]) continue;
    KVG_ASSIGN(const std::vector<float> some, ValuesOf({layer, matrix, bias}, spec, place));
    auto& [values, shape] = changed_[spec.name];
    values.insert(values.end(), some.begin(), some.end());
    shape = spec.shape;
    const int64_t width = bias ? 1 : ColumnsAfter(matrix);
    if (!bias) shape[1] = width;
    shape[0] = std::ssize(values) / width;
    if (!by_group || matrix != Matrix::kValue) continue;
    // All queries, keys and values are together: back to the order of groups.
    const GroupedRows rows = RowsByGroup(config_);
    grouped.resize(values.size());
    auto from = values.begin();
    for (const std::vector<RowSpan>* of : {&rows.queries, &rows.keys, &rows.values}) {
      for (const RowSpan& range : *of) {
        const int64_t count = (range.end - range.begin) * width;
        std::copy_n(from, count, grouped.begin() + range.begin * width);
        from += count;
      }
    }
    values.swap(grouped);
  }
  return {};
}

Result<WeightTensor> PreparedWeights::Get(const std::string& name) const {
  const auto found = changed_.find(name);
  if (found == changed_.end()) return source_->Get(name);
  const auto& [values, shape] = found->second;
  WeightTensor tensor;
  tensor.view = shape.size() == 1 ? View(values, {shape[0]}) : View(values, {shape[0], shape[1]});
  return tensor;
}

Result<WeightInfo> PreparedWeights::Describe(const std::string& name) const {
  return changed_.contains(name) ? WeightSource::Describe(name) : source_->Describe(name);
}

Result<std::optional<WeightBlocks>> PreparedWeights::GetBlocks(const std::string& name) const {
  if (changed_.contains(name)) return std::optional<WeightBlocks>();
  return source_->GetBlocks(name);
}

}  // namespace kvgauge
