// SPDX-License-Identifier: Apache-2.0
#include "src/model/weight_loader.h"

#include <algorithm>
#include <cmath>

#include "core/rounding.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += StrCat(i == 0 ? "" : ", ", shape[i]);
  return out + "]";
}

// Index of the first NaN or infinity, or -1. Exponent bits all set, whatever the alignment.
template <class Bits>
int64_t FirstNonFinite(const Tensor& tensor, Bits exponent_mask) {
  const auto* bytes = static_cast<const unsigned char*>(tensor.data);
  const int64_t count = tensor.Numel();
  constexpr int64_t kBlock = 4096, kStep = 64;
  const auto copy = [&](int64_t i, int64_t some, Bits* to) {
    __builtin_memcpy(to, bytes + i * static_cast<int64_t>(sizeof(Bits)),
                     static_cast<size_t>(some) * sizeof(Bits));
  };
  int64_t first = count;
#pragma omp parallel for schedule(static) reduction(min : first)
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, count);
    Bits found = 0;
    for (int64_t at = begin; at < end; at += kStep) {
      Bits bits[kStep] = {};
      copy(at, std::min(kStep, end - at), bits);
      for (int64_t i = 0; i < kStep; ++i) found |= (bits[i] & exponent_mask) == exponent_mask;
    }
    for (int64_t i = begin; found != 0 && i < end; ++i) {
      Bits bits = 0;
      copy(i, 1, &bits);
      if ((bits & exponent_mask) != exponent_mask) continue;
      first = std::min(first, i);
      break;
    }
  }
  return first == count ? -1 : first;
}

int64_t FirstNonFinite(const Tensor& tensor) {
  switch (tensor.dtype) {
    case DType::kF32:
      return FirstNonFinite<uint32_t>(tensor, 0x7f800000u);
    case DType::kF16:
      return FirstNonFinite<uint16_t>(tensor, 0x7c00u);
    case DType::kBF16:
      return FirstNonFinite<uint16_t>(tensor, 0x7f80u);
    default:
      return -1;
  }
}

float ReadElement(const Tensor& raw, int64_t i) {
  switch (raw.dtype) {
    case DType::kF16:
      return F16ToF32(raw.As<uint16_t>()[i]);
    case DType::kBF16:
      return Bf16ToF32(raw.As<uint16_t>()[i]);
    default:
      return raw.f32()[i];
  }
}

// [rows, columns] as [columns, rows].
std::vector<float> Transposed(const std::vector<float>& matrix, int64_t rows, int64_t columns) {
  std::vector<float> out(matrix.size());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      out[static_cast<size_t>(j * rows + i)] = matrix[static_cast<size_t>(i * columns + j)];
    }
  }
  return out;
}

}  // namespace

Status CheckStoredTensor(const TensorSpec& spec, const WeightSource& source) {
  if (!source.Contains(spec.name)) {
    return BadInput(StrCat(source.OriginOf(spec.name), ": tensor '", spec.name,
                           "' is missing; the config needs it with shape ", ShapeText(spec.shape),
                           DidYouMean(spec.name, source.Names())));
  }
  KVG_ASSIGN(const WeightInfo stored, source.Describe(spec.name));
  if (stored.shape != spec.shape) {
    return BadInput(StrCat(source.OriginOf(spec.name), ": tensor '", spec.name, "' has shape ",
                           ShapeText(stored.shape), ", but the config needs ",
                           ShapeText(spec.shape)));
  }
  if (!IsFloat(stored.dtype)) {
    return BadInput(StrCat(source.OriginOf(spec.name), ": tensor '", spec.name, "' is stored as ",
                           NameOf(stored.dtype), "; expected f32, f16 or bf16"));
  }
  return {};
}

Status WeightLoader::CheckFinite(const TensorSpec& spec, const Tensor& numbers) const {
  const int64_t at = FirstNonFinite(numbers);
  if (at < 0) return {};
  return BadInput(StrCat(source_.OriginOf(spec.name), ": tensor '", spec.name, "' of shape ",
                         ShapeText(spec.shape), " holds NaN or infinity at element ", at,
                         "; weights must be finite"));
}

Status WeightLoader::Load(const TensorSpec& spec, WeightTensor& out) {
  KVG_ASSIGN(out, source_.Get(spec.name));
  return CheckFinite(spec, out.view);
}

void WeightLoader::Release(const LinearSpec& spec) {
  for (const TensorSpec& part : spec.parts) source_.Release(part.name);
}

Status WeightLoader::LoadTransposed(const LinearSpec& spec, Linear& out) {
  KVG_CHECK(spec.parts.size() == 1, "one matrix is transposed at a time");
  std::vector<float> stored;
  KVG_TRY(LoadNumbers(spec.parts[0], stored));
  const int64_t in = spec.parts[0].shape[0], rows = spec.parts[0].shape[1];
  PackNumbers(Transposed(stored, in, rows), rows, in, out);
  return LoadBiases(spec, out);
}

Status WeightLoader::LoadBiases(const LinearSpec& spec, Linear& out) {
  if (spec.biases.empty()) return {};
  int64_t size = 0;
  for (const TensorSpec& bias : spec.biases) size += bias.shape.back();
  if (!spec.order.empty()) size = out.matrix->out_features();
  out.bias_memory = ops_.memory->Allocate(size * SizeOf(DType::kF32));
  out.bias = out.bias_memory.As(DType::kF32, {size});
  if (!spec.order.empty()) {
    std::vector<float> stored, ordered;
    for (const TensorSpec& bias : spec.biases) {
      std::vector<float> some;
      KVG_TRY(LoadNumbers(bias, some));
      stored.insert(stored.end(), some.begin(), some.end());
    }
    for (const RowSpan& rows : spec.order) {
      ordered.insert(ordered.end(), stored.begin() + rows.begin, stored.begin() + rows.end);
    }
    ops_.memory->Copy(View(ordered, {size}), out.bias);
    bytes_ += out.bias.SizeBytes();
    return {};
  }
  int64_t begin = 0;
  for (const TensorSpec& bias : spec.biases) {
    KVG_TRY(LoadVector(bias, out.bias.Slice(begin, begin + bias.shape.back())));
    begin += bias.shape.back();
  }
  return {};
}

Status WeightLoader::Load(const NormSpec& spec, Norm& out) {
  if (spec.weight.shape.empty()) return {};
  int64_t first = 1;
  for (const int64_t d : spec.weight.shape) first *= d;
  const int64_t size = first * (1 + std::ssize(spec.others));
  out.memory = ops_.memory->Allocate(2 * size * SizeOf(DType::kF32));
  const Tensor both = out.memory.As(DType::kF32, {2, size});
  out.weight = both[0];
  if (spec.weight.name.empty()) {
    ops_.rows->Fill(1.0f, out.weight);
    return {};
  }
  KVG_TRY(LoadVector(spec.weight, out.weight.Slice(0, first), spec.from_one ? 1.0f : 0.0f));
  int64_t at = first;
  for (const TensorSpec& other : spec.others) {
    KVG_TRY(LoadVector(other, out.weight.Slice(at, at + first)));
    at += first;
  }
  if (spec.bias.name.empty()) return {};
  out.bias = both[1];
  return LoadVector(spec.bias, out.bias);
}

Status WeightLoader::Load(const MlpSpec& spec, MlpWeights& out) {
  KVG_TRY(Load(spec.up, out.up));
  return Load(spec.down, out.down);
}

Status WeightLoader::Load(const std::vector<LinearSpec>& specs, std::vector<Linear>& out) {
  out.resize(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) KVG_TRY(Load(specs[i], out[i]));
  return {};
}

Status WeightLoader::Load(const LayerStreamSpec& spec, StreamWeights& out) {
  for (const auto& [linear, of] : {std::pair{&spec.router, &out.router},
                                   {&spec.predicts, &out.predicts},
                                   {&spec.corrects, &out.corrects},
                                   {&spec.laurel_left, &out.laurel_left},
                                   {&spec.laurel_right, &out.laurel_right}}) {
    KVG_TRY(Load(*linear, *of));
  }
  for (const auto& [norm, of] :
       {std::pair{&spec.router_norm, &out.router_norm}, {&spec.laurel_norm, &out.laurel_norm}}) {
    KVG_TRY(Load(*norm, *of));
  }
  return Load(NormSpec{spec.scale, {}}, out.scale);
}

Status WeightLoader::LoadTable(const TensorSpec& spec, Table& out) {
  if (spec.name.empty()) return {};
  KVG_ASSIGN(out.blocks, SureBlocksOf(spec));
  if (out.blocks) {
    const BlockShape& shape = BlockShapeOf(*out.blocks->rows.format);
    const int64_t bytes = spec.shape[0] * spec.shape[1] / shape.elements * shape.bytes;
    bytes_ += bytes;
    block_bytes_ += bytes;
    return {};
  }
  KVG_TRY(Load(spec, out.source));
  const Tensor& view = out.source.view;
  const int64_t size_bytes = view.SizeBytes();
  const bool aligned = reinterpret_cast<uintptr_t>(view.data) % 4 == 0;
  if (ops_.device == Device::kHost && aligned) {
    out.rows = view;
  } else {
    out.memory = ops_.memory->Allocate(view.SizeBytes());
    out.rows = out.memory.As(view.dtype, {view.shape[0], view.shape[1]});
    ops_.memory->Copy(view, out.rows);
    out.source = {};
    source_.Release(spec.name);
  }
  bytes_ += size_bytes;
  return {};
}

Status WeightLoader::LoadAbsorbed(const TensorSpec& up, const MlaConfig& mla, int64_t value_dim,
                                  LayerWeights& out) {
  WeightTensor stored;
  KVG_TRY(Load(up, stored));
  const int64_t rank = mla.kv_lora_rank, height = mla.nope_dim + value_dim;
  std::vector<float> keys(static_cast<size_t>(rank * mla.nope_dim));
  for (int64_t h = 0; h < up.shape[0] / height; ++h) {
    for (int64_t i = 0; i < mla.nope_dim; ++i) {
      const Buffer row = HostBuffer(rank * SizeOf(stored.view.dtype));
      const Tensor aligned = row.As(stored.view.dtype, {rank});
      const Tensor from = stored.view[h * height + i];
      __builtin_memcpy(aligned.data, from.data, static_cast<size_t>(from.SizeBytes()));
      for (int64_t r = 0; r < rank; ++r) {
        keys[static_cast<size_t>(r * mla.nope_dim + i)] = ReadElement(aligned, r);
      }
    }
    const Tensor key_part = View(keys, {rank, mla.nope_dim});
    const Tensor value_part = stored.view.Slice(h * height + mla.nope_dim, (h + 1) * height);
    out.absorbed_keys.emplace_back().matrix = ops_.linear->Pack({&key_part, 1}, dtype_);
    out.absorbed_values.emplace_back().matrix = ops_.linear->Pack({&value_part, 1}, dtype_);
    bytes_ += out.absorbed_keys.back().matrix->bytes();
    bytes_ += out.absorbed_values.back().matrix->bytes();
  }
  return {};
}

void WeightLoader::PackNumbers(const std::vector<float>& numbers, int64_t rows, int64_t columns,
                               Linear& out) {
  const Tensor view = View(numbers, {rows, columns});
  out.matrix = ops_.linear->Pack({&view, 1}, dtype_);
  bytes_ += out.matrix->bytes();
}

Status WeightLoader::Load(const CrossSpec& spec, int64_t kv_heads, CrossWeights& out) {
  KVG_TRY(Load(spec.norm, out.norm));
  KVG_TRY(Load(spec.query, out.query));
  KVG_TRY(Load(spec.output, out.output));
  for (const LinearSpec* side : {&spec.keys, &spec.values}) {
    const TensorSpec& stored = side->parts[0];
    const int64_t dim = stored.shape[0] / kv_heads, width = stored.shape[1];
    std::vector<float> numbers;
    KVG_TRY(LoadNumbers(stored, numbers));
    for (int64_t head = 0; head < kv_heads; ++head) {
      const auto first = numbers.begin() + head * dim * width;
      const std::vector<float> own(first, first + dim * width);
      if (side == &spec.keys) {
        PackNumbers(Transposed(own, dim, width), width, dim, out.keys.emplace_back());
      } else {
        PackNumbers(own, dim, width, out.values.emplace_back());
      }
    }
    Release(*side);
  }
  return {};
}

void WeightLoader::Collect(LayerWeights& out) {
  std::vector<const PackedMatrix*> up, down;
  for (const MlpWeights& expert : out.experts) {
    up.push_back(expert.up.matrix.get());
    down.push_back(expert.down.matrix.get());
  }
  out.experts_up = ops_.linear->Collect(std::move(up));
  out.experts_down = ops_.linear->Collect(std::move(down));
  if (out.experts[0].up.bias.empty()) return;
  CollectBiases(out.experts, &MlpWeights::up, out.experts_up_bias);
  CollectBiases(out.experts, &MlpWeights::down, out.experts_down_bias);
}

void WeightLoader::CollectBiases(std::vector<MlpWeights>& experts, Linear MlpWeights::*part,
                                 Norm& out) {
  const int64_t count = std::ssize(experts), size = (experts[0].*part).bias.shape[0];
  out.memory = ops_.memory->Allocate(count * size * SizeOf(DType::kF32));
  out.weight = out.memory.As(DType::kF32, {count, size});
  for (int64_t e = 0; e < count; ++e) {
    Linear& linear = experts[static_cast<size_t>(e)].*part;
    ops_.memory->Copy(linear.bias, out.weight[e]);
    linear.bias = {};
    linear.bias_memory = {};
  }
}

void WeightLoader::Put(const std::vector<float>& numbers, Norm& out) {
  const auto size = std::ssize(numbers);
  out.memory = ops_.memory->Allocate(size * SizeOf(DType::kF32));
  out.weight = out.memory.As(DType::kF32, {size});
  ops_.memory->Copy(View(numbers, {size}), out.weight);
  bytes_ += out.weight.SizeBytes();
}

Status WeightLoader::LoadUnrounded(const TensorSpec& spec, Norm& out) {
  if (spec.name.empty()) return {};
  std::vector<float> numbers;
  KVG_TRY(LoadNumbers(spec, DType::kF32, numbers));
  Put(numbers, out);
  return {};
}

Status WeightLoader::LoadNumber(const TensorSpec& spec, float* out) {
  if (spec.name.empty()) return {};
  std::vector<float> numbers;
  KVG_TRY(LoadNumbers(spec, DType::kF32, numbers));
  *out = numbers.at(0);
  return {};
}

Status WeightLoader::Load(const StateSpec& spec, const StateConfig& state, StateWeights& out) {
  if (state.mixes()) return LoadRwkv(spec, state, out);
  if (state.retains()) return LoadRetention(spec, state, out);
  KVG_TRY(Load(spec.input, out.input));
  const int64_t columns = state.conv_columns(), width = state.conv_width;
  std::vector<float> stored, numbers(static_cast<size_t>((width + 1) * columns));
  KVG_TRY(LoadNumbers(spec.conv, stored));
  std::ranges::copy(Transposed(stored, columns, width), numbers.begin());
  if (!spec.conv_bias.name.empty()) {
    KVG_TRY(LoadNumbers(spec.conv_bias, stored));
    std::copy(stored.begin(), stored.end(), numbers.begin() + width * columns);
  }
  Put(numbers, out.conv);
  if (!spec.conv_bias.name.empty()) {
    out.conv.bias = out.conv.weight.Slice(width * columns, (width + 1) * columns);
  }
  out.conv.weight = out.conv.weight.Slice(0, width * columns);
  KVG_TRY(LoadNumbers(spec.step_bias, numbers));
  Put(numbers, out.step_bias);
  KVG_TRY(LoadNumbers(spec.rates, numbers));
  for (float& number : numbers) number = -std::exp(number);
  if (state.by_column()) numbers = Transposed(numbers, state.heads, state.key_dim);
  Put(numbers, out.rates);
  if (!spec.skip.name.empty()) {
    KVG_TRY(LoadNumbers(spec.skip, numbers));
    Put(numbers, out.skip);
  }
  if (state.delta()) {
    // An RMSNorm divides by the root of a mean, a length is that of a sum; queries are also divided
    // by the root of their width.
    const auto dim = static_cast<float>(state.key_dim);
    Put(std::vector<float>(static_cast<size_t>(state.key_dim), 1.0f / dim), out.query_norm);
    Put(std::vector<float>(static_cast<size_t>(state.key_dim), 1.0f / std::sqrt(dim)),
        out.key_norm);
  }
  KVG_TRY(Load(spec.output, out.output));
  if (state.by_column()) return LoadSelection(spec, state, out);
  return Load(spec.norm, out.norm);
}

Status WeightLoader::Load(const std::vector<MixedSpec>& specs, std::vector<MixedWeights>& out) {
  out.resize(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) KVG_TRY(Load(specs[i], out[i]));
  return {};
}

Status WeightLoader::Load(const MixedSpec& spec, MixedWeights& out) {
  if (!spec.mix.name.empty()) {
    std::vector<float> shares;
    KVG_TRY(LoadNumbers(spec.mix, shares));
    for (float& share : shares) share = spec.own ? 1.0f - share : share;
    Put(shares, out.share);
  }
  return Load(spec.linear, out.linear);
}

Status WeightLoader::LoadMixes(const MixesSpec& spec, int64_t columns, int64_t rank,
                               std::span<MixedWeights* const> out) {
  const int64_t count = std::ssize(spec.order);
  std::vector<float> numbers, biases;
  KVG_TRY(LoadNumbers(spec.shares, numbers));
  for (const TensorSpec& bias : spec.biases) {
    std::vector<float> some;
    KVG_TRY(LoadNumbers(bias, some));
    biases.insert(biases.end(), some.begin(), some.end());
  }
  // [columns, mixes * rank]
  if (spec.by_mix) numbers = Transposed(numbers, count * rank, columns);
  std::vector<float> own(static_cast<size_t>(columns * rank));
  for (int64_t i = 0; i < count; ++i) {
    MixedWeights& mixed = *out[static_cast<size_t>(spec.order[static_cast<size_t>(i)])];
    mixed.narrow = i;
    Linear& made = mixed.made;
    for (int64_t c = 0; c < columns; ++c) {
      std::copy_n(numbers.begin() + (c * count + i) * rank, rank, own.begin() + c * rank);
    }
    PackNumbers(own, columns, rank, made);
    made.bias_memory = ops_.memory->Allocate(columns * SizeOf(DType::kF32));
    made.bias = made.bias_memory.As(DType::kF32, {columns});
    ops_.memory->Copy(View(biases, {count, columns})[i], made.bias);
    bytes_ += made.bias.SizeBytes();
  }
  return {};
}

Status WeightLoader::Load(const MadeKeysSpec& spec, const StateConfig& state, LayerWeights& out) {
  MadeKeysWeights& made = out.made;
  PutRowBefore(state.mixed_columns, out.state.conv);
  for (const auto& [linear, of] : {std::pair{&spec.down, &made.down}, {&spec.up, &made.up}}) {
    KVG_TRY(Load(*linear, *of));
  }
  for (const auto& [mixed, of] : {std::pair{&spec.narrow_query, &made.narrow_query},
                                  {&spec.query, &made.query},
                                  {&spec.narrow, &made.narrow}}) {
    KVG_TRY(Load(*mixed, *of));
  }
  made.made.resize(spec.first.size());
  for (size_t i = 0; i < spec.first.size(); ++i) KVG_TRY(Load(spec.first[i], made.made[i].linear));
  KVG_TRY(Load(spec.second, made.second));
  MixedWeights* const query[] = {&made.query};
  MixedWeights* const both[] = {&made.made[0], &made.made[1]};
  KVG_TRY(LoadMixes(spec.query_mix, state.mixed_columns, state.mix_rank, query));
  KVG_TRY(LoadMixes(spec.mixes, state.mixed_columns, state.mix_rank, both));
  for (const auto& [norm, of] : {std::pair{&spec.query_norm, &made.query_norm},
                                 {&spec.key_norm, &made.norms[0]},
                                 {&spec.value_norm, &made.norms[1]},
                                 {&spec.output_norm, &made.output_norm}}) {
    KVG_TRY(Load(*norm, *of));
  }
  return {};
}

Status WeightLoader::LoadRetention(const StateSpec& spec, const StateConfig& state,
                                   StateWeights& out) {
  KVG_TRY(Load(spec.input, out.input));
  KVG_TRY(Load(spec.norm, out.norm));
  std::vector<float> rates;
  for (int64_t head = 0; head < state.heads; ++head) {
    // RetNet: head h keeps 1 - 2^-(5 + h) of its state in a row. Otherwise of a step of one.
    const double rate = std::log1p(-std::exp2(-5.0 - static_cast<double>(head)));
    rates.push_back(state.gates_retention() ? -1.0f / 16.0f : static_cast<float>(rate));
  }
  if (state.gates_retention()) {
    Put(std::vector<float>(static_cast<size_t>(state.value_dim), 1.0f), out.norm);
  }
  Put(rates, out.rates);
  Put(std::vector<float>(rates.size()), out.step_bias);
  return Load(spec.output, out.output);
}

// A convolution that gives the row before, as it is.
void WeightLoader::PutRowBefore(int64_t columns, Norm& out) {
  std::vector<float> taps(static_cast<size_t>(2 * columns));
  std::fill_n(taps.begin(), columns, 1.0f);
  Put(taps, out);
}

Status WeightLoader::LoadRwkv(const StateSpec& spec, const StateConfig& state, StateWeights& out) {
  std::vector<float> numbers;
  PutRowBefore(state.mixed_columns, out.conv);
  KVG_TRY(Load(spec.mixed, out.mixed));
  KVG_TRY(Load(spec.output, out.output));
  if (state.kind == StateConfig::Kind::kRwkv4) {
    // The reference keeps these two f32, whatever the model computes in.
    KVG_TRY(LoadNumbers(spec.rates, DType::kF32, numbers));
    for (float& number : numbers) number = -std::exp(number);
    Put(numbers, out.rates);
    return LoadUnrounded(spec.first, out.first);
  }
  for (const auto& [linear, of] : {std::pair{&spec.decays, &out.decays},
                                   {&spec.writes, &out.writes},
                                   {&spec.gates, &out.gates},
                                   {&spec.values, &out.values}}) {
    KVG_TRY(Load(*linear, *of));
  }
  for (const auto& [vector, of] : {std::pair{&spec.first, &out.first},
                                   {&spec.find_scale, &out.find_scale},
                                   {&spec.key_scale, &out.key_scale}}) {
    if (vector->name.empty()) continue;
    KVG_TRY(LoadNumbers(*vector, numbers));
    Put(numbers, *of);
  }
  if (state.makes_mixes()) {
    KVG_TRY(Load(spec.narrow, out.narrow));
    std::vector<MixedWeights*> mixed;
    for (MixedWeights& own : out.mixed) mixed.push_back(&own);
    KVG_TRY(LoadMixes(spec.mixes, state.mixed_columns, state.mix_rank, mixed));
    return Load(spec.norm, out.norm);
  }
  // An RMSNorm divides by the root of a mean, a length is that of a sum.
  const float root = std::sqrt(static_cast<float>(state.key_dim));
  Put(std::vector<float>(static_cast<size_t>(state.key_dim), 1.0f / root), out.query_norm);
  return Load(spec.norm, out.norm);
}

Status WeightLoader::LoadSelection(const StateSpec& spec, const StateConfig& state,
                                   StateWeights& out) {
  KVG_TRY(Load(spec.selected, out.selected));
  KVG_TRY(Load(spec.step_input, out.step_input));
  if (state.part_norms == StateConfig::PartNorms::kPlain) {
    const auto ones = [&](int64_t size, Norm& norm) {
      Put(std::vector<float>(static_cast<size_t>(size), 1.0f), norm);
    };
    ones(state.step_rank, out.step_norm);
    ones(state.key_dim, out.key_norm);
    ones(state.key_dim, out.query_norm);
  }
  KVG_TRY(Load(spec.step_norm, out.step_norm));
  KVG_TRY(Load(spec.key_norm, out.key_norm));
  return Load(spec.query_norm, out.query_norm);
}

Status WeightLoader::LoadNumbers(const TensorSpec& spec, DType rounded, std::vector<float>& out) {
  WeightTensor stored;
  KVG_TRY(Load(spec, stored));
  const int64_t size = stored.view.Numel();
  // Through aligned host memory: the file promises nothing.
  const Buffer aligned = HostBuffer(stored.view.SizeBytes());
  const Tensor raw = aligned.As(stored.view.dtype, {size});
  __builtin_memcpy(raw.data, stored.view.data, static_cast<size_t>(stored.view.SizeBytes()));
  out.resize(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i)
    out[static_cast<size_t>(i)] = Rounded(rounded, ReadElement(raw, i));
  return {};
}

Status WeightLoader::LoadVector(const TensorSpec& spec, Tensor out, float added) {
  std::vector<float> numbers;
  KVG_TRY(LoadNumbers(spec, numbers));
  if (added != 0.0f) {
    for (float& x : numbers) x = Rounded(dtype_, x + added);
  }
  ops_.memory->Copy(View(numbers, {std::ssize(numbers)}), out);
  bytes_ += out.SizeBytes();
  return {};
}

}  // namespace kvgauge
